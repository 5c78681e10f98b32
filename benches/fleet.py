"""Simulates a build of many models for many targets on a Ray cluster, from measured actions. Equal inputs print equal tables.

    driftc build drift.toml --no-cache --jobs 1 --json >events.jsonl
    driftc build drift.toml --dry-run --json >actions.jsonl
    python3 benches/fleet.py events.jsonl actions.jsonl --overhead 0.32 --dispatch 0.0011 --collect 0.009

The events give the compile time and the bundle size of each action, the actions give the models' files. Each simulated model is a
measured model, drawn with a fixed seed. Each simulated action draws one of the model's measured actions. Workers read a model once
over their own network link. The driver submits one task at a time, and writes one bundle at a time at the end."""

import argparse
import heapq
import json
import random
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Action:
    """Simulated action."""

    model: int
    seconds: float
    bundle_bytes: int


def measured(events: Path, actions: Path) -> dict[str, tuple[int, list[tuple[float, int]]]]:
    """Returns the bytes of each measured model, and its actions as seconds and bundle bytes."""
    models = {}
    model_of = {}
    for line in map(json.loads, actions.read_text().splitlines()):
        suffixes = (".toml", ".npy")
        files = [Path(file) for file in line["input_files"] if not file.endswith(suffixes)]
        models.setdefault(line["model"], (sum(file.stat().st_size for file in files), []))
        model_of[line["action"]] = line["model"]
    for event in map(json.loads, events.read_text().splitlines()):
        if event["event"] == "finished" and event["status"] == "built":
            models[model_of[event["action"]]][1].append((event["seconds"], event["bytes"]))
    return {name: model for name, model in models.items() if model[1]}


def draw(models: dict, count: int, targets: int, factor: float) -> tuple[list[int], list[Action]]:
    """Returns the bytes of the simulated models, and their actions in manifest order."""
    generator = random.Random(1)
    names = sorted(models)
    sizes, actions = [], []
    for model in range(count):
        size, known = models[generator.choice(names)]
        sizes.append(round(size * factor))
        for _ in range(targets):
            seconds, bundle_bytes = generator.choice(known)
            actions.append(Action(model, seconds * factor, round(bundle_bytes * factor)))
    return sizes, actions


def simulate(sizes: list[int], actions: list[Action], workers: int, args: argparse.Namespace) -> dict[str, float]:
    """Returns the makespan in seconds, the busy time of all workers in seconds, and the traffic in bytes."""
    free = [(0.0, worker) for worker in range(workers)]
    has: list[set[int]] = [set() for _ in range(workers)]
    finished = []
    submitted = busy = read = written = 0.0
    for action in actions:
        submitted += args.dispatch
        start, worker = heapq.heappop(free)
        seconds = args.overhead + action.seconds + action.bundle_bytes / args.link
        if action.model not in has[worker]:
            has[worker].add(action.model)
            read += sizes[action.model]
            seconds += sizes[action.model] / args.link
        end = max(start, submitted) + seconds
        heapq.heappush(free, (end, worker))
        busy += seconds
        written += action.bundle_bytes
        finished.append((end, action.bundle_bytes))
    # The driver receives one bundle after another, and writes the output folder at the end.
    makespan = 0.0
    for end, bundle_bytes in sorted(finished):
        makespan = max(makespan, end) + bundle_bytes / args.driver_link
    makespan += len(actions) * args.collect
    return {"makespan": makespan, "busy": busy, "read": read, "written": written}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", type=Path)
    parser.add_argument("actions", type=Path)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--targets", type=int, default=30)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 10, 100, 1000])
    parser.add_argument("--overhead", type=float, required=True, help="seconds of a task besides the compiler")
    parser.add_argument("--dispatch", type=float, required=True, help="seconds of the driver for a task")
    parser.add_argument("--collect", type=float, required=True, help="seconds of the driver for a bundle at the end")
    parser.add_argument("--factor", type=float, default=1, help="multiply compile times and sizes, for larger models")
    parser.add_argument("--link", type=float, default=1.25e8, help="bytes per second of a worker's link")
    parser.add_argument("--driver-link", type=float, default=1.25e9, help="bytes per second of the driver's link")
    args = parser.parse_args()
    models = measured(args.events, args.actions)
    sizes, all_actions = draw(models, args.models, args.targets, args.factor)
    times = sorted(seconds for _, known in models.values() for seconds, _ in known)
    print(f"measured: {len(times)} actions of {len(models)} models, median {times[len(times) // 2]:.2f} s, ", end="")
    print(f"mean {sum(times) / len(times):.2f} s, longest {times[-1]:.2f} s")
    changed = set(random.Random(2).sample(range(args.models), max(1, args.models // 100)))
    some = [action for action in all_actions if action.model in changed]
    print("\n| build | workers | makespan | machine-hours held | machine-hours busy | models read, GB | bundles sent, GB |")
    print("|---|---|---|---|---|---|---|")
    for name, actions in ((f"all {len(all_actions)} actions", all_actions), (f"{len(some)} changed actions", some)):
        for workers in args.workers:
            result = simulate(sizes, actions, workers, args)
            minutes, seconds = divmod(round(result["makespan"]), 60)
            held, busy = workers * result["makespan"] / 3600, result["busy"] / 3600
            # The worker sends a bundle, and the driver fetches it.
            sent = 2 * result["written"] / 1e9
            figures = f"{held:.1f} | {busy:.1f} | {result['read'] / 1e9:.1f} | {sent:.1f}"
            print(f"| {name} | {workers} | {minutes}:{seconds:02} | {figures} |")


if __name__ == "__main__":
    main()
