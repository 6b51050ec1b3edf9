//! Arithmetic of the decoder on plain slices. Must not know models, files or sequences.
//!
//! Every function computes a row with the same operations in the same order, whatever rows stand
//! beside it and whichever thread runs it, so that batches, splits and replays agree bit for bit.
//! Own kernels sum in eight lanes with fused multiply-add; a processor that has these as vector
//! instructions and one that has not get the same bits.

#[macro_use]
mod tier;
pub mod attention;
pub mod floats;
pub mod kquant;
pub mod legacy;
pub mod matrix;
pub mod rows;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use tier::{Runner, tier_name};
