"""Write noise.jsonl: numbers of PyTorch's CPU generator, with which noise.rs compares the crate.

Run by hand, with PyTorch:

    python models/image/tests/noise.py

Each line of the file holds a seed and consecutive calls. A call holds the number of elements, the first and the last elements,
and the sum of all elements.
"""

import json
import os

import torch

SEEDS = [0, 7, 2**32 + 5]
CALLS = [[4], [15], [16], [17], [100], [4096], [3, 17, 4, 100, 1, 2, 16], [4 * 64 * 64, 4 * 64 * 64]]


def main():
    path = os.path.join(os.path.dirname(__file__), "noise.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for seed in SEEDS:
            for counts in CALLS:
                generator = torch.Generator("cpu").manual_seed(seed)
                calls = []
                for count in counts:
                    values = torch.randn(count, generator=generator, dtype=torch.float32)
                    first, last = ([float(f"{v:.8g}") for v in part.tolist()] for part in (values[:8], values[-20:]))
                    calls.append({"count": count, "first": first, "last": last, "sum": float(values.double().sum())})
                file.write(json.dumps({"seed": seed, "calls": calls}, separators=(",", ":")) + "\n")


main()
