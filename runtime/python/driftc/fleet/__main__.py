"""Command line of the fleet."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .._native import Error
from .actions import default_results
from .build import build
from .measure import KINDS, measure


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    about = "Build the bundles of a manifest on a Ray cluster"
    parser = argparse.ArgumentParser(prog="python -m driftc.fleet", description=about)
    default = Path("drift.toml")
    parser.add_argument("manifest", nargs="?", type=Path, default=default, help="manifest [default: drift.toml]")
    parser.add_argument("--json", action="store_true", help="print one line of JSON for each event")
    add = parser.add_argument_group("cluster").add_argument
    add("--address", help="connect to this Ray cluster: HOST:6379, ray://HOST:10001 or auto")
    add("--workers", type=int, metavar="N", help="without --address, start N workers on this machine")
    add("--retries", type=int, default=3, metavar="N", help="repeat a task N times if its worker dies [default: 3]")
    add("--upload", action="store_true", help="send the current folder to the workers, up to 512 MiB")
    group = parser.add_argument_group("bundles")
    add = group.add_argument
    add("--only", action="append", default=[], metavar="NAME", help="make only these bundles, as for driftc build")
    add("--output", metavar="DIR", help="write the bundles to this folder instead of the manifest's")
    shared = os.environ.get("DRIFT_SHARED_CACHE") or None
    add("--shared-cache", default=shared, metavar="URL", help="exchange bundles through this cache, not as bytes")
    add("--results", type=Path, default=default_results(), metavar="DIR", help="keep the workers' results here")
    add("--sign", metavar="KEY", help="sign the bundles on this machine; workers do not see the key")
    lock = group.add_mutually_exclusive_group()
    lock.add_argument("--locked", action="store_true", help="fail if a bundle differs from the lock file")
    lock.add_argument("--no-lock", action="store_true", help="leave the lock file as it is")
    add = parser.add_argument_group("measurements").add_argument
    add("--measure", action="append", choices=KINDS, default=[], help="measure on nodes with devices, build nothing")
    add("--minutes", type=float, default=10, help="measure this long on each device [default: 10]")
    return parser


def main() -> int:
    """Runs the command line. Returns the exit code."""
    args = parser().parse_args()
    options = [word for name in args.only for word in ("--only", name)]
    options += ["--output", args.output] if args.output else []
    try:
        return measure(args, options) if args.measure else build(args, options)
    except Error as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
