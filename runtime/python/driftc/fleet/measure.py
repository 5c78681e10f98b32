"""Measurements on nodes that have a device: a node advertises the resource `target:NAME`, for example with
`ray start --resources='{"target:adreno-750": 1}'`."""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Sequence

from .._native import Error
from ..compiler import program
from . import cluster
from .actions import Action, list_actions
from .progress import Progress

KINDS = ("tune", "calibrate", "check")
#: Options of `driftc compile` that `driftc tune` does not have, with their number of values.
NOT_FOR_TUNING = {"-t": 1, "-o": 1, "--tuning": 1, "--specialize": 1, "--optimize": 0}


@dataclass
class Task:
    """Commands for one device, whose results are one file or messages."""

    name: str
    target: str
    #: Arguments of driftc. `{out}` is the file of the result, `{bundles}` the folder of the bundles.
    commands: list[list[str]]
    #: File of the result in the folder `measured`, if there is one.
    result: str | None
    bundles: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Measured:
    task: str
    result: str | None
    contents: bytes
    errors: list[str]


def measure_on_node(task: Task) -> Measured:
    """Runs the commands of a task. A command that fails stops no other."""
    errors = []
    with tempfile.TemporaryDirectory(prefix="driftc-fleet-") as scratch:
        out = Path(scratch, "result")
        for name, contents in task.bundles.items():
            Path(scratch, name).write_bytes(contents)
        for arguments in task.commands:
            words = [word.replace("{out}", str(out)).replace("{bundles}", scratch) for word in arguments]
            done = subprocess.run([program(), *words], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                errors.append(f"driftc {' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
        return Measured(task.name, task.result, out.read_bytes() if out.exists() else b"", errors)


def measure(args: argparse.Namespace, options: Sequence[str]) -> int:
    """Measures on the devices of the cluster. Writes the files to the folder `measured` next to the bundles. Returns 1 if a
    command failed."""
    actions = list_actions(Path(cluster.manifest_on_workers(args.manifest, args.upload)), options)
    tasks = [task for kind in args.measure for task in _tasks(kind, actions, args.minutes)]
    folder = actions[0].output.parent / "measured"
    progress = Progress([], args.json)
    failed = False

    def finished(measured: Measured, seconds: float) -> None:
        nonlocal failed
        failed |= bool(measured.errors)
        for error in measured.errors:
            progress.note(f"failed: {measured.task}: {error}")
        path = None
        if measured.result is not None and measured.contents:
            path = folder / measured.result
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(measured.contents)
        progress.event(event="measured", task=measured.task, file=path and str(path), errors=measured.errors)
        if not args.json:
            progress.note(f"{measured.task}: {path or 'done'} in {seconds:.1f} s")

    with cluster.connected(args.address, args.workers, args.upload) as ray:
        known = ray.cluster_resources()
        owned = [task for task in tasks if f"target:{task.target}" in known]
        for target in sorted({task.target for task in tasks} - {task.target for task in owned}):
            progress.note(f"skipped: no node has the resource target:{target}")
        if not owned:
            help = "start a node with ray start --resources='{\"target:NAME\": 1}'"
            raise Error("no node of the cluster has a device of the manifest", help=help)
        resources = lambda task: {"num_cpus": 0, "resources": {f"target:{task.target}": 1}}  # noqa: E731
        cluster.run(ray, measure_on_node, owned, finished, retries=args.retries, options=resources)
    return int(failed)


def _tasks(kind: str, actions: Sequence[Action], minutes: float) -> list[Task]:
    """Returns the tasks of one kind, one for each target."""
    by_target: dict[str, list[Action]] = {}
    for action in actions:
        for target in action.targets:
            by_target.setdefault(target, []).append(action)
    tasks = []
    for target, own in by_target.items():
        name = Path(target).stem if target.endswith(".toml") else target
        task = Task(f"{kind} {name}", name, [], None)
        if kind == "calibrate":
            task.result = f"{name}.calibration.txt"
            task.commands = [["calibrate", "-t", target, "-o", "{out}", "--limit", str(max(1, round(minutes)))]]
        elif kind == "tune":
            task.result = f"{name}.tuning.txt"
            seconds = max(1, round(minutes * 60 / len(own)))
            tune = [[*_model_words(action.command), "-t", target] for action in own]
            unique = {tuple(words): None for words in tune}
            task.commands = [["tune", *words, "-o", "{out}", "--budget", str(seconds)] for words in unique]
        else:
            task.commands = [["check", f"{{bundles}}/{action.output.name}", "--self-test"] for action in own]
            task.bundles = {action.output.name: _bundle(action) for action in own}
        tasks.append(task)
    return tasks


def _bundle(action: Action) -> bytes:
    try:
        return action.output.read_bytes()
    except OSError as error:
        raise Error(f"cannot read {action.output}: {error}", help="build the bundles before --measure check") from error


def _model_words(command: Sequence[str]) -> list[str]:
    """Returns the model and its options from the words of a `driftc compile` command."""
    words, kept = iter(command[2:]), []
    for word in words:
        values = NOT_FOR_TUNING.get(word)
        if values is None:
            kept.append(word)
        for _ in range(values or 0):
            next(words, None)
    return kept
