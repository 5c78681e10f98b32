#!/usr/bin/env bash
# Checks the files of a release. Usage: check.sh ARTIFACTS WORK PYTHON.
# - The sums match.
# - Each program compiles a model in a root folder that has nothing else: a static program in an empty folder, a program for
#   glibc beside the libc of Debian 11. All write the same bytes. Programs for arm64 run in an emulator.
# - The wheel passes the checks of `make wheel`.
# - A C program builds with the C library's pkg-config file, and the npm package loads in Node.
set -euo pipefail

artifacts=$(realpath "$1") work=$(realpath "$2") python=$3
cd "$(dirname "$0")/../.."
. compiler/release/tools.sh
. tests/apt.sh
version=$(runtime/c/version.sh)
model=tests/corpus/mobilenet_v1/model.onnx
check=$work/check
rm -rf "$check"
mkdir -p "$check"

# Unpacks Debian packages into a folder: unpack FOLDER RELEASE ARCHITECTURE PACKAGE...
unpack() (
    packages=$check/packages-$2-$3
    mkdir -p "$packages"
    APT_ARCHITECTURE=$3 use_apt release "$packages" "deb $2"
    cd "$packages"
    apt-get download -qq "${@:4}"
    for package in *.deb; do dpkg -x "$package" "$1"; done
)

# Prints the command that starts a program for a triple in another root folder. Programs for arm64 run in qemu.
in_root() {
    local root=$1 triple=$2
    local as_root=(env -i HOME=/)
    [ "$(id -u)" -eq 0 ] || as_root+=(unshare --map-root-user)
    case $triple in
    "$(uname -m)"-*) echo "${as_root[@]}" "$(command -v chroot)" "$root" ;;
    aarch64-*)
        unpack "$check/emulator" bookworm "$(dpkg --print-architecture)" qemu-user-static
        cp "$check/emulator/usr/bin/qemu-aarch64-static" "$root/emulator"
        echo "${as_root[@]}" "$(command -v chroot)" "$root" /emulator
        ;;
    esac
}

program() {
    local name=$1 triple=$2
    local root=$check/root-$triple command
    mkdir -p "$root"
    case $triple in
    x86_64-*-gnu) unpack "$root" bullseye amd64 libc6 libvulkan1 ;;
    aarch64-*-gnu) unpack "$root" bullseye arm64 libc6 libvulkan1 ;;
    esac
    mkdir -p "$root/tmp"
    tar -xzf "$artifacts/$name" -C "$root/tmp" --strip-components=1
    cp "$model" "$root/tmp/model.onnx"
    command=$(in_root "$root" "$triple")
    [ -n "$command" ] || fail "$triple: this machine has no way to run its programs"
    $command /tmp/bin/driftc compile /tmp/model.onnx -t nvidia-ampere -t adreno-740 -o /tmp/model.drift >/dev/null 2>"$check/errors" ||
        { cat "$check/errors" >&2; fail "$name: cannot compile $model"; }
    local message
    message=$($command /tmp/bin/driftc targets probe 2>&1) && fail "$name: finds a device where there is no driver"
    case $triple in *-musl) grep -q 'a static program cannot load one' <<<"$message" || fail "$name: $message" ;; esac
    sha256sum <"$root/tmp/model.drift" >>"$check/bundles"
    say "$name compiles $(basename "$(dirname "$model")") in an otherwise empty root folder"
}

c_library() {
    tar -xzf "$1" -C "$check" --one-top-level=library --strip-components=1
    local flags
    flags=$(PKG_CONFIG_PATH=$check/library/lib/pkgconfig pkg-config --cflags --libs drift)
    # shellcheck disable=SC2086
    cc runtime/c/examples/run.c -o "$check/run" $flags -Wl,-rpath,"$check/library/lib"
    local message
    message=$("$check/run" missing.drift 2>&1) && fail "the C example runs a missing bundle"
    grep -q missing.drift <<<"$message" || fail "the C example does not name the missing bundle: $message"
    say "$(basename "$1") serves a C program"
}

npm_package() {
    mkdir "$check/npm"
    (cd "$check/npm" && npm install --silent --no-audit --no-fund --ignore-scripts "$1" &&
        node --input-type=module -e 'import * as drift from "driftc-runtime"; if (!drift.Session) throw new Error("no Session")')
    say "$(basename "$1") loads in Node"
}

(cd "$artifacts" && sha256sum --check --quiet SHA256SUMS)
for archive in "$artifacts"/driftc-"$version"-*.tar.gz; do
    name=$(basename "$archive")
    triple=${name#driftc-"$version"-}
    program "$name" "${triple%.tar.gz}"
done
[ "$(sort -u "$check/bundles" | wc -l)" -eq 1 ] || fail "the programs write different bundles"
for file in "$artifacts"/driftc-*_"$(uname -m)".whl; do [ ! -f "$file" ] || runtime/python/check_wheel.sh "$file" "$python"; done
for file in "$artifacts"/libdrift-"$version"-"$(uname -m)"-*.tar.gz; do [ ! -f "$file" ] || c_library "$file"; done
npm_package "$artifacts/driftc-runtime-$version.tgz"
say "all files are in $artifacts"
