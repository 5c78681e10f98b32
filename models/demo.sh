#!/usr/bin/env bash
# Builds and runs compiler/cli/examples/demo.rs. `make demo` prepares the environment first (tests/setup.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

: "${DRIFT_MINILM:?is not set; run \`make demo\`, which fetches the model}"
folder=${CARGO_TARGET_DIR:-target}/demo
"${CARGO:-cargo}" build -p driftc-cli --bin driftc --example demo
exec "${CARGO_TARGET_DIR:-target}/debug/examples/demo" "$DRIFT_MINILM" "$folder"
