# Reads what is to be known of a host, in sections that begin with a marker line. Writes nothing and
# changes nothing. A file or command that is missing leaves its line or section out. For dash, bash,
# the shell of busybox and that of macOS.
#
# Set before this: mark (the marker), folder (a folder to ask the room of, beside the usual ones).

section() { printf '\n%s %s\n' "$mark" "$1"; }

# value NAME FILE: the file's first line.
value() {
    [ -r "$2" ] || return 0
    line=
    IFS= read -r line <"$2"
    [ -z "$line" ] || printf '%s %s\n' "$1" "$line"
}

# room NAME FOLDER: the file system that the folder is on, or would be.
room() {
    at=$2
    while [ -n "$at" ] && [ ! -d "$at" ]; do at=${at%/*}; done
    at=${at:-/}
    printf 'room %s\nfolder %s\nat %s\n' "$1" "$2" "$at"
    [ ! -w "$at" ] || printf 'writable\n'
    df -kP "$at" | sed -n 2p
}

interfaces() {
    for net in /sys/class/net/*; do
        [ -e "$net/mtu" ] || continue
        printf 'interface %s\n' "${net##*/}"
        value mtu "$net/mtu"
        value state "$net/operstate"
        value speed "$net/speed"
        value mac "$net/address"
        [ ! -e "$net/device" ] || printf 'device\n'
        [ ! -d "$net/wireless" ] || printf 'wireless\n'
    done
}

gpus() {
    [ -d /sys/class/drm ] || { [ ! -d /sys ] || printf 'none\n'; return 0; }
    printf 'drm\n'
    for card in /sys/class/drm/card*; do
        case ${card##*/} in *-*) continue ;; esac
        [ -e "$card/device/uevent" ] || continue
        printf 'card %s\n' "${card##*/}"
        value vendor "$card/device/vendor"
        value device "$card/device/device"
        value vram_total "$card/device/mem_info_vram_total"
        value vram_used "$card/device/mem_info_vram_used"
        value gtt_total "$card/device/mem_info_gtt_total"
        value gtt_used "$card/device/mem_info_gtt_used"
        sed -n -e 's/^DRIVER=/driver /p' -e 's/^PCI_SLOT_NAME=/slot /p' "$card/device/uevent"
    done
}

linux() {
    section command_line
    cat /proc/cmdline
    section cpuinfo
    sed -n 1,40p /proc/cpuinfo
    section cores
    grep -E '^(processor|physical id|core id|CPU implementer|CPU part)' /proc/cpuinfo
    section memory
    cat /proc/meminfo
    section workers
    workers
    section mounts
    cat /proc/mounts
    section gpus
    gpus
    section interfaces
    interfaces
    if command -v ip >/dev/null; then
        section ip
        ip -o addr show
    else
        section if_inet6
        cat /proc/net/if_inet6
        section fib_trie
        cat /proc/net/fib_trie
        section route
        cat /proc/net/route
    fi
    # State 0A is a socket that listens.
    listening='^ *[0-9]+: +[0-9A-F]+:[0-9A-F]+ +[0-9A-F]+:[0-9A-F]+ +0A |local_address'
    section tcp
    grep -E "$listening" /proc/net/tcp
    section tcp6
    grep -E "$listening" /proc/net/tcp6
    section init
    value process /proc/1/comm
    [ ! -d /run/systemd/system ] || printf 'booted systemd\n'
    systemctl --version | sed -n 1p
    [ ! -S "/run/user/$uid/systemd/private" ] || printf 'user_manager\n'
    if [ -e "/var/lib/systemd/linger/$name" ]; then
        printf 'linger\n'
    elif [ "$uid" != 0 ] && pkcheck --action-id org.freedesktop.login1.set-self-linger --process $$ >/dev/null; then
        printf 'may_linger\n'
    fi
    section machine
    value machine_id /etc/machine-id
    value boot_id /proc/sys/kernel/random/boot_id
    value uptime /proc/uptime
    value vendor /sys/class/dmi/id/sys_vendor
    value product /sys/class/dmi/id/product_name
    # Devices described by a tree end their model with a zero byte.
    [ ! -r /proc/device-tree/model ] || printf 'product %s\n' "$(tr -d '\000' </proc/device-tree/model)"
}

# Memory that running workers hold beyond the pages of their files.
workers() {
    for process in /proc/[0-9]*; do
        comm=
        IFS= read -r comm <"$process/comm"
        [ "$comm" = windlass-worker ] || continue
        sed -n -e '/^RssAnon:/p' -e '/^RssShmem:/p' "$process/status"
    done
}

darwin() {
    section sw_vers
    sw_vers
    section sysctl
    for key in hw.memsize hw.ncpu hw.physicalcpu hw.model hw.pagesize machdep.cpu.brand_string \
        machdep.cpu.leaf7_features hw.optional.arm.FEAT_DotProd hw.optional.arm.FEAT_I8MM \
        hw.optional.arm.FEAT_BF16 iogpu.wired_limit_mb kern.bootsessionuuid; do
        sysctl "$key"
    done
    section vm_stat
    vm_stat
    section ifconfig
    ifconfig -a
}

facts() {
    uid=$(id -u)
    name=$(id -un)
    section uname
    uname -s
    uname -r
    uname -m
    uname -n
    uname -v
    section clock
    date +%s.%N
    section os
    if [ -r /etc/os-release ]; then cat /etc/os-release; else cat /usr/lib/os-release; fi
    section dgx
    [ ! -r /etc/dgx-release ] || cat /etc/dgx-release
    section libc
    getconf GNU_LIBC_VERSION
    ldd --version 2>&1 | sed -n 1,2p
    for loader in /lib/ld-musl-*.so.1 /lib/ld-linux*.so.* /lib64/ld-linux*.so.*; do
        [ ! -e "$loader" ] || printf 'loader %s\n' "$loader"
    done
    section shell
    od -A n -t u1 -N 20 /bin/sh
    section processors
    nproc
    section user
    # As the login set it: some shells make up a SHELL where there is none.
    shell=$(printenv SHELL || getent passwd "$uid")
    printf 'uid %s\nname %s\nhome %s\nshell %s\ngroups %s\n' \
        "$uid" "$name" "$HOME" "${shell##*:}" "$(id -Gn)"
    printf 'data_home %s\n' "$XDG_DATA_HOME"
    for tool in sudo doas sha256sum shasum ip systemctl systemd-run journalctl setsid; do
        [ -z "$(command -v "$tool")" ] || printf 'tool %s\n' "$tool"
    done
    section rooms
    room root /
    room tmp "${TMPDIR:-/tmp}"
    room system /var/lib/windlass
    room user "${XDG_DATA_HOME:-$HOME/.local/share}/windlass"
    [ -z "$folder" ] || room asked "$folder"
    case $(uname -s) in
    Linux) linux ;;
    Darwin) darwin ;;
    esac
    section end
}

LC_ALL=C
PATH="${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin:/usr/bin:/bin"
export LC_ALL PATH
facts </dev/null 2>/dev/null
:
