//! The loop between terminal, model and what is done in the background: takes all that came, then
//! draws once, only when something changed, and at most thirty times a second.

use std::time::Duration;

use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tokio::time::{Instant, MissedTickBehavior};

use super::attach::Attach;
use super::draw;
use super::model::{Effect, Leave, Message, Model, Source};
use super::term::{self, Term};
use super::theme::Theme;
use crate::event::{Command, Envelope, Failure, FailureKind};

/// Shortest time between two frames.
const FRAME: Duration = Duration::from_millis(33);
/// How often it is looked at the clock: what counts on is shown in seconds.
const TICK: Duration = Duration::from_millis(500);
/// Most messages taken before a frame.
const DRAIN: usize = 4_096;

/// How the screens are shown.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What the terminal can show.
    pub theme: Theme,
    /// Whether the mouse is taken.
    pub mouse: bool,
    /// Seconds that local time is ahead of UTC.
    pub offset: i32,
}

/// How the screens ended.
#[derive(Debug)]
pub struct Ended {
    /// By whom.
    pub how: Leave,
    /// What goes on with runs that were left unfinished.
    pub unfinished: Vec<String>,
}

/// Shows the screens until the person leaves. `signals` carries what the system asks of the
/// program.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn run(
    options: Options,
    mut attach: Attach,
    signals: &mut UnboundedReceiver<Command>,
) -> Result<Ended, Failure> {
    let model = Model::new(options.offset);
    let ended = shown(options, model, &mut attach, signals).await?;
    attach.end().await;
    Ok(ended)
}

/// Shows a sequence of events, as a journal has them, until the person leaves.
///
/// # Errors
/// When the terminal cannot be used.
pub async fn replay(
    options: Options,
    events: impl IntoIterator<Item = Envelope>,
    signals: &mut UnboundedReceiver<Command>,
) -> Result<Ended, Failure> {
    let mut model = Model::new(options.offset);
    for envelope in events {
        model.take(Message::Event(std::sync::Arc::new(envelope)));
    }
    model.data.close_journal();
    shown(options, model, &mut Attach::none(), signals).await
}

fn enter(options: Options) -> Result<Term, Failure> {
    Term::enter(options.mouse).map_err(|error| {
        Failure::new(
            FailureKind::Io,
            format!("the terminal cannot show screens: {error}; commands work without them, see `windlass help`"),
        )
    })
}

/// The next message; waits for ever where none can come.
async fn next(messages: &mut Option<Receiver<Message>>) -> Message {
    if let Some(receiver) = messages {
        if let Some(message) = receiver.recv().await {
            return message;
        }
        *messages = None;
    }
    std::future::pending().await
}

fn ended(how: Leave, model: &Model) -> Ended {
    let runs = model.data.runs.iter();
    Ended {
        how,
        unfinished: runs
            .filter_map(|run| run.end.as_ref()?.resume.clone())
            .collect(),
    }
}

/// Shows a model until the person leaves.
async fn shown(
    options: Options,
    mut model: Model,
    attach: &mut Attach,
    signals: &mut UnboundedReceiver<Command>,
) -> Result<Ended, Failure> {
    let mut messages = attach.messages();
    let mut term = enter(options)?;
    let mut due = Instant::now();
    let mut changed = true;
    let mut leaving: Option<Leave> = None;
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        if let Some(how) = leaving
            && !attach.is_working()
        {
            return Ok(ended(how, &model));
        }
        if changed && Instant::now() >= due {
            // A terminal that is gone has nobody before it.
            let Ok(size) = term.size() else {
                return Ok(ended(Leave::Terminate, &model));
            };
            model.ui.size = size;
            if term
                .draw(|frame| draw::screen(frame, &model, options.theme))
                .is_err()
            {
                return Ok(ended(Leave::Terminate, &model));
            }
            changed = false;
            due = Instant::now() + FRAME;
        }
        let mut effects = Vec::new();
        tokio::select! {
            biased;
            () = term::panicked() => {
                return Err(Failure::internal(
                    "a part of windlass panicked, so its screens were closed; this is a fault of windlass, please report it",
                ));
            }
            command = signals.recv() => effects.push(Effect::Leave(match command {
                Some(Command::Interrupt) => Leave::Interrupt,
                _ => Leave::Terminate,
            })),
            input = term.input() => match input {
                Some(input) => {
                    changed = true;
                    effects = model.input(input);
                }
                None => return Ok(ended(Leave::Terminate, &model)),
            },
            message = next(&mut messages) => {
                changed = true;
                model.take(message);
                if let Some(receiver) = &mut messages {
                    for _ in 0..DRAIN {
                        let Ok(message) = receiver.try_recv() else { break };
                        model.take(message);
                    }
                }
            }
            _ = ticks.tick(), if model.data.source != Source::Journal => {
                changed |= model.tick(begun.elapsed().as_secs_f64());
            }
            () = attach.worked(), if leaving.is_some() => {}
            () = tokio::time::sleep_until(due), if changed => {}
        }
        for effect in effects {
            match effect {
                Effect::Leave(how) => {
                    // Asked for twice, it is meant.
                    if leaving.is_some() {
                        return Ok(ended(how, &model));
                    }
                    leaving = Some(how);
                    model.ui.leaving = true;
                    model.ui.confirm = None;
                    model.ui.note = Some("interrupting what runs; ctrl-c leaves at once".into());
                    changed = true;
                    attach.interrupt();
                }
                other => attach.carry(other),
            }
        }
    }
}
