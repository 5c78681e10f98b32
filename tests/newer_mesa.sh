#!/usr/bin/env bash
# newer_mesa.sh DIR: unpacks Mesa 26.1 of Debian's next release and the libraries it needs into DIR, and writes DIR/run, which
# starts a program with them: `DIR/run PROGRAM ARGUMENTS`. Its software driver has cooperative matrices, which Debian 12's
# lacks. So do SPIRV-Tools, whose programs are in DIR/bin. The system stays as it is; about 60 MB are fetched from the mirror
# that apt already uses.
set -euo pipefail

dir=$(realpath -m "$1")
release=trixie
key=/usr/share/keyrings/debian-archive-keyring.gpg
packages="mesa-vulkan-drivers/$release-backports spirv-tools/$release libvulkan1 libc6 libgcc-s1 libstdc++6 libllvm19 zlib1g libzstd1 libdrm2/$release
libexpat1 libxcb1 libxcb-randr0 libx11-xcb1 libxcb-dri3-0 libxcb-present0 libxcb-xfixes0 libxcb-sync1 libxcb-shm0 libxshmfence1
libwayland-client0 libdisplay-info2 libffi8 libedit2 libz3-4 libxml2 libxau6 libxdmcp6 libtinfo6 libbsd0 liblzma5 libmd0"

mirror=$({ grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null || true; } | head -n 1 | tr -d ' ')
if [ -z "$mirror" ] || [ ! -f "$key" ]; then
    echo "newer_mesa: apt knows no Debian mirror here" >&2
    exit 1
fi

work=$dir.part
rm -rf "$work"
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/packages" "$work/root"
for suite in "$release" "$release-backports"; do
    echo "deb [signed-by=$key] $mirror $suite main"
done >"$work/apt/sources.list"
cat >"$work/apt/apt.conf" <<END
Dir::Etc::sourcelist "$work/apt/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "$work/apt/lists";
Dir::State::status "/dev/null";
Dir::Cache "$work/apt/cache";
Acquire::Languages "none";
APT::Sandbox::User "root";
END
export APT_CONFIG=$work/apt/apt.conf
apt-get update -qq
# shellcheck disable=SC2086
(cd "$work/packages" && apt-get download -qq $packages)
for package in "$work"/packages/*.deb; do
    dpkg -x "$package" "$work/root"
done
rm -rf "$work/apt" "$work/packages"

libraries=$dir/root/usr/lib/$(uname -m)-linux-gnu
loader=$(basename "$(compgen -G "$work/root/usr/lib/$(uname -m)-linux-gnu/ld-linux-*" | head -n 1)")
echo "{\"ICD\": {\"api_version\": \"1.4.0\", \"library_path\": \"$libraries/libvulkan_lvp.so\"}, \"file_format_version\": \"1.0.1\"}" \
    >"$work/driver.json"
cat >"$work/run" <<END
#!/bin/sh
export VK_DRIVER_FILES=$dir/driver.json VK_ICD_FILENAMES=$dir/driver.json
exec $libraries/$loader --library-path $libraries "\$@"
END
mkdir "$work/bin"
for program in spirv-val spirv-opt spirv-dis; do
    echo "#!/bin/sh
exec $libraries/$loader --library-path $libraries $dir/root/usr/bin/$program \"\$@\"" >"$work/bin/$program"
done
chmod +x "$work/run" "$work"/bin/*
rm -rf "$dir"
mv "$work" "$dir"
