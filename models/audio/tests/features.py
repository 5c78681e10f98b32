"""Write features.json: log-mel features of transformers' WhisperFeatureExtractor, with which features.rs compares the crate.

Run by hand, with transformers and PyTorch:

    python models/audio/tests/features.py

The signal is 7 seconds of a chirp, a tone and noise. features.rs computes the same signal.
"""

import json
import os

import numpy as np
from transformers import WhisperFeatureExtractor

RATE = 16000
FRAMES = [*range(0, 700, 50), 698, 699, 700, 701, 702, 2999]


def signal():
    time = np.arange(7 * RATE) / RATE
    chirp = 0.4 * np.sin(2 * np.pi * (100 * time + 250 * time * time))
    tone = 0.05 * np.sin(2 * np.pi * 5000 * time)
    noise = np.zeros(len(time))
    state = 1
    for i in range(len(time)):
        state = (state * 1664525 + 1013904223) % 2**32
        noise[i] = 0.002 * (state / 2**31 - 1)
    return (chirp + tone + noise).astype(np.float32)


def main():
    cases = []
    for size in (80, 128):
        extractor = WhisperFeatureExtractor(feature_size=size)
        features = extractor(signal(), sampling_rate=RATE, return_tensors="np").input_features[0]
        assert features.shape == (size, 3000), features.shape
        cases.append(
            {
                "feature_size": size,
                "filter_sums": [float(f"{v:.7g}") for v in extractor.mel_filters.sum(0)],
                "filter_largest": [int(v) for v in extractor.mel_filters.argmax(0)],
                "frames": FRAMES,
                "features": [[round(float(v), 5) for v in features[:, frame]] for frame in FRAMES],
            }
        )
    path = os.path.join(os.path.dirname(__file__), "features.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(cases, separators=(",", ":")) + "\n")


main()
