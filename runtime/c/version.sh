#!/usr/bin/env bash
# Prints the version of the workspace; with the argument `soname`, prints the SONAME of the shared library.
set -euo pipefail

version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../../Cargo.toml" | head -n 1)
case ${1:-} in
soname) echo "libdrift.so.${version%%.*}" ;;
*) echo "$version" ;;
esac
