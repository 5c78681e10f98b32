#!/usr/bin/env bash
# newer_mesa.sh DIR: unpacks Mesa 26.1 of Debian's next release and the libraries it needs into DIR, and writes DIR/run, which
# starts a program with them: `DIR/run PROGRAM ARGUMENTS`. Its software driver has cooperative matrices, which Debian 12's
# lacks. So do SPIRV-Tools, whose programs are in DIR/bin. The system stays as it is; about 60 MB are fetched from the mirror
# that apt already uses.
set -euo pipefail

dir=$(realpath -m "$1")
release=trixie
. "$(dirname "$0")/mesa_packages.sh"
packages="spirv-tools/$release $(mesa_packages $release)"

work=$dir.part
rm -rf "$work"
mkdir -p "$work/packages" "$work/root"
. "$(dirname "$0")/apt.sh"
use_apt newer_mesa "$work" "deb $release" "deb $release-backports"
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
