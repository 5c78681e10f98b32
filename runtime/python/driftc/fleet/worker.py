"""Functions that Ray runs on the workers. A worker needs this package and the program driftc, but no GPU for builds."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..compiler import program


class CompilerDied(RuntimeError):
    """The program driftc ended without a result, for example because the machine has too little memory. Ray tries again."""


@dataclass(frozen=True)
class Task:
    """What a worker builds."""

    name: str
    #: Key that the worker must find. Another key means another compiler or another model file.
    key: str
    #: Path of the manifest on the worker.
    manifest: str
    #: URL of the cache that receives the bundle. Without it, the bundle comes back as bytes.
    shared_cache: str | None


@dataclass
class Outcome:
    """Result of a task."""

    name: str
    #: Name of the machine and process.
    worker: str
    #: Wall time of the task on the worker, in seconds.
    task_seconds: float = 0.0
    #: Wall time of the action in the compiler, in seconds.
    seconds: float = 0.0
    #: The last event of the action: `finished` or `failed`.
    event: dict[str, Any] = field(default_factory=dict)
    #: Record and bundle by file name. Empty with a shared cache.
    files: dict[str, bytes] = field(default_factory=dict)
    #: Reason why the worker cannot build for this cluster.
    unusable: str | None = None


def build(task: Task) -> Outcome:
    """Builds one bundle in a temporary folder."""
    start = time.perf_counter()
    outcome = Outcome(task.name, f"{socket.gethostname()}:{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="driftc-fleet-") as scratch:
        cache = Path(scratch, "cache")
        command = [program(), "build", task.manifest, "--only", task.name, "--output", f"{scratch}/out"]
        command += ["--no-lock", "--jobs", "1", "--json"]
        command += ["--no-cache", "--shared-cache", task.shared_cache] if task.shared_cache else ["--cache-dir", str(cache)]
        # The variable would make a shared cache the default.
        environment = {**os.environ, "DRIFT_SHARED_CACHE": task.shared_cache or ""}
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, env=environment)
        outcome.event = _last_event(done.stdout, task.name)
        if not outcome.event:
            _explain(outcome, done)
        elif outcome.event["event"] == "finished":
            outcome.seconds = outcome.event["seconds"]
            if outcome.event["key"] != task.key:
                outcome.unusable = "its driftc or its model files differ; install the same driftc on all nodes"
            elif not task.shared_cache:
                names = [f"{task.key}.json", f"{outcome.event['bundle']}.drift"]
                outcome.files = {name: (cache / name).read_bytes() for name in names}
    outcome.task_seconds = time.perf_counter() - start
    return outcome


def _last_event(text: str, action: str) -> dict[str, Any]:
    """Returns the event that ends an action, or an empty dictionary."""
    for line in reversed(text.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("action") == action and event.get("event") in ("finished", "failed"):
            return event
    return {}


def _explain(outcome: Outcome, done: subprocess.CompletedProcess[str]) -> None:
    """Fills in why a build has no result. Raises :class:`CompilerDied` if another try may help."""
    if done.returncode < 0 or done.returncode > 100:
        raise CompilerDied(f"{outcome.name}: driftc ended with code {done.returncode} on {outcome.worker}: {done.stderr}")
    outcome.unusable = f"driftc ended with code {done.returncode}: {done.stderr.strip()}"
