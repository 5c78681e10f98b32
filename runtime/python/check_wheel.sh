#!/usr/bin/env bash
# Checks the tag of a wheel, installs it in a fresh environment without Rust, and runs the package's tests there.
# Usage: check_wheel.sh WHEEL PYTHON.
set -euo pipefail

wheel=$(realpath "$1") python=$2
here=$(realpath "$(dirname "$0")")
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
# Neither Rust nor SPIRV-Tools is on the path.
export PATH=/usr/bin:/bin
unset PYTHONPATH DRIFT_LIBRARY DRIFTC DRIFT_VALIDATE
pip=("$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check)
start=$SECONDS
"${pip[@]}" "$wheel"
seconds=$((SECONDS - start))
"${pip[@]}" "$wheel[onnx,bf16]"
"$fresh/venv/bin/driftc" targets list >/dev/null
cd "$fresh"
for tests in test_driftc.py test_pictures.py test_speech.py; do "$fresh/venv/bin/python" "$here/tests/$tests"; done
echo "$wheel: $(stat -c %s "$wheel") bytes, installed in $seconds s"
