#!/usr/bin/env bash
# Installs the C library, its header and its pkg-config file. Fails if libdrift.so exceeds its size budget.
# Usage: install.sh BUDGET BUILT PREFIX. BUDGET is the maximum size of libdrift.so in bytes, 0 for no limit; BUILT is the
# folder with the libraries that cargo built; PREFIX is the folder to install below.
set -euo pipefail

budget=$1 built=$2 prefix=$(realpath -m "$3")
here=$(dirname "$0")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -n 1)
bytes=$(stat -c %s "$built/libdrift.so")
echo "$built/libdrift.so: $bytes bytes, budget $budget (0: none)"
[ "$budget" -eq 0 ] || [ "$bytes" -le "$budget" ] || { echo "library: libdrift.so exceeds its size budget" >&2; exit 1; }
install -D -m 644 "$here/include/drift.h" "$prefix/include/drift.h"
install -D -m 644 "$built/libdrift.a" "$prefix/lib/libdrift.a"
install -D -m 755 "$built/libdrift.so" "$prefix/lib/libdrift.so"
mkdir -p "$prefix/lib/pkgconfig"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" "$here/drift.pc.in" >"$prefix/lib/pkgconfig/drift.pc"
echo "library: installed below $prefix"
