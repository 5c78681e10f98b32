"""Build of a manifest on a cluster."""

from __future__ import annotations

import argparse
import subprocess
import time
from typing import Sequence

from .._native import Error
from ..compiler import program
from . import cluster, worker
from .actions import Action, Results, list_actions
from .progress import Progress


def build(args: argparse.Namespace, options: Sequence[str]) -> int:
    """Builds the bundles of a manifest. `options` select bundles and the output folder. Returns the exit code."""
    actions = list_actions(args.manifest, options)
    results = Results(args.results)
    missing = [action for action in actions if not action.up_to_date and not results.has(action)]
    progress = Progress(missing, args.json)
    progress.event(event="planned", actions=len(actions), tasks=len(missing))
    if missing:
        _build_on_cluster(args, missing, results, progress)
    command = [program(), "build", str(args.manifest), *options, "--cache-dir", str(args.results)]
    command += ["--shared-cache", args.shared_cache] if args.shared_cache else []
    command += ["--sign", args.sign] if args.sign else []
    command += [option for option in ("--locked", "--no-lock") if getattr(args, option[2:].replace("-", "_"))]
    return subprocess.call([*command, *(["--json"] if args.json else [])])


def _build_on_cluster(
    args: argparse.Namespace, missing: Sequence[Action], results: Results, progress: Progress
) -> None:
    """Builds actions on the cluster and stores their results. An action that the compiler refuses on a worker fails again in
    the local build, which reports it. Raises :class:`driftc.Error` if the cluster cannot build."""
    manifest = cluster.manifest_on_workers(args.manifest, args.upload)
    tasks = [worker.Task(action.name, action.key, manifest, args.shared_cache) for action in missing]
    outcomes: list[worker.Outcome] = []

    def finished(outcome: worker.Outcome, _: float) -> None:
        if outcome.unusable is not None:
            help = "all nodes need this package, the manifest at the same path (or --upload) and the models"
            raise Error(f"{outcome.worker} cannot build {outcome.name}", reasons=[outcome.unusable], help=help)
        results.add(outcome.files)
        outcome.files = {}
        outcomes.append(outcome)
        progress.finished(outcome)

    with cluster.connected(args.address, args.workers, args.upload) as ray:
        slots = min(cluster.processors(ray), len(tasks))
        start = time.perf_counter()
        cluster.run(ray, worker.build, tasks, finished, retries=args.retries, retry_on=[worker.CompilerDied])
        elapsed = time.perf_counter() - start
    compiled = sum(outcome.seconds for outcome in outcomes)
    in_tasks = sum(outcome.task_seconds for outcome in outcomes)
    overhead = (elapsed * slots - compiled) / len(tasks)
    progress.event(
        event="fleet",
        actions=len(tasks),
        slots=slots,
        elapsed_seconds=round(elapsed, 3),
        compile_seconds=round(compiled, 3),
        task_seconds=round(in_tasks, 3),
        overhead_seconds_per_action=round(overhead, 4),
    )
    if not args.json:
        progress.note(
            f"{len(tasks)} bundles on {slots} processors in {elapsed:.1f} s, {compiled:.1f} s of compile time, "
            f"overhead {overhead * 1000:.0f} ms for each bundle"
        )
