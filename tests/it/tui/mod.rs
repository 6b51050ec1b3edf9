//! The screens: what they show, that nothing breaks them, and that the terminal is given back.

mod drift;
mod flow;
mod fuzz;
mod lab;
mod pty;
mod questions;
mod replay;
pub mod scene;
mod snapshots;
pub mod terminal;
mod tmux;
