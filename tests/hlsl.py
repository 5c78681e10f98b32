"""Compiles shaders in HLSL with Microsoft's compiler, called in the library that a package brings.

    hlsl.py LIBRARY FOLDER

Every FILE.hlsl of FOLDER becomes FILE.dxil, which is what DirectX 12 takes, and FILE.spv, which Vulkan does; a shader that does
not compile ends it with the compiler's words.
"""

import ctypes
import multiprocessing
import pathlib
import sys
import uuid
from ctypes import POINTER, byref, c_char_p, c_size_t, c_uint32, c_void_p, c_wchar_p

COMPILER = uuid.UUID("73e22d93-e6ce-47f3-b5bf-f0664f39c1b0")
COMPILER_3 = uuid.UUID("228b4687-5a6a-4730-900c-9702b2203f54")
RESULT = uuid.UUID("58346cda-dde7-4497-9461-6f87af5e0659")
UTF_8 = 65001

OPTIONS = ["-T", "cs_6_4", "-E", "main", "-HV", "2018", "-enable-16bit-types"]
OUTPUTS = {".dxil": ["-Gis"], ".spv": ["-spirv", "-fspv-target-env=vulkan1.1"]}

# Where hosts of DirectX put the number of workgroups and how it is read, and what Vulkan has in its place.
IN_PLACE = {
    b"ConstantBuffer<NagaConstants> _NagaConstants: register(b0, space1);": b"[[vk::ext_builtin_input(24)]] static const uint3 workgroups;",
    b"uint3(_NagaConstants.first_vertex, _NagaConstants.first_instance, _NagaConstants.other)": b"workgroups",
}


class Buffer(ctypes.Structure):
    _fields_ = [("text", c_char_p), ("size", c_size_t), ("encoding", c_uint32)]


def guid(value):
    return value.bytes_le


def call(this, index, *arguments, types=(), result=c_uint32):
    """Calls a method of a COM object by its place in the table."""
    table = ctypes.cast(this, POINTER(POINTER(c_void_p))).contents
    return ctypes.CFUNCTYPE(result, c_void_p, *types)(table[index])(this, *arguments)


def blob(holder, index):
    """The bytes of a blob that a method gives."""
    out = c_void_p()
    call(holder, index, byref(out), types=(POINTER(c_void_p),))
    if not out.value:
        return b""
    data = ctypes.string_at(call(out, 3, result=c_void_p), call(out, 4, result=c_size_t))
    call(out, 2)
    return data


def compile(compiler, source, options):
    """The module that the options ask for, or an error with the compiler's words."""
    buffer = Buffer(source, len(source), UTF_8)
    words = (c_wchar_p * len(options))(*options)
    result = c_void_p()
    types = (POINTER(Buffer), POINTER(c_wchar_p), c_uint32, c_void_p, c_char_p, POINTER(c_void_p))
    call(compiler, 3, byref(buffer), words, len(options), None, guid(RESULT), byref(result), types=types)
    status = c_uint32()
    call(result, 3, byref(status), types=(POINTER(c_uint32),))
    if status.value:
        raise SystemExit(blob(result, 5).decode())
    module = blob(result, 4)
    call(result, 2)
    return module


def outputs(arguments):
    """Writes what becomes of one file; gives the compiler's words where it does not compile."""
    library, path = ctypes.CDLL(arguments[0]), arguments[1]
    compiler = c_void_p()
    library.DxcCreateInstance.argtypes = (c_char_p, c_char_p, POINTER(c_void_p))
    if library.DxcCreateInstance(guid(COMPILER), guid(COMPILER_3), byref(compiler)):
        return "the library makes no compiler"
    source = path.read_bytes()
    for ending, options in OUTPUTS.items():
        for direct, vulkan in IN_PLACE.items() if ending == ".spv" else ():
            source = source.replace(direct, vulkan)
        try:
            path.with_suffix(ending).write_bytes(compile(compiler, source, OPTIONS + options))
        except SystemExit as error:
            return f"{path}: {error}"
    call(compiler, 2)
    return None


def main():
    library, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    work = [(library, path) for path in sorted(folder.glob("*.hlsl"))]
    with multiprocessing.get_context("spawn").Pool() as pool:
        for error in pool.imap(outputs, work, chunksize=8):
            if error:
                raise SystemExit(error)


if __name__ == "__main__":
    main()
