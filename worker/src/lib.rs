//! The engine that runs one stage of a model, and the API the head answers.

pub mod api;
pub mod head;
pub mod text;
