//! Brings a plan to life: keys, pieces, workers, the control connection; and the demo, a whole
//! deployment on this machine. Emits events; must not know how they are shown.

pub mod answer;
pub mod client;
pub mod demo;
pub mod end;
pub mod fetch;
pub mod keys;
pub mod lines;
pub mod local;
pub mod pieces;
pub mod rates;
pub mod remote;
pub mod runtime;
pub mod speeds;
