"""Writes the script that starts a program with the driver of a device to standard output:
write_run.py drivers.toml DIR LIBRARIES. DIR/lib has the shims; LIBRARIES has Mesa's drivers and the libraries they need."""

import shlex
import sys
import tomllib
from pathlib import Path

table, folder, libraries = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
with open(table, "rb") as file:
    drivers = tomllib.load(file)["driver"]
[loader] = libraries.glob("ld-linux-*")

cases, names = [], []
for driver in drivers:
    for device in driver.get("device", []):
        manifest = folder / f"{driver['name']}.json"
        library = libraries / f"libvulkan_{driver['name']}.so"
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
        cases.append(f"{device['name']}) export {exports}; shim={shlex.quote(str(shim))} ;;")
        names.append(device["name"])

print(
    f"""#!/bin/sh
# Written by tests/drivers.sh. run DEVICE PROGRAM ARGUMENTS: starts a program with the driver of a device that is not here.
# Without arguments: lists the devices.
if [ $# -eq 0 ]; then printf '%s\\n' {" ".join(names)}; exit 0; fi
device=$1
shift
case $device in
{chr(10).join(cases)}
*) echo "run: no driver for $device; run without arguments lists the devices" >&2; exit 2 ;;
esac
exec {shlex.quote(str(loader))} --preload "$shim" --library-path {shlex.quote(str(libraries))} "$@\""""
)
