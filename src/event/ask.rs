//! Questions as events, answers as commands. Must not know who is asked, nor how.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::{Emitter, Event, Scope};

/// Asks questions and waits for their answers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Asker {
    emitter: Emitter,
    shared: Arc<Shared>,
    refusals: Option<Refusals>,
}

/// What somebody said no to, or would not answer, by host and question: for work that is tried again
/// by itself, and must not ask the same again by itself.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<BTreeMap<Refused, Option<String>>>>);

/// A host, where the question is about one, and the question.
type Refused = (Option<String>, String);

impl Refusals {
    /// Forgets them: all is asked again.
    pub fn clear(&self) {
        self.all().clear();
    }

    fn all(&self) -> std::sync::MutexGuard<'_, BTreeMap<Refused, Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct Shared {
    /// Whether someone can answer.
    interactive: bool,
    /// Whether leave is given beforehand.
    yes: bool,
    next: AtomicU64,
    waiting: Mutex<BTreeMap<String, oneshot::Sender<String>>>,
    /// One question at a time: people answer one at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Asker {
    /// For a run. `interactive`: whether someone answers; `yes`: whether questions for leave are
    /// answered yes beforehand.
    pub fn new(emitter: Emitter, interactive: bool, yes: bool) -> Self {
        Self {
            emitter,
            shared: Arc::new(Shared {
                interactive,
                yes,
                ..Shared::default()
            }),
            refusals: None,
        }
    }

    /// The same, which asks nothing again that was refused, and adds to what was.
    #[must_use]
    pub fn heeding(mut self, refusals: Refusals) -> Self {
        self.refusals = Some(refusals);
        self
    }

    /// Whether someone can answer.
    pub fn interactive(&self) -> bool {
        self.shared.interactive
    }

    /// Asks; `None` when nobody can answer. An empty list of choices takes any text; a secret is
    /// not shown while it is typed, and is masked from then on.
    pub async fn ask(
        &self,
        scope: Scope,
        text: impl Into<String>,
        choices: &[&str],
        secret: bool,
    ) -> Option<String> {
        if !self.shared.interactive {
            return None;
        }
        let text = text.into();
        let _turn = self.shared.turn.lock().await;
        let asked = (scope.host.clone(), text.clone());
        if let Some(refusals) = &self.refusals
            && let Some(answer) = refusals.all().get(&asked)
        {
            return answer.clone();
        }
        let id = format!("q{}", self.shared.next.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(id.clone(), sender);
        self.emitter.emit(
            scope,
            Event::Question {
                id,
                text,
                choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
                secret,
            },
        );
        let answer = answer.await.ok();
        let is_no = |answer: &str| choices.contains(&"n") && !is_yes(answer);
        if let Some(refusals) = &self.refusals
            && answer.as_deref().is_none_or(is_no)
        {
            refusals.all().insert(asked, answer.clone());
        }
        let answer = answer?;
        if secret {
            self.emitter.masks().add(answer.clone());
        }
        Some(answer)
    }

    /// Asks for leave. `Some(true)` without asking when it is given beforehand; `None` when nobody
    /// can answer.
    pub async fn leave(&self, scope: Scope, text: impl Into<String>) -> Option<bool> {
        if self.shared.yes {
            return Some(true);
        }
        let answer = self.ask(scope, text, &["y", "n"], false).await?;
        Some(is_yes(&answer))
    }

    /// Gives an answer. One for a question that nobody waits for is dropped.
    pub fn answer(&self, id: &str, answer: String) {
        if let Some(sender) = self.waiting().remove(id) {
            let _ = sender.send(answer);
        }
    }

    /// Tells all who wait that no answer will come.
    pub fn nobody(&self) {
        self.waiting().clear();
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, oneshot::Sender<String>>> {
        self.shared
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim(), "y" | "Y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::super::Bus;
    use super::*;

    /// Answers every question of a run with this; with `None`, that nobody will. How many there were.
    fn answering(bus: &Bus, asker: &Asker, answer: Option<&'static str>) -> Arc<AtomicU64> {
        let (mailbox, asker) = (bus.subscribe(), asker.clone());
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            while let Some(envelope) = mailbox.next() {
                if let Event::Question { id, .. } = &envelope.event {
                    counted.fetch_add(1, Ordering::SeqCst);
                    match answer {
                        Some(answer) => asker.answer(id, answer.into()),
                        None => asker.nobody(),
                    }
                }
            }
        });
        count
    }

    #[tokio::test]
    async fn what_was_refused_is_not_asked_again_until_refusals_are_forgotten() {
        for (answer, choices) in [(Some("n"), &["y", "n"][..]), (None, &[][..])] {
            let refusals = Refusals::default();
            // Another run, as when the work is begun anew.
            for (round, asked, with_another) in [(0, 1, 2), (1, 0, 0)] {
                let bus = Bus::new(format!("r{round}"));
                let asker = Asker::new(bus.emitter(), true, false).heeding(refusals.clone());
                let count = answering(&bus, &asker, answer);
                for _ in 0..2 {
                    let own = asker.ask(Scope::host("h"), "key?", choices, false).await;
                    assert_eq!(own.as_deref(), answer);
                }
                assert_eq!(count.load(Ordering::SeqCst), asked);
                // What is refused of one host is still asked of another.
                asker.ask(Scope::host("i"), "key?", choices, false).await;
                assert_eq!(count.load(Ordering::SeqCst), with_another);
                bus.close();
            }
            refusals.clear();
            let bus = Bus::new("r2");
            let asker = Asker::new(bus.emitter(), true, false).heeding(refusals);
            let count = answering(&bus, &asker, Some("y"));
            for round in 1..=2 {
                let own = asker.ask(Scope::host("h"), "key?", choices, false).await;
                assert_eq!(own.as_deref(), Some("y"));
                assert_eq!(count.load(Ordering::SeqCst), round, "a yes is no refusal");
            }
            bus.close();
        }
    }

    #[tokio::test]
    async fn an_answer_reaches_the_question_with_its_id_and_a_secret_is_masked() {
        let bus = Bus::new("r");
        let mailbox = bus.subscribe();
        let asker = Asker::new(bus.emitter(), true, false);
        let other = asker.clone();
        std::thread::spawn(move || {
            while let Some(envelope) = mailbox.next() {
                if let Event::Question { id, .. } = &envelope.event {
                    other.answer("q99", "wrong".into());
                    other.answer(id, "opensesame".into());
                    break;
                }
            }
        });
        let answer = asker.ask(Scope::host("h"), "password", &[], true).await;
        assert_eq!(answer.as_deref(), Some("opensesame"));
        assert!(!bus.masks().text("it is opensesame").contains("opensesame"));
    }

    #[tokio::test]
    async fn nobody_is_asked_where_nobody_can_answer() {
        let bus = Bus::new("r");
        let asker = Asker::new(bus.emitter(), false, false);
        assert_eq!(asker.ask(Scope::run(), "x", &[], false).await, None);
        assert_eq!(asker.leave(Scope::run(), "x").await, None);
        let asker = Asker::new(bus.emitter(), false, true);
        assert_eq!(asker.leave(Scope::run(), "x").await, Some(true));
    }
}
