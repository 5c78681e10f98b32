#!/usr/bin/env bash
# Writes the demo page without its models to a folder: `page.sh FOLDER`. The npm package of the web runtime must be built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
cp "$here"/index.html "$here"/demo.js "$here"/wordpiece.js "$1"
cp "$here/../dist/index.js" "$1/driftc-runtime.js"
