#!/usr/bin/env bash
# Makes the files of a release and checks them. Usage: release.sh TARGET_DIR. Writes to TARGET_DIR/release-artifacts:
#
#   driftc-VERSION-TRIPLE.tar.gz    program, manual pages, shell completions; the musl programs are static
#   libdrift-VERSION-TRIPLE.tar.gz  C library: header, shared and static library, pkg-config file, CMake package
#   driftc-VERSION-*.whl            Python package with the program and the C library
#   driftc-runtime-VERSION.tgz      npm package of the WebGPU runtime
#   crates/*.crate                  Rust packages
#   driftc-VERSION.cdx.json         bill of materials of the program (CycloneDX)
#   SHA256SUMS                      hashes of all these files; with RELEASE_KEY, a secret key of minisign, also SHA256SUMS.minisig
#
# RELEASE_TRIPLES lists the systems (default: x86-64 and arm64, each with musl and with glibc). Files have no paths of the
# machine, and times in archives are the time of the commit.
set -euo pipefail

target=$(realpath -m "$1")
here=$(realpath "$(dirname "$0")")
cd "$here/../.."
. "$here/tools.sh"
work=$target/release
artifacts=$target/release-artifacts
version=$(runtime/c/version.sh)
triples=${RELEASE_TRIPLES:-x86_64-unknown-linux-musl aarch64-unknown-linux-musl x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu}
# The oldest glibc that Rust's standard library supports.
glibc=2.17
# Times in archives and wheels: the time of the commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 315532800)
export SOURCE_DATE_EPOCH

# Compiles for a triple: build_for TRIPLE build|rustc ARGUMENT...
build_for() {
    local triple=$1 subcommand=$2 wanted=$1
    shift 2
    case $triple in *-gnu) wanted=$triple.$glibc ;; esac
    # Paths of this machine stay out of the programs.
    RUSTFLAGS="--remap-path-prefix=$PWD=driftc --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}/registry/src=crates" \
        CARGO_TARGET_DIR=$work/build CARGO_INCREMENTAL=0 cargo-zigbuild "$subcommand" --locked --target "$wanted" "$@"
}

# Makes a reproducible archive of the folder NAME in FOLDER: archive FOLDER NAME.
archive() {
    tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime="@$SOURCE_DATE_EPOCH" -cf - "$2" |
        gzip -n -9 >"$artifacts/$2.tar.gz"
    say "$2.tar.gz: $(stat -c %s "$artifacts/$2.tar.gz") bytes"
}

program() {
    local name=driftc-$version-$1
    local folder=$work/packages/$name
    say "building driftc for $1"
    # Without SPIRV-Tools, whose C++ takes longer to build than everything else.
    build_for "$1" build --release -p driftc-cli --bin driftc --no-default-features
    install -D -m 755 "$work/build/$1/release/driftc" "$folder/bin/driftc"
    install -m 644 README.md LICENSE-APACHE LICENSE-MIT docs/CHANGELOG.md "$folder/"
    # All programs print the same pages, so the first one that runs on this machine writes them for all.
    if [ ! -d "$work/share" ]; then
        case $1 in "$(uname -m)"-*) ;; *) fail "RELEASE_TRIPLES must begin with a triple of this machine's processor" ;; esac
        shares "$folder/bin/driftc"
    fi
    cp -r "$work/share" "$folder/share"
    archive "$work/packages" "$name"
}

# Writes the manual pages and shell completions of a program to $work/share.
shares() {
    local program=$1 share=$work/share
    mkdir -p "$share/bash-completion/completions" "$share/zsh/site-functions" "$share/fish/vendor_completions.d"
    "$program" man --output-dir "$share/man/man1" >/dev/null
    "$program" completions bash >"$share/bash-completion/completions/driftc"
    "$program" completions zsh >"$share/zsh/site-functions/_driftc"
    "$program" completions fish >"$share/fish/vendor_completions.d/driftc.fish"
}

c_library() {
    local name=libdrift-$version-$1
    local folder=$work/packages/$name
    say "building the C library for $1"
    build_for "$1" rustc --profile library -p drift-c --lib --crate-type staticlib
    build_for "$1" rustc --profile library -p drift-c --lib --crate-type cdylib -- \
        -C link-arg=-Wl,-soname,"$(runtime/c/version.sh soname)"
    DESTDIR='' runtime/c/install.sh "$work/build/$1/library" "$folder" >/dev/null
    install -m 644 LICENSE-APACHE LICENSE-MIT "$folder/"
    archive "$work/packages" "$name"
}

# The program and the library are taken from the builds above, so the wheel is made without a compiler.
wheel() {
    local prebuilt=$work/prebuilt/$1
    mkdir -p "$prebuilt"
    cp "$work/build/$1/release/driftc" "$work/build/$1/library/libdrift.so" "$prebuilt/"
    DRIFT_PREBUILT=$prebuilt "$tools/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation --wheel-dir "$artifacts" runtime/python
    rm -rf runtime/python/build runtime/python/driftc.egg-info
    say "wheel for $1"
}

npm_package() {
    (cd runtime/web && npm run --silent build && npm pack --silent --pack-destination "$artifacts" >/dev/null)
    say "npm package"
}

# Cargo builds each crate from its package alone. SPIRV-Tools, whose C++ takes minutes, is left out of these builds.
crates() {
    local private
    private=$(cargo metadata --no-deps --format-version 1 | "$tools/bin/python" -c '
import json, sys
print(*("--exclude=" + package["name"] for package in json.load(sys.stdin)["packages"] if package["publish"] == []))')
    say "packing and building the crates"
    # shellcheck disable=SC2086
    CARGO_TARGET_DIR=$work/crates cargo package --quiet --locked --workspace $private \
        --no-default-features --features drift-runtime/default,drift-c/default
    mkdir -p "$artifacts/crates"
    cp "$work"/crates/package/*.crate "$artifacts/crates/"
    say "$(find "$artifacts/crates" -name '*.crate' | wc -l) crates"
}

# The tool writes a file into the folder of each crate, and names crates of this repository by their paths.
bill_of_materials() {
    local name=driftc-$version.cdx.json
    "$tools/bin/cargo-cyclonedx" cyclonedx --quiet --manifest-path compiler/cli/Cargo.toml --no-default-features --format json \
        --spec-version 1.5 --target all --override-filename "${name%.json}"
    sed "s|file://$PWD/|file:///driftc/|g" "compiler/cli/$name" >"$artifacts/$name"
    find . -path ./target -prune -o -name "$name" -exec rm {} +
    say "$name: $(grep -c '"bom-ref"' "$artifacts/$name") packages"
}

sums() {
    (cd "$artifacts" && find . -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS.part)
    mv "$artifacts/SHA256SUMS.part" "$artifacts/SHA256SUMS"
    [ -z "${RELEASE_KEY:-}" ] || minisign -S -s "$RELEASE_KEY" -m "$artifacts/SHA256SUMS"
}

install_tools "$target/release/tools"
tools=$target/release/tools
export PATH=$tools/bin:$PATH
# shellcheck disable=SC2086
rustup target add $triples
rm -rf "$artifacts" "$work/packages" "$work/prebuilt" "$work/share"
mkdir -p "$artifacts" "$work/packages"
for triple in $triples; do
    program "$triple"
    case $triple in *-gnu)
        c_library "$triple"
        wheel "$triple"
        ;;
    esac
done
npm_package
crates
bill_of_materials
sums
"$here/check.sh" "$artifacts" "$work" "$tools/bin/python"
