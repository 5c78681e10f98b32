"""Tasks on a Ray cluster."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Callable, Iterator, Sequence

from .._native import Error

#: Submitted tasks for each processor of the cluster. More tasks would only hold results in memory.
TASKS_PER_PROCESSOR = 3


def _ray() -> Any:
    """Imports Ray. Raises :class:`driftc.Error` if Ray is not installed."""
    try:
        import ray
    except ImportError as error:
        raise Error("the package ray is not installed", help="pip install 'driftc[fleet]', on all nodes") from error
    return ray


@contextmanager
def connected(address: str | None, workers: int | None, upload: bool) -> Iterator[Any]:
    """Connects to a cluster, or starts one on this machine. Yields the module `ray`."""
    ray = _ray()
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "warning"}
    if address is not None:
        options["address"] = address
    elif workers is not None:
        options |= {"address": "local", "num_cpus": workers, "include_dashboard": False}
    if upload:
        options["runtime_env"] = {"working_dir": os.getcwd(), "excludes": [".git", "/bundles/", "*.drift"]}
    # Ray prints messages about workers to standard output, which is for events.
    with redirect_stdout(sys.stderr):
        try:
            ray.init(**options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            help = "check --address; `ray status` shows the cluster"
            raise Error("cannot connect to the Ray cluster", reasons=[str(error)], help=help) from error
        try:
            yield ray
        finally:
            ray.shutdown()


def processors(ray: Any) -> int:
    """Returns the number of processors of the cluster, at least 1."""
    return max(1, int(ray.cluster_resources().get("CPU", 1)))


def run(
    ray: Any,
    function: Callable[[Any], Any],
    tasks: Sequence[Any],
    finished: Callable[[Any, float], None],
    *,
    retries: int,
    retry_on: Sequence[type[Exception]] = (),
    options: Callable[[Any], dict[str, Any]] = lambda task: {},
) -> None:
    """Runs a function for every task on the cluster. Calls `finished` on this machine with each result and with the seconds
    from its submission. Ray repeats a task up to `retries` times if its worker dies or an exception of `retry_on` is raised."""
    remote = ray.remote(max_retries=retries, retry_exceptions=list(retry_on) or False)(function)
    limit = TASKS_PER_PROCESSOR * processors(ray)
    waiting, running = list(reversed(tasks)), {}
    while waiting or running:
        while waiting and len(running) < limit:
            task = waiting.pop()
            running[remote.options(name=task.name, **options(task)).remote(task)] = (task, time.perf_counter())
        done, _ = ray.wait(list(running), num_returns=1)
        for reference in done:
            task, start = running.pop(reference)
            try:
                result = ray.get(reference)
            except ray.exceptions.RayError as error:
                reasons = [str(error)]
                help = "the node may have too little memory; `ray status` lists the nodes. Results so far are kept"
                raise Error(f"the task {task.name} failed on the cluster", reasons=reasons, help=help) from error
            finished(result, time.perf_counter() - start)


def manifest_on_workers(manifest: Path, upload: bool) -> str:
    """Returns the path of the manifest on the workers: the same path as here, or a path in the uploaded folder. Raises
    :class:`driftc.Error` if the folder does not have the manifest."""
    if not upload:
        return str(manifest.resolve())
    try:
        return str(manifest.resolve().relative_to(Path.cwd()))
    except ValueError as error:
        advice = "call `python -m driftc.fleet` in a folder with the manifest and the models"
        raise Error(f"--upload sends the current folder, which does not have {manifest}", help=advice) from error
