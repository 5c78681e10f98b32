"""Finds speech in a recording: `python find_speech.py RECORDING.wav`. Prints start and end of each segment in seconds.

The model reads windows of 32 ms one after the other. Its state stays in device memory from one window to the next.
Needs the package with the model: `pip install --no-deps silero-vad==6.2.3`.
"""

from __future__ import annotations

import argparse
import wave
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Callable

import numpy as np

import driftc

#: Samples per second, samples of a window, and samples before the window that the model reads again.
RATE, WINDOW, CONTEXT = 16000, 512, 64
#: Probabilities at which speech starts and ends. Between both, nothing changes.
START, END = 0.5, 0.35
#: Minimum seconds of speech and of a pause, and seconds that are added before and after speech.
MIN_SPEECH, MIN_PAUSE, MARGIN = 0.25, 0.1, 0.03
#: The model as a function: from a window and a state to a probability of speech and the next state.
Run = Callable[[np.ndarray, Any], tuple[float, Any]]


def read(path: Path) -> np.ndarray:
    """Returns the samples of a WAV file with 8, 16 or 32 bits, as one channel at the model's rate."""
    with wave.open(str(path), "rb") as file:
        width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
        contents = file.readframes(file.getnframes())
    if width not in (1, 2, 4):
        raise SystemExit(f"{path} has {8 * width} bits per sample. Convert it to 16 bits.")
    samples = np.frombuffer(contents, {1: "u1", 2: "<i2", 4: "<i4"}[width]).astype(np.float32)
    samples = samples / 128 - 1 if width == 1 else samples / 2 ** (8 * width - 1)
    return resample(samples.reshape(-1, channels).mean(axis=1), rate)


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """Converts samples to the model's rate. Frequencies that the new rate cannot express are left out."""
    length = round(len(samples) * RATE / rate)
    if rate == RATE or length == 0:
        return samples
    spectrum = np.fft.rfft(samples)[: length // 2 + 1]
    return (np.fft.irfft(spectrum, length) * (length / len(samples))).astype(np.float32)


def probabilities(run: Run, samples: np.ndarray) -> np.ndarray:
    """Returns the probability of speech in each window of a recording."""
    windows = -(-len(samples) // WINDOW)
    padded = np.pad(samples, (CONTEXT, windows * WINDOW - len(samples)))
    found = np.empty(windows, np.float32)
    state: Any = np.zeros((2, 1, 128), np.float32)
    for index in range(windows):
        found[index], state = run(padded[None, index * WINDOW : (index + 1) * WINDOW + CONTEXT], state)
    return found


def segments(probability: np.ndarray, seconds: float) -> list[tuple[float, float]]:
    """Returns start and end of each segment of speech, in seconds."""
    found: list[tuple[float, float]] = []
    start = pause = None
    for index, value in enumerate([*probability, 0.0]):
        now = min(index * WINDOW / RATE, seconds)
        if value >= START:
            start, pause = now if start is None else start, None
        elif value < END and start is not None:
            pause = now if pause is None else pause
            if now - pause >= MIN_PAUSE or index == len(probability):
                if pause - start > MIN_SPEECH:
                    found.append((max(0, start - MARGIN), min(seconds, pause + MARGIN)))
                start = pause = None
    return found


def load(folder: Path, target: str) -> driftc.Session:
    """Loads the model of the package. Compiles it first, unless the folder has its bundle."""
    package = distribution("silero-vad")
    bundle = folder / f"silero_vad-{package.version}-{target}.drift"
    if not bundle.exists():
        folder.mkdir(parents=True, exist_ok=True)
        model = str(package.locate_file("silero_vad/data/silero_vad.onnx"))
        inputs = {"input": np.zeros((1, CONTEXT + WINDOW), np.float32), "state": np.zeros((2, 1, 128), np.float32)}
        # The model has a branch for each sampling rate, so the rate must be known to the compiler.
        driftc.compile(model, bundle, target, consts={"sr": RATE}, like=inputs)
    return driftc.Session(bundle)


def function(session: driftc.Session) -> Run:
    """Returns a session's model as a function."""

    def run(window: np.ndarray, state: Any) -> tuple[float, Any]:
        output = session.run({"input": window, "state": state}, ["output"])["output"]
        return output.item(), session.device_output("stateN")

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description="Find speech in a recording")
    parser.add_argument("recording", type=Path)
    parser.add_argument("--bundles", type=Path, default=Path("bundles"), help="folder for compiled models")
    parser.add_argument("--target", default="vulkan-baseline", help="GPU, as `driftc targets list` names it")
    arguments = parser.parse_args()
    samples = read(arguments.recording)
    with load(arguments.bundles, arguments.target) as session:
        found = segments(probabilities(function(session), samples), len(samples) / RATE)
    for start, end in found:
        print(f"{start:.2f} to {end:.2f} s")


if __name__ == "__main__":
    main()
