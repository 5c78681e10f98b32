#!/usr/bin/env bash
# Runs the C, C++ and Python interfaces under valgrind, which finds invalid reads and writes: the examples, SECONDS (60)
# of random calls, and a Python script that uses every way to pass arrays. Usage: memcheck.sh TARGET_DIR [SECONDS]
# Needs a Python with numpy and onnx, named by DRIFT_PYTHON, and the program driftc and the C library in TARGET_DIR/debug.
set -euo pipefail

target=$(realpath "$1")/debug
seconds=${2:-60}
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v valgrind >/dev/null || { echo "memcheck: valgrind is missing; install it" >&2; exit 1; }
export DRIFTC=$target/driftc DRIFT_LIBRARY=$target/libdrift.so PYTHONPATH=$here/../python PYTHONDONTWRITEBYTECODE=1

check() {
    valgrind --quiet --error-exitcode=1 --suppressions="$here/valgrind.supp" "$@"
    echo "memcheck: no error in ${*##*/}"
}

"$DRIFT_PYTHON" "$here/../python/tests/memory.py" compile "$work/small.drift"
cc -std=c99 -g -I "$here/include" "$here/examples/run.c" -o "$work/run" "$target/libdrift.a" -lpthread -ldl -lm
c++ -std=c++11 -g -I "$here/include" "$here/examples/twice.cpp" -o "$work/twice" "$target/libdrift.a" -lpthread -ldl -lm
check "$work/run" "$work/small.drift"
check "$work/twice" "$work/small.drift" 2
check "$target/examples/fuzz" "$work/small.drift" "$seconds"
# Python's allocator hides the ends of arrays, and valgrind reports its own values as uninitialized.
PYTHONMALLOC=malloc check --undef-value-errors=no "$DRIFT_PYTHON" "$here/../python/tests/memory.py" run "$work/small.drift"
