"""Writes the script that starts a program with the driver of a device to standard output:
write_run.py drivers.toml DIR LIBRARIES. DIR/lib has the shims; LIBRARIES has Mesa's drivers and the libraries they need."""

import platform
import shlex
import sys
import tomllib
from pathlib import Path

table, folder, libraries = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
with open(table, "rb") as file:
    drivers = tomllib.load(file)["driver"]
[loader] = libraries.glob("ld-linux-*")
emulated = folder / "aarch64"
arm_libraries = emulated / "root/usr/lib/aarch64-linux-gnu"

cases, names = [], []
for driver in drivers:
    for device in driver.get("device", []):
        manifest = folder / f"{driver['name']}.json"
        is_native = device.get("processor", platform.machine()) == platform.machine()
        if not is_native and not emulated.is_dir():
            continue
        library = (libraries if is_native else arm_libraries) / f"libvulkan_{driver['name']}.so"
        manifest.write_text(
            '{"ICD": {"api_version": "1.4.0", "library_path": "%s"}, "file_format_version": "1.0.1"}\n' % library
        )
        variables = {
            "VK_DRIVER_FILES": manifest,
            "VK_ICD_FILENAMES": manifest,
            "VK_LOADER_LAYERS_DISABLE": "*",
            "MESA_SHADER_CACHE_DISABLE": "true",
            **device.get("environment", {}),
        }
        exports = " ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
        shim = folder / "lib" / f"{driver['shim']}.so"
        start = f"export {exports}; shim={shlex.quote(str(shim))}"
        emulate = "" if is_native else '; emulate "$@"'
        cases.append(f"{device['name']}) {start}{emulate} ;;")
        names.append(device["name"])

print(
    f"""#!/bin/sh
# Written by tests/drivers.sh. run DEVICE PROGRAM ARGUMENTS: starts a program with the driver of a device that is not here.
# Without arguments: lists the devices. Drivers that exist for another processor run in an emulator, and start only the program
# `worker`, which compiles pipelines.
emulate() {{
    if [ "$1" != worker ]; then echo "run: the driver of $device runs in an emulator, which starts only \`worker FOLDER\`" >&2; exit 2; fi
    exec {shlex.quote(str(emulated / "emulator"))} {shlex.quote(str(arm_libraries / "ld-linux-aarch64.so.1"))} \
        --preload "$shim" --library-path {shlex.quote(str(arm_libraries))} {shlex.quote(str(emulated / "worker"))} "$2"
}}
if [ $# -eq 0 ]; then printf '%s\\n' {" ".join(names)}; exit 0; fi
device=$1
shift
case $device in
{chr(10).join(cases)}
*) echo "run: no driver for $device; run without arguments lists the devices" >&2; exit 2 ;;
esac
exec {shlex.quote(str(loader))} --preload "$shim" --library-path {shlex.quote(str(libraries))} "$@\""""
)
