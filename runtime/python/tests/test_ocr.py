"""Reads a line of text with a pretrained recognizer: `python test_ocr.py MODEL.onnx`. The model's metadata has its characters.

Needs driftc and numpy, and neither a tokenizer nor another engine."""

import os
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

import driftc

TARGET = os.environ.get("DRIFT_TEST_TARGET", "lavapipe")
HEIGHT, WIDTH = 48, 192
#: Letters as lines between points, each (x, y) with y downwards, in a box of width 1 and height 1.
LETTERS = {
    "E": [[(1, 0), (0, 0), (0, 1), (1, 1)], [(0, 0.5), (0.8, 0.5)]],
    "F": [[(1, 0), (0, 0), (0, 1)], [(0, 0.5), (0.8, 0.5)]],
    "I": [[(0.5, 0), (0.5, 1)]],
    "L": [[(0, 0), (0, 1), (1, 1)]],
    "N": [[(0, 1), (0, 0), (1, 1), (1, 0)]],
    "T": [[(0, 0), (1, 0)], [(0.5, 0), (0.5, 1)]],
    "X": [[(0, 0), (1, 1)], [(1, 0), (0, 1)]],
    "7": [[(0, 0), (1, 0), (0.3, 1)]],
    " ": [],
}


def render(text: str) -> np.ndarray:
    """Draws dark letters on a light ground. Returns gray values from 0 to 1, of shape [HEIGHT, WIDTH]."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    distance = np.full((HEIGHT, WIDTH), 99, np.float32)
    for place, letter in enumerate(text):
        left, top, wide, high = 12 + 20 * place, 10, 12, 28
        for line in LETTERS[letter]:
            points = [np.float32([left + wide * px, top + high * py]) for px, py in line]
            for a, b in zip(points, points[1:]):
                along = ((x - a[0]) * (b[0] - a[0]) + (y - a[1]) * (b[1] - a[1])) / np.square(b - a).sum()
                along = np.clip(along, 0, 1)
                nearest = a[0] + along * (b[0] - a[0]), a[1] + along * (b[1] - a[1])
                distance = np.minimum(distance, np.hypot(x - nearest[0], y - nearest[1]))
    return np.clip(distance - 1.2, 0, 1) * 0.85 + 0.1


class TextLine(unittest.TestCase):
    def test_a_line_is_read_with_the_characters_of_the_models_metadata(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            bundle = Path(folder) / "recognizer.drift"
            image = {"x": np.zeros((1, 3, HEIGHT, WIDTH), np.float32)}
            driftc.compile(MODEL, bundle, TARGET, like=image)
            with driftc.Session(bundle) as session:
                characters = ["", *session.metadata["character"].splitlines(), " "]
                (port,) = session.outputs()
                self.assertEqual(port.max_shape[-1], len(characters))
                for text in ("TEXT LINE", "NEXT EXIT"):
                    # Three equal channels with values from -1 to 1.
                    image["x"][:] = render(text) * 2 - 1
                    best = session.run(image)[port.name][0].argmax(axis=-1)
                    # A character is repeated over several columns; 0 separates equal characters.
                    changed = np.append(True, best[1:] != best[:-1])
                    self.assertEqual("".join(characters[index] for index in best[changed]).strip(), text)


if __name__ == "__main__":
    MODEL = Path(sys.argv.pop(1))
    unittest.main()
