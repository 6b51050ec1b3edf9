//! Podman's store, by what `podman info` says of it.

/// The store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// Where images are.
    pub root: Option<String>,
    /// How layers are put together, e.g. `overlay`.
    pub driver: Option<String>,
    /// The size of its file system, bytes.
    pub total_bytes: Option<u64>,
    /// What is used there, bytes.
    pub used_bytes: Option<u64>,
    /// Images.
    pub images: Option<u64>,
}

impl Store {
    /// What is free there, bytes.
    pub fn free_bytes(&self) -> Option<u64> {
        self.total_bytes?.checked_sub(self.used_bytes?)
    }

    /// Whether it is a user's own, by where it is: the system's is in /var or where root set it.
    pub fn rootless(&self) -> Option<bool> {
        let root = self.root.as_deref()?;
        Some(root.contains("/.local/share/") || root.starts_with("/home/"))
    }
}

/// Reads it.
pub fn parse(text: &str) -> Store {
    let fields = super::indented(text);
    let of = |name: &str| fields.get(&format!("store.{name}"));
    let number = |name: &str| of(name)?.parse().ok();
    Store {
        root: of("graphroot").cloned(),
        driver: of("graphdrivername").cloned(),
        total_bytes: number("graphrootallocated"),
        used_bytes: number("graphrootused"),
        images: number("imagestore.number"),
    }
}
