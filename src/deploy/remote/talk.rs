//! A conversation with a running deployment, line by line. Must not know where lines come from.

use tokio::sync::mpsc::Receiver;

use super::deployment::Head;
use crate::deploy::answer::{self, Answer};
use crate::deploy::client::{ChatRequest, ClientError, Turn};
use crate::event::{Emitter, Failure, FailureKind};

/// How answers are asked for.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Name of the model.
    pub model: String,
    /// Most tokens of an answer.
    pub max_tokens: Option<u32>,
    /// Whether end tokens are banned.
    pub ignore_eos: bool,
}

/// What a conversation came to.
#[derive(Debug, Default)]
pub struct Talk {
    /// The turns.
    pub turns: Vec<Turn>,
    /// Tokens generated.
    pub tokens: u64,
    /// Speed of the last answer.
    pub tokens_per_second: Option<f64>,
}

/// Answers each line until there are no more. Every answer knows what was said before it.
///
/// # Errors
/// When a request fails; what was said stands in `talk`.
pub async fn converse(
    head: &Head,
    manner: &Manner,
    lines: &mut Receiver<String>,
    emitter: &Emitter,
    talk: &mut Talk,
) -> Result<(), Failure> {
    while let Some(prompt) = lines.recv().await {
        if prompt.trim().is_empty() {
            continue;
        }
        let request = ChatRequest {
            model: manner.model.clone(),
            before: talk.turns.clone(),
            prompt: prompt.clone(),
            max_tokens: manner.max_tokens,
            ignore_eos: manner.ignore_eos,
        };
        let id = format!("chat-{}", talk.turns.len() + 1);
        let mut answer = Answer::default();
        let result = answer::chat(&request, &id, emitter, &head.client, &mut answer).await;
        talk.tokens += answer.tokens();
        talk.tokens_per_second = answer.tokens_per_second();
        talk.turns.push(Turn {
            prompt,
            answer: answer.text,
        });
        result.map_err(|error| failure(&error))?;
    }
    Ok(())
}

fn failure(error: &ClientError) -> Failure {
    Failure::new(FailureKind::Request, error.to_string()).at("chat")
}
