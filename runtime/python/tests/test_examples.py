"""Runs the examples of the Python package: `python test_examples.py`. Needs driftc, pillow, and the packages with the models."""

import os
import subprocess
import sys
import tempfile
import unittest
import wave
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))
import file_type
import find_speech
import read_text

TARGET = os.environ.get("DRIFT_TEST_TARGET", "lavapipe")
#: Lines of the picture, with the scores that onnxruntime computes with the same steps.
LINES = [("Hello World 2024", 0.977), ("Platform 9 to Berlin", 0.977), ("Total price: 17.50", 0.991)]
#: Probabilities of speech that onnxruntime computes for each window of the recording.
SPEECH = [
    0.116, 0.074, 0.036, 0.035, 0.021, 0.017, 0.015, 0.012, 0.008, 0.007, 0.005, 0.011, 0.013, 0.011, 0.012, 0.008,
    0.574, 0.944, 0.958, 0.945, 0.945, 0.955, 0.947, 0.978, 0.989, 0.995, 0.992, 0.991, 0.988, 0.995, 0.999, 0.997,
    0.996, 0.998, 0.995, 0.986, 0.989, 0.990, 0.992, 0.984, 0.984, 0.994, 0.987, 0.988, 0.985, 0.985, 0.990, 0.977,
    0.860, 0.393, 0.247, 0.133, 0.084, 0.058, 0.045, 0.031, 0.029, 0.035, 0.027, 0.035, 0.025, 0.026, 0.030,
]
#: Contents of files, with the types and scores that onnxruntime computes with the same steps.
FILES = [
    (b"import sys\n\n\ndef main() -> None:\n    print(sys.argv)\n\n\nif __name__ == '__main__':\n    main()\n", "python", 0.999),
    (b"{\"name\": \"driftc\", \"versions\": [1, 2, 3], \"stable\": true}\n", "jsonl", 0.886),
    (b"#include <stdio.h>\n\nint main(void) {\n    puts(\"hello\");\n    return 0;\n}\n", "c", 0.991),
    (b"<!DOCTYPE html>\n<html><head><title>A page</title></head><body><p>Text</p></body></html>\n", "html", 0.790),
    (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0:~\x9bU", "unknown", 0.437),
    (b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n", "pdf", 0.991),
    # The model is not used for files of a few bytes.
    (b"short", "txt", 1.0),
    (b"", "empty", 1.0),
    (b"\xff\xfe", "unknown", 1.0),
]
TEXT = """
The cat sleeps on the window sill.
Stock markets fell sharply today.

Bake the bread for forty minutes.
A shader is a program that runs on a graphics processor.
"""


def picture() -> Image.Image:
    """Draws three lines with noise, turned by 4 degrees."""
    photo = Image.new("L", (480, 256), 225)
    draw, font = ImageDraw.Draw(photo), ImageFont.load_default(30)
    for index, (line, _) in enumerate(LINES):
        draw.text((60 + 20 * index, 40 + 60 * index), line, 40, font)
    photo = photo.rotate(4, Image.Resampling.BICUBIC, fillcolor=225)
    noise = np.random.default_rng(1).normal(0, 6, (256, 480))
    return Image.fromarray(np.clip(np.asarray(photo) + noise, 0, 255).astype(np.uint8))


def recording() -> np.ndarray:
    """Returns a second of a voice between silences: harmonics of a pitch, which the resonances of four vowels amplify."""
    seconds = np.arange(find_speech.RATE) / find_speech.RATE
    vowel = (4 * seconds).astype(int)
    resonances = np.array([(730, 1090, 2440), (270, 2290, 3010), (570, 840, 2410), (530, 1840, 2480)])[vowel].T
    pitch = 120 + 15 * np.sin(13 * seconds)
    phase = 2 * np.pi * np.cumsum(pitch) / find_speech.RATE
    voice = np.zeros_like(seconds)
    for harmonic in range(1, 33):
        for center, gain, width in zip(resonances, (1, 0.6, 0.3), (60, 80, 100)):
            voice += gain / (1 + ((harmonic * pitch - center) / width) ** 2) * np.sin(harmonic * phase)
    voice *= 0.1 * np.sin(4 * np.pi * seconds) ** 2
    samples = np.pad(voice, (8000, 8000))
    return (samples + np.random.default_rng(0).normal(0, 0.002, len(samples))).astype(np.float32)


def write_recording(path: Path) -> None:
    """Writes the voice to a WAV file with two channels and twice the model's rate."""
    with wave.open(str(path), "wb") as file:
        file.setparams((2, 2, 2 * find_speech.RATE, 0, "NONE", ""))
        file.writeframes(np.repeat(recording() * 32767, 4).astype("<i2").tobytes())


class Examples(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        os.environ["XDG_CACHE_HOME"] = folder.name

    def run_example(self, name: str, *arguments: str) -> list[str]:
        """Runs an example and returns the printed lines."""
        options = ["--bundles", str(self.folder), "--target", TARGET]
        command = [sys.executable, str(EXAMPLES / name), *arguments, *options]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", cwd=self.folder, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def test_text_in_a_photograph_is_read(self):
        picture().save(self.folder / "photo.png")
        printed = self.run_example("read_text.py", "photo.png")
        self.assertEqual([line[6:] for line in printed], [text for text, _ in LINES])
        for line, (_, score) in zip(printed, LINES):
            self.assertAlmostEqual(float(line[:4]), score, delta=0.011)

    def test_text_that_is_upside_down_is_read(self):
        picture().transpose(Image.Transpose.ROTATE_180).save(self.folder / "turned.png")
        printed = self.run_example("read_text.py", "turned.png")
        self.assertEqual([line[6:] for line in printed], [text for text, _ in reversed(LINES)])

    def test_a_picture_without_text_gives_no_lines(self):
        nothing = read_text.Reader(lambda x: x[:, :1] * 0, self.fail, self.fail, "")
        self.assertEqual(nothing.read(Image.new("L", (40, 90))), [])

    def test_speech_in_a_recording_is_found(self):
        write_recording(self.folder / "speech.wav")
        self.assertEqual(self.run_example("find_speech.py", "speech.wav"), ["0.48 to 1.63 s"])
        with find_speech.load(self.folder, TARGET) as session:
            found = find_speech.probabilities(find_speech.function(session), recording())
        np.testing.assert_allclose(found, SPEECH, atol=0.003)

    def test_types_of_files_are_told(self):
        names = [f"file{index}" for index in range(len(FILES))]
        for name, (contents, _, _) in zip(names, FILES):
            (self.folder / name).write_bytes(contents)
        # More files than a batch has.
        times = file_type.BATCH // len(FILES) + 1
        printed = [line.split() for line in self.run_example("file_type.py", *times * names)]
        self.assertEqual([name for _, _, name in printed], times * names)
        for (score, label, _), (_, expected_label, expected_score) in zip(printed, times * FILES):
            self.assertEqual(label, expected_label)
            self.assertAlmostEqual(float(score), expected_score, delta=0.011)

    def test_the_nearest_sentences_are_found(self):
        (self.folder / "text.txt").write_text(TEXT, encoding="utf-8")
        for query, line in (("GPU software", 5), ("a pet", 1), ("share prices", 2), ("how to make a loaf", 4)):
            printed = self.run_example("search_sentences.py", "text.txt", query, "--count", "1")
            self.assertEqual([found[6:] for found in printed], [TEXT.splitlines()[line]])


if __name__ == "__main__":
    unittest.main()
