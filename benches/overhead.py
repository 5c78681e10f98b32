"""The median time of a run in microseconds, of a bundle with an input x and one output: overhead.py BUNDLE RUNS"""

import sys
import time

import driftc
import numpy as np

path, runs = sys.argv[1], int(sys.argv[2])
with driftc.Session(path) as session:
    x = np.full((4, 3), 0.5, np.float32)
    times = []
    for _ in range(runs):
        start = time.perf_counter_ns()
        outputs = session.run({"x": x})
        times.append(time.perf_counter_ns() - start)
        assert len(outputs) == 1
print(sorted(times)[runs // 2] / 1e3)
