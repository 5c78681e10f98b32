"""Builds the wheel: prints what takes long, and tags the wheel for every Linux that its programs run on. `pyproject.toml`
describes the package."""

import os
import platform
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools_rust import build_rust

#: Libraries that every manylinux system has, as far as programs in Rust use them.
SYSTEM_LIBRARIES = {
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
}


#: Names of processors in the tags of wheels, by pyelftools' names.
PROCESSORS = {"AArch64": "aarch64", "x64": "x86_64"}

#: Folder with `driftc` and `libdrift.so` that were built before, for any processor; without it, cargo builds them.
PREBUILT = os.environ.get("DRIFT_PREBUILT")


def manylinux_tag(folder: Path) -> str | None:
    """Returns the tag for the processor and the oldest glibc that the programs and libraries in a folder need: at least 2.17,
    the oldest that Rust supports. Returns None if one of them needs a library that not every system has."""
    from elftools.elf.elffile import ELFFile

    oldest, processor = (2, 17), platform.machine()
    for path in (path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            if file.read(4) != b"\x7fELF":
                continue
            elf = ELFFile(file)
            processor = PROCESSORS.get(elf.get_machine_arch(), processor)
            dynamic = elf.get_section_by_name(".dynamic")
            tags = [] if dynamic is None else dynamic.iter_tags("DT_NEEDED")
            if not {tag.needed for tag in tags} <= SYSTEM_LIBRARIES:
                return None
            versions = elf.get_section_by_name(".gnu.version_r")
            for _, symbols in [] if versions is None else versions.iter_versions():
                for name in (symbol.name for symbol in symbols):
                    if name.startswith("GLIBC_2."):
                        oldest = max(oldest, (2, int(name.split(".")[1])))
    return f"manylinux_{oldest[0]}_{oldest[1]}_{processor}"


class Wheel(bdist_wheel):
    """ctypes loads the library, so one wheel serves every Python 3 (`py3-none`)."""

    def run(self) -> None:
        if not PREBUILT:
            print(
                "driftc: building the compiler and the runtime from source with cargo; this takes minutes. "
                "`pip install -v` shows the progress.",
                file=sys.stderr,
                flush=True,
            )
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        *_, system = super().get_tag()
        if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
            system = manylinux_tag(Path(self.bdist_dir)) or system
        return "py3", "none", system


class BuildRust(build_rust):
    """Builds the program and the library with one call of cargo, or takes them from the folder PREBUILT."""

    def build_extension(self, ext):
        """Returns the built files of the program or of the library, as (name, path), and no folder of further files."""
        program = next(e for e in self.extensions if e.name == "driftc")
        if PREBUILT:
            built = [(program.name, str(Path(PREBUILT, "driftc")))]
        else:
            built, _ = super().build_extension(program)
        if ext is program:
            return built, None
        names = {"darwin": "libdrift.dylib", "win32": "drift.dll"}
        [(_, path)] = built
        return [(ext.name, str(Path(path).with_name(names.get(sys.platform, "libdrift.so"))))], None


setup(cmdclass={"bdist_wheel": Wheel, "build_rust": BuildRust})
