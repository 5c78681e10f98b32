"""driftc compiles neural networks ahead of time for GPUs, and runs the compiled bundles.

    import driftc, numpy as np

    driftc.compile("model.onnx", "model.drift", targets=["nvidia-hopper", "lavapipe"], precision="f16")
    with driftc.Session("model.drift") as session:
        outputs = session.run({"image": np.zeros((1, 3, 224, 224), np.float32)})

Inputs are numpy arrays, or objects that support DLPack (``torch``, ``jax``). Outputs are numpy arrays; other libraries import
them through DLPack (``torch.from_dlpack``). Errors are :class:`Error` (a ``RuntimeError``), ``TypeError`` for an array of the
wrong type, and ``ValueError`` for an array of the wrong shape. Each message says where, why, and what to do.
"""

from ._native import DeviceArray, Error, Ticket
from .compiler import compile, inspect, targets, verify
from .generator import Generated, Generator
from .session import Port, Session, open_together

#: Version of the package and of the program.
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
