//! What all work on hosts is done with: where to tell, whom to ask, and what the run is about. Must
//! not know commands or screens.

use std::path::PathBuf;

use crate::event::{Asker, Emitter, Stop};
use crate::paths::Paths;

/// The surroundings of a run.
#[derive(Clone, Debug)]
pub struct Context {
    /// Tells what happens.
    pub emitter: Emitter,
    /// Asks.
    pub asker: Asker,
    /// The folders on this machine.
    pub paths: Paths,
    /// Id of the run.
    pub run: String,
    /// The inventory's file, where one is named.
    pub inventory: Option<PathBuf>,
    /// Selector of the only hosts the run may touch.
    pub limit: Option<String>,
    /// Whether the keys of unknown hosts are taken.
    pub accept_new_host_keys: bool,
    /// Whether nothing is to be changed.
    pub check: bool,
    /// Asked for by the first interrupt of a run that can come to a gentle end.
    pub stop: Stop,
}
