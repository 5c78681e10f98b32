"""Sessions: bundles loaded on a device, with arrays as inputs and outputs."""

from __future__ import annotations

import os
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Callable, Iterable, Mapping, Sequence

import numpy as np

from ._declarations import Handle, PortStruct, StatsStruct, SymbolStruct, TimeStruct, ViewStruct
from ._native import (
    DTYPE_NUMBERS,
    DTYPES,
    DeviceArray,
    Error,
    LoadOptions,
    Memory,
    Owner,
    Ticket,
    calls,
    check,
    dims,
    failure,
    open_owners,
)

_NUMPY = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "f64": np.dtype(np.float64),
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
}


def _numpy_type(name: str) -> np.dtype:
    if name in _NUMPY:
        return _NUMPY[name]
    try:
        import ml_dtypes  # numpy has no bfloat16
    except ImportError:
        raise Error("bf16 arrays need the package ml_dtypes; run pip install ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class Port:
    """An input or output of a function."""

    name: str
    #: Element type of the arrays that the caller passes or receives: f32, i64, ...
    type: str
    #: Element type on the device: f32, f16, i32 or u32.
    device_type: str
    #: Minimum and maximum shape of the arrays; equal if all sizes are fixed.
    min_shape: tuple[int, ...]
    max_shape: tuple[int, ...]
    #: The numpy type for `type`.
    dtype: np.dtype = field(init=False, compare=False)
    text: bytes = field(init=False, compare=False, repr=False)
    code: int = field(init=False, compare=False, repr=False)
    is_static: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Computed once, because every run uses them.
        for name, value in (
            ("dtype", _numpy_type(self.type)),
            ("text", self.name.encode()),
            ("code", DTYPE_NUMBERS[self.type]),
            ("is_static", self.min_shape == self.max_shape),
        ):
            object.__setattr__(self, name, value)


_write, _run, _read = calls["write"], calls["run"], calls["read"]


@dataclass(frozen=True)
class _Function:
    name: bytes
    inputs: dict[str, Port]
    outputs: dict[str, Port]
    symbols: dict[str, tuple[int, int]]
    names: list[str]


class Session:
    """A bundle loaded on a device, ready to run.

    Use it as a context manager, or :meth:`close` it. One thread at a time uses a session: a call while another thread is in a
    call for the session raises :class:`Error`. Different sessions run on different threads at the same time; calls release
    the GIL.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str],
        *,
        device: str | None = None,
        target: str | None = None,
        pipeline_cache: str | os.PathLike[str] | bool | None = True,
        frames: int = 1,
        trust_file: bool = False,
        progress: Callable[[int, int], object] | None = None,
        trusted_keys: Sequence[str] | None = None,
    ) -> None:
        """Loads a bundle.

        :param device: part of a device name, or a device index (default: the preferred device).
        :param target: target of the variant to use (default: the variant that fits best).
        :param pipeline_cache: file that caches the driver's compiled pipelines between starts (default: a file in the cache
            folder of the program ``driftc``); False for no file.
        :param frames: maximum number of runs in flight, see :meth:`submit`.
        :param trust_file: skip hash verification of weights and shaders.
        :param progress: callback for the progress of loading. It receives the number of pipelines that are created (their
            shaders are compiled) and the number of all pipelines. Threads of the library call it, one at a time.
        :param trusted_keys: public keys in minisign's format, each a base64 line or the text of a key file. Only bundles that
            one of them signed are loaded, none if the list is empty (default: all bundles).
        """
        options = LoadOptions(device, target, pipeline_cache, frames, trust_file, progress, trusted_keys)
        self._attach(open_owners([os.fspath(bundle)], options)[0])

    def _attach(self, owner: Owner) -> None:
        self._owner: Owner | None = owner
        self._handle = owner.handle
        self._functions: dict[str, _Function] = {}
        for name in owner.functions():
            text = name.encode()
            inputs, outputs = (_ports(owner, text, direction) for direction in (0, 1))
            symbols = owner.describe_all("symbol", SymbolStruct, text)
            bounds = {symbol.name.decode(): (symbol.min, symbol.max) for symbol in symbols}
            self._functions[name] = _Function(text, inputs, outputs, bounds, list(outputs))

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the session. Arrays that :meth:`input` and :meth:`output` returned remain valid."""
        # Id 0 is no session, so later calls fail with the library's message.
        self._owner, self._handle = None, Handle(0)

    @property
    def functions(self) -> list[str]:
        """Names of the functions."""
        return list(self._functions)

    def inputs(self, function: str = "main") -> list[Port]:
        """Returns the inputs of a function."""
        return list(self._function(function).inputs.values())

    def outputs(self, function: str = "main") -> list[Port]:
        """Returns the outputs of a function."""
        return list(self._function(function).outputs.values())

    def symbols(self, function: str = "main") -> dict[str, tuple[int, int]]:
        """Returns names and bounds of the symbols: sizes that are known only at run time."""
        return dict(self._function(function).symbols)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the source model by key: the ``metadata_props`` of an ONNX file, the ``general.*`` strings of a
        GGUF file, and ``labels``: the labels of the classes, one a line."""
        return self._open().metadata()

    @property
    def device(self) -> str:
        """Name of the device."""
        return self._open().name("device_name")

    @property
    def target(self) -> str:
        """Target of the bundle's variant in use."""
        return self._open().name("target")

    def stats(self) -> dict[str, int]:
        """Returns the numbers of pipelines, memory allocations and allocated bytes. They do not change after loading."""
        stats = StatsStruct()
        check(calls["stats"](self._handle, byref(stats)))
        return {name: getattr(stats, name) for name, _ in StatsStruct._fields_}

    def set_symbol(self, name: str, value: int, function: str = "main") -> None:
        """Sets the value of a symbol that no input shape determines. The value applies to all runs until it is set again."""
        check(calls["set_symbol"](self._handle, function.encode(), name.encode(), value))

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        function: str = "main",
    ) -> dict[str, np.ndarray]:
        """Runs a function and returns its outputs by name.

        :param inputs: an array for each input; omitted inputs keep their values.
        :param outputs: names of the outputs to copy to the host and return (default: all).
        """
        described = self._function(function)
        self.write(inputs, function=function)
        if outputs is None:
            check(_run(self._handle, described.name))
            return {name: self._copy(described, port) for name, port in described.outputs.items()}
        self.wait(self.submit(None, outputs, function=function))
        return {name: self._copy(described, self._output(described, name)) for name in outputs}

    def run_timed(self, *, function: str = "main") -> list[tuple[str, float, float]]:
        """Runs a function on the written inputs. Returns the node of the model, the start and the end of each dispatch, in
        nanoseconds since the start of the run."""
        described, capacity, count = self._function(function), 64, c_size_t(64)
        while True:
            times = (TimeStruct * capacity)()
            check(calls["run_timed"](self._handle, described.name, times, capacity, byref(count)))
            if count.value <= capacity:
                return [(time.label.decode(), time.start_ns, time.end_ns) for time in times[: count.value]]
            capacity = count.value

    def reset_states(self) -> None:
        """Sets all states of the session to zero, as after loading."""
        check(calls["reset_states"](self._handle))

    def self_test(self) -> int:
        """Runs the bundle's self-test and compares the outputs with the outputs of the CPU reference. Returns the number of test
        vectors: 0 if the bundle has none. Raises :class:`Error` with the name of the first output that differs. All states are
        zero afterwards."""
        vectors = c_size_t()
        check(calls["self_test"](self._handle, byref(vectors)))
        return vectors.value

    def write(self, inputs: Mapping[str, Any], *, function: str = "main") -> None:
        """Writes inputs by name. They keep their values for all runs until they are written again. Values are numpy arrays of
        the port's type in any memory order, objects that support DLPack, lists of numbers, or :class:`DeviceArray`."""
        described = self._function(function)
        for name, value in inputs.items():
            port = described.inputs.get(name)
            if port is None:
                raise Error(f"function `{function}` has no input `{name}`; there are: {', '.join(described.inputs)}")
            if isinstance(value, DeviceArray):
                status = calls["feed"](self._handle, described.name, port.text, value._handle)
            else:
                array = _array(name, value, port.dtype)
                address, shape = array.__array_interface__["data"][0], array.shape
                rank, bytes = len(shape), array.nbytes
                status = _write(self._handle, described.name, port.text, port.code, dims(shape), rank, address, bytes)
            if status:
                error = failure()
                if "takes shape" in error.message or "dimension" in error.message:
                    raise ValueError(str(error))
                raise error

    def submit(
        self,
        inputs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] | None = None,
        *,
        function: str = "main",
    ) -> Ticket:
        """Starts a run and returns without waiting for it; :meth:`collect` waits for the run. If all frames are in flight, the
        call waits for the oldest run, whose outputs are lost."""
        described = self._function(function)
        self.write(inputs or {}, function=function)
        names = described.names if outputs is None else outputs
        encoded = (c_char_p * len(names))(*[name.encode() for name in names])
        ticket = Handle()
        check(calls["submit"](self._handle, described.name, encoded, len(names), byref(ticket)))
        return Ticket(ticket, function)

    def wait(self, ticket: Ticket) -> None:
        """Waits for the end of a submitted run."""
        check(calls["wait"](self._handle, ticket._handle))

    def collect(self, ticket: Ticket, outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Waits for a submitted run and returns its outputs by name.

        :param outputs: names of the outputs to return (default: all outputs).
        """
        self.wait(ticket)
        described = self._function(ticket.function)
        names = described.names if outputs is None else outputs
        found = {}
        for name in names:
            port = self._output(described, name)
            found[name] = self.output(name, ticket).astype(port.dtype)
        return found

    def input(self, name: str, shape: Sequence[int] | None = None, *, function: str = "main") -> np.ndarray:
        """Returns the transfer memory of an input, as an array of the device type. Fill the array before the next run.

        The input counts as written from this call on. Call this method again for each run with other values. Reading the array
        may be slow.

        :param shape: shape of the input, if sizes are known only at run time (default: the maximum shape).
        """
        described = self._function(function)
        port = described.inputs.get(name)
        if port is None:
            raise Error(f"function `{function}` has no input `{name}`; there are: {', '.join(described.inputs)}")
        sizes = tuple(port.max_shape if shape is None else shape)
        memory, size = c_void_p(), c_size_t()
        arguments = (self._handle, described.name, port.text, dims(sizes), len(sizes), byref(memory), byref(size))
        check(calls["input"](*arguments))
        return np.asarray(Memory(self._open(), memory.value or 0, sizes, _NUMPY[port.device_type].str, False))

    def output(self, name: str, ticket: Ticket | None = None, *, function: str = "main") -> np.ndarray:
        """Returns an output in transfer memory, which host and device both access, as a read-only array of the device type. The
        next run overwrites the array.

        :param ticket: a run that was waited for (default: the function's last run).
        """
        described = self._function(function if ticket is None else ticket.function)
        port, view = self._output(described, name), ViewStruct()
        if ticket is None:
            check(calls["output"](self._handle, described.name, port.text, byref(view)))
        else:
            check(calls["output_of"](self._handle, ticket._handle, port.text, byref(view)))
        shape, typestr = view.shape[: view.rank], _NUMPY[DTYPES[view.device_dtype]].str
        return np.asarray(Memory(self._open(), view.bytes or 0, shape, typestr, True))

    def device_output(self, name: str, *, function: str = "main") -> DeviceArray:
        """Returns an output of the function's last run in device memory. It can be an input of this session, or of a session
        that was opened together with it. The run may be in flight."""
        described = self._function(function)
        port, array = self._output(described, name), Handle()
        check(calls["device_output"](self._handle, described.name, port.text, byref(array)))
        return DeviceArray(array, port.device_type)

    def deliver(self, name: str, to: DeviceArray, *, function: str = "main") -> None:
        """Copies an output of the function's last run to a device array, and waits for the copy."""
        described = self._function(function)
        port = self._output(described, name)
        check(calls["deliver"](self._handle, described.name, port.text, to._handle))

    def share(self, dtype: str, shape: Sequence[int]) -> tuple[DeviceArray, int]:
        """Allocates device memory that other APIs can import. Returns the array and an opaque file descriptor for CUDA, OpenCL
        or another process."""
        array, descriptor = Handle(), c_int(-1)
        number = DTYPE_NUMBERS.get(dtype, len(DTYPE_NUMBERS))
        check(calls["share_fd"](self._handle, number, dims(shape), len(shape), byref(array), byref(descriptor)))
        return DeviceArray(array, dtype), descriptor.value

    def import_fd(
        self, descriptor: int, dtype: str, shape: Sequence[int], *, allocation: int = 0
    ) -> DeviceArray:
        """Imports device memory of another API or process as an array, by an opaque file descriptor. The session takes ownership
        of the descriptor.

        :param allocation: byte size of the exported allocation, if it is larger than the array.
        """
        array, number = Handle(), DTYPE_NUMBERS.get(dtype, len(DTYPE_NUMBERS))
        arguments = (self._handle, descriptor, allocation, number, dims(shape), len(shape), byref(array))
        check(calls["import_fd"](*arguments))
        return DeviceArray(array, dtype)

    def _open(self) -> Owner:
        if self._owner is None:
            raise Error("the session is closed")
        return self._owner

    def _function(self, name: str) -> _Function:
        found = self._functions.get(name)
        if found is None:
            raise Error(f"no function `{name}`; there are: {', '.join(self._functions)}")
        return found

    def _output(self, described: _Function, name: str) -> Port:
        port = described.outputs.get(name)
        if port is None:
            known = ", ".join(described.outputs)
            raise Error(f"function `{described.name.decode()}` has no output `{name}`; there are: {known}")
        return port

    def _copy(self, described: _Function, port: Port) -> np.ndarray:
        """Returns a copy of an output of the function's last run."""
        shape: Sequence[int] = port.max_shape
        if not port.is_static:
            view = ViewStruct()
            check(calls["output"](self._handle, described.name, port.text, byref(view)))
            shape = view.shape[: view.rank]
        array = np.empty(shape, port.dtype)
        address = array.__array_interface__["data"][0]
        check(_read(self._handle, described.name, port.text, address, array.nbytes))
        return array


def _ports(owner: Owner, function: bytes, direction: int) -> dict[str, Port]:
    found = {}
    for port in owner.describe_all("port", PortStruct, function, direction):
        bounds = (tuple(shape[: port.rank]) for shape in (port.min_shape, port.max_shape))
        name = port.name.decode()
        found[name] = Port(name, DTYPES[port.dtype], DTYPES[port.device_dtype], *bounds)
    return found


def open_together(
    bundles: Iterable[str | os.PathLike[str]],
    *,
    device: str | None = None,
    target: str | None = None,
    frames: int = 1,
    trusted_keys: Sequence[str] | None = None,
) -> list[Session]:
    """Loads several bundles on one device, so that outputs of one session can be inputs of another without a copy to the host."""
    sessions = []
    options = LoadOptions(device, target, frames=frames, trusted_keys=trusted_keys)
    for owner in open_owners([os.fspath(bundle) for bundle in bundles], options):
        session = Session.__new__(Session)
        session._attach(owner)
        sessions.append(session)
    return sessions


def _array(name: str, value: Any, dtype: np.dtype) -> np.ndarray:
    """Converts a value to a numpy array of this type in C order."""
    if not isinstance(value, np.ndarray):
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16:
            # DLPack cannot pass bf16 to numpy, so the bits are passed as integers.
            value = np.from_dlpack(value.detach().cpu().contiguous().view(torch.int16)).view(_numpy_type("bf16"))
        elif hasattr(value, "__dlpack__"):
            try:
                value = np.from_dlpack(value)
            except (BufferError, RuntimeError, ValueError) as error:
                raise TypeError(f"`{name}`: the CPU cannot access its memory ({error}); copy it to the CPU") from None
        elif isinstance(value, np.generic):
            value = np.asarray(value)
        else:
            value = np.asarray(value, dtype)
    if value.dtype != dtype:
        raise TypeError(f"`{name}` takes {dtype}, but the array given is {value.dtype}; convert it with .astype(\"{dtype}\")")
    return value if value.flags.c_contiguous else np.ascontiguousarray(value)
