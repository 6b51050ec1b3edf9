//! The engine that runs one stage of a model, and the API the head answers.

pub mod api;
pub mod carry;
pub mod engine;
pub mod head;
pub mod host;
pub mod net;
pub mod run;
pub mod service;
pub mod stage;
pub mod text;
pub mod unit;
