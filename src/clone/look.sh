# What a host says of itself for `clone`. Wants $disk, $tools, $columns and $fields set.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export PATH LC_ALL=C
section() { printf '\n@@windlass %s\n' "$1"; }
section arch
uname -m
section firmware
if [ -d /sys/firmware/efi ]; then echo uefi; else echo bios; fi
section secure
cat /sys/firmware/efi/efivars/SecureBoot-* 2>/dev/null | od -An -tu1 -j4 -N1 2>/dev/null | tr -d ' '
section boot
cat /proc/sys/kernel/random/boot_id
section tools
for tool in $tools; do
    if command -v "$tool" >/dev/null 2>&1; then echo "$tool"; fi
done
section lsblk
lsblk --json --bytes --output "$columns"
section blkid
for device in $(lsblk --list --noheadings --paths --output NAME | sort -u); do
    if [ -b "$device" ]; then blkid -p -o export "$device" 2>/dev/null; echo; fi
done
section mounts
cat /proc/self/mountinfo
section swaps
cat /proc/swaps
section lvs
if command -v lvs >/dev/null 2>&1; then
    lvs --noheadings --nosuffix --units b --separator '|' -o "$fields" 2>/dev/null
fi
section entries
efibootmgr -v 2>/dev/null
if [ -n "$disk" ]; then
    section disk
    readlink -f -- "$disk"
    section first
    if [ -b "$disk" ]; then dd if="$disk" bs=1048576 count=1 2>/dev/null | sha256sum; fi
fi
exit 0
