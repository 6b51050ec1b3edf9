#!/bin/sh
# The first process of a host: mounts its disk and devices, leaves the machine's files, becomes
# systemd or sshd. init.sh HOST-FOLDER CONTROL-GROUP systemd|sshd CAPABILITIES
set -eu
folder=$1 group=$2 first=$3 without=$4
root=$folder/root
# This still is the machine's /proc: its number of this process.
read -r outside rest </proc/self/stat
echo 0 >"$group/cgroup.procs"

mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$root"
if [ -f "$folder/disk.img" ]; then
    mkdir -p "$folder/disk"
    # The device of the run before may still be on its way out.
    tries=0
    until mount -o loop "$folder/disk.img" "$folder/disk"; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ]
        sleep 0.05
    done
    mkdir -p "$root/var/lib/windlass"
    mount --bind "$folder/disk/windlass" "$root/var/lib/windlass"
    mount --bind "$folder/disk/home" "$root/home"
fi

mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
# Read-only: most of it is the machine's. systemd takes this as the sign of a container.
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs "$root/run"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"
mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
mkdir -p "$root/dev/pts" "$root/dev/shm" "$root/run/sshd" "$root/run/lock"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"

# Kernel settings that have no namespace belong to the machine; those of the network are the host's.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,ro,bind "$root/proc/sys"
[ ! -e "$root/proc/sysrq-trigger" ] || mount --bind /dev/null "$root/proc/sysrq-trigger"
cat /proc/sys/kernel/random/uuid >"$folder/boot_id"
mount --bind "$folder/boot_id" "$root/proc/sys/kernel/random/boot_id"
# Plays boot loader: a host that has a grub.cfg of its own starts with the first command line in it.
if [ -f "$root/boot/grub/grub.cfg" ]; then
    sed -n 's/^[[:blank:]]*linux[[:blank:]][[:blank:]]*/BOOT_IMAGE=/p' "$root/boot/grub/grub.cfg" |
        head -n 1 >"$folder/cmdline"
fi
mount --bind "$folder/cmdline" "$root/proc/cmdline"
# Plays a kernel with an AMD APU, for a host that has this file: what the command line says of its
# memory shows up under /sys, else half of the machine's memory.
if [ -f "$root/etc/lab-amdgpu" ]; then
    total=$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)
    pages=$((total / 8))
    for word in $(cat "$folder/cmdline"); do
        case $word in ttm.pages_limit=*) pages=${word#*=} ;; esac
    done
    module=$folder/sys/module/ttm/parameters card=$folder/sys/class/drm/card0/device
    mkdir -p "$module" "$card"
    echo "$pages" >"$module/pages_limit"
    echo "DRIVER=amdgpu" >"$card/uevent"
    echo $((pages * 4096)) >"$card/mem_info_gtt_total"
    mount -t overlay -o "ro,lowerdir=$folder/sys:$root/sys" overlay "$root/sys"
fi

hostname "$(cat "$root/etc/hostname")"
echo "$outside" >"$folder/pid"
cd "$root"
pivot_root . .
umount -l .
cd /

case $first in
systemd) last='exec env -i container=lab PATH=$PATH /lib/systemd/systemd --unit=multi-user.target' ;;
*) last='exec env -i PATH=$PATH /usr/sbin/sshd -D -e' ;;
esac
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
exec setpriv "$without" \
    unshare --cgroup /bin/sh -c "mount -t cgroup2 cgroup2 /sys/fs/cgroup && $last"
