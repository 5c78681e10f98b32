"""Reads the text in a photograph: `python read_text.py PHOTO.png`. Prints the lines from top to bottom with their scores.

Three models work together: the first finds lines of text, the second finds lines that are upside down, the third reads lines.
Needs pillow, and the package with the models: `pip install --no-deps rapidocr-onnxruntime==1.4.4`.
"""

from __future__ import annotations

import argparse
from importlib.metadata import distribution
from pathlib import Path
from typing import Callable

import numpy as np
from PIL import Image, ImageOps
from text_boxes import crop, find_boxes

import driftc

#: Maximum side of the picture for the first model, maximum number of lines in a batch, height and maximum width of a line.
MAX_SIDE, BATCH, HEIGHT, MAX_WIDTH = 960, 8, 48, 1280
#: Width of a line for the second model, minimum score to turn a line, minimum score to return a line.
DIRECTION_WIDTH, TURNED, READ = 192, 0.9, 0.5
#: Files of the models, shapes of their input, and bounds of the sizes in the shapes.
MODELS: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "ch_PP-OCRv4_det_infer": ("1,3,height,width", {"height": (32, MAX_SIDE), "width": (32, MAX_SIDE)}),
    "ch_ppocr_mobile_v2.0_cls_infer": (f"batch,3,{HEIGHT},{DIRECTION_WIDTH}", {"batch": (1, BATCH)}),
    "ch_PP-OCRv4_rec_infer": (f"batch,3,{HEIGHT},width", {"batch": (1, BATCH), "width": (HEIGHT, MAX_WIDTH)}),
}
#: A model as a function from its input to its output.
Run = Callable[[np.ndarray], np.ndarray]


class Reader:
    """Reads text with three models. The third model has a class for each character, in the order of `characters`."""

    def __init__(self, detect: Run, classify: Run, recognize: Run, characters: str) -> None:
        self.detect, self.classify, self.recognize = detect, classify, recognize
        # The first class means no character, the last class is the space.
        self.characters = ["", *characters.splitlines(), " "]

    def read(self, photo: Image.Image) -> list[tuple[str, float]]:
        """Returns text and score of each line, from top to bottom."""
        photo = ImageOps.exif_transpose(photo).convert("RGB")
        lines = [crop(photo, corners) for corners in self.find(photo)]
        found = [("", 0.0)] * len(lines)
        # Lines of similar widths are in one batch, so that little of the batch is padding.
        order = sorted(range(len(lines)), key=lambda index: lines[index].width / lines[index].height)
        for batch in (order[start : start + BATCH] for start in range(0, len(order), BATCH)):
            directions = self.classify(stack([lines[index] for index in batch], DIRECTION_WIDTH))
            for index, (_, turned) in zip(batch, directions):
                if turned > TURNED:
                    lines[index] = lines[index].transpose(Image.Transpose.ROTATE_180)
            texts = self.recognize(stack([lines[index] for index in batch], scaled_width(lines[batch[-1]])))
            for index, columns in zip(batch, texts):
                found[index] = self.decode(columns)
        return [(text, score) for text, score in found if score >= READ]

    def find(self, photo: Image.Image) -> list[np.ndarray]:
        """Returns the corners of the boxes of text in a photograph."""
        scale = min(1, MAX_SIDE / max(photo.size))
        width, height = (max(32, round(side * scale / 32) * 32) for side in photo.size)
        picture = photo.resize((width, height), Image.Resampling.BILINEAR)
        probability = self.detect(pixels(picture)[None])[0, 0]
        return [corners * photo.size / (width, height) for corners in find_boxes(probability)]

    def decode(self, columns: np.ndarray) -> tuple[str, float]:
        """Returns text and score of a line from the probabilities of the classes in each column of the line. A character takes
        one or more columns."""
        best, score = columns.argmax(axis=1), columns.max(axis=1)
        kept = (best != 0) & np.append(True, best[1:] != best[:-1])
        text = "".join(self.characters[index] for index in best[kept]).strip()
        return text, float(score[kept].mean()) if text else 0.0


def pixels(picture: Image.Image) -> np.ndarray:
    """Returns values from -1 to 1 of shape [3, height, width]: blue, green, red."""
    return np.asarray(picture, np.float32)[:, :, ::-1].transpose(2, 0, 1) / 127.5 - 1


def scaled_width(line: Image.Image) -> int:
    """Returns the width of a line that is scaled to the height of the models."""
    return min(MAX_WIDTH, max(HEIGHT, round(line.width * HEIGHT / line.height)))


def stack(lines: list[Image.Image], width: int) -> np.ndarray:
    """Scales lines to the height of the models, and pads them with zeros on the right."""
    stacked = np.zeros((len(lines), 3, HEIGHT, width), np.float32)
    for place, line in zip(stacked, lines):
        scaled = line.resize((min(width, scaled_width(line)), HEIGHT), Image.Resampling.BILINEAR)
        place[:, :, : scaled.width] = pixels(scaled)
    return stacked


def load(name: str, folder: Path, target: str) -> driftc.Session:
    """Loads a model of the package. Compiles it first, unless the folder has its bundle."""
    package, (shape, dims) = distribution("rapidocr-onnxruntime"), MODELS[name]
    bundle = folder / f"{name}-{package.version}-{target}.drift"
    if not bundle.exists():
        folder.mkdir(parents=True, exist_ok=True)
        model = str(package.locate_file(f"rapidocr_onnxruntime/models/{name}.onnx"))
        driftc.compile(model, bundle, target, dims=dims, options=["--shape", f"x={shape}"])
    return driftc.Session(bundle)


def function(session: driftc.Session) -> Run:
    """Returns a session's model as a function."""
    (output,) = session.outputs()
    return lambda values: session.run({"x": values})[output.name]


def main() -> None:
    parser = argparse.ArgumentParser(description="Read the text in a photograph")
    parser.add_argument("photo", type=Path)
    parser.add_argument("--bundles", type=Path, default=Path("bundles"), help="folder for compiled models")
    parser.add_argument("--target", default="vulkan-baseline", help="GPU, as `driftc targets list` names it")
    arguments = parser.parse_args()
    detect, classify, recognize = (load(name, arguments.bundles, arguments.target) for name in MODELS)
    characters = recognize.metadata["character"]
    reader = Reader(function(detect), function(classify), function(recognize), characters)
    for text, score in reader.read(Image.open(arguments.photo)):
        print(f"{score:.2f}  {text}")


if __name__ == "__main__":
    main()
