"""Compiling models and inspecting bundles. Each function runs a command of the program `driftc`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

import numpy as np

from ._native import Error


def compile(
    model: Any,
    output: str | os.PathLike[str],
    targets: str | Sequence[str],
    *,
    precision: str = "f32",
    weights: str | None = None,
    dims: Mapping[str, int | tuple[int, int]] | None = None,
    consts: Mapping[str, Any] | None = None,
    like: Mapping[str, Any] | None = None,
    args: Any = None,
    links: Sequence[str] = (),
    self_test: int | None = None,
    sign: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Compiles a model into a bundle, and returns the report of ``driftc compile --json``.

    :param model: path of an ``.onnx`` file, a Hugging Face folder or a ``.gguf`` file; an ``onnx.ModelProto``; or a
        ``torch.nn.Module``, which ``torch.onnx.export`` exports with the example inputs ``args``. A list of ``.onnx`` files
        becomes a bundle with a function for each file.
    :param output: path of the bundle to write.
    :param targets: names of profiles (:func:`targets`) or paths of TOML files.
    :param precision: type of floating-point intermediate tensors: f32, f16 or mixed.
    :param weights: type of the weights of matmuls: f16, q8, q844 or w4[:GROUP].
    :param dims: sizes of symbolic dimensions, each a number or (minimum, maximum).
    :param consts: inputs that become constants: numbers or arrays.
    :param like: example arrays for inputs, whose shapes set the sizes of symbolic dimensions.
    :param self_test: number of self-test vectors, which :meth:`Session.self_test` runs (default: 1 if the CPU reference is
        quick, else 0).
    :param sign: path of the secret key that signs the bundle. The environment variable DRIFTC_KEY_PASSWORD has its password.
    :param links: outputs that stay on the device as inputs: ``"function.output=function.input"``.
    :param options: further options of ``driftc compile``.
    """
    target_names = [targets] if isinstance(targets, str) else targets
    with _Files() as files:
        paths = [os.fspath(path) for path in model] if isinstance(model, (list, tuple)) else [files.model(model, args)]
        command = ["compile", *paths, "-o", os.fspath(output), "--precision", precision, "--json"]
        for target in target_names:
            command += ["-t", os.fspath(target)]
        if weights is not None:
            command += ["--weights", weights]
        if self_test is not None:
            command.append(f"--self-test={self_test}")
        if sign is not None:
            command += ["--sign", os.fspath(sign)]
        for link in links:
            command += ["--link", link]
        command += files.shapes(dims, consts, like)
        return _json([*command, *options])


def verify(
    model: Any,
    target: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    expect: Mapping[str, Any] | None = None,
    precision: str = "f32",
    dims: Mapping[str, int | tuple[int, int]] | None = None,
    consts: Mapping[str, Any] | None = None,
    args: Any = None,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Compiles a model, runs it on this device, and compares the outputs with the CPU reference and with expected arrays.

    Returns the report of ``driftc verify --json``, whether the outputs are equal or not. Raises :class:`driftc.Error` if the
    model does not compile or run.
    """
    with _Files() as files:
        command = ["verify", files.model(model, args), "-t", target, "--precision", precision, "--json"]
        command += files.shapes(dims, consts, None)
        command += files.arrays("--input", inputs) + files.arrays("--expect", expect)
        return _json([*command, *options])


def inspect(bundle: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the contents of a bundle, as ``driftc inspect --json`` prints them."""
    return _json(["inspect", os.fspath(bundle), "--json"])


def targets() -> list[dict[str, Any]]:
    """Returns the built-in target profiles."""
    return _json(["targets", "list", "--json"])


def program() -> str:
    """Returns the path of the program `driftc`: the environment variable DRIFTC, else a file next to the Python interpreter, else
    a program in PATH."""
    beside = Path(sys.executable).with_name("driftc.exe" if os.name == "nt" else "driftc")
    found = os.environ.get("DRIFTC") or (str(beside) if beside.exists() else shutil.which("driftc"))
    if found is None:
        raise Error("the program driftc is neither next to the Python interpreter nor in PATH; reinstall driftc")
    return found


def _json(command: Sequence[str]) -> Any:
    """Runs a command of `driftc` and returns its JSON output, even if the command failed after printing the output."""
    environment = {**os.environ, "DRIFT_ERRORS": "json"}
    done = subprocess.run(
        [program(), *command], capture_output=True, text=True, encoding="utf-8", check=False, env=environment
    )
    with contextlib.suppress(ValueError):
        return json.loads(done.stdout)
    raise _failure(done.stderr) or Error(
        f"driftc {command[0]} ended with exit code {done.returncode} and no message"
    )


def _failure(stderr: str) -> Error | None:
    """Converts what a failed command of `driftc` wrote to standard error: notes, and as the last line the error as JSON.
    Command lines that the program cannot parse give an error as text."""
    *_, last = stderr.strip().splitlines() or [""]
    with contextlib.suppress(ValueError, TypeError, KeyError):
        found = json.loads(last)
        return Error(found["error"], reasons=found["reasons"], help=found["help"])
    text = stderr.strip().removeprefix("error: ")
    return Error(text) if text else None


class _Files(contextlib.AbstractContextManager["_Files"]):
    """Temporary files for a command of `driftc`, which are deleted after the command."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="driftc-")
        self._root = Path(self._folder.name)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()

    def model(self, model: Any, args: Any) -> str:
        """Returns the path of a model, after writing a model in memory to a file."""
        if isinstance(model, (str, os.PathLike)):
            return os.fspath(model)
        path = self._root / "model.onnx"
        if hasattr(model, "SerializeToString"):
            path.write_bytes(model.SerializeToString())
            return str(path)
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(model, torch.nn.Module):
            if args is None:
                raise TypeError("a torch.nn.Module needs example inputs: args=(tensor, ...)")
            torch.onnx.export(model, args if isinstance(args, tuple) else (args,), str(path))
            return str(path)
        raise TypeError(f"a model must be a path, an onnx.ModelProto or a torch.nn.Module, not {type(model).__name__}")

    def shapes(
        self,
        dims: Mapping[str, int | tuple[int, int]] | None,
        consts: Mapping[str, Any] | None,
        like: Mapping[str, Any] | None,
    ) -> list[str]:
        """Returns the command-line options that set sizes and constants."""
        options = []
        for name, size in (dims or {}).items():
            bounds = str(size) if isinstance(size, int) else f"{size[0]}..{size[1]}"
            options += ["--dim", f"{name}={bounds}"]
        return options + self.arrays("--const", consts) + self.arrays("--like", like)

    def arrays(self, option: str, arrays: Mapping[str, Any] | None) -> list[str]:
        """Writes arrays to files, and returns the command-line options that name the files."""
        return [argument for pair in self._arrays(option, arrays or {}) for argument in pair]

    def _arrays(self, option: str, arrays: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for index, (name, array) in enumerate(arrays.items()):
            path = self._root / f"{option.strip('-')}_{index}.npy"
            array = np.from_dlpack(array) if hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray) else array
            np.save(path, np.asarray(array), allow_pickle=False)
            yield option, f"{name}={path}"
