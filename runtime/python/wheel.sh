#!/usr/bin/env bash
# Builds the wheel of the Python package and checks it. Usage: wheel.sh TARGET_DIR [PYTHON]. Writes the wheel to
# TARGET_DIR/wheels.
set -euo pipefail

target=$(realpath -m "$1")
python=${2:-python3}
here=$(realpath "$(dirname "$0")")
wheels=$target/wheels
mkdir -p "$wheels"
rm -f "$wheels"/driftc-*.whl
echo "wheel: building the compiler and the runtime; this takes minutes"
CARGO_TARGET_DIR=$target "$python" -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$wheels" "$here"
# Remove the folders that setuptools leaves next to the sources.
rm -rf "$here/build" "$here/driftc.egg-info"
"$here/check_wheel.sh" "$(compgen -G "$wheels/driftc-*.whl")" "$python"
