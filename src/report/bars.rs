//! Plain lines with bars below them, for a terminal: one for each host whose bytes move, one for all
//! of a task. Must not know who emits. What is drawn is decided by [`Board`], drawing is apart.

use std::collections::HashMap;
use std::io;

use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

use super::Reader;
use super::plain::harmless;
use crate::event::{Envelope, Event, Masks, Scope};

/// One row of the board: what moves, where to, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name for people; empty for a task's total.
    pub label: String,
    /// Bytes so far.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

/// What the bars show: the transfers that are under way, by task.
#[derive(Debug, Default)]
pub struct Board {
    /// In the order in which they began.
    moving: Vec<(Key, u64, u64)>,
}

/// What moves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    scope: Scope,
    what: String,
}

/// What an event does to the board.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// It has nothing to do with bars.
    None,
    /// A bar moved or appeared; nothing need be said in words.
    Moved,
    /// A transfer came to its end: its bar goes, and it is said in words.
    Ended,
}

impl Board {
    /// Takes an event.
    pub fn take(&mut self, envelope: &Envelope) -> Effect {
        match &envelope.event {
            Event::Transfer { what, done, total } => {
                let key = Key {
                    scope: envelope.scope.clone(),
                    what: what.clone(),
                };
                let at = self.moving.iter().position(|(known, ..)| *known == key);
                match (total, at) {
                    (Some(total), _) if done >= total => {
                        if let Some(at) = at {
                            self.moving.remove(at);
                        }
                        Effect::Ended
                    }
                    (Some(total), Some(at)) => {
                        if let Some((_, before, all)) = self.moving.get_mut(at) {
                            (*before, *all) = (*done, *total);
                        }
                        Effect::Moved
                    }
                    (Some(total), None) => {
                        self.moving.push((key, *done, *total));
                        Effect::Moved
                    }
                    // Nothing to draw a bar against.
                    (None, _) => Effect::None,
                }
            }
            Event::TaskFinished { .. } => {
                let scope = &envelope.scope;
                self.moving.retain(|(key, ..)| {
                    key.scope.host != scope.host
                        || key.scope.task != scope.task
                        || (scope.step.is_some() && key.scope.step != scope.step)
                });
                Effect::None
            }
            Event::Summary(_) => {
                self.moving.clear();
                Effect::None
            }
            _ => Effect::None,
        }
    }

    /// The rows to show: each transfer, and under the transfers of several hosts in one task their
    /// sum.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut seen: Vec<&Option<String>> = Vec::new();
        for (key, ..) in &self.moving {
            if seen.contains(&&key.scope.task) {
                continue;
            }
            seen.push(&key.scope.task);
            let same: Vec<_> = self
                .moving
                .iter()
                .filter(|(other, ..)| other.scope.task == key.scope.task)
                .collect();
            for (key, done, total) in &same {
                let host = key.scope.host.as_deref().unwrap_or_default();
                let task = key.scope.task.as_deref().unwrap_or_default();
                let parts = [host, task, key.what.as_str()];
                let label: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
                rows.push(Row {
                    label: label.join(" "),
                    done: *done,
                    total: *total,
                });
            }
            if same.len() > 1 {
                rows.push(Row {
                    label: String::new(),
                    done: same.iter().map(|(_, done, _)| done).sum(),
                    total: same.iter().map(|(.., total)| total).sum(),
                });
            }
        }
        rows
    }
}

/// The reader.
pub struct Bars {
    lines: Box<dyn Reader>,
    masks: Masks,
    multi: MultiProgress,
    board: Board,
    bars: HashMap<String, ProgressBar>,
    /// A person is being asked: the cursor stands behind the question.
    asking: bool,
}

impl Bars {
    /// Draws on `multi`; what is said in words is written by `lines`, to the same terminal.
    pub fn new(lines: Box<dyn Reader>, masks: Masks, multi: MultiProgress) -> Self {
        Self {
            lines,
            masks,
            multi,
            board: Board::default(),
            bars: HashMap::new(),
            asking: false,
        }
    }

    fn draw(&mut self) {
        if self.asking {
            return;
        }
        let rows = self.board.rows();
        let labels: Vec<String> = rows.iter().map(|row| self.label(row)).collect();
        self.bars.retain(|label, bar| {
            let stays = labels.contains(label);
            if !stays {
                bar.finish_and_clear();
                self.multi.remove(bar);
            }
            stays
        });
        for (row, label) in rows.iter().zip(labels) {
            let multi = &self.multi;
            let bar = self
                .bars
                .entry(label)
                .or_insert_with_key(|label| begin(multi, label, row));
            bar.set_length(row.total);
            bar.set_position(row.done);
        }
    }

    fn label(&self, row: &Row) -> String {
        if row.label.is_empty() {
            "all".to_owned()
        } else {
            harmless(&self.masks.text(&row.label))
        }
    }

    fn clear(&mut self) {
        for (_, bar) in self.bars.drain() {
            bar.finish_and_clear();
            self.multi.remove(&bar);
        }
    }
}

fn begin(multi: &MultiProgress, label: &str, row: &Row) -> ProgressBar {
    // The template is ours and valid; were it not, the default shows as much.
    let style = ProgressStyle::with_template(
        "  {prefix:<28!} {bar:20} {percent:>3} % {moved:>22} {binary_speed:>12} {eta:>4}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
    .with_key(
        "moved",
        |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // The bar is drawn without it when it cannot be written.
            let _ = write!(
                out,
                "{} of {}",
                crate::figures::size(state.pos()),
                crate::figures::size(state.len().unwrap_or(0))
            );
        },
    )
    .with_key(
        "binary_speed",
        |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{}/s", crate::figures::size(state.per_sec() as u64));
        },
    );
    let bar = multi.add(ProgressBar::new(row.total));
    bar.set_style(style);
    bar.set_prefix(label.to_owned());
    bar
}

impl Reader for Bars {
    fn take(&mut self, envelope: &Envelope) -> io::Result<()> {
        match &envelope.event {
            Event::Question { .. } => {
                self.clear();
                self.asking = true;
                return self.lines.take(envelope);
            }
            Event::Transfer { .. } => {}
            // Whatever comes next shows that the answer was given.
            _ => self.asking = false,
        }
        match self.board.take(envelope) {
            Effect::Moved => {
                self.draw();
                Ok(())
            }
            Effect::Ended | Effect::None => {
                if matches!(envelope.event, Event::Summary(_)) {
                    self.clear();
                }
                let lines = &mut self.lines;
                let said = self.multi.suspend(|| lines.take(envelope));
                self.draw();
                said
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::event::{Bus, Status};
    use indicatif::{ProgressDrawTarget, TermLike};

    fn moved(what: &str, done: u64, total: Option<u64>) -> Event {
        Event::Transfer {
            what: what.into(),
            done,
            total,
        }
    }

    /// The board after these events.
    fn board(events: Vec<(Scope, Event)>) -> (Board, Vec<Effect>) {
        let bus = Bus::new("r");
        let mailbox = bus.subscribe();
        for (scope, event) in events {
            bus.emitter().emit(scope, event);
        }
        let mut board = Board::default();
        let effects = mailbox
            .drain()
            .iter()
            .map(|envelope| board.take(envelope))
            .collect();
        (board, effects)
    }

    fn row(label: &str, done: u64, total: u64) -> Row {
        Row {
            label: label.into(),
            done,
            total,
        }
    }

    #[test]
    fn transfers_of_one_task_on_several_hosts_are_summed_below_them() {
        let push = |host: &str| Scope::host(host).in_task("push");
        let (board, effects) = board(vec![
            (push("a"), moved("pieces", 1, Some(10))),
            (push("b"), moved("pieces", 2, Some(20))),
            (Scope::run().in_task("model"), moved("download", 5, Some(6))),
            (push("a"), moved("pieces", 7, Some(10))),
        ]);
        assert_eq!(
            board.rows(),
            [
                row("a push pieces", 7, 10),
                row("b push pieces", 2, 20),
                row("", 9, 30),
                row("model download", 5, 6),
            ]
        );
        assert!(effects.iter().all(|effect| *effect == Effect::Moved));
    }

    #[test]
    fn a_bar_goes_when_all_arrived_and_when_its_task_ends_otherwise() {
        let push = |host: &str| Scope::host(host).in_task("push");
        let (board, effects) = board(vec![
            (push("a"), moved("pieces", 1, Some(10))),
            (push("b"), moved("pieces", 2, Some(20))),
            (push("a"), moved("pieces", 10, Some(10))),
            (
                push("b"),
                Event::TaskFinished {
                    status: Status::Failed,
                    seconds: 1.0,
                    message: None,
                },
            ),
        ]);
        assert_eq!(board.rows(), []);
        assert_eq!(effects[2..], [Effect::Ended, Effect::None]);
    }

    /// A terminal that only remembers what was written.
    #[derive(Clone, Debug, Default)]
    struct Paper(Arc<Mutex<String>>);

    impl TermLike for Paper {
        fn width(&self) -> u16 {
            120
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write_str(&format!("{text}\n"))
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Counts what is said in words.
    struct Counting(Arc<Mutex<usize>>);

    impl Reader for Counting {
        fn take(&mut self, _: &Envelope) -> io::Result<()> {
            *self.0.lock().unwrap() += 1;
            Ok(())
        }
    }

    #[test]
    fn a_bar_shows_host_and_figures_and_no_control_character_of_a_host() {
        let (paper, said) = (Paper::default(), Arc::default());
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(paper.clone()), 255);
        let mut bars = Bars::new(
            Box::new(Counting(Arc::clone(&said))),
            Masks::default(),
            MultiProgress::with_draw_target(target),
        );
        let bus = Bus::new("r");
        let mailbox = bus.subscribe();
        let scope = Scope::host("a\x1b[2J").in_task("push");
        for done in [0, 250_000, 500_000, 1_000_000] {
            let event = moved("pieces", done, Some(1_000_000));
            bus.emitter().emit(scope.clone(), event);
        }
        for envelope in mailbox.drain() {
            bars.take(&envelope).unwrap();
        }
        let shown = paper.0.lock().unwrap().clone();
        assert!(shown.contains("a\u{fffd}[2J push pieces"), "{shown:?}");
        assert!(shown.contains("of 1.0 MB"), "{shown:?}");
        assert!(!shown.contains("\x1b[2J"), "{shown:?}");
        // Only the end is said in words.
        assert_eq!(*said.lock().unwrap(), 1);
    }
}
