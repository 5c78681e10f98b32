# Functions of the scripts of a release, which source this file. Tools are installed into a folder, without a change of the system.

say() { echo "release: $*"; }
fail() {
    say "$*" >&2
    exit 1
}

# Zig links for other systems and for old versions of glibc, and compiles the C and C++ of a few crates for them.
RELEASE_PACKAGES="cargo-zigbuild==0.24.1 ziglang==0.17.1 setuptools==84.2.1 setuptools-rust==1.13.0 pyelftools==0.33 wheel==0.48.0"
RELEASE_SBOM="cargo-cyclonedx 0.5.9"

# install_tools FOLDER: makes a Python environment with the packages, and FOLDER/bin/cargo-cyclonedx.
install_tools() {
    if [ "$(cat "$1/packages" 2>/dev/null)" != "$RELEASE_PACKAGES" ]; then
        rm -rf "$1"
        python3 -m venv "$1"
        # shellcheck disable=SC2086
        "$1/bin/python" -m pip install --quiet --disable-pip-version-check $RELEASE_PACKAGES
        echo "$RELEASE_PACKAGES" >"$1/packages"
    fi
    if [ "$(cat "$1/sbom" 2>/dev/null)" != "$RELEASE_SBOM" ]; then
        # shellcheck disable=SC2086
        cargo install --quiet --locked --root "$1" ${RELEASE_SBOM% *} --version "${RELEASE_SBOM#* }"
        echo "$RELEASE_SBOM" >"$1/sbom"
    fi
}
