//! What must be built anew when options of modules change that an early file system holds a copy of.
//! Must not know whether it does.

use crate::ssh::quote;

/// What builds a host's initramfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initramfs {
    /// initramfs-tools: Debian, Ubuntu and theirs.
    UpdateInitramfs,
    /// dracut: Fedora, openSUSE and theirs.
    Dracut,
    /// mkinitcpio: Arch and theirs.
    Mkinitcpio,
}

impl Initramfs {
    /// By the tools that are there. Debian's wins where dracut is beside it: there it is what the
    /// packages of kernels call.
    pub fn of(has: impl Fn(&str) -> bool) -> Option<Self> {
        [
            ("update-initramfs", Self::UpdateInitramfs),
            ("mkinitcpio", Self::Mkinitcpio),
            ("dracut", Self::Dracut),
        ]
        .into_iter()
        .find(|(tool, _)| has(tool))
        .map(|(_, tool)| tool)
    }

    /// The line to run. `release`: of the kernel that will boot, which need not be the one that runs;
    /// dracut builds for the running one unless told.
    pub fn line(self, release: &str) -> String {
        match self {
            Self::UpdateInitramfs => format!("update-initramfs -u -k {}", quote(release)),
            Self::Dracut => format!("dracut --force --kver {}", quote(release)),
            Self::Mkinitcpio => "mkinitcpio -P".to_owned(),
        }
    }
}
