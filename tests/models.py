#!/usr/bin/env python3
"""Compiles ONNX files, runs them at two sizes and holds results and times against onnxruntime.

    models.py [--driftc PROGRAM] [-t TARGET] [--options FILE] [--repeat N] [--seconds N] FILE_OR_FOLDER...

Symbolic sizes stay symbolic within the bounds that the compiler chooses or is given; every file runs at two values of
each. A folder is searched for .onnx files. Lines of the options file say what a file needs, by a pattern of its path:

    */silero_vad.onnx  --const sr=16000
    */rec.onnx         --dim width=32..320 at width=64,320 input fmin=50

`--dim` and `--const` go to `driftc compile`; `at` gives the two values of a symbol and `input` the value of a small input
(NAME=NUMBER, the whole tensor, or NAME=LOW..HIGH, at random). Other floats are normally distributed, other integers 0 to 9.
Prints a table: status, the largest error over the largest value of the reference, milliseconds of a run, milliseconds of
onnxruntime on the CPU and their ratio, at the larger size. Where numbers are rounded to steps or compared, one rounding
may decide a result: `noise` is an error up to twice what onnxruntime's own results move by when it optimizes less, or
when its weights move by their last bit. Needs numpy, onnx and onnxruntime; exits with 1 unless all match up to that.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort

# Errors up to this part of the reference's largest value are rounding.
TOLERANCE = 2e-3


def options_for(path, lines):
    """The compiler's options, the values of symbols and inputs for a file."""
    flags, at, fixed = [], {}, {}
    for pattern, words in lines:
        if not fnmatch.fnmatch(str(path), pattern):
            continue
        for key, value in zip(words[::2], words[1::2]):
            if key == "at":
                name, values = value.split("=")
                at[name] = [int(v) for v in values.split(",")]
            elif key == "input":
                name, number = value.split("=")
                fixed[name] = number
            else:
                flags += [key, value]
    return flags, at, fixed


def read_options(path):
    if path is None:
        return []
    lines = [shlex.split(l, comments=True) for l in pathlib.Path(path).read_text().splitlines()]
    return [(l[0], l[1:]) for l in lines if l]


def sizes_of(symbols, at):
    """Two values of each symbol within its bounds: multiples of 32 where there are some, and a smaller one."""
    two = []
    for which in (0, 1):
        values = {}
        for symbol in symbols:
            low, high = symbol["min"], symbol["max"]
            large = high // 32 * 32 if high // 32 * 32 >= low else high
            half = (low + large) // 2
            small = half // 32 * 32 if half // 32 * 32 >= low else max(low, half)
            values[symbol["name"]] = at.get(symbol["name"], [large, small])[which]
        two.append(values)
    return two


def evaluate(dim, symbols):
    """The value of a size as the bundle writes it: sums, products, quotients and extremes of numbers and symbols."""
    text = str(dim)
    for name in sorted(symbols, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", str(symbols[name]), text)
    if not set(re.sub(r"\b(max|min)\(", "(", text)) <= set("0123456789+-*/(), "):
        raise RuntimeError(f"the size {dim} is not understood")
    return int(eval(text.replace(" / ", " // ")))  # noqa: S307: numbers and operators only


def array(name, dtype, shape, fixed, rng):
    spec = fixed.get(name)
    if spec and ".." in spec:
        low, high = (float(v) for v in spec.split(".."))
        values = rng.uniform(low, high, shape)
        return np.asarray(np.floor(values) if dtype.kind in "iub" else values).astype(dtype)
    if spec:
        return np.full(shape, float(spec)).astype(dtype)
    if dtype.kind == "f":
        return np.asarray(rng.standard_normal(shape)).astype(dtype)
    return np.asarray(rng.integers(0, 2 if dtype.kind == "b" else 10, shape)).astype(dtype)


def constants(flags):
    """What `--const` pins, which onnxruntime still takes as inputs."""
    pairs = [v for k, v in zip(flags[::2], flags[1::2]) if k == "--const"]
    return dict(pair.split("=", 1) for pair in pairs)


def driftc(program, *arguments, seconds):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        text = [l.strip() for l in done.stderr.splitlines() if l.strip() and not l.startswith("note")]
        raise RuntimeError(" | ".join(text[:4]) or f"driftc ends with {done.returncode}")
    return json.loads(done.stdout) if done.stdout.strip() else {}


def difference(got, want):
    if got.shape != want.shape:
        raise RuntimeError(f"shape {list(got.shape)} instead of {list(want.shape)}")
    if want.size == 0:
        return 0.0
    got, want = got.astype(np.float64), want.astype(np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    scale = max(np.max(np.abs(want[np.isfinite(want)]), initial=0.0), 1e-3)
    return float(np.max(np.where(same, 0.0, np.abs(got - want)), initial=0.0) / scale)


def milliseconds(session, feeds, seconds):
    times, end = [], time.perf_counter() + min(seconds, 2.0)
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 20):
        start = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - start) * 1e3)
    return min(times)


def nudged(path, seed):
    """The model with every weight moved by its last bit, up or down, or not at all."""
    model, rng = onnx.load(str(path)), np.random.default_rng(seed)
    values = [a.t for n in model.graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"]
    scales = {name for n in model.graph.node if n.op_type in ("Resize", "Upsample") for name in n.input[1:]}
    # A single number in a node, or the scale of a picture, may decide a shape.
    weights = [t for t in model.graph.initializer if t.name not in scales]
    for tensor in [*weights, *(v for v in values if np.prod(v.dims) > 8)]:
        if tensor.data_type not in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16):
            continue
        values = onnx.numpy_helper.to_array(tensor)
        ends = np.array([-np.inf, 0, np.inf], values.dtype)[rng.integers(0, 3, values.shape)]
        moved = np.where((ends == 0) | (values == 0), values, np.nextafter(values, ends))
        tensor.CopyFrom(onnx.numpy_helper.from_array(moved.astype(values.dtype), tensor.name))
    return model.SerializeToString()


def noise(path, feeds, expected):
    """The most that onnxruntime's results move by when only its roundings change."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    worst = 0.0
    for model in (str(path), *(nudged(path, seed) for seed in range(3))):
        results = ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"]).run(None, feeds)
        worst = max([worst, *(difference(np.asarray(r), np.asarray(w)) for r, w in zip(results, expected))])
    return worst


def check(path, args, lines, folder):
    flags, at, fixed = options_for(path, lines)
    bundle = folder / "model.drift"
    driftc(args.driftc, "compile", path, "-t", args.target, "-o", bundle, "--json", *flags, seconds=args.seconds)
    variant = driftc(args.driftc, "inspect", bundle, "--json", seconds=60)["variants"][0]
    function = variant["functions"][0]
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    session = ort.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    types = {i.name: i.type for i in session.get_inputs()}
    pinned = constants(flags)
    worst, ours, theirs, rounding = 0.0, None, None, 0.0
    for symbols in sizes_of(function["symbols"], at):
        rng = np.random.default_rng(1)
        feeds, given = {}, []
        for i, port in enumerate(function["inputs"]):
            shape = [evaluate(d, symbols) for d in port["shape"]]
            dtype = np.dtype(TYPES[types[port["name"]]])
            feeds[port["name"]] = array(port["name"], dtype, shape, fixed, rng)
            file = folder / f"input_{i}.npy"
            np.save(file, feeds[port["name"]])
            given += ["-i", f"{i}={file}"]
        for name, value in pinned.items():
            dtype = TYPES[types[name]]
            feeds[name] = np.load(value) if value.endswith(".npy") else np.array(float(value)).astype(dtype)
            shape = next(i.shape for i in session.get_inputs() if i.name == name)
            feeds[name] = feeds[name].reshape([1] * len(shape)) if feeds[name].size == 1 else feeds[name]
        out = folder / "out"
        report = driftc(
            args.driftc, "run", bundle, *given, "-o", out, "--positional", "--repeat", args.repeat, "--json",
            seconds=args.seconds,
        )  # fmt: skip
        expected = session.run(None, feeds)
        for i, want in enumerate(expected):
            worst = max(worst, difference(np.load(out / f"output_{i}.npy"), np.asarray(want)))
        if worst > max(TOLERANCE, rounding):
            rounding = max(rounding, noise(path, feeds, expected))
        if ours is None:
            ours, theirs = report["repeated"]["min_ms"], milliseconds(session, feeds, args.seconds)
        if not function["symbols"]:
            break
    return worst, rounding, ours, theirs


TYPES = {
    "tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(int64)": "int64",
    "tensor(int32)": "int32", "tensor(int16)": "int16", "tensor(int8)": "int8", "tensor(uint8)": "uint8",
    "tensor(uint16)": "uint16", "tensor(uint32)": "uint32", "tensor(uint64)": "uint64", "tensor(bool)": "bool",
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--driftc", default="target/debug/driftc")
    parser.add_argument("-t", "--target", default="lavapipe")
    parser.add_argument("--options")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300.0, help="limit of each step")
    parser.add_argument("paths", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    lines = read_options(args.options)
    files = [f for p in args.paths for f in (sorted(p.rglob("*.onnx")) if p.is_dir() else [p])]
    root = os.path.commonpath([f.resolve().parent for f in files]) if files else ""
    bad = 0
    print(f"{'status':8} {'error':>9} {'ms':>10} {'reference':>10} {'ratio':>7}  name", flush=True)
    for path in files:
        name, columns, reason = os.path.relpath(path.resolve(), root), f"{'':>9} {'':>10} {'':>10} {'':>7}", ""
        with tempfile.TemporaryDirectory() as folder:
            try:
                worst, rounding, ours, theirs = check(path.resolve(), args, lines, pathlib.Path(folder))
                status = "match" if worst <= TOLERANCE else "noise" if worst <= 2 * rounding else "differ"
                reason = f"onnxruntime's own results move by {rounding:.1e}" if rounding else ""
                columns = f"{worst:9.1e} {ours:10.2f} {theirs:10.2f} {ours / theirs:7.1f}"
            except subprocess.TimeoutExpired as e:
                status, reason = "slow", f"{e.cmd[1]} takes over {args.seconds:.0f} s"
            except Exception as e:  # noqa: BLE001: one file's failure is a line of the table
                status, reason = "fail", str(e).splitlines()[0][:600] if str(e) else repr(e)
        bad += status not in ("match", "noise")
        print(f"{status:8} {columns}  {name}" + (f": {reason}" if reason else ""), flush=True)
    print(f"{len(files) - bad} of {len(files)} match")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
