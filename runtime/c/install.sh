#!/usr/bin/env bash
# Installs the C library for Linux: header, shared library with its links, static library, pkg-config file and CMake package.
# Usage: install.sh BUILT PREFIX. BUILT is the folder with libdrift.so and libdrift.a. Files go below DESTDIR (default empty)
# followed by PREFIX. The installed files name no folder, so that they can be moved together.
set -euo pipefail

built=$1 prefix=$(realpath -m "$2")
root=${DESTDIR:-}$prefix
here=$(dirname "$0")
version=$("$here/version.sh")
major=${version%%.*}
minor=${version#*.} minor=${minor%%.*}
# Libraries that a program with libdrift.a needs (`cargo rustc -- --print native-static-libs`).
libraries="gcc_s pthread m dl c"

# Fills in a template: fill TEMPLATE FILE.
fill() {
    install -d "$(dirname "$2")"
    sed -e "s|@VERSION@|$version|g" -e "s|@MAJOR@|$major|g" -e "s|@MINOR@|$minor|g" \
        -e "s|@LINK_FLAGS@|-l${libraries// / -l}|g" -e "s|@LIBRARIES@|${libraries// /;}|g" "$here/package/$1" >"$2"
    chmod 644 "$2"
}

install -D -m 644 "$here/include/drift.h" "$root/include/drift.h"
install -D -m 644 "$built/libdrift.a" "$root/lib/libdrift.a"
install -D -m 755 "$built/libdrift.so" "$root/lib/libdrift.so.$version"
ln -sf "libdrift.so.$version" "$root/lib/libdrift.so.$major"
ln -sf "libdrift.so.$major" "$root/lib/libdrift.so"
fill drift.pc.in "$root/lib/pkgconfig/drift.pc"
fill drift-config.cmake.in "$root/lib/cmake/drift/drift-config.cmake"
install -D -m 644 "$here/package/drift-bundles.cmake" "$root/lib/cmake/drift/drift-bundles.cmake"
fill drift-config-version.cmake.in "$root/lib/cmake/drift/drift-config-version.cmake"
echo "library: installed below $root"
