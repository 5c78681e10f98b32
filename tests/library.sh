#!/usr/bin/env bash
# Makes libdrift.so with its SONAME and libdrift.a from the static library that cargo built for the tests, where `make library`
# would optimize for minutes. Usage: library.sh BUILT FOLDER. BUILT has cargo's libdrift.a; the files are written to FOLDER.
set -euo pipefail

built=$1 folder=$2
soname=$("$(dirname "$0")/../runtime/c/version.sh" soname)
cp "$built/libdrift.a" "$folder/libdrift.a"
cc -shared -Wl,-soname,"$soname" -Wl,--whole-archive "$built/libdrift.a" -Wl,--no-whole-archive \
    -lgcc_s -lpthread -lm -ldl -lc -o "$folder/libdrift.so"
