//! The screens from the command line: `windlass` alone, and the demo in a terminal. From flags to
//! the screens, and from how they ended to the exit status.

use std::io::{self, IsTerminal, Write};

use serde_json::Map;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::arguments::Common;
use super::demo::{LAST_WORK, provide};
use super::run::{Run, guarded, moves_cursor, no_color, panicked, runtime};
use super::signals;
use crate::deploy::demo::{self, Options, Outcome};
use crate::deploy::fetch;
use crate::event::{Command, Envelope, Event, Exit, Failure, FailureKind, Scope};
use crate::paths::Paths;
use crate::tui::attach::{Attach, Surroundings};
use crate::tui::model::Leave;
use crate::tui::{self, Ended, Theme};

/// Whether screens can be shown and are not refused: both ends are a terminal that is more than a
/// printer.
pub fn wanted(common: &Common) -> bool {
    !common.json
        && !common.no_input
        && io::stdin().is_terminal()
        && io::stdout().is_terminal()
        && moves_cursor()
}

/// How the screens are shown.
pub fn options(common: &Common) -> tui::Options {
    tui::Options {
        theme: Theme {
            colour: !no_color(common),
            ascii: common.ascii,
        },
        mouse: !common.no_mouse,
        offset: jiff::Zoned::now().offset().seconds(),
    }
}

/// How the screens' end counts: leaving is no failure.
fn failure(how: Leave) -> Option<Failure> {
    match how {
        Leave::Quit => None,
        Leave::Interrupt => Some(Failure::new(FailureKind::Interrupted, "interrupted")),
        Leave::Terminate => Some(Failure::new(FailureKind::Terminated, "terminated")),
    }
}

/// Ends a run that was shown on screens; of its end only a failure is said again.
fn finish(run: Run, fields: Map<String, serde_json::Value>, failure: Option<Failure>) -> Exit {
    let failure = failure.or_else(panicked);
    if let Some(failure) = failure
        .as_ref()
        .filter(|f| !matches!(f.kind, FailureKind::Interrupted | FailureKind::Terminated))
    {
        // When stderr is gone there is nobody to tell.
        let _ = writeln!(io::stderr(), "error: {failure}");
    }
    run.finish(fields, failure)
}

/// `windlass` alone, in a terminal.
pub fn screens(common: &Common) -> Exit {
    let run = Run::unseen("tui");
    let paths = match Paths::of_user() {
        Ok(paths) => paths,
        Err(error) => {
            let failure = Failure::new(FailureKind::Config, error.to_string());
            return finish(run, Map::new(), Some(failure));
        }
    };
    let surroundings = Surroundings {
        paths,
        inventory: common.inventory.clone(),
        limit: common.limit.clone(),
        accept_new_host_keys: common.accept_new_host_keys,
        journal_text: common.journal_text,
    };
    shown(run, async |inbox| {
        let attach = Attach::to_inventory(surroundings);
        tui::run(options(common), attach, inbox).await
    })
}

/// The events of a journal, in a terminal.
pub fn replay(common: &Common, events: Vec<Envelope>) -> Exit {
    let run = Run::unseen("replay");
    if !wanted(common) {
        let failure = Failure::new(
            FailureKind::Usage,
            "screens need a terminal: leave out --screens to have lines",
        );
        return finish(run, Map::new(), Some(failure));
    }
    shown(run, async |inbox| {
        tui::replay(options(common), events, inbox).await
    })
}

/// Shows screens until the person leaves, and ends the run by how that was.
fn shown(
    mut run: Run,
    show: impl AsyncFnOnce(&mut UnboundedReceiver<Command>) -> Result<Ended, Failure>,
) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return finish(run, Map::new(), Some(Failure::internal(error.to_string()))),
    };
    let (commands, inbox) = (run.commands(), run.take_inbox());
    let how = guarded(|| {
        runtime.block_on(async {
            let Some(mut inbox) = inbox else {
                return Err(Failure::internal("the run has no inbox"));
            };
            signals::follow(commands)
                .map_err(|error| Failure::internal(format!("signals: {error}")))?;
            show(&mut inbox).await
        })
    })
    .and_then(|how| how);
    runtime.shutdown_timeout(LAST_WORK);
    match how {
        Ok(ended) => {
            for resume in &ended.unfinished {
                // When stderr is gone there is nobody to tell.
                let _ = writeln!(io::stderr(), "go on with it: {resume}");
            }
            finish(run, Map::new(), failure(ended.how))
        }
        Err(failure) => finish(run, Map::new(), Some(failure)),
    }
}

/// The demo on screens: it stays until the person leaves, who can talk with the model.
pub fn demo(common: &Common, mut run: Run, mut what: Options, model: &str) -> Exit {
    let (stay, clients) = unbounded_channel();
    what.stay = Some(stay);
    let reference = match fetch::reference(model) {
        Ok(reference) => reference,
        Err(failure) => return finish(run, Map::new(), Some(failure)),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return finish(run, Map::new(), Some(Failure::internal(error.to_string()))),
    };
    let emitter = run.emitter();
    let (signals_in, inbox) = (run.commands(), run.take_inbox());
    let bus = run.bus();
    let result = guarded(|| {
        runtime.block_on(async {
            let Some(mut inbox) = inbox else {
                return Err(Failure::internal("the run has no inbox"));
            };
            signals::follow(signals_in)
                .map_err(|error| Failure::internal(format!("signals: {error}")))?;
            let (tell_end, ended) = tokio::sync::oneshot::channel();
            let attach = Attach::to_demo(bus, clients, ended);
            emitter.emit(
                Scope::run(),
                Event::RunStarted {
                    command: "demo".into(),
                    version: env!("CARGO_PKG_VERSION").into(),
                    hosts: (0..what.workers).map(demo::host_name).collect(),
                    tasks: Vec::new(),
                    check: false,
                },
            );
            let (stop, mut stopped) = unbounded_channel();
            let fetching = fetch::options(&emitter);
            let fetch = provide(reference, fetching, emitter.clone());
            let working = async move {
                let (what, emitter) = (what, emitter);
                let outcome = demo::run(&what, &emitter, &mut stopped, fetch).await;
                if let Some(failure) = &outcome.failure {
                    tell_failure(&emitter, failure);
                }
                // The screens may have been left.
                let _ = tell_end.send(outcome.failure.clone());
                outcome
            };
            let shown = async {
                let how = tui::run(options(common), attach, &mut inbox).await;
                // The demo may have ended already.
                let _ = stop.send(Command::Interrupt);
                how
            };
            let (how, outcome) = tokio::join!(shown, working);
            how.map(|how| (how, outcome))
        })
    })
    .and_then(|result| result);
    runtime.shutdown_timeout(LAST_WORK);
    match result {
        Ok((
            ended,
            Outcome {
                fields,
                failure: own,
            },
        )) => {
            // That the person left is no failure of the demo.
            let own = own.filter(|failure| failure.kind != FailureKind::Interrupted);
            let failure = failure(ended.how).or(own);
            finish(run, fields, failure)
        }
        Err(failure) => finish(run, Map::new(), Some(failure)),
    }
}

/// The summary comes when the screens are closed; who looks at them is told why at once.
fn tell_failure(emitter: &crate::event::Emitter, failure: &Failure) {
    if failure.kind == FailureKind::Interrupted {
        return;
    }
    let scope = match &failure.host {
        Some(host) => Scope::host(host),
        None => Scope::run(),
    };
    emitter.emit(
        scope,
        Event::log(crate::event::Level::Error, failure.message.clone()),
    );
}
