//! Where a lab keeps things and how everything outside its folder is named.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup;
use crate::command::{Context, Result, wrong};

/// The folder of a lab and the identity derived from it.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
    id: String,
}

impl Place {
    /// The lab in this folder, which need not exist; its parents are made.
    ///
    /// # Errors
    /// When the parents cannot be made, or the path holds what the mount options of an overlay
    /// cannot express.
    pub fn at(folder: &Path) -> Result<Self> {
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .filter(|name| is_name(name));
        let Some(name) = name else {
            return wrong(format!(
                "{}: a lab's folder is named with letters, digits and dashes",
                folder.display()
            ));
        };
        let parent = folder.parent().unwrap_or(Path::new("."));
        let parent = if parent.as_os_str().is_empty() {
            Path::new(".")
        } else {
            parent
        };
        fs::create_dir_all(parent).during(parent.display())?;
        let folder = parent.canonicalize().during(parent.display())?.join(name);
        let text = folder.to_string_lossy();
        if text.contains([',', ':', '\\', '"', '\'', '$', '`', '\n']) {
            return wrong(format!(
                "{text}: a lab's path may hold no comma, colon, quote, dollar sign or backslash"
            ));
        }
        // FNV-1a: names must only differ between paths.
        let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let id = format!("lab-{name}-{:06x}", hash >> 40);
        Ok(Self { folder, id })
    }

    /// The lab's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The lab's identity: what its namespaces and its control group are named by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The lab's name: its folder's.
    pub fn name(&self) -> &str {
        self.folder
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or("lab")
    }

    /// Folder of one host.
    pub fn host(&self, host: &str) -> PathBuf {
        self.folder.join("hosts").join(host)
    }

    /// Name of the network namespace of a host, of the controller (`ctl`) or the switches (`sw`).
    pub fn netns(&self, of: &str) -> String {
        format!("{}-{of}", self.id)
    }

    /// Where a network namespace is pinned.
    pub fn netns_path(&self, of: &str) -> PathBuf {
        Path::new("/run/netns").join(self.netns(of))
    }

    /// The control group of all processes of the lab.
    pub fn cgroup(&self) -> Result<PathBuf> {
        Ok(cgroup::root()?.join(&self.id))
    }

    /// The control group in which a host lives.
    pub fn host_cgroup(&self, host: &str) -> Result<PathBuf> {
        Ok(self.cgroup()?.join(format!("host-{host}")))
    }

    /// The control group of what serves a host from outside: its power supply or its wire.
    pub fn serving_cgroup(&self, what: &str, host: &str) -> Result<PathBuf> {
        Ok(self.cgroup()?.join(format!("{what}-{host}")))
    }

    /// The private key with which hosts let the controller in.
    pub fn identity(&self) -> PathBuf {
        self.folder.join("id")
    }

    /// The hosts' public keys.
    pub fn known_hosts(&self) -> PathBuf {
        self.folder.join("known_hosts")
    }

    /// The inventory of the lab.
    pub fn inventory(&self) -> PathBuf {
        self.folder.join("inventory.toml")
    }

    /// The password of every user who has one.
    pub fn password(&self) -> PathBuf {
        self.folder.join("password")
    }
}

/// Whether a name is fit for hosts and labs: it becomes part of interface and namespace names.
pub fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 32
        && !name.starts_with('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn labs_of_one_name_in_different_folders_are_told_apart() {
        let a = Place::at(Path::new("/tmp/one")).unwrap();
        let again = Place::at(Path::new("/tmp/../tmp/one")).unwrap();
        let b = Place::at(Path::new("/var/one")).unwrap();
        assert_eq!(a.id(), again.id());
        assert_ne!(a.id(), b.id());
        assert!(a.netns("h1").starts_with("lab-one-"));
    }

    #[test]
    fn paths_an_overlay_cannot_express_are_refused() {
        for bad in ["/tmp/a b", "/tmp/a:b", "/tmp/..", "/tmp/-x", "/"] {
            assert!(Place::at(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
