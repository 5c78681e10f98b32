"""The runtime's C interface (`drift.h`) through ctypes, which releases the GIL during each call."""

from __future__ import annotations

import ctypes
import os
from ctypes import byref, c_char_p, c_int, c_size_t
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Sequence

from ._declarations import FUNCTIONS, Handle, Options, Progress
from .pipeline_cache import pipeline_cache_path

REQUEST = 7
#: Names of the element types, in the order of the C enum drift_Dtype.
DTYPES = ["f32", "f16", "bf16", "f64", "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]
#: Number of each element type in the C enum drift_Dtype.
DTYPE_NUMBERS = {name: number for number, name in enumerate(DTYPES)}


class Error(RuntimeError):
    """An error of driftc or its runtime. ``str(error)`` has the message, the reasons and the advice."""

    def __init__(self, message: str, *, reasons: Sequence[str] = (), help: str | None = None) -> None:
        super().__init__(message)
        #: What failed, and where.
        self.message = message
        #: Reasons of the failure, from the outermost to the innermost.
        self.reasons = tuple(reasons)
        #: Advice in terms of the program `driftc`, if there is any that the message does not give.
        self.help = help

    def __str__(self) -> str:
        lines = [self.message, *(f"  {line}" for reason in self.reasons for line in reason.splitlines())]
        return "\n".join(lines if self.help is None else [*lines, f"help: {self.help}"])


def _path() -> str:
    """Returns the path of libdrift: the environment variable DRIFT_LIBRARY, else a file in the folder of this module."""
    given = os.environ.get("DRIFT_LIBRARY")
    if given:
        return given
    here = Path(__file__).parent
    found = sorted(file for file in here.glob("*drift*") if file.suffix in (".so", ".dll", ".pyd", ".dylib"))
    if not found:
        raise ImportError(f"no libdrift in {here}; reinstall driftc, or set DRIFT_LIBRARY to the path of the library")
    return str(found[0])


_library = ctypes.CDLL(_path())
for _name in ("last_error", "last_help"):
    getattr(_library, f"drift_{_name}").restype = c_char_p
    getattr(_library, f"drift_{_name}").argtypes = []
for _name in ("device_name", "target"):
    getattr(_library, f"drift_{_name}").restype = c_char_p
    getattr(_library, f"drift_{_name}").argtypes = [Handle]
for _name, _argument in (("function_name", c_size_t), ("metadata_key", c_size_t), ("metadata", c_char_p)):
    getattr(_library, f"drift_{_name}").restype = c_char_p
    getattr(_library, f"drift_{_name}").argtypes = [Handle, _argument]


def _bound(name: str) -> Any:
    function = getattr(_library, f"drift_{name}")
    function.restype, function.argtypes = c_int, FUNCTIONS[name]
    return function


#: C functions that return a status, by their name without `drift_`.
calls = {name: _bound(name) for name in FUNCTIONS}


def failure() -> Error:
    """Returns the error of the last failed call on this thread, with the library's message and advice."""
    help = _library.drift_last_help()
    return Error((_library.drift_last_error() or b"").decode(), help=None if help is None else help.decode())


def check(status: int) -> None:
    """Raises :class:`Error` if the status of a call is an error."""
    if status:
        raise failure()


class Owner:
    """Owner of a session of the C library. Closes that session when no Python session and no array uses it any more."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    def __del__(self) -> None:
        calls["close"](self.handle)

    def name(self, which: str) -> str:
        return (getattr(_library, f"drift_{which}")(self.handle) or b"").decode()

    def functions(self) -> list[str]:
        names: list[str] = []
        while (name := _library.drift_function_name(self.handle, len(names))) is not None:
            names.append(name.decode())
        return names

    def metadata(self) -> dict[str, str]:
        found: dict[str, str] = {}
        while (key := _library.drift_metadata_key(self.handle, len(found))) is not None:
            found[key.decode()] = (_library.drift_metadata(self.handle, key) or b"").decode()
        return found

    def describe_all(self, call: str, struct: Any, *arguments: Any) -> list[Any]:
        """Calls a C function that describes one item, such as drift_port, for all indices from 0. Returns all items."""
        found: list[Any] = []
        while True:
            item = struct()
            status = calls[call](self.handle, *arguments, len(found), byref(item))
            if status == REQUEST:
                return found
            check(status)
            found.append(item)


@dataclass
class LoadOptions:
    """Options for opening a bundle. :class:`driftc.Session` explains them."""

    device: str | None = None
    target: str | None = None
    pipeline_cache: str | os.PathLike[str] | bool | None = True
    frames: int = 1
    trust_file: bool = False
    progress: Callable[[int, int], object] | None = None
    trusted_keys: Sequence[str] | None = None

    def open(self, bundles: Sequence[str], call: Callable[[Any], int]) -> None:
        """Passes the options as a C struct to a call that opens bundles. Raises the call's error, or the first exception of the
        callback `progress`."""
        raised: list[BaseException] = []

        def report(pipelines: int, total: int, _: object) -> None:
            try:
                if self.progress is not None and not raised:
                    self.progress(pipelines, total)
            except BaseException as error:  # exceptions must not pass through the library
                raised.append(error)

        for bundle in filter(os.path.isdir, bundles):
            raise Error(f"{bundle} is a folder, not a bundle", help="compile it to a bundle with driftc.compile()")
        cache = pipeline_cache_path(bundles, self.pipeline_cache)
        texts = [None if text is None else text.encode() for text in (self.device, self.target)]
        texts.append(None if cache is None else os.fsencode(cache))
        callback = Progress() if self.progress is None else Progress(report)
        keys = (None, 0) if self.trusted_keys is None else _keys(self.trusted_keys)
        check(call(byref(Options(*texts, self.frames, self.trust_file, callback, None, *keys))))
        if raised:
            raise raised[0]


def _keys(keys: Sequence[str]) -> tuple[Any, int]:
    """Returns public keys as a C array that is not null, and their number."""
    if isinstance(keys, str):
        raise TypeError("trusted_keys is a list of keys, not a string")
    return (c_char_p * max(len(keys), 1))(*[key.encode() for key in keys]), len(keys)


def open_owners(bundles: Sequence[str], options: LoadOptions) -> list[Owner]:
    """Loads bundles on one device, and returns an owner for each session."""
    names = (c_char_p * len(bundles))(*[os.fsencode(bundle) for bundle in bundles])
    handles = (Handle * len(bundles))()
    owners: list[Owner] = []

    def call(options: Any) -> int:
        status = calls["open_together"](names, len(bundles), options, handles)
        if not status:
            owners.extend(Owner(Handle(handle.id)) for handle in handles)
        return status

    options.open(bundles, call)
    return owners


def dims(shape: Sequence[int]) -> Any:
    """Returns a shape as a C array."""
    if any(size < 0 for size in shape):
        raise ValueError(f"the shape {tuple(shape)} has a negative size")
    return (c_size_t * len(shape))(*shape)


class Memory:
    """Memory of a session that numpy uses without a copy. This object keeps the session and so the memory alive."""

    def __init__(self, owner: Owner, address: int, shape: Sequence[int], typestr: str, readonly: bool) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3,
            "typestr": typestr,
            "shape": tuple(shape),
            "data": (address, readonly),
        }


class DeviceArray:
    """An array in device memory: an output of a run, or external memory. The array keeps the memory allocated but not the
    contents: later runs overwrite an output."""

    def __init__(self, handle: Handle, dtype: str) -> None:
        self._handle = handle
        #: Element type on the device.
        self.dtype = dtype

    def __del__(self) -> None:
        calls["array_free"](self._handle)


class Ticket:
    """A submitted run."""

    def __init__(self, handle: Handle, function: str) -> None:
        self._handle = handle
        self.function = function
