#!/usr/bin/env bash
# drivers.sh DIR MESA: fills DIR with drivers that compile shaders without their GPUs. MESA is the folder of newer_mesa.sh, which
# is run if the folder does not exist. Writes DIR/run, which starts a program with the driver of a device of
# targets/drivers/drivers.toml: `DIR/run DEVICE PROGRAM ARGUMENTS`. Without arguments, DIR/run lists the devices.
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
made="1 $(cat "$here/drivers.sh" "$here"/drivers/*.{c,py} | cksum)"

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
use_apt drivers "$work" "deb trixie" "deb trixie-backports" "deb-src trixie"
(
    cd "$work"
    # The headers of libdrm, and of a kernel that knows Apple's GPUs.
    apt-get download -qq libdrm-dev linux-libc-dev/trixie-backports
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
    gcc "${flags[@]}" "${@:2}" "${common[@]/#/$sources/}" -Wl,--gc-sections -L"$libraries" -l:libdrm.so.2 -pthread -lm -ldl \
        -Wl,--allow-shlib-undefined -o "$dir/lib/$1.so"
}
shim amdgpu "$sources"/amd/drm-shim/{amdgpu_noop_drm_shim,amdgpu_devices}.c &
shim freedreno "$sources/freedreno/drm-shim/freedreno_noop.c" &
shim nouveau "$sources/nouveau/drm-shim/nouveau_noop.c" &
shim asahi "$here/drivers/apple_shim.c" &
shim intel "$sources/intel/tools/intel_noop_drm_shim.c" "$work"/intel/dev/{serialize,intel_wa}.c \
    "$sources"/intel/dev/{,i915/}intel_device_info.c &
for job in $(jobs -p); do wait "$job"; done

rm -rf "$work"
write_run
echo "$made" >"$dir/made"
