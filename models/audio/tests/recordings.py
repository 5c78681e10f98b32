"""Write the small audio files that recordings.rs reads: sines of 440 Hz at half of the full amplitude.

Run by hand, with soundfile:

    python models/audio/tests/recordings.py
"""

import os

import numpy as np
import soundfile

FILES = [
    # Name, sample rate, channels, seconds, format, subtype.
    ("sine.flac", 44100, 2, 0.3, "FLAC", "PCM_16"),
    ("sine.mp3", 44100, 1, 0.3, "MP3", "MPEG_LAYER_III"),
    ("sine.ogg", 48000, 1, 0.3, "OGG", "VORBIS"),
    ("sine.opus.ogg", 48000, 1, 0.1, "OGG", "OPUS"),
]


def main():
    folder = os.path.join(os.path.dirname(__file__), "recordings")
    os.makedirs(folder, exist_ok=True)
    for name, rate, channels, seconds, container, subtype in FILES:
        time = np.arange(int(rate * seconds)) / rate
        sine = 0.5 * np.sin(2 * np.pi * 440 * time)
        frames = np.repeat(sine[:, None], channels, axis=1)
        path = os.path.join(folder, name)
        soundfile.write(path, frames, rate, format=container, subtype=subtype)
        print(name, os.path.getsize(path), "bytes")


main()
