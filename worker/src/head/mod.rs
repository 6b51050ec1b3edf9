//! The head: takes requests, keeps the lanes full, gives each sequence its tokens.

pub mod handle;
