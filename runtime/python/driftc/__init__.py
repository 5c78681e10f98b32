"""driftc compiles neural networks ahead of time for GPUs, and runs the compiled bundles.

    import driftc, numpy as np

    driftc.compile("model.onnx", "model.drift", targets=["nvidia-hopper", "lavapipe"], precision="f16")
    with driftc.Session("model.drift") as session:
        outputs = session.run({"image": np.zeros((1, 3, 224, 224), np.float32)})

Language models answer in text, and sentence-embedding models compute vectors of texts:

    with driftc.Chat("smollm2.drift") as chat:
        for piece in chat.say("What is the capital of France?"):
            print(piece, end="", flush=True)
    with driftc.Embedder("minilm.drift") as embedder:
        vectors = embedder.embed(["A man eats.", "Someone has a meal."])

Diffusion models make pictures:

    with driftc.ImagePipeline("sd.drift") as pipeline:
        pixels = pipeline("a red cat on a dog", seed=7).pixels

Speech recognition models write the text of recordings:

    with driftc.Transcriber("whisper.drift") as transcriber:
        for segment in transcriber.stream("talk.flac"):
            print(f"{segment.start:.1f} s: {segment.text}")

Inputs are numpy arrays, or objects that support DLPack (``torch``, ``jax``). Outputs are numpy arrays; other libraries import
them through DLPack (``torch.from_dlpack``). Errors are :class:`Error` (a ``RuntimeError`` with ``message``, ``reasons`` and
``help``), ``TypeError`` for an array of the wrong type, and ``ValueError`` for an array of the wrong shape.
"""

from ._native import DeviceArray, Error, Ticket
from .chat import Answer, Chat, Usage
from .compiler import compile, inspect, targets, verify
from .generator import Generated, Generator
from .pictures import ImagePipeline, ImageStep, Picture
from .session import Port, Session, open_together
from .speech import Segment, Transcriber, Transcript, Transcription, Word
from .text import Embedder, Tokenizer, attachment

#: Version of the package and of the program.
__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Chat",
    "DeviceArray",
    "Embedder",
    "Error",
    "Generated",
    "Generator",
    "ImagePipeline",
    "ImageStep",
    "Picture",
    "Port",
    "Segment",
    "Session",
    "Ticket",
    "Tokenizer",
    "Transcriber",
    "Transcript",
    "Transcription",
    "Usage",
    "Word",
    "__version__",
    "attachment",
    "compile",
    "inspect",
    "open_together",
    "targets",
    "verify",
]
