//! The orchestrator's core: knows hosts, models, plans and deployments; nothing of screens.

pub mod model;
