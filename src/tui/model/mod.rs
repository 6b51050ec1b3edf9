//! All that the screens show and all that a person is doing at them. Pure: what happens and what is
//! pressed go in, effects to be carried out come out. Must not know terminals, files or hosts.
//!
//! - [`data`]: what is known; [`fold`] makes it of events and messages, whoever emits them; [`drift`]:
//!   what a comparison of hosts found.
//! - [`ui`]: where the person is and what is being typed.
//! - [`act`], [`moves`], [`form`]: what an input does.

pub mod act;
pub mod data;
pub mod drift;
pub mod fold;
pub mod form;
pub mod moves;
pub mod runs;
pub mod ui;

use std::path::PathBuf;
use std::sync::Arc;

use crate::deploy::client::Turn;
use crate::deploy::remote::record::Record;
use crate::event::{Envelope, Failure};
use crate::facts::Facts;
use crate::inventory::edit::Edit;

pub use data::{Data, Source, Standing};
pub use ui::Ui;

/// Something that became known.
#[derive(Clone, Debug)]
pub enum Message {
    /// An event, of whatever run.
    Event(Arc<Envelope>),
    /// How the watched deployment is.
    Standing(Standing),
    /// Name of the cluster.
    Cluster(String),
    /// The record of what runs.
    Record(Box<Record>),
    /// Seconds since the head began to serve.
    Uptime(f64),
    /// The inventory as it is read.
    Inventory(Box<Listed>),
    /// There is no inventory that can be used.
    NoInventory {
        /// Why, as a sentence.
        why: String,
        /// Whether there is a file, and something is wrong with it.
        invalid: bool,
    },
    /// What was read from a host.
    Facts(String, Box<Facts>),
    /// Lines of a worker's log.
    Log(String, Vec<String>),
    /// Whether there is a head to talk to, and which model.
    Talk(Option<String>),
    /// What an edit of the inventory would do, or why it cannot be made.
    Preview(Result<Preview, String>),
    /// The inventory was written, or why not.
    Written(Result<String, String>),
    /// The playbooks that can be run.
    Playbooks(Vec<Play>),
    /// Where what is shown comes from.
    Source(Source),
    /// A run has ended that tells its summary later, or never: why, when it failed.
    Ended(String, Option<Failure>),
    /// Nobody waits any more for answers to this run's questions.
    Unasked(String),
    /// Worth a line at the bottom.
    Note(String),
}

/// The inventory for the screens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The file.
    pub path: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Name of the head.
    pub head: String,
    /// Its hosts in order.
    pub hosts: Vec<ListedHost>,
}

/// A host of the inventory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedHost {
    /// Its name.
    pub name: String,
    /// Where it is reached.
    pub address: String,
    /// Whether the address was written, not taken from the name.
    pub address_written: bool,
    /// Address of the data path, when it is another.
    pub data: Option<String>,
    /// User to log in as.
    pub user: Option<String>,
    /// Port of SSH.
    pub port: Option<u16>,
    /// Private key file.
    pub identity: Option<String>,
    /// Whether it is this machine.
    pub local: bool,
    /// The most memory to plan with, bytes.
    pub memory_limit: Option<u64>,
    /// Its groups.
    pub groups: Vec<String>,
}

/// A playbook that can be run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Play {
    /// Its name, or its file.
    pub name: String,
    /// What it is for, or what is wrong with it.
    pub about: String,
    /// Its values, as they are typed: name, value.
    pub vars: Vec<(String, String)>,
    /// Whether one of its tasks stops what runs.
    pub stops: bool,
}

/// An edit that was computed and not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The file.
    pub path: PathBuf,
    /// Its text now; `None` when the file is new.
    pub old: Option<String>,
    /// Its text after.
    pub new: String,
    /// The difference.
    pub diff: String,
}

/// A run that can be started from the screens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// A playbook.
    Playbook {
        /// Its name or file.
        name: String,
        /// Whether changes are only computed.
        check: bool,
        /// Values in place of its own, as typed: name, value.
        vars: Vec<(String, String)>,
    },
    /// Bring this model up.
    Up(String),
    /// Stop the deployment.
    Down,
    /// Compare the hosts.
    Verify,
}

/// How the screens were left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// By the person.
    Quit,
    /// By Ctrl-C.
    Interrupt,
    /// By a signal, or because the terminal is gone.
    Terminate,
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// End.
    Leave(Leave),
    /// Give an answer to a run's question.
    Answer {
        /// The run.
        run: String,
        /// The question.
        id: String,
        /// The answer.
        answer: String,
    },
    /// Tell a run that its question will not be answered.
    Dismiss {
        /// The run.
        run: String,
    },
    /// Compute an edit of the inventory.
    Preview(Edit),
    /// Write it.
    Write(Preview),
    /// Start a run.
    Start(Job),
    /// Interrupt a run.
    Stop(String),
    /// Ask the model.
    Ask {
        /// The question.
        prompt: String,
        /// What was said before.
        before: Vec<Turn>,
    },
    /// Stop the answer that comes.
    StopAnswer,
    /// Read the inventory and look at the hosts anew.
    Refresh,
}

/// What is known, and where the person is.
#[derive(Clone, Debug)]
pub struct Model {
    /// What is known.
    pub data: Data,
    /// What was known when the picture was frozen.
    pub frozen: Option<Box<Data>>,
    /// Where the person is.
    pub ui: Ui,
}

impl Model {
    /// Nothing known yet. `offset` is seconds that local time is ahead of UTC.
    pub fn new(offset: i32) -> Self {
        Self {
            data: Data::new(offset),
            frozen: None,
            ui: Ui::default(),
        }
    }

    /// What is to be shown: the present, or what was frozen.
    pub fn seen(&self) -> &Data {
        self.frozen.as_deref().unwrap_or(&self.data)
    }

    /// Takes what a clock says, in seconds since some beginning; whether what is shown is another then.
    pub fn tick(&mut self, clock: f64) -> bool {
        self.data.tick(clock)
    }

    /// Takes something that became known.
    pub fn take(&mut self, message: Message) {
        match message {
            Message::Preview(Ok(preview)) if preview.diff.is_empty() => {
                self.ui.form = None;
                self.ui.note = Some(format!("{} says so already", preview.path.display()));
            }
            Message::Preview(Ok(preview)) => self.ui.confirm = Some(ui::Confirm::write(preview)),
            Message::Preview(Err(reason)) => match &mut self.ui.form {
                Some(form) => form.fault = Some(super::text::shown(&reason)),
                None => self.ui.note = Some(super::text::shown(&reason)),
            },
            Message::Written(Ok(said)) => {
                self.ui.form = None;
                self.ui.note = Some(super::text::shown(&said));
            }
            Message::Written(Err(reason)) | Message::Note(reason) => {
                self.ui.note = Some(super::text::shown(&reason));
            }
            Message::Event(envelope) => {
                if let crate::event::Event::RunStarted { .. } = &envelope.event {
                    self.ui.run = Some(envelope.run.clone());
                }
                self.data.event(&envelope);
            }
            other => {
                self.data.message(other);
                self.keep_row();
            }
        }
        if self.data.questions.is_empty() && self.ui.is_answering() {
            self.ui.typing = None;
        }
    }
}
