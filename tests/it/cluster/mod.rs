//! Real clusters: the real worker program, real processes, real connections, seen from outside.

mod bytes;
mod crowd;
mod demo;
mod equality;
pub mod harness;
pub mod http;
mod loss;
mod memory;
mod openai;
mod strangers;
