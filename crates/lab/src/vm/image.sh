# Makes a Debian system that boots by GRUB, from BIOS and from UEFI, out of an empty disk: its own shell,
# mount namespace and nothing else of the machine's. Arguments: the loop device of the disk, whose second
# partition is to hold the system and whose third is UEFI's; an empty folder.
set -eu
disk=$1 root=$2
part=${disk}p2 efi=${disk}p3
export DEBIAN_FRONTEND=noninteractive LC_ALL=C

mke2fs -q -F -t ext4 -L root "$part"
mount -o noatime "$part" "$root"

# The kernel of clouds has no ttm. The initramfs holds what the disk needs and no more: it is unpacked
# by an emulated processor at each boot.
mmdebstrap --quiet --mode=root --variant=minbase \
    --include=linux-image-amd64,grub-pc,grub-efi-amd64-bin,initramfs-tools,zstd,kmod,systemd,systemd-sysv,libpam-systemd,dbus,udev,openssh-server,sudo,iproute2,iputils-ping,iperf3,ethtool,procps,netbase,util-linux-extra,fdisk,e2fsprogs,dosfstools,efibootmgr,lvm2,ca-certificates \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/initramfs-tools/*/lvm2' \
    --dpkgopt='path-exclude=/usr/share/initramfs-tools/*/dmsetup' \
    --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"' \
    --essential-hook='printf "MODULES=list\nCOMPRESS=zstd\nCOMPRESSLEVEL=1\n" >"$1/etc/initramfs-tools/conf.d/lab"' \
    --essential-hook='printf "virtio_pci\nvirtio_blk\nvirtio_net\next4\n" >>"$1/etc/initramfs-tools/modules"' \
    --essential-hook='echo grub-pc grub-pc/install_devices_empty boolean true | chroot "$1" debconf-set-selections' \
    bookworm "$root"

printf 'LABEL=root / ext4 defaults,noatime 0 1\nLABEL=EFI /boot/efi vfat noauto 0 0\n' >"$root/etc/fstab"
mkdir -p "$root/boot/efi"
# Each machine finds its own at its first boot.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname"
: >"$root/etc/machine-id"
echo ttm >"$root/etc/modules-load.d/lab.conf"
printf 'PermitRootLogin prohibit-password\nPasswordAuthentication no\nMaxStartups 100\n' \
    >"$root/etc/ssh/sshd_config.d/lab.conf"
printf 'export SYSTEMD_PAGER=\n' >"$root/etc/profile.d/lab.sh"

# Name, keys and addresses come with the virtual hardware, as a tar archive.
cat >"$root/etc/systemd/system/lab-identity.service" <<'U'
[Unit]
Description=Takes this machine's identity from its firmware
DefaultDependencies=no
ConditionPathExists=!/etc/lab-identity
After=systemd-remount-fs.service
Before=sysinit.target systemd-networkd.service systemd-tmpfiles-setup.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'modprobe qemu_fw_cfg && tar -xf /sys/firmware/qemu_fw_cfg/by_name/opt/windlass/identity/raw -C / && hostname -F /etc/hostname && : >/etc/lab-identity'
[Install]
WantedBy=sysinit.target
U
# The kernel takes whole seconds from the clock of the hardware, which leaves two machines up to one apart;
# hwclock waits for the tick.
cat >"$root/etc/systemd/system/lab-clock.service" <<'U'
[Unit]
Description=Takes the time from the hardware's clock to the fraction of a second
Before=ssh.service
[Service]
Type=oneshot
ExecStart=/sbin/hwclock --hctosys --utc
[Install]
WantedBy=multi-user.target
U
chroot "$root" systemctl -q enable lab-clock.service lab-identity.service systemd-networkd.service ssh.service
# What takes seconds of an emulated processor and is of no use here.
chroot "$root" systemctl -q mask systemd-networkd-wait-online.service apt-daily.timer \
    apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service getty@tty1.service \
    lvm2-monitor.service lvm2-lvmpolld.socket dm-event.socket blk-availability.service

mkdir -p "$root/etc/default/grub.d"
cat >"$root/etc/default/grub.d/10-lab.cfg" <<'G'
GRUB_TIMEOUT=0
GRUB_TERMINAL=serial
GRUB_DISABLE_OS_PROBER=true
GRUB_CMDLINE_LINUX="console=ttyS0 net.ifnames=0"
G
for folder in dev proc sys; do
    mount --rbind "/$folder" "$root/$folder"
    mount --make-rslave "$root/$folder"
done
chroot "$root" grub-install --target=i386-pc --no-floppy "$disk" 2>&1
chroot "$root" update-grub 2>&1
# The same menu for UEFI, under the name that every firmware tries. Not by grub-install: that wants the
# partition mounted, and not every kernel knows its file system.
cp -r "$root/usr/lib/grub/x86_64-efi" "$root/boot/grub/"
printf 'search.fs_label root root\nset prefix=($root)/boot/grub\n' >"$root/boot/grub/early.cfg"
chroot "$root" grub-mkimage -O x86_64-efi -o /boot/grub/bootx64.efi -p /boot/grub -c /boot/grub/early.cfg \
    part_gpt ext2 normal configfile search search_label search_fs_uuid linux gzio serial terminal test echo
mkfs.fat -n EFI "$efi"
export MTOOLS_SKIP_CHECK=1
mmd -i "$efi" ::/EFI ::/EFI/BOOT
mcopy -i "$efi" "$root/boot/grub/bootx64.efi" ::/EFI/BOOT/BOOTX64.EFI
rm "$root/boot/grub/bootx64.efi" "$root/boot/grub/early.cfg"
# Without udev there are no names by UUID, and the loop device's would be written down.
uuid=$(blkid -s UUID -o value "$part")
sed -i "s#root=$part#root=UUID=$uuid#" "$root/boot/grub/grub.cfg"
if grep -n "$disk" "$root/boot/grub/grub.cfg"; then
    echo "the lines above of grub.cfg name a device of the machine that made it" >&2
    exit 1
fi
for folder in dev proc sys; do umount -R "$root/$folder"; done
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
umount "$root"
