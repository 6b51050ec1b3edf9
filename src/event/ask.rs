//! Questions as events, answers as commands. Must not know who is asked, nor how.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use super::{Emitter, Event, Scope};

/// The choice that an answer means: in any case of letters, and `yes` and `no` for `y` and `n`.
pub fn chosen<'c>(choices: &'c [String], answer: &str) -> Option<&'c str> {
    let answer = answer.trim().to_lowercase();
    let short = match answer.as_str() {
        "yes" => "y",
        "no" => "n",
        _ => "",
    };
    let is = |wanted: &str| {
        choices
            .iter()
            .find(|choice| choice.to_lowercase() == wanted)
    };
    is(&answer).or_else(|| is(short)).map(String::as_str)
}

/// Asks questions and waits for their answers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Asker {
    emitter: Emitter,
    shared: Arc<Shared>,
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
        }
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
        let _turn = self.shared.turn.lock().await;
        let id = format!("q{}", self.shared.next.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        self.waiting().insert(id.clone(), sender);
        self.emitter.emit(
            scope,
            Event::Question {
                id,
                text: text.into(),
                choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
                secret,
            },
        );
        let answer = answer.await.ok()?;
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
        Some(matches!(answer.trim(), "y" | "Y" | "yes"))
    }

    /// Gives an answer. One for a question that nobody waits for is dropped.
    pub fn answer(&self, id: &str, answer: String) {
        if let Some(sender) = self.waiting().remove(id) {
            let _ = sender.send(answer);
        }
    }

    /// Tells whoever asked this question that no answer will come.
    pub fn unanswered(&self, id: &str) {
        self.waiting().remove(id);
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

#[cfg(test)]
mod tests {
    use super::super::Bus;
    use super::*;

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

    #[test]
    fn an_answer_is_the_choice_it_means_and_nothing_else() {
        let choices = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let yes_no = choices(&["y", "n"]);
        for (answer, wanted) in [
            ("y", Some("y")),
            (" Yes ", Some("y")),
            ("YES", Some("y")),
            ("N", Some("n")),
            ("no", Some("n")),
            ("", None),
            ("yep", None),
            ("nothing", None),
        ] {
            assert_eq!(chosen(&yes_no, answer), wanted, "{answer:?}");
        }
        let words = choices(&["resume", "leave"]);
        assert_eq!(chosen(&words, "Leave"), Some("leave"));
        assert_eq!(chosen(&words, "yes"), None);
    }

    #[tokio::test]
    async fn a_question_without_an_answer_ends_the_wait_for_it_alone() {
        let bus = Bus::new("r");
        let asker = Asker::new(bus.emitter(), true, false);
        asker.unanswered("q7");
        let other = asker.clone();
        let asked =
            tokio::spawn(async move { other.ask(Scope::run(), "x", &["y", "n"], false).await });
        let mailbox = bus.subscribe();
        while asker.waiting().is_empty() {
            tokio::task::yield_now().await;
        }
        drop(mailbox);
        asker.unanswered("q0");
        assert_eq!(asked.await.unwrap(), None);
        assert!(asker.interactive(), "the next question is asked again");
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
