//! Hosts by SSH, against a real OpenSSH server. Run as root: the server logs its users in.

mod commands;
mod logins;
mod refusals;
pub(crate) mod server;
mod throughput;
