# Writes the new disk's table and file systems and mounts them. Wants $disk, $token, $folder, $fresh and
# $table; what makes and mounts each file system stands behind it.
set -eu
die() { echo "$1" >&2; exit 9; }
[ -b "$disk" ] || die "there is no disk $disk any more"
# The very disk that was confirmed, looked at again now.
said() { lsblk --nodeps --noheadings --bytes --output "$1" "$disk" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//; s/[[:space:]][[:space:]]*/_/g'; }
now=$(said SERIAL)
if [ -z "$now" ]; then
    now=$(said WWN)
    if [ -n "$now" ]; then
        now=$now-$(said SIZE)
    else
        first=$(dd if="$disk" bs=1048576 count=1 2>/dev/null | sha256sum | cut -c 1-12)
        now=$(basename "$disk")-$(said SIZE)-$first
    fi
fi
[ "$now" = "$token" ] || die "$disk is $now now, and $token was confirmed: nothing was written"
if lsblk --list --noheadings --output MOUNTPOINTS "$disk" | grep -q '[^[:space:]]'; then
    die "$disk is in use: nothing was written"
fi
# The kernel reads the table anew only when nothing holds the disk: no mount anywhere, no swap, no RAID.
tries=0
until blockdev --rereadpt "$disk" 2>/dev/null; do
    tries=$((tries + 1))
    [ $tries -lt 25 ] || die "$disk is in use: nothing was written"
    sleep 0.2
done
# Whether a device's node is there and is the kernel's.
node() {
    [ -b "$1" ] && [ "$(cat "/sys/class/block/${1##*/}/dev")" = "$(printf '%d:%d' "0x$(stat -c %t "$1")" "0x$(stat -c %T "$1")")" ]
}
mkdir -p "$folder"
if [ "$fresh" = yes ]; then
    partx -d "$disk" >/dev/null 2>&1 || true
    wipefs --all --force --quiet "$disk"
    # Neither an old table's copy nor an old boot loader may be found again.
    dd if=/dev/zero of="$disk" bs=1048576 count=1 conv=notrunc,fsync 2>/dev/null
    printf '%s' "$table" | sfdisk --quiet --wipe always --wipe-partitions always --no-reread --no-tell-kernel "$disk"
    sync
fi
# A kernel need not read tables by itself.
partx -a "$disk" >/dev/null 2>&1 || partx -u "$disk"
if command -v udevadm >/dev/null 2>&1; then udevadm settle --timeout=10 || true; fi
