//! One question and its answer as it comes, with its times. Must not know workers.

use std::time::Instant;

use super::client::{ChatEvent, ChatRequest, Client, ClientError};
use crate::event::{Emitter, Event, RequestState, Scope};

/// The answer as it comes.
#[derive(Debug, Default)]
pub struct Answer {
    /// All text so far.
    pub text: String,
    chunks: u64,
    sent: Option<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
    /// Tokens of the prompt, once the head has said so.
    pub prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    finished: bool,
}

impl Answer {
    /// Tokens generated: as the head counts them once it has said so, else chunks that came.
    pub fn tokens(&self) -> u64 {
        self.completion_tokens.unwrap_or(self.chunks)
    }

    /// (tokens − 1) / (time of last − time of first), by their arrival here.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let over = self.last?.duration_since(self.first?).as_secs_f64();
        let tokens = self.tokens();
        (tokens > 1 && over > 0.0).then(|| (tokens - 1) as f64 / over)
    }

    /// Milliseconds from the question to the first token, by its arrival here.
    pub fn first_token_ms(&self) -> Option<f64> {
        Some(self.first?.duration_since(self.sent?).as_secs_f64() * 1000.0)
    }
}

/// Asks one question and tells the answer as it comes.
///
/// # Errors
/// When the head refuses the request or ends it, or the connection breaks.
pub async fn chat(
    request: &ChatRequest,
    id: &str,
    emitter: &Emitter,
    client: &Client,
    answer: &mut Answer,
) -> Result<(), ClientError> {
    // The head's own id comes with the first chunk; one name for all events is worth more.
    let scope = Scope::request(id).in_task("answer");
    let tell = |state, message: Option<String>| {
        emitter.emit(
            scope.clone(),
            Event::Request {
                state,
                message,
                prompt: None,
            },
        );
    };
    let sent = Instant::now();
    answer.sent = Some(sent);
    emitter.emit(
        scope.clone(),
        Event::Request {
            state: RequestState::Sent,
            message: None,
            prompt: Some(request.prompt.clone()),
        },
    );
    let result = async {
        let mut chat = client.chat(request).await?;
        while let Some((arrived, event)) = chat.next().await {
            match event? {
                ChatEvent::Text(text) => {
                    if answer.first.is_none() {
                        answer.first = Some(arrived);
                        let after = arrived.duration_since(sent).as_secs_f64() * 1000.0;
                        tell(
                            RequestState::FirstToken,
                            Some(format!("after {after:.0} ms")),
                        );
                    }
                    answer.last = Some(arrived);
                    answer.chunks += 1;
                    answer.text.push_str(&text);
                    emitter.emit(
                        scope.clone(),
                        Event::Tokens {
                            text,
                            count: answer.chunks,
                            at: arrived.duration_since(sent).as_secs_f64() * 1000.0,
                        },
                    );
                }
                ChatEvent::Finished(_) => {
                    // The last token may have had no text of its own; its end came now.
                    answer.last = Some(arrived);
                    answer.finished = true;
                }
                ChatEvent::Usage {
                    prompt_tokens,
                    completion_tokens,
                } => {
                    answer.prompt_tokens = Some(prompt_tokens);
                    answer.completion_tokens = Some(completion_tokens);
                }
            }
        }
        if answer.finished {
            Ok(())
        } else {
            Err(ClientError::Malformed {
                what: "a chat",
                reason: "it ended without saying why".into(),
            })
        }
    }
    .await;
    match &result {
        Ok(()) => tell(
            RequestState::Finished,
            Some(format!("{} tokens", answer.tokens())),
        ),
        Err(error) => tell(RequestState::Failed, Some(error.to_string())),
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn speed_is_tokens_but_one_over_the_time_between_first_and_last() {
        let start = Instant::now();
        let mut answer = Answer {
            chunks: 120,
            first: Some(start),
            last: Some(start + Duration::from_secs(2)),
            ..Answer::default()
        };
        answer.completion_tokens = Some(129);
        assert_eq!(answer.tokens(), 129);
        assert_eq!(answer.tokens_per_second(), Some(64.0));
        answer.completion_tokens = Some(1);
        assert_eq!(answer.tokens_per_second(), None);
        assert_eq!(Answer::default().tokens_per_second(), None);
    }
}
