"""The file that caches the driver's compiled pipelines of a bundle, in the cache folder of the program `driftc`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Sequence

#: Place of the manifest's hash in the header of a bundle (`runtime/FORMAT.md`). The hash identifies the bundle.
_HASH = slice(40, 72)
_MAGIC = b"\x89DRIFT\r\n"


def pipeline_cache_path(
    bundles: Sequence[str], given: str | os.PathLike[str] | bool | None
) -> str | os.PathLike[str] | None:
    """Returns the path of the pipeline cache of bundles that are loaded together: the given path; with True a file that the
    program `driftc` uses too; with False or None no file. Several bundles have no common file."""
    if not isinstance(given, bool) or not given:
        return given or None
    folder = cache_folder()
    if folder is None or len(bundles) != 1:
        return None
    try:
        with open(bundles[0], "rb") as file:
            start = file.read(_HASH.stop)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        # Opening the bundle reports a missing file. Without a folder, loading takes longer.
        return None
    return folder / f"{start[_HASH].hex()[:32]}.pipelines" if start.startswith(_MAGIC) else None


def cache_folder() -> Path | None:
    """Returns the folder `driftc` in the user's cache folder, as the program `driftc` does."""
    for name, inner in (("XDG_CACHE_HOME", ""), ("LOCALAPPDATA", ""), ("HOME", ".cache")):
        folder = Path(os.environ.get(name, ""))
        if folder.is_absolute():
            return folder / inner / "driftc"
    return None
