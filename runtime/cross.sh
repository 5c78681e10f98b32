#!/usr/bin/env bash
# Checks the runtime and its C interface for other systems, links the Windows build, and runs it under Wine if Wine's
# Vulkan finds a driver. Usage: cross.sh TARGET_DIR [BUNDLE]. Without a bundle, the Windows programs must fail with an error that
# names the missing file.
set -euo pipefail

target=$(realpath -m "$1")/cross
bundle=${2:-}
windows=x86_64-pc-windows-gnu
triples="aarch64-linux-android aarch64-apple-darwin aarch64-apple-ios $windows"
# Compiler flags of the host do not apply to other systems.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS

# shellcheck disable=SC2086
rustup target add $triples
for triple in $triples; do
    cargo check --quiet --manifest-path runtime/c/Cargo.toml --no-default-features --features generator --lib --target "$triple" --target-dir "$target"
    cargo check --quiet --manifest-path runtime/Cargo.toml --lib --example embed --target "$triple" --target-dir "$target"
    echo "cross: $triple: checked"
done

if ! command -v x86_64-w64-mingw32-gcc >/dev/null; then
    echo "cross: $windows: checked but not linked; install gcc-mingw-w64-x86-64"
    exit 0
fi
cargo build --quiet --manifest-path runtime/c/Cargo.toml --no-default-features --features generator --lib --target "$windows" --target-dir "$target"
cargo build --quiet --manifest-path runtime/Cargo.toml --example embed --target "$windows" --target-dir "$target"
x86_64-w64-mingw32-gcc -std=c99 -Wall -Wextra -Wpedantic -Werror -Iruntime/c/include runtime/c/examples/run.c \
    -o "$target/run.exe" -L"$target/$windows/debug" -l:drift.dll
cp "$target/$windows/debug/drift.dll" "$target/$windows/debug/examples/embed.exe" "$target/"
echo "cross: $windows: linked"

wine=$(command -v wine64 || command -v wine || compgen -G '/usr/lib/wine/wine64' || true)
if [ -z "$wine" ]; then
    echo "cross: $windows: linked but not run; install wine64"
    exit 0
fi
# Wine 8 lacks a function that Rust's standard library calls, and its Vulkan needs a display.
x86_64-w64-mingw32-gcc -shared -o "$target/bcryptprimitives.dll" runtime/wine.c -ladvapi32
export WINEPREFIX=$target/wine WINEDEBUG=-all DISPLAY=
if command -v Xvfb >/dev/null; then
    : >"$target/display"
    Xvfb -displayfd 3 -screen 0 320x240x24 3>"$target/display" 2>/dev/null &
    trap 'kill %1' EXIT
    for _ in $(seq 100); do [ -s "$target/display" ] && break || sleep 0.1; done
    DISPLAY=:$(cat "$target/display")
else
    echo "cross: $windows: no display for Wine, so its Vulkan finds no driver; install xvfb"
fi
for program in embed run; do
    output=$(timeout 300 "$wine" "$target/$program.exe" "${bundle:-missing.drift}" 2>&1) && status=0 || status=$?
    printf '%s\n' "$output" | sed "s/^/cross: $program.exe: /"
    # Without a bundle, the error must name the missing file.
    if [ -z "$bundle" ]; then
        grep -q 'missing.drift' <<<"$output" || { echo "cross: $program.exe does not name the missing file" >&2; exit 1; }
    elif [ "$status" -eq 0 ]; then
        echo "cross: $windows: $program.exe ran the bundle"
    elif grep -q 'Vulkan' <<<"$output"; then
        echo "cross: $windows: $program.exe starts, but Wine's Vulkan finds no driver"
    else
        exit 1
    fi
done
