"""Edits the sources of Mesa's shims in MESA, so that they answer what newer drivers ask: edit_shims.py MESA.

The shims come from the newest source package on Debian's mirror, the drivers from a newer release.
"""

import re
import sys
from pathlib import Path

MESA = Path(sys.argv[1])


def edit(path, pattern, replacement):
    """Replaces the only match of `pattern` in a file."""
    file = MESA / path
    text, count = re.subn(pattern, replacement, file.read_text(), flags=re.MULTILINE)
    if count != 1:
        sys.exit(f"edit_shims: {path}: {count} matches of {pattern!r}, not 1")
    file.write_text(text)


# Turnip binds memory by VM_BIND (0x0d).
edit(
    "src/freedreno/drm-shim/freedreno_noop.c",
    r"^( *)\[DRM_MSM_GEM_NEW\]",
    r"\1[0x0d] = msm_ioctl_noop,\n\g<0>",
)
# RADV needs version 3.60 of the kernel's interface and asks for the number of queues of each kind.
edit("src/amd/drm-shim/amdgpu_noop_drm_shim.c", r"version_minor = 49;", "version_minor = 60;")
edit(
    "src/amd/drm-shim/amdgpu_noop_drm_shim.c",
    r"^   case AMDGPU_INFO_ACCEL_WORKING:",
    r"   case AMDGPU_INFO_HW_IP_COUNT: *out.ui32 = 1; break;\n\g<0>",
)

# RDNA 4 has no entry in the table of AMD's GPUs: navi31 with the numbers by which a driver knows gfx1201.
devices = MESA / "src/amd/drm-shim/amdgpu_devices.c"
text = devices.read_text()
[row] = re.findall(r'^   \{\n      \.name = "navi31",\n.*?^   \},\n', text, flags=re.MULTILINE | re.DOTALL)
for pattern, replacement in [
    (r'"navi31"', '"gfx1201"'),
    (r"(\.hw_ip_version_major = )11", r"\g<1>12"),
    (r"(\.device_id = )\w+", r"\g<1>0x7550"),
    (r"(\.external_rev = )\w+", r"\g<1>0x51"),
    (r"(\.family = )\w+", r"\g<1>AMDGPU_FAMILY_GC_12_0_0"),
]:
    row, count = re.subn(pattern, replacement, row)
    if count == 0:
        sys.exit(f"edit_shims: {devices}: no match of {pattern!r}")
devices.write_text(text.replace('   {\n      .name = "navi31",', row + '   {\n      .name = "navi31",', 1))

# From the fifth generation on, PanVK needs the number of execution engines of a shader core.
edit(
    "src/panfrost/drm-shim/panfrost_noop.c",
    r"^      gpu_info->shader_present = .*$",
    r"\g<0>\n      gpu_info->core_features = pan_get_gpu_id() >= 0xc000 ? 4 : 0;",
)
