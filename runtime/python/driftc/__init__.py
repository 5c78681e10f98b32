"""driftc compiles neural networks ahead of time for GPUs, and runs what it compiled.

    import driftc, numpy as np

    driftc.compile("model.onnx", "model.drift", targets=["nvidia-hopper", "lavapipe"], precision="f16")
    with driftc.Session("model.drift") as session:
        outputs = session.run({"image": np.zeros((1, 3, 224, 224), np.float32)})

Arrays are numpy's, or anything that hands out its memory through DLPack (``torch``, ``jax``). Outputs are numpy arrays, which
DLPack takes back (``torch.from_dlpack``). Refusals are :class:`Error` (a ``RuntimeError``), ``TypeError`` where the type of an
array is at fault, and ``ValueError`` where its shape is; each says where, why, and what to do.
"""

from ._native import DeviceArray, Error, Ticket
from .compiler import compile, inspect, targets, verify
from .generator import Generated, Generator
from .session import Port, Session, open_together

#: The version of the package and of the program.
__version__ = "0.1.0"

__all__ = [
    "DeviceArray",
    "Error",
    "Generated",
    "Generator",
    "Port",
    "Session",
    "Ticket",
    "__version__",
    "compile",
    "inspect",
    "open_together",
    "targets",
    "verify",
]
