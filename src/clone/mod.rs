//! `clone`: one machine's system onto another machine's disk, over SSH and a stream between the two,
//! bootable, with an identity of its own, proved identical. Must not know how that is shown.
//!
//! - [`disks`]: block devices and mounts as a host tells them, and the name a disk is confirmed by. Pure.
//! - [`source`]: what of a host's disk is its system. Pure.
//! - [`judge`]: whether it may be done. Pure.
//! - [`layout`]: the partitions of the new disk, fitted to it. Pure.
//! - [`logical`]: logical volumes of LVM, and what a snapshot of one takes. Pure.
//! - [`identity`]: what must not be the same on both, and the texts that name partitions. Pure.
//! - `compare`: what differs between a tree and its copy. Pure.
//! - [`script`], [`snapshots`], `boot`: what hosts are told to do.
//! - [`stream`]: the copying and the comparing, by the worker's program on both hosts.
//! - `plan`: what is to be done.
//! - [`after`]: the target rebooted into its copy, looked at, compared with the source.
//! - [`work`]: the steps.

pub mod after;
mod boot;
mod compare;
pub mod disks;
pub mod identity;
pub mod judge;
pub mod layout;
pub mod logical;
mod plan;
pub mod script;
pub mod snapshots;
pub mod source;
mod stream;
pub mod work;

use std::path::PathBuf;

pub use after::Reboot;
pub use work::{Report, between, clone, one_host};

/// Name of the step, in failures.
pub const STEP: &str = "clone";

/// What somebody wants cloned.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Host whose system it is.
    pub from: String,
    /// Host whose disk is written.
    pub to: String,
    /// That disk, as it is named there.
    pub disk: String,
    /// The disk that holds the system; the one that the host runs from when `None`.
    pub source: Option<String>,
    /// What the target disk is confirmed by; asked for when `None`.
    pub confirm: Option<String>,
    /// Name of the new system; the target host's when `None`.
    pub hostname: Option<String>,
    /// That the target is rebooted into the copy afterwards.
    pub reboot: Option<Reboot>,
    /// Programs of the worker to choose from, before the one beside this program.
    pub workers: Vec<PathBuf>,
}
