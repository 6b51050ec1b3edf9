//! What a copy's boot needs, as scripts of a POSIX shell. Must not know sessions.

use super::script::{PATH, root};
use crate::ssh::quote;

/// Makes anew what the boot needs, and puts the boot loader there: `grub` on a disk for a BIOS. By UEFI,
/// `loader` is the place of the EFI system partition and the loader's path in it.
pub fn bootable(
    run: &str,
    disk: &str,
    grub: Option<&str>,
    loader: Option<(&str, &str)>,
    uefi: bool,
) -> String {
    let here = quote(&root(run));
    let there = match loader {
        Some((place, loader)) if uefi => is_there(place, loader),
        _ => String::new(),
    };
    let mut out = format!(
        "set -e\n{PATH}cd {here}\n{there}\
         mkdir -p dev proc sys run\n\
         for one in dev proc sys; do mount --rbind /$one $one; mount --make-rslave $one; done\n\
         mount -t tmpfs tmpfs run\n\
         inside() {{ chroot . \"$@\" </dev/null >../said 2>&1 || {{ echo \"$1 in the copy said: $(tail -n 1 ../said)\" >&2; exit 9; }}; }}\n\
         has() {{ [ -x usr/sbin/$1 ] || [ -x usr/bin/$1 ] || [ -x sbin/$1 ]; }}\n\
         if has update-initramfs; then inside update-initramfs -u -k all\n\
         elif has dracut; then inside dracut --force --regenerate-all\n\
         elif has mkinitcpio; then inside mkinitcpio -P; fi\n"
    );
    out.push_str(
        "if has update-grub; then inside update-grub\n\
         elif has grub2-mkconfig && [ -d boot/grub2 ]; then inside grub2-mkconfig -o /boot/grub2/grub.cfg\n\
         elif has grub-mkconfig && [ -d boot/grub ]; then inside grub-mkconfig -o /boot/grub/grub.cfg; fi\n",
    );
    // Last: a BIOS starts what has it.
    if let (Some(grub), false) = (grub, uefi) {
        out.push_str(&format!(
            "inside {} --target=i386-pc {}\n",
            quote(grub),
            quote(disk)
        ));
    }
    if let (Some(grub), Some((place, loader)), true) = (grub, loader, uefi) {
        out.push_str(&embedded(grub, place, loader));
    }
    out.push_str("cd /\nsync\n");
    out
}

/// The loader's path in the copy, and a shell's search for it there, whose file system minds no case.
fn search(place: &str, loader: &str) -> (String, String) {
    let path = loader.replace('\\', "/");
    let path = path.trim_start_matches('/').to_owned();
    let below = place.trim_matches('/');
    let find = format!(
        "find {} -type f -ipath {}",
        quote(below),
        quote(&format!("{below}/{path}"))
    );
    (path, find)
}

/// Fails unless the copy has the loader: its firmware would find nothing to start.
fn is_there(place: &str, loader: &str) -> String {
    let (path, find) = search(place, loader);
    let said = format!(
        "{place} has no {path}, which the firmware of the source starts: is its system on the disk that was copied?"
    );
    format!(
        "[ -n \"$({find} | head -n 1)\" ] || {{ echo {} >&2; exit 9; }}\n",
        quote(&said)
    )
}

/// Makes a GRUB for UEFI anew that has the identifier of its file system inside it, as those have that no
/// distribution signed.
fn embedded(grub: &str, place: &str, loader: &str) -> String {
    let (path, find) = search(place, loader);
    let folder = path.rsplit('/').nth(1).unwrap_or_default();
    let how = match folder.is_empty() || folder.eq_ignore_ascii_case("boot") {
        true => "--removable".to_owned(),
        false => quote(&format!("--bootloader-id={folder}")),
    };
    let below = place.trim_matches('/');
    format!(
        "one=$({find} | head -n 1)\n\
         if [ -n \"$one\" ] && grep -aq -e 'search\\.fs_uuid [0-9A-Fa-f]' -e '(lvmid/' \"$one\"; then inside {} --no-nvram {} {how}; fi\n",
        quote(grub),
        quote(&format!("--efi-directory=/{below}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_without_the_loader_that_firmware_is_to_start_is_none() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(place.path().join("efi/EFI/Debian")).unwrap();
        std::fs::write(place.path().join("efi/EFI/Debian/shimx64.efi"), "x").unwrap();
        let tried = |loader: &str| {
            let script = is_there("/efi", loader);
            std::process::Command::new("sh")
                .args(["-ec", &script])
                .current_dir(place.path())
                .output()
                .unwrap()
        };
        assert!(tried("\\EFI\\debian\\shimx64.efi").status.success());
        let said = tried("\\EFI\\arch\\grubx64.efi");
        assert_eq!(said.status.code(), Some(9));
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(
            said.starts_with("/efi has no EFI/arch/grubx64.efi"),
            "{said}"
        );
    }

    #[test]
    fn a_grub_with_an_identifier_inside_is_made_anew_under_its_own_name() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("boot/efi/EFI/Arch");
        std::fs::create_dir_all(&folder).unwrap();
        let made = |text: &str, loader: &str| {
            std::fs::write(folder.join("grubx64.efi"), text).unwrap();
            let script = format!(
                "cd {}\ninside() {{ echo \"$@\"; }}\n{}",
                place.path().display(),
                embedded("/usr/bin/grub-install", "/boot/efi", loader)
            );
            let output = std::process::Command::new("sh")
                .args(["-ec", &script])
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let own = "\0\0search.fs_uuid 1a2b3c root\0";
        let wanted =
            "/usr/bin/grub-install --no-nvram --efi-directory=/boot/efi --bootloader-id=arch\n";
        assert_eq!(made(own, "\\EFI\\arch\\grubx64.efi"), wanted);
        assert_eq!(made(own, "\\EFI\\other\\grubx64.efi"), "");
        let signed = "\0search.fs_uuid\0search.fs_label root";
        assert_eq!(made(signed, "\\EFI\\arch\\grubx64.efi"), "");
    }
}
