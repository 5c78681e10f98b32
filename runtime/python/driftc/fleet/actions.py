"""Actions of a build, and the results that this machine has."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Sequence

from .._native import Error
from ..compiler import _failure, program
from ..pipeline_cache import cache_folder


@dataclass(frozen=True)
class Action:
    """One bundle of a manifest, as `driftc build --dry-run --json` describes it."""

    name: str
    model: str
    #: Hash of the inputs and the compiler.
    key: str
    #: Path of the bundle.
    output: Path
    #: True if the output folder has the bundle.
    up_to_date: bool
    #: Words of the `driftc compile` command that makes the bundle.
    command: tuple[str, ...]

    @property
    def targets(self) -> list[str]:
        """Names or paths of the target profiles."""
        words = self.command
        return [word for option, word in zip(words, words[1:]) if option == "-t"]


def list_actions(manifest: Path, options: Sequence[str]) -> list[Action]:
    """Returns the actions of a manifest. Raises :class:`driftc.Error` if the manifest is wrong."""
    command = [program(), "build", str(manifest), *options, "--dry-run", "--json"]
    environment = {**os.environ, "DRIFT_ERRORS": "json"}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False, env=environment)
    if done.returncode != 0:
        raise _failure(done.stderr) or Error(f"`driftc build --dry-run` ended with exit code {done.returncode}")
    return [_action(json.loads(line)) for line in done.stdout.splitlines()]


def _action(line: dict[str, Any]) -> Action:
    if "model" not in line:
        raise Error(f"{program()} is older than this package; install the same version")
    return Action(
        line["action"], line["model"], line["key"], Path(line["output"]), line["up_to_date"], tuple(line["command"])
    )


class Results:
    """Folder with finished bundles, in the format of the local cache of `driftc build`: KEY.json and HASH.drift. The program
    checks every file that it takes from the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def has(self, action: Action) -> bool:
        """True if the folder has the bundle of an action."""
        try:
            record = json.loads((self.folder / f"{action.key}.json").read_bytes())
            return (self.folder / f"{record['bundle']}.drift").is_file()
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def add(self, files: dict[str, bytes]) -> None:
        """Adds files whole. The record comes last, so a record has its bundle."""
        for name, contents in sorted(files.items(), key=lambda file: file[0].endswith(".json")):
            unfinished = self.folder / f".{name}.{os.getpid()}"
            unfinished.write_bytes(contents)
            unfinished.replace(self.folder / name)


def default_results() -> Path:
    """Returns the folder for results: `driftc/fleet` in the user's cache folder."""
    return (cache_folder() or Path.home() / ".cache" / "driftc") / "fleet"
