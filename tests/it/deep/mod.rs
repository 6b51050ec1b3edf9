//! Tests in virtual machines, for what hosts in namespaces cannot show: kernels that take parameters or
//! do not, real reboots, clocks. They are ignored everyday; `cargo xtask deep` runs them.

mod align;
mod clock;
mod clone;
mod harness;
mod memory;
