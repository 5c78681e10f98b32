# mesa_packages RELEASE: prints the Debian packages of Mesa's Vulkan drivers from RELEASE's backports, and of the libraries that
# they need. For scripts to source.
mesa_packages() {
    echo "mesa-vulkan-drivers/$1-backports libvulkan1 libc6 libgcc-s1 libstdc++6 libllvm19 zlib1g libzstd1 libdrm2/$1
libexpat1 libxcb1 libxcb-randr0 libx11-xcb1 libxcb-dri3-0 libxcb-present0 libxcb-xfixes0 libxcb-sync1 libxcb-shm0 libxshmfence1
libwayland-client0 libdisplay-info2 libffi8 libedit2 libz3-4 libxml2 libxau6 libxdmcp6 libtinfo6 libbsd0 liblzma5 libmd0"
}
