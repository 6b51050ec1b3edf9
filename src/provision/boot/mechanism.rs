//! Which of a host's ways to kernel parameters is its own: the one that its next boot goes by, and that
//! its updates keep. Must not know how a way is gone.

use super::grub::{self, File};
use super::initramfs::Initramfs;
use super::{cmdline, entry};
use crate::ssh::quote;

/// What was seen on a host that matters for its kernel parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ground {
    /// Whether it is a Mac.
    pub darwin: bool,
    /// Whether it is NixOS.
    pub nixos: bool,
    /// Whether its system is a tree of ostree (Silverblue, Bazzite, CoreOS).
    pub ostree: bool,
    /// Which tools are there.
    pub tools: Vec<String>,
    /// /proc/cmdline.
    pub command_line: String,
    /// /etc/default/grub and what its own grub-mkconfig reads after it, in that order; empty where
    /// the first is not there.
    pub grub: Vec<File>,
    /// Where grub.cfg lies.
    pub grub_cfg: Option<String>,
    /// Whether a file that grub.cfg is made from was written after it: nobody made it anew since.
    pub grub_stale: bool,
    /// Loader entries.
    pub entries: Vec<File>,
    /// /etc/kernel/cmdline.
    pub kernel_cmdline: Option<File>,
    /// Whether Proxmox's boot tool copies kernels to the boot partitions.
    pub proxmox: bool,
    /// Files of modprobe.d in the order in which they count.
    pub modprobe: Vec<File>,
    /// Release of the kernel that will boot.
    pub release: String,
    /// Whether an image of the early file system for that kernel is there.
    pub early: bool,
    /// Files of modprobe.d that were written after that image.
    pub newer: Vec<String>,
    /// What `rpm-ostree kargs` says.
    pub kargs: Option<String>,
    /// Which module for GPU memory is loaded: `ttm` or `amdttm`.
    pub module: Option<String>,
}

impl Ground {
    /// Whether a tool is there.
    pub fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|own| own == tool)
    }
}

/// Who started the running kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// GRUB names the kernel's image.
    Grub,
    /// The firmware or systemd-boot: an initrd by a path with backslashes.
    Efi,
}

/// Who started the kernel, by its command line.
pub fn loader(command_line: &str) -> Option<Loader> {
    let value = |name: &str| cmdline::value(command_line, name);
    if value("BOOT_IMAGE").is_some() {
        return Some(Loader::Grub);
    }
    value("initrd")
        .is_some_and(|path| path.contains('\\'))
        .then_some(Loader::Efi)
}

/// A way to set kernel parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// sysctl and a service that repeats it.
    Macos,
    /// The system's configuration, which is its owner's.
    NixOs,
    /// `rpm-ostree kargs`.
    Ostree,
    /// grubby, for loader entries that GRUB reads.
    Grubby,
    /// /etc/default/grub, then the line that makes grub.cfg from it.
    Grub {
        /// The line.
        apply: String,
    },
    /// Loader entries, and /etc/kernel/cmdline for those of later kernels.
    Entries,
    /// /etc/kernel/cmdline, then the line that builds or copies kernels with it.
    KernelCmdline {
        /// The line.
        apply: String,
    },
    /// modprobe.d; only parameters of modules.
    Modprobe {
        /// What builds the initramfs, which may hold a copy.
        initramfs: Option<Initramfs>,
    },
}

impl Mechanism {
    /// The way in a few words.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Macos => "sysctl",
            Self::NixOs => "the NixOS configuration",
            Self::Ostree => "rpm-ostree kargs",
            Self::Grubby => "grubby",
            Self::Grub { .. } => "/etc/default/grub",
            Self::Entries => "loader entries",
            Self::KernelCmdline { .. } => "/etc/kernel/cmdline",
            Self::Modprobe { .. } => "modprobe.d",
        }
    }
}

/// The host's own way.
///
/// # Errors
/// When it has none that is known: why, and what to do.
pub fn mechanism(ground: &Ground) -> Result<Mechanism, String> {
    if ground.darwin {
        return Ok(Mechanism::Macos);
    }
    if ground.nixos {
        return Ok(Mechanism::NixOs);
    }
    if ground.ostree {
        return match ground.has("rpm-ostree") {
            true => Ok(Mechanism::Ostree),
            false => Err(
                "its system is a tree of ostree, but rpm-ostree is not there: set the parameter with \
                 `ostree admin kargs`, or as that system's own documentation says"
                    .to_owned(),
            ),
        };
    }
    let loader = loader(&ground.command_line);
    let values = grub::read(&ground.grub).unwrap_or_default();
    // With GRUB_ENABLE_BLSCFG=false the entries lie there and nobody reads them.
    let entries = match (values.entries(), ground.entries.is_empty()) {
        (Some(enabled), _) => enabled,
        (None, empty) => !empty,
    };
    if ground.has("grubby") && entries {
        return Ok(Mechanism::Grubby);
    }
    if !ground.grub.is_empty()
        && loader != Some(Loader::Efi)
        && let Some(apply) = makes_grub_cfg(ground)
    {
        return Ok(Mechanism::Grub { apply });
    }
    if ground.proxmox && ground.has("proxmox-boot-tool") && ground.kernel_cmdline.is_some() {
        return Ok(Mechanism::KernelCmdline {
            apply: "proxmox-boot-tool refresh".to_owned(),
        });
    }
    // Where another system's are the only ones, this one boots in another way.
    let mut own = ground.entries.iter();
    if own.any(|file| entry::edited(&file.text)) && loader != Some(Loader::Grub) {
        return Ok(Mechanism::Entries);
    }
    if ground.kernel_cmdline.is_some()
        && loader != Some(Loader::Grub)
        && let Some(apply) = installs_kernel(ground)
    {
        return Ok(Mechanism::KernelCmdline { apply });
    }
    if ground.has("modprobe") {
        return Ok(Mechanism::Modprobe {
            initramfs: Initramfs::of(|tool| ground.has(tool)),
        });
    }
    Err("no way to set kernel parameters was found: no GRUB, no loader entries, no modprobe. Where it \
         is a container or a virtual machine, set them on the machine that starts it"
        .to_owned())
}

/// The line that makes grub.cfg.
fn makes_grub_cfg(ground: &Ground) -> Option<String> {
    // Its boot partitions hold copies, which grub's own tools do not write.
    if ground.proxmox && ground.has("proxmox-boot-tool") {
        return Some("proxmox-boot-tool refresh".to_owned());
    }
    if ground.has("update-grub") {
        return Some("update-grub".to_owned());
    }
    let tool = ["grub2-mkconfig", "grub-mkconfig"]
        .into_iter()
        .find(|tool| ground.has(tool))?;
    Some(format!("{tool} -o {}", quote(ground.grub_cfg.as_deref()?)))
}

/// The line that gives an installed kernel its command line anew.
fn installs_kernel(ground: &Ground) -> Option<String> {
    if ground.has("mkinitcpio") {
        return Some(Initramfs::Mkinitcpio.line(&ground.release));
    }
    (ground.has("kernel-install") && !ground.release.is_empty()).then(|| {
        let release = &ground.release;
        format!(
            "kernel-install add {} {}",
            quote(release),
            quote(&format!("/usr/lib/modules/{release}/vmlinuz"))
        )
    })
}
