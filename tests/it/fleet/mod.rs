//! Deployments on real hosts in namespaces: from nothing to an answer, and everything that is
//! broken on purpose on the way.

mod align;
mod clone;
mod clone_faults;
mod cloned;
pub mod controller;
mod ends;
mod faults;
mod follow;
mod keys;
mod kinds;
mod leaving;
mod memory;
mod net;
mod path;
mod push;
mod refusals;
mod serve;
mod source;
mod verify;
mod versions;
