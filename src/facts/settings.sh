# Reads what a host's owner has installed and set, in sections that begin with a marker line. Writes
# nothing and changes nothing. A tool or file that is missing leaves its section out. For dash, bash
# and the shell of busybox.
#
# Set before this: mark (the marker).

section() { printf '\n%s %s\n' "$mark" "$1"; }

# files FOLDER...: the text of each file, its lines behind a bar.
files() {
    for file in "$@"; do
        [ -f "$file" ] && [ -r "$file" ] || continue
        printf 'file %s\n' "$file"
        sed 's/^/|/' "$file"
        printf '\n'
    done
}

settings() {
    section installer
    if [ -e /run/ostree-booted ]; then
        printf 'rpm-ostree\n'
    else
        for tool in apt-get dnf zypper pacman; do
            # Other systems have Debian's tools as packages, with nothing installed by them.
            [ "$tool" != apt-get ] || [ -s /var/lib/dpkg/status ] || continue
            [ -z "$(command -v "$tool")" ] || { printf '%s\n' "$tool"; break; }
        done
    fi
    if [ -s /var/lib/dpkg/status ] && command -v dpkg-query >/dev/null; then
        section packages
        dpkg-query -W -f '${db:Status-Status} ${Package}:${Architecture} ${Version}\n'
    elif command -v rpm >/dev/null; then
        section packages
        rpm -qa --qf 'installed %{NAME}:%{ARCH} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n'
    elif command -v pacman >/dev/null; then
        section packages
        pacman -Q | sed 's/^/installed /'
    fi
    if [ -d /run/systemd/system ]; then
        section units
        systemctl list-unit-files --no-legend --no-pager --full
    fi
    section modprobe
    files /etc/modprobe.d/*.conf
    section sysctl
    files /etc/sysctl.d/*.conf /etc/sysctl.conf
    section end
}

LC_ALL=C
PATH="${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin:/usr/bin:/bin"
export LC_ALL PATH
settings </dev/null 2>/dev/null
:
