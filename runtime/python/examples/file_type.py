"""Tells the types of files by their contents: `python file_type.py FILE...`. Prints a line for each file.

Needs the package with the model: `pip install --no-deps magika==1.0.3`.
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np

import driftc

#: Maximum number of files in a batch.
BATCH = 16
#: Files of the package: the model, its configuration, and facts about types of files.
MODEL, CONFIG = "magika/models/standard_v3_3/model.onnx", "magika/models/standard_v3_3/config.min.json"
TYPES = "magika/config/content_types_kb.min.json"


class Identifier:
    """Tells types of files with a model: a function from bytes to the scores of the types."""

    def __init__(self, run: Callable[[np.ndarray], np.ndarray]) -> None:
        self.run, self.config, self.types = run, read_json(CONFIG), read_json(TYPES)

    def identify(self, paths: list[Path]) -> Iterator[tuple[Path, str, float]]:
        """Yields path, type and score of each file."""
        for start in range(0, len(paths), BATCH):
            batch = paths[start : start + BATCH]
            inputs = np.stack([self.features(path) for path in batch])
            for path, values, scores in zip(batch, inputs, self.run(inputs)):
                yield path, *self.label(path, values, scores)

    def features(self, path: Path) -> np.ndarray:
        """Returns the first and the last bytes of a file without white space around them, padded to a fixed length."""
        first, last, block, padding = (self.config[key] for key in ("beg_size", "end_size", "block_size", "padding_token"))
        with path.open("rb") as file:
            begin = file.read(block).lstrip()[:first]
            file.seek(max(0, path.stat().st_size - block))
            end = file.read(block).rstrip()[-last:]
        values = np.full(first + last, padding, np.int32)
        values[: len(begin)] = list(begin)
        values[first + last - len(end) :] = list(end)
        return values

    def label(self, path: Path, values: np.ndarray, scores: np.ndarray) -> tuple[str, float]:
        """Returns the type of a file and its score. The model was not trained for files of a few bytes."""
        if values[self.config["min_file_size_for_dl"] - 1] == self.config["padding_token"]:
            contents = path.read_bytes()[: self.config["block_size"]]
            return ("txt" if is_text(contents) else "unknown") if contents else "empty", 1.0
        best = int(scores.argmax())
        predicted = self.config["target_labels_space"][best]
        label = self.config["overwrite_map"].get(predicted, predicted)
        if scores[best] < self.config["thresholds"].get(predicted, self.config["medium_confidence_threshold"]):
            label = "txt" if self.types[label]["is_text"] else "unknown"
        return label, float(scores[best])


def file_of_package(name: str) -> Path:
    """Returns the path of a file of the package."""
    return Path(str(distribution("magika").locate_file(name)))


def read_json(name: str) -> dict[str, Any]:
    """Reads a JSON file of the package."""
    return json.loads(file_of_package(name).read_bytes())


def is_text(contents: bytes) -> bool:
    """Returns true if the contents are UTF-8."""
    try:
        contents.decode()
    except UnicodeDecodeError:
        return False
    return True


def load(folder: Path, target: str) -> driftc.Session:
    """Loads the model of the package. Compiles it first, unless the folder has its bundle."""
    bundle = folder / f"magika-{distribution('magika').version}-{target}.drift"
    if not bundle.exists():
        folder.mkdir(parents=True, exist_ok=True)
        config = read_json(CONFIG)
        options = ["--shape", f"bytes=batch,{config['beg_size'] + config['end_size']}"]
        driftc.compile(file_of_package(MODEL), bundle, target, dims={"batch": (1, BATCH)}, options=options)
    return driftc.Session(bundle)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tell the types of files by their contents")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--bundles", type=Path, default=Path("bundles"), help="folder for compiled models")
    parser.add_argument("--target", default="vulkan-baseline", help="GPU, as `driftc targets list` names it")
    arguments = parser.parse_args()
    with load(arguments.bundles, arguments.target) as session:
        identifier = Identifier(lambda values: session.run({"bytes": values})["target_label"])
        for path, label, score in identifier.identify(arguments.files):
            print(f"{score:.2f}  {label:12}  {path}")


if __name__ == "__main__":
    main()
