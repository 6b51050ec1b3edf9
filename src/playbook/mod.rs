//! Playbooks: files that say what is to be so on which hosts, checked before anything is reached,
//! and run task by task. Emits events; must not know how they are shown.
//!
//! From low to high:
//! - [`expression`]: texts with `{{ }}`, and conditions. Pure.
//! - [`model`]: a playbook as it is run: tasks, their arguments.
//! - [`kinds`]: what a task can do, a file each.
//! - [`parse`]: from text to tasks, with all that is wrong. Pure.
//! - [`load`]: files, included files, and the playbooks that come with windlass.
//! - [`choice`]: which tasks a run is about. Pure.
//! - [`progress`]: what is finished, kept in a file from which a run is resumed.
//! - [`results`]: results of tasks, as expressions see them. Pure.
//! - [`undefined`]: expressions without a value, as far as the inventory tells. Pure.
//! - [`run`]: the runner.
//!
//! ```ignore
//! let playbook = playbook::load("candle-pipeline")?;
//! let ready = playbook::prepare(&context, playbook, options)?; // connects nowhere
//! emitter.emit(Scope::run(), Event::RunStarted { hosts: ready.hosts(), tasks: ready.tasks(), .. });
//! let outcome = ready.run(&context).await;
//! ```

pub mod choice;
pub mod expression;
pub mod kinds;
pub mod load;
pub mod model;
pub mod parse;
pub mod progress;
pub mod results;
pub mod run;
pub mod undefined;

pub use crate::inventory::Fault;
pub use load::{LoadError, Shipped, load, shipped};
pub use model::{Playbook, Task};
pub use run::{Options, Outcome, Prepared, prepare, resume, resume_command};
