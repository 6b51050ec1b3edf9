# What matters of a host for the memory of its GPU. Writes nothing. For dash, bash, the shell of busybox
# and that of macOS. Lines of a name and a value; a file is a line `file KIND BYTES PATH`, then so many
# bytes and a line's end.

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
undo=/var/lib/windlass/undo

say() { printf '%s %s\n' "$1" "$2"; }

# give KIND PATH: the file, when it is one.
give() {
    [ -f "$2" ] || return 0
    [ -r "$2" ] || { say unreadable "$2"; return 0; }
    bytes=$(wc -c <"$2")
    printf 'file %s %s %s\n' "$1" $((bytes)) "$2"
    head -c $((bytes)) "$2"
    printf '\n'
}

# first NAME FILE: the file's first line.
first() {
    [ -r "$2" ] || return 0
    line=
    IFS= read -r line <"$2" || :
    [ -z "$line" ] || say "$1" "$line"
}

records() {
    [ -d "$undo" ] || return 0
    # Names of runs have no blanks.
    for record in $(ls -t "$undo"/*/memory.json 2>/dev/null); do give record "$record"; done
}

darwin() {
    say ram "$(sysctl -n hw.memsize)"
    say page "$(sysctl -n hw.pagesize)"
    say boot "$(sysctl -n kern.bootsessionuuid 2>/dev/null)"
    say arch "$(uname -m)"
    say wired "$(sysctl -n iogpu.wired_limit_mb 2>/dev/null)"
    give plist /Library/LaunchDaemons/org.windlass.gpu-memory.plist
}

gpus() {
    for card in /sys/class/drm/card*; do
        case ${card##*/} in *-*) continue ;; esac
        [ -e "$card/device/uevent" ] || continue
        say card "${card##*/}"
        sed -n 's/^DRIVER=/driver /p' "$card/device/uevent"
        first gtt "$card/device/mem_info_gtt_total"
    done
}

linux() {
    say ram_kib "$(sed -n 's/^MemTotal: *\([0-9]*\) kB.*/\1/p' /proc/meminfo)"
    say page "$(getconf PAGESIZE 2>/dev/null || echo 4096)"
    first boot /proc/sys/kernel/random/boot_id
    give cmdline /proc/cmdline
    if grep -q '^ID="*nixos' /etc/os-release 2>/dev/null; then say is nixos; fi
    if [ -e /run/ostree-booted ]; then
        say is ostree
        if command -v rpm-ostree >/dev/null 2>&1; then say kargs "$(rpm-ostree kargs 2>/dev/null)"; fi
    fi
    if [ -e /etc/kernel/proxmox-boot-uuids ]; then say is proxmox; fi
    for tool in grubby update-grub grub2-mkconfig grub-mkconfig proxmox-boot-tool kernel-install \
        mkinitcpio dracut update-initramfs modprobe rpm-ostree; do
        if command -v "$tool" >/dev/null 2>&1; then say tool "$tool"; fi
    done
    give grub /etc/default/grub
    # Only some distributions' grub-mkconfig reads the folder too.
    mkconfig=$(command -v grub-mkconfig || command -v grub2-mkconfig || :)
    if [ -e /etc/debian_version ] || { [ -n "$mkconfig" ] && grep -q 'default/grub\.d' "$mkconfig"; }; then
        for file in /etc/default/grub.d/*.cfg; do give grub "$file"; done
    fi
    for file in /boot/grub2/grub.cfg /boot/grub/grub.cfg; do
        [ -e "$file" ] || continue
        say grub_cfg "$file"
        for from in /etc/default/grub /etc/default/grub.d/*.cfg; do
            if [ "$from" -nt "$file" ]; then say is grub_stale; break; fi
        done
        break
    done
    for folder in /boot/loader/entries /efi/loader/entries /boot/efi/loader/entries; do
        if [ -d "$folder" ] && [ ! -r "$folder" ]; then say unreadable "$folder"; fi
        for file in "$folder"/*.conf; do give entry "$file"; done
    done
    give install /etc/kernel/cmdline
    for folder in /etc /run /usr/local/lib /usr/lib /lib; do
        # Where /lib is /usr/lib, it was read already.
        [ "$folder" != /lib ] || [ ! -L /lib ] || continue
        for file in "$folder"/modprobe.d/*.conf; do give modprobe "$file"; done
    done
    for module in ttm amdttm; do
        [ -d "/sys/module/$module" ] || continue
        say module "$module"
        first limit "/sys/module/$module/parameters/pages_limit"
    done
    gpus
    release=
    if command -v grubby >/dev/null 2>&1; then release=$(grubby --default-kernel 2>/dev/null); fi
    release=${release##*/vmlinuz-}
    if [ -z "$release" ]; then release=$(ls /lib/modules 2>/dev/null | sort -V 2>/dev/null | tail -n 1); fi
    release=${release:-$(uname -r)}
    say release "$release"
    # Containers, and machines that another one starts, have the tools and no such image.
    for file in "/boot/initrd.img-$release" "/boot/initramfs-$release.img" "/boot/initrd-$release" \
        /boot/initramfs-linux*.img /boot/*/"$release"/initrd /efi/*/"$release"/initrd \
        /boot/efi/*/"$release"/initrd /boot/EFI/Linux/*.efi /efi/EFI/Linux/*.efi; do
        [ -e "$file" ] || continue
        say is early
        for from in /etc/modprobe.d/*.conf; do
            if [ "$from" -nt "$file" ]; then say newer "$from"; fi
        done
        break
    done
}

case $(uname -s) in
Darwin) say is darwin && darwin ;;
*) linux ;;
esac
records
say end .
