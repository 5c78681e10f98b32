#!/usr/bin/env bash
# drivers.sh DIR MESA: fills DIR with drivers that compile shaders without their GPUs. MESA is the folder of newer_mesa.sh, which
# is run if the folder does not exist. Writes DIR/run, which starts a program with the driver of a device of
# targets/drivers/drivers.toml: `DIR/run DEVICE PROGRAM ARGUMENTS`. Without arguments, DIR/run lists the devices.
#
# Debian has the drivers of Arm's GPUs for arm64 only. On other processors, DIR/aarch64 gets them, an emulator, and a program that
# compiles pipelines for `driftc audit`: `DIR/run DEVICE worker FOLDER`.
#
# Mesa's drivers are in its Debian package. A shim, which is loaded before the driver, answers in place of the kernel. The shims
# are built from Mesa's source package (47 MB); the system stays as it is.
set -euo pipefail

dir=$(realpath -m "$1")
mesa=$(realpath -m "$2")
here=$(realpath "$(dirname "$0")")
table=$here/../targets/drivers/drivers.toml
python=${DRIFT_PYTHON:-python3}
root=$mesa/root
libraries=$root/usr/lib/$(uname -m)-linux-gnu
made="2 $(cat "$here/drivers.sh" "$here"/drivers/*.{c,py} | cksum)"

[ -d "$root" ] || "$here/newer_mesa.sh" "$mesa"

write_run() {
    "$python" "$here/drivers/write_run.py" "$table" "$dir" "$libraries" >"$dir/run.part"
    chmod +x "$dir/run.part"
    mv "$dir/run.part" "$dir/run"
}
if [ "$(cat "$dir/made" 2>/dev/null)" = "$made" ]; then
    write_run
    exit 0
fi

for program in gcc dpkg apt-get; do
    command -v "$program" >/dev/null || { echo "drivers: $program is missing" >&2; exit 1; }
done
work=$dir/work
mkdir -p "$dir/lib" "$work"
echo "drivers: fetching the sources of Mesa's shims"
. "$here/apt.sh"
. "$here/mesa_packages.sh"
use_apt drivers "$work" "deb trixie" "deb trixie-backports" "deb-src trixie"
(
    cd "$work"
    # The headers of libdrm, and of a kernel that knows Apple's GPUs.
    apt-get download -qq libdrm-dev libvulkan-dev linux-libc-dev/trixie-backports
    for package in ./*.deb; do dpkg -x "$package" headers; done
    apt-get source --download-only -qq mesa/trixie
    mkdir -p mesa
    tar -xf mesa_*.orig.tar.xz -C mesa --strip-components=1
)
echo "drivers: building the shims"
"$python" "$here/drivers/edit_shims.py" "$work/mesa"
# Scripts of Mesa write the table of Intel's GPUs as C; they need the package mako.
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check mako
sources=$work/mesa/src
mkdir -p "$work/intel/dev"
"$work/venv/bin/python" "$sources/intel/dev/intel_device_info_gen_h.py" "$work/intel/dev/intel_device_info_gen.h"
"$work/venv/bin/python" "$sources/intel/dev/intel_device_info_serialize_gen_c.py" "$work/intel/dev/serialize.c"
"$work/venv/bin/python" "$sources/intel/dev/gen_wa_helpers.py" "$sources/intel/dev/mesa_defs.json" \
    "$work/intel/dev/intel_wa.h" "$work/intel/dev/intel_wa.c"

# The part of Mesa that the shims use, and the answers of its configuration script.
common=(drm-shim/device.c drm-shim/drm_shim.c c11/impl/threads_posix.c c11/impl/time.c)
for name in hash_table set vma ralloc rb_tree os_misc anon_file log u_debug futex u_process u_printf strtod u_call_once os_file \
    blob simple_mtx half_float parson; do
    common+=("util/$name.c")
done
flags=(-shared -fPIC -O1 -std=gnu11 -w -fvisibility=hidden -ffunction-sections -fdata-sections -DNDEBUG -D_GNU_SOURCE
    -D_FILE_OFFSET_BITS=64 -DMESA_DEBUG=0 -DUSE_GCC_ATOMIC_BUILTINS -DMAJOR_IN_SYSMACROS '-DPACKAGE_VERSION="shim"')
for name in PTHREAD ENDIAN_H DLFCN_H LINUX_FUTEX_H LIBDRM MEMFD_CREATE MKOSTEMP STRTOF STRTOD_L STRUCT_TIMESPEC TIMESPEC_GET \
    __BUILTIN_{UNREACHABLE,CTZ,CLZ,CLZLL,FFS,FFSLL,POPCOUNT,BSWAP32,BSWAP64} SECURE_GETENV PROGRAM_INVOCATION_NAME \
    DIRENT_D_TYPE REALLOCARRAY GETRANDOM POSIX_FALLOCATE POSIX_MEMALIGN \
    FUNC_ATTRIBUTE_{PACKED,FORMAT,UNUSED,CONST,PURE,MALLOC,NORETURN}; do
    flags+=("-DHAVE_$name")
done
for folder in "$work" "$work/intel" "$work/intel/dev" "$work/mesa/include" "$sources" "$sources"/{util,intel,intel/dev,amd,amd/common} \
    "$sources"/gallium/{include,auxiliary} "$work/headers/usr/include" "$work/headers/usr/include/libdrm"; do
    flags+=("-I$folder")
done

# shim NAME SOURCES
shim() {
    "${compiler:-gcc}" "${flags[@]}" "${@:2}" "${common[@]/#/$sources/}" -Wl,--gc-sections -L"$libraries" -l:libdrm.so.2 -pthread \
        -lm -ldl -Wl,--allow-shlib-undefined -o "$dir/lib/$1.so"
}
shim amdgpu "$sources"/amd/drm-shim/{amdgpu_noop_drm_shim,amdgpu_devices}.c &
shim freedreno "$sources/freedreno/drm-shim/freedreno_noop.c" &
shim nouveau "$sources/nouveau/drm-shim/nouveau_noop.c" &
shim asahi "$here/drivers/apple_shim.c" &
shim intel "$sources/intel/tools/intel_noop_drm_shim.c" "$work"/intel/dev/{serialize,intel_wa}.c \
    "$sources"/intel/dev/{,i915/}intel_device_info.c &
for job in $(jobs -p); do wait "$job"; done

# Fills DIR/aarch64: Mesa's drivers for arm64 and the emulator; builds the shim and the program that the emulator runs.
emulated() (
    set -e
    arm=$dir/aarch64 cross=$work/cross
    mkdir -p "$arm/root" "$work/arm/packages" "$work/cross/packages"
    # shellcheck disable=SC1091
    host=$(. /etc/os-release && echo "$VERSION_CODENAME")
    use_apt drivers "$work/cross" "deb $host"
    gcc=$(apt-cache depends gcc-aarch64-linux-gnu | sed -n 's/.*Depends: gcc-\([0-9]*\)-aarch64-linux-gnu$/\1/p')
    cd "$work/cross/packages"
    apt-get download -qq qemu-user-static binutils-aarch64-linux-gnu {gcc,cpp}-"$gcc"-aarch64-linux-gnu libgcc-"$gcc"-dev-arm64-cross \
        libc6{,-dev}-arm64-cross linux-libc-dev-arm64-cross libgcc-s1-arm64-cross libisl23 libmpc3 libmpfr6 libgmp10 libjansson4 libzstd1
    for package in ./*.deb; do dpkg -x "$package" "$cross"; done
    cp "$cross/usr/bin/qemu-aarch64-static" "$arm/emulator"
    compiler=$work/cross/compiler
    echo "#!/bin/sh
export LD_LIBRARY_PATH=$cross/usr/lib/$(uname -m)-linux-gnu
exec $cross/usr/bin/aarch64-linux-gnu-gcc-$gcc -B $cross/usr/bin/aarch64-linux-gnu- --sysroot=$cross \"\$@\"" >"$compiler"
    chmod +x "$compiler"
    APT_ARCHITECTURE=arm64 use_apt drivers "$work/arm" "deb trixie" "deb trixie-backports"
    cd "$work/arm/packages"
    # shellcheck disable=SC2046
    apt-get download -qq $(mesa_packages trixie)
    for package in ./*.deb; do dpkg -x "$package" "$arm/root"; done
    libraries=$arm/root/usr/lib/aarch64-linux-gnu
    shim panfrost "$sources/panfrost/drm-shim/panfrost_noop.c"
    "$compiler" -O1 -I"$work/headers/usr/include" "$here/drivers/worker.c" -L"$libraries" -l:libvulkan.so.1 \
        -Wl,--allow-shlib-undefined -o "$arm/worker"
)
if [ "$(uname -m)" = aarch64 ]; then
    shim panfrost "$sources/panfrost/drm-shim/panfrost_noop.c"
elif ! emulated; then
    rm -rf "$dir/aarch64"
    echo "drivers: there are no drivers of Arm's GPUs for this machine" >&2
fi

rm -rf "$work"
write_run
echo "$made" >"$dir/made"
