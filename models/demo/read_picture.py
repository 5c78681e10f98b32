"""Reads the text in a picture: `python read_picture.py FOLDER`. Draws lines of text, reads the lines with three models that driftc
compiles for this device, and compares both. Writes the picture and the bundles to FOLDER. `make demo` runs this program.

Needs pillow, the Python package `driftc` and the folder of its examples.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import read_text
from PIL import Image, ImageDraw, ImageFont

#: Lines of the picture, with the sizes of the letters in pixels.
LINES = {"A GPU reads this line": 44, "Platform 9: train to Berlin at 17:45": 30, "Total price: 24.90": 36}
#: Shades of gray: dark letters on a light ground.
LETTERS, GROUND = 40, 225


def draw() -> Image.Image:
    """Draws the lines, and turns the picture by 4 degrees."""
    picture = Image.new("L", (640, 320), GROUND)
    canvas = ImageDraw.Draw(picture)
    for index, (line, size) in enumerate(LINES.items()):
        canvas.text((50, 60 + 75 * index), line, LETTERS, ImageFont.load_default(size))
    return picture.rotate(4, Image.Resampling.BICUBIC, fillcolor=GROUND)


def load(bundles: Path) -> read_text.Reader:
    """Compiles and loads the models. An old bundle may be from another version or for another device, so the models are compiled
    again."""
    shutil.rmtree(bundles, ignore_errors=True)
    sessions = []
    for name in read_text.MODELS:
        start = time.monotonic()
        sessions.append(read_text.load(name, bundles, "here"))
        print(f"model     {name}: compile and load in {time.monotonic() - start:.1f} s", flush=True)
    return read_text.Reader(*map(read_text.function, sessions), sessions[-1].metadata["character"])


def show(found: list[tuple[str, float]]) -> bool:
    """Prints drawn lines beside read lines with their scores. Returns whether all lines are equal."""
    width = max(map(len, LINES)) + 2
    print(f"\n{'drawn':{width}}{'read':{width}}score")
    missing = len(LINES) - len(found)
    rows = list(zip([*LINES, *[""] * -missing], [*found, *[("", 0.0)] * missing]))
    for drawn, (text, score) in rows:
        print(f"{drawn:{width}}{text:{width}}{score:.2f}{'' if text == drawn else '  differs'}")
    return all(text == drawn for drawn, (text, _) in rows)


def main() -> None:
    folder = Path(sys.argv[1])
    print("\n== Text in a picture: three models of PP-OCR, called from Python ==\n")
    path = folder / "text.png"
    draw().save(path)
    print(f"picture   {path}", flush=True)
    reader = load(folder / "read_text")
    times = [time.monotonic()]
    for _ in range(2):
        found = reader.read(Image.open(path))
        times.append(time.monotonic())
    print(f"run       first {1000 * (times[1] - times[0]):.0f} ms, second {1000 * (times[2] - times[1]):.0f} ms")
    if not show(found):
        sys.exit("demo: a line was not read as it was drawn")
    print("\nruntime/python/examples/read_text.py reads your own pictures (docs/EMBEDDING.md)")


if __name__ == "__main__":
    main()
