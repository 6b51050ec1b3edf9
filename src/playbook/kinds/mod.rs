//! What a task can do: a unit struct per kind, in a file of its own, behind [`Kind`]. Each reads the
//! state, computes the change, and applies it; where it cannot tell it says unknown, never ok.

mod align;
pub mod argument;
mod assert;
mod bench;
mod clone;
mod command;
mod down;
mod facts;
mod file;
mod gpu_memory;
mod model;
mod net_check;
pub mod once;
mod package;
mod reboot;
mod remote;
mod script;
mod serve;
mod service;
mod template;
mod verify;
mod wait_for;
pub mod work;

use futures_util::future::BoxFuture;

pub use argument::{Argument, Form, Given};
pub use work::{Acted, Done, Reached, Work};

use super::expression::Template;
use crate::event::Failure;

/// One kind of task.
pub trait Kind: Sync + std::fmt::Debug {
    /// The key by which a task is of this kind.
    fn name(&self) -> &'static str;

    /// The arguments it takes; there are no others.
    fn arguments(&self) -> &'static [Argument];

    /// The argument that is meant when a text stands in the table's place.
    fn main(&self) -> Option<&'static str> {
        None
    }

    /// Whether it works on all its hosts at once and not on each by itself. Then `host` and `facts`
    /// are not known to its arguments.
    fn together(&self) -> bool {
        false
    }

    /// What is wrong with arguments that are each right by themselves.
    fn check(&self, _arguments: &[(String, Template)]) -> Option<String> {
        None
    }

    /// Whether hosts keep marks of what of it was done, until the run is complete.
    fn leaves_marks(&self) -> bool {
        false
    }

    /// Whether it ends by itself at [`Work::timeout`], and takes what it started with it.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Does it: on the one host of `work`, or on all when [`Kind::together`].
    ///
    /// # Errors
    /// A failure of all hosts, or of the one it names.
    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>>;
}

/// All kinds, in the order in which they are listed.
pub const ALL: [&dyn Kind; 20] = [
    &facts::Facts,
    &verify::Verify,
    &align::Align,
    &gpu_memory::GpuMemory,
    &reboot::Reboot,
    &package::Package,
    &clone::CloneSystem,
    &net_check::NetCheck,
    &model::Model,
    &serve::PUSH,
    &serve::UP,
    &down::Down,
    &bench::Bench,
    &command::Command,
    &script::Script,
    &file::File,
    &template::TemplateFile,
    &service::Service,
    &assert::Assert,
    &wait_for::WaitFor,
];

/// The kind of this name.
pub fn of(name: &str) -> Option<&'static dyn Kind> {
    ALL.iter().copied().find(|kind| kind.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_can_be_found_and_its_main_argument_is_one_of_its_arguments() {
        for kind in ALL {
            assert_eq!(of(kind.name()).map(Kind::name), Some(kind.name()));
            if let Some(main) = kind.main() {
                assert!(
                    kind.arguments().iter().any(|a| a.name == main),
                    "{}",
                    kind.name()
                );
            }
        }
        let mut names: Vec<_> = ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
