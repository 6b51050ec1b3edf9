//! A stage: takes hidden states from the one before, runs its layers, passes them on. The last
//! one samples. Sits on `net` and a [`compute::Compute`]; knows nothing of HTTP or of requests.

pub mod compute;
pub mod downstream;
pub mod executor;
pub mod rejoin;
pub mod setup;
pub mod stats;
