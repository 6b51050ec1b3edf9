//! The engine as a whole: exactness of splits and batches, refusals, and golden values made by
//! llama.cpp (`oracles/engine_goldens.sh`). `WINDLASS_ENGINE_FULL=1` runs all of the goldens.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod exact;
mod goldens;
mod refusals;
mod support;
