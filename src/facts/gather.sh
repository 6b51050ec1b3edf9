# Reads what is to be known of a host, in sections that begin with a marker line. Writes nothing and
# changes nothing. A file or command that is missing leaves its line or section out. For dash, bash,
# the shell of busybox and that of macOS.
#
# Set before this: mark (the marker), folder (a folder to ask the room of, beside the usual ones).

section() { printf '\n%s %s\n' "$mark" "$1"; }

# within SECONDS COMMAND…: a command that waits for others, for so long at most where that can be set.
within() {
    seconds=$1
    shift
    if [ -n "$limited" ]; then timeout "$seconds" "$@"; else "$@"; fi
}

# value NAME FILE: the file's first line.
value() {
    [ -r "$2" ] || return 0
    line=
    IFS= read -r line <"$2"
    [ -z "$line" ] || printf '%s %s\n' "$1" "$line"
}

# assigned NAME FILE KEY: what the file's line KEY=… assigns.
assigned() {
    [ -r "$2" ] || return 0
    while IFS='=' read -r key text; do
        [ "$key" != "$3" ] || printf '%s %s\n' "$1" "$text"
    done <"$2"
}

# room NAME FOLDER: the file system that the folder is on, or would be.
room() {
    at=$2
    while [ -n "$at" ] && [ ! -d "$at" ]; do at=${at%/*}; done
    at=${at:-/}
    printf 'room %s\nfolder %s\nat %s\n' "$1" "$2" "$at"
    [ ! -w "$at" ] || printf 'writable\n'
    within 5 df -kP "$at"
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
        value type "$net/type"
        value duplex "$net/duplex"
        value tun_flags "$net/tun_flags"
        assigned devtype "$net/uevent" DEVTYPE
        assigned driver "$net/device/uevent" DRIVER
        value driver_version "$net/device/driver/module/version"
        assigned master "$net/master/uevent" INTERFACE
    done
}

boot_firmware() {
    if [ -d /sys/firmware/efi ]; then
        printf 'kind uefi\n'
        # Four bytes of attributes, then the value.
        for state in /sys/firmware/efi/efivars/SecureBoot-*; do
            [ ! -r "$state" ] || printf 'secure_boot %s\n' "$(od -A n -t u1 "$state")"
        done
    elif [ -d /sys/firmware/devicetree ]; then
        printf 'kind device_tree\n'
    elif [ -d /sys/firmware/acpi ] || [ -d /sys/firmware/dmi ]; then
        printf 'kind bios\n'
    fi
}

kernels() {
    [ ! -d /boot ] || printf 'asked\n'
    for modules in /lib/modules/* /run/booted-system/kernel-modules/lib/modules/*; do
        [ -d "$modules/kernel" ] || continue
        printf 'modules %s\n' "${modules##*/}"
        value package "$modules/pkgbase"
    done
    for image in /boot/vmlinu[xz]-* /boot/Image-* /boot/kernel-* /boot/ostree/*/vmlinuz-*; do
        [ ! -f "$image" ] || printf 'image %s\n' "${image##*/}"
    done
}

packaging() {
    printf 'asked\n'
    for tool in rpm-ostree bootc transactional-update nix apt-get dnf yum pacman zypper apk brew; do
        ! command -v "$tool" >/dev/null || printf 'tool %s\n' "$tool"
    done
    [ ! -e /run/ostree-booted ] || printf 'ostree\n'
    [ ! -e /etc/NIXOS ] || printf 'nixos\n'
}

sleeping() {
    for unit in sleep suspend hibernate hybrid-sleep suspend-then-hibernate; do
        for folder_of in /etc /run /usr/lib /lib; do
            file=$folder_of/systemd/system/$unit.target
            [ -e "$file" ] || continue
            # What is masked is a link to /dev/null, or empty.
            if [ -s "$file" ]; then printf 'target %s\n' "$unit"; else printf 'masked %s\n' "$unit"; fi
            break
        done
    done
    for lid in /proc/acpi/button/lid/*; do
        [ ! -d "$lid" ] || printf 'lid\n'
    done
    grep -E '^ *(HandleLidSwitch|HandleLidSwitchExternalPower|IdleAction|IdleActionSec|Allow[A-Za-z]*) *=' \
        /dev/null /usr/lib/systemd/logind.conf /usr/lib/systemd/logind.conf.d/*.conf \
        /run/systemd/logind.conf.d/*.conf /etc/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf \
        /usr/lib/systemd/sleep.conf /usr/lib/systemd/sleep.conf.d/*.conf \
        /run/systemd/sleep.conf.d/*.conf /etc/systemd/sleep.conf /etc/systemd/sleep.conf.d/*.conf
}

tuning() {
    governors=
    for policy in /sys/devices/system/cpu/cpufreq/policy*; do
        line=
        [ ! -r "$policy/scaling_governor" ] || IFS= read -r line <"$policy/scaling_governor"
        case " $governors " in *" $line "*) ;; *) governors="$governors $line" ;; esac
    done
    printf 'governors %s\n' "$governors"
    value profile /sys/firmware/acpi/platform_profile
    value transparent_hugepages /sys/kernel/mm/transparent_hugepage/enabled
    value zswap /sys/module/zswap/parameters/enabled
    value swappiness /proc/sys/vm/swappiness
    value tainted /proc/sys/kernel/tainted
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        printf 'cgroup 2\n'
    elif [ -d /sys/fs/cgroup/memory ]; then
        printf 'cgroup 1\n'
    fi
    for disk in /sys/block/zram*; do
        value zram "$disk/disksize"
    done
    [ ! -r /proc/swaps ] || while IFS= read -r line; do
        printf 'swap %s\n' "$line"
    done </proc/swaps
    while IFS= read -r line; do
        case $line in
        'Max locked memory '* | 'Max open files '*) printf '%s\n' "$line" ;;
        esac
    done </proc/$$/limits
}

# What waits for others: services of the host, hardware. It runs beside all else. timedatectl and its
# like are not asked: the service that answers them would be started, and leave files.
slow() {
    if command -v chronyc >/dev/null; then
        section chronyc
        within 3 chronyc -n tracking
    fi
    if command -v ntpq >/dev/null; then
        section ntpq
        within 3 ntpq -n -c rv
    fi
    if [ "$kernel" = Darwin ]; then
        section pmset
        pmset -g
        section hardware_ports
        networksetup -listallhardwareports
    elif command -v ethtool >/dev/null; then
        section ethtool
        for net in /sys/class/net/*; do
            [ -e "$net/device" ] || continue
            printf 'interface %s\n' "${net##*/}"
            [ -d "$net/wireless" ] || within 3 ethtool "${net##*/}"
            # A card that does not answer is enough.
            [ $? != 124 ] || break
            within 3 ethtool -i "${net##*/}"
        done
    fi
    section sudo
    # Asked once, and never so that it waits for a person.
    if [ "$uid" = 0 ]; then
        printf 'root\n'
    elif command -v sudo >/dev/null; then
        printf 'present\n'
        within 5 sudo -n -l 2>&1
    else
        printf 'missing\n'
    fi
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
        for number in major minor revision; do
            value "gc_$number" "$card/device/ip_discovery/die/0/GC/0/$number"
        done
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
    section gpu_memory
    gpu_memory
    section drivers
    drivers
    section firmware
    firmware
    section software
    software
    section rdma
    rdma
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
    section boot_firmware
    boot_firmware
    section kernels
    kernels
    section sleep
    sleeping
    section tuning
    tuning
    section init
    value process /proc/1/comm
    [ ! -d /run/systemd/system ] || printf 'booted systemd\n'
    systemctl --version | sed -n 1p
    [ ! -S "/run/user/$uid/systemd/private" ] || printf 'user_manager\n'
    if [ -e "/var/lib/systemd/linger/$name" ]; then
        printf 'linger\n'
    elif [ "$uid" != 0 ] && within 3 pkcheck --action-id org.freedesktop.login1.set-self-linger --process $$ >/dev/null; then
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
        hw.optional.arm.FEAT_BF16 hw.perflevel0.physicalcpu \
        hw.perflevel1.physicalcpu iogpu.wired_limit_mb kern.bootsessionuuid; do
        sysctl "$key"
    done
    section vm_stat
    vm_stat
    section ifconfig
    ifconfig -a
}

facts() {
    name=$(id -un)
    section uname
    printf '%s\n' "$kernel"
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
    # Not the groups of when the login began: one may have been given since.
    groups=$(within 5 id -Gn "$name")
    [ -n "$groups" ] || groups=$(id -Gn)
    # As the login set it: some shells make up a SHELL where there is none.
    shell=$(printenv SHELL || within 5 getent passwd "$uid")
    printf 'uid %s\nname %s\nhome %s\nshell %s\ngroups %s\n' \
        "$uid" "$name" "$HOME" "${shell##*:}" "$groups"
    printf 'data_home %s\n' "$XDG_DATA_HOME"
    for tool in sudo doas sha256sum shasum ip systemctl systemd-run journalctl setsid; do
        ! command -v "$tool" >/dev/null || printf 'tool %s\n' "$tool"
    done
    section packaging
    packaging
    section identity
    for key in /etc/ssh/ssh_host_*_key.pub; do
        value host_key "$key"
    done
    section sync
    value zone /etc/timezone
    printf 'zone_link %s\n' "$(readlink /etc/localtime)"
    [ ! -e /run/systemd/timesync/synchronized ] || printf 'timesyncd\n'
    section rooms
    room root /
    room tmp "${TMPDIR:-/tmp}"
    room system /var/lib/windlass
    room user "${XDG_DATA_HOME:-$HOME/.local/share}/windlass"
    [ -z "$folder" ] || room asked "$folder"
    case $kernel in
    Linux) linux ;;
    Darwin) darwin ;;
    esac
}

all() {
    uid=$(id -u)
    kernel=$(uname -s)
    limited=
    # Old ones take their time behind a letter, and do nothing so.
    ! timeout 1 true || limited=yes
    # What is slow is not waited for longer than this. Each has a pipe of its own, so that no two
    # write at once.
    { slow & } | {
        { gpu_tools & } | {
            facts </dev/null
            within 10 cat
        }
        within 10 cat
        section end
    }
}

LC_ALL=C
PATH="${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin:/usr/bin:/bin"
export LC_ALL PATH
all </dev/null 2>/dev/null
:
