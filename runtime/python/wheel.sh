#!/usr/bin/env bash
# Builds the wheel of the Python package, checks its tag, installs it in a fresh environment, and runs the package's tests
# there. Usage: wheel.sh TARGET_DIR [PYTHON]. Writes the wheel to TARGET_DIR/wheels.
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
wheel=$(compgen -G "$wheels/driftc-*.whl")

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
# auditwheel reads which glibc the programs in the wheel need. The wheel's name must not promise an older one.
"$python" -m venv "$fresh/tools"
"$fresh/tools/bin/python" -m pip install --quiet --disable-pip-version-check auditwheel==6.8.2
tag=$(basename "$wheel" .whl)
tag=${tag##*-}
"$fresh/tools/bin/python" -m auditwheel show "$wheel" >"$fresh/shown"
case $tag in manylinux_*) ;; *) echo "wheel: the tag $tag is not a manylinux tag" >&2; exit 1 ;; esac
# auditwheel breaks its lines anywhere.
tr -d '\n ' <"$fresh/shown" | grep -q "consistentwiththefollowingplatformtag:\"$tag\"" ||
    { echo "wheel: auditwheel does not agree with the tag $tag:" >&2; cat "$fresh/shown" >&2; exit 1; }

"$python" -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel[onnx,bf16]"
"$fresh/venv/bin/driftc" targets list >/dev/null
cd "$fresh"
env -u PYTHONPATH -u DRIFT_LIBRARY -u DRIFTC "$fresh/venv/bin/python" "$here/tests/test_driftc.py"
echo "$wheel: $(stat -c %s "$wheel") bytes"
