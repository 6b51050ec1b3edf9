//! The hosts as a person wrote them down: reading, checking, selecting and editing
//! `inventory.toml`. Must not connect anywhere.
//!
//! A text becomes a [`tree`] of values that know where they stand; [`read`] makes settings of
//! them; [`resolve`] puts tables together. Edits change bytes of the text and leave all others.

pub mod diff;
pub mod edit;
pub(crate) mod fault;
pub mod file;
pub mod host;
pub mod key;
pub mod range;
mod read;
mod resolve;
pub mod select;
pub mod show;
pub(crate) mod tree;

use std::path::Path;

pub use fault::Fault;
pub use host::{
    ApiSettings, Cluster, Connection, Found, Group, Host, Inventory, Level, Origin, SshSettings,
};

use fault::Faults;

impl Inventory {
    /// Reads a text. Relative files in it are taken from the folder of `path`.
    ///
    /// # Errors
    /// All that is wrong with it, in the order of the text.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Vec<Fault>> {
        let mut faults = Faults::new(text);
        let mut warnings = Faults::new(text);
        let root = tree::parse(text, &mut faults);
        let partial = !faults.is_empty();
        let tables = read::read(&root, &mut faults);
        let mut inventory = resolve::resolve(path, &tables, partial, &mut faults, &mut warnings);
        if !faults.is_empty() {
            return Err(faults.sorted());
        }
        inventory.warnings = warnings.sorted();
        Ok(inventory)
    }
}
