# use_apt NAME WORK SOURCE...: points apt to Debian packages of other releases, without a change of the system. A SOURCE is a
# kind and a suite, such as `deb trixie` or `deb-src trixie`; the mirror is the one that apt already uses. State is kept in
# WORK/apt. Messages begin with NAME. APT_ARCHITECTURE is the packages' architecture, if it is not the machine's. For scripts to
# source.
use_apt() {
    local name=$1 at=$2/apt key=/usr/share/keyrings/debian-archive-keyring.gpg mirror
    local architecture=${APT_ARCHITECTURE:-$(dpkg --print-architecture)}
    mirror=$({ grep -rhoE 'https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null || true; } | head -n 1 | tr -d ' ')
    if [ -z "$mirror" ] || [ ! -f "$key" ]; then
        echo "$name: apt knows no Debian mirror here" >&2
        exit 1
    fi
    mkdir -p "$at/lists/partial" "$at/cache/archives/partial"
    for source in "${@:3}"; do
        echo "${source% *} [signed-by=$key] $mirror ${source#* } main"
    done >"$at/sources.list"
    cat >"$at/apt.conf" <<END
Dir::Etc::sourcelist "$at/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State::lists "$at/lists";
Dir::State::status "/dev/null";
Dir::Cache "$at/cache";
Acquire::Languages "none";
APT::Sandbox::User "root";
APT::Architecture "$architecture";
APT::Architectures { "$architecture"; };
END
    export APT_CONFIG=$at/apt.conf
    apt-get update -qq
}
