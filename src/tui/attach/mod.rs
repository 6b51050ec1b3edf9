//! What is done in the background for the screens: watching a deployment, runs, chat, logs, the
//! inventory. All of it speaks to the model in events and messages. Must not know what is drawn.

mod apart;
mod chat;
mod inventory;
mod jobs;
mod plays;
mod tail;
mod watching;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel};

use super::model::{Effect, Message, Source, Standing};
use crate::deploy::client::Client;
use crate::deploy::remote::context::Context;
use crate::deploy::remote::deployment::Head;
use crate::event::{Asker, Bus, Command, Failure, Mailbox, Refusals, Stop};
use crate::paths::Paths;

/// Messages that wait for the model; beyond them, whoever tells waits.
const WAITING: usize = 2_048;
/// How long runs that were interrupted may take to end when the screens are closed.
const LAST_WORK: Duration = Duration::from_secs(3);

/// What the work in the background is about.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The folders on this machine.
    pub paths: Paths,
    /// The inventory's file, where one is named.
    pub inventory: Option<PathBuf>,
    /// Selector of the only hosts that may be touched.
    pub limit: Option<String>,
    /// Whether the keys of unknown hosts are taken.
    pub accept_new_host_keys: bool,
    /// Whether journals of runs keep prompts and answers.
    pub journal_text: bool,
}

/// A head to talk to.
#[derive(Clone)]
pub struct Way {
    /// Talks to it.
    pub client: Client,
    /// Name of the model.
    pub model: String,
    /// What keeps the way open.
    pub held: Option<Arc<Head>>,
}

/// What all parts share.
struct Shared {
    sender: Sender<Message>,
    askers: Mutex<HashMap<String, Asker>>,
    way: Mutex<Option<Way>>,
    /// What was shown of the workers' logs, by host.
    tails: Mutex<HashMap<String, tail::Tail>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Passes a run's events on, on a thread of their own, until its stream ends.
    fn pass(&self, mailbox: Mailbox) {
        let sender = self.sender.clone();
        let passing = std::thread::Builder::new()
            .name("screens".into())
            .spawn(move || {
                while let Some(envelope) = mailbox.next() {
                    if sender.blocking_send(Message::Event(envelope)).is_err() {
                        return;
                    }
                }
            });
        if let Err(error) = passing {
            let text = format!("no thread to show a run: {error}");
            let _ = self.sender.try_send(Message::Note(text));
        }
    }

    /// Tells the model what it may not miss, from where nothing can wait. Must be called within the
    /// runtime.
    fn tell(&self, message: Message) {
        if let Err(tokio::sync::mpsc::error::TrySendError::Full(message)) =
            self.sender.try_send(message)
        {
            let sender = self.sender.clone();
            tokio::spawn(async move {
                // Nobody listens when the screens are closed.
                let _ = sender.send(message).await;
            });
        }
    }

    /// Tells the model, where there is room; to be used for words that may be missed.
    fn note(&self, text: impl Into<String>) {
        let _ = self.sender.try_send(Message::Note(text.into()));
    }

    /// Sets the way to the head that is talked to.
    async fn set_way(&self, way: Option<Way>) {
        let model = way.as_ref().map(|way| way.model.clone());
        *lock(&self.way) = way;
        // An end of the screens ends this too.
        let _ = self.sender.send(Message::Talk(model)).await;
    }
}

/// The work in the background. Dropping it ends it.
pub struct Attach {
    shared: Arc<Shared>,
    receiver: Option<Receiver<Message>>,
    surroundings: Option<Surroundings>,
    watching: Option<watching::Watching>,
    /// What the person said no to, while it was watched.
    refusals: Refusals,
    chat: Option<chat::Chatting>,
    jobs: jobs::Jobs,
}

impl Attach {
    /// No work at all: for events that are only shown.
    pub fn none() -> Self {
        let (sender, receiver) = channel(WAITING);
        Self {
            shared: Arc::new(Shared {
                sender,
                askers: Mutex::default(),
                way: Mutex::default(),
                tails: Mutex::default(),
            }),
            receiver: Some(receiver),
            surroundings: None,
            watching: None,
            refusals: Refusals::default(),
            chat: None,
            jobs: jobs::Jobs::default(),
        }
    }

    /// Watches the deployment of the inventory's cluster, and does what is asked at the screens.
    /// Must be called within the runtime.
    pub fn to_inventory(surroundings: Surroundings) -> Self {
        let mut attach = Self::none();
        attach.surroundings = Some(surroundings);
        attach.refresh();
        attach.list_playbooks();
        attach
    }

    /// Shows the demo, and talks to what it brings up: clients come through `clients`, with the model's
    /// name, and why it has ended through `ended`.
    pub fn to_demo(
        bus: &Bus,
        mut clients: tokio::sync::mpsc::UnboundedReceiver<(Client, String)>,
        ended: tokio::sync::oneshot::Receiver<Option<Failure>>,
    ) -> Self {
        let run = bus.run().to_owned();
        let attach = Self::none();
        attach.shared.pass(bus.subscribe());
        let shared = Arc::clone(&attach.shared);
        tokio::spawn(async move {
            while let Some((client, model)) = clients.recv().await {
                let way = Way {
                    client,
                    model,
                    held: None,
                };
                shared.set_way(Some(way)).await;
                let serving = Message::Standing(Standing::Serving);
                let _ = shared.sender.send(serving).await;
            }
            shared.set_way(None).await;
            let over = Standing::Degraded("it has ended; q leaves".into());
            let _ = shared.sender.send(Message::Standing(over)).await;
            let failure = ended.await.unwrap_or_default();
            let _ = shared.sender.send(Message::Ended(run, failure)).await;
        });
        attach.shared.tell(Message::Source(Source::Demo));
        attach.shared.tell(Message::Cluster("demo".into()));
        attach.shared.tell(Message::Standing(Standing::Starting));
        attach
    }

    /// Where messages come; `None` when they were taken before.
    pub fn messages(&mut self) -> Option<Receiver<Message>> {
        self.receiver.take()
    }

    /// Begins to do something.
    pub fn carry(&mut self, effect: Effect) {
        match effect {
            // The loop's own.
            Effect::Leave(_) => {}
            Effect::Answer { run, id, answer } => {
                if let Some(asker) = lock(&self.shared.askers).get(&run) {
                    asker.answer(&id, answer);
                }
            }
            Effect::Dismiss { run } => {
                if let Some(asker) = lock(&self.shared.askers).get(&run) {
                    asker.nobody();
                }
            }
            Effect::Preview(edit) => match &self.surroundings {
                Some(around) => inventory::preview(&self.shared, around, edit),
                None => self.shared.note("there is no inventory here to change"),
            },
            Effect::Write(preview) => {
                inventory::write(&self.shared, &preview);
                self.refresh();
            }
            Effect::Start(job) => match self.surroundings.clone() {
                Some(around) => self.jobs.start(&self.shared, &around, job),
                None => self.shared.note("no run can be started here"),
            },
            Effect::Stop(id) => self.jobs.interrupt(&id),
            Effect::Ask { prompt, before } => {
                let chat = self
                    .chat
                    .get_or_insert_with(|| chat::Chatting::new(&self.shared));
                chat.ask(&self.shared, prompt, before);
            }
            Effect::StopAnswer => {
                if let Some(chat) = &mut self.chat {
                    chat.stop();
                }
            }
            Effect::Refresh => {
                // Whoever asks for it is asked again.
                self.refusals.clear();
                self.refresh();
                self.list_playbooks();
            }
        }
    }

    /// Reads the inventory and begins to watch anew.
    fn refresh(&mut self) {
        let Some(around) = &self.surroundings else {
            return;
        };
        inventory::list(&self.shared, around);
        self.watching = None;
        let refusals = self.refusals.clone();
        self.watching = Some(watching::Watching::start(&self.shared, around, refusals));
    }

    fn list_playbooks(&self) {
        let sender = self.shared.sender.clone();
        tokio::task::spawn_blocking(move || {
            let _ = sender.blocking_send(Message::Playbooks(plays::list()));
        });
    }

    /// Interrupts all runs.
    pub fn interrupt(&mut self) {
        self.jobs.interrupt_all();
    }

    /// Whether a run is in progress.
    pub fn is_working(&self) -> bool {
        self.jobs.is_working()
    }

    /// Waits until a run ends, or a moment.
    pub async fn worked(&mut self) {
        self.jobs.worked().await;
    }

    /// Ends all work.
    pub async fn end(mut self) {
        self.jobs.interrupt_all();
        let _ = tokio::time::timeout(LAST_WORK, self.jobs.all_ended()).await;
        let end = async {
            self.jobs.end().await;
            if let Some(watching) = self.watching {
                watching.end().await;
            }
        };
        // Work that hears nothing any more ends with the program.
        let _ = tokio::time::timeout(LAST_WORK, end).await;
    }
}

/// The context of work in the background.
fn context(around: &Surroundings, bus: &Bus, asker: &Asker, check: bool) -> Context {
    Context {
        emitter: bus.emitter(),
        asker: asker.clone(),
        paths: around.paths.clone(),
        run: bus.run().to_owned(),
        inventory: around.inventory.clone(),
        limit: around.limit.clone(),
        accept_new_host_keys: around.accept_new_host_keys,
        check,
        stop: Stop::default(),
    }
}

/// Commands to a run.
type Commands = UnboundedSender<Command>;
