#!/usr/bin/env bash
# Writes the demo page and its models to a folder: `build.sh DRIFTC FOLDER`, where DRIFTC is the program. `make demo-web` first
# builds the files that this script needs.
set -euo pipefail
driftc=$1
out=$2
here=$(cd "$(dirname "$0")" && pwd)
: "${DRIFT_MINILM:?is not set; run \`make demo-web\`, which downloads the models}"
: "${DRIFT_TEXT_MODEL:?is not set; run \`make demo-web\`, which downloads the models}"

npm run --silent --prefix "$here/.." build
"$here/page.sh" "$out"
"$driftc" compile "$DRIFT_MINILM" -t webgpu-baseline --dim seq=1..64 -o "$out/minilm.drift"
sizes=(--dim p2o.DynamicDimension.0=1 --dim p2o.DynamicDimension.1=256 --dim p2o.DynamicDimension.2=512)
"$driftc" compile "$DRIFT_TEXT_MODEL" -t webgpu-baseline "${sizes[@]}" -o "$out/text.drift"
