//! A language whose tokens are bytes, and a head that computes nothing: what tests put behind
//! the API. Uses only what its parent's `prelude` names, so that an example can include it.

use std::sync::Arc;
use std::time::Duration;

use super::prelude::*;

/// Tokens 0 to 255 are bytes, 256 ends an answer, 257 begins a text.
pub struct Bytes;

/// Ends an answer.
pub const END: u32 = 256;
/// Begins a text.
pub const BEGIN: u32 = 257;
/// Size of the vocabulary.
pub const VOCAB: u32 = 258;

impl Language for Bytes {
    fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, String> {
        let begin = add_special.then_some(BEGIN);
        Ok(begin
            .into_iter()
            .chain(text.bytes().map(u32::from))
            .collect())
    }

    fn render(&self, messages: &[ChatMessage]) -> Result<String, String> {
        if messages.iter().any(|m| m.content == "refuse me") {
            return Err("as it was told to".to_owned());
        }
        let mut text = String::new();
        for ChatMessage { role, content } in messages {
            text.push_str(&format!("{role}:{content}\n"));
        }
        Ok(text + "assistant:")
    }

    fn eog(&self) -> &[u32] {
        &[END]
    }

    fn piece(&self, id: u32) -> Vec<u8> {
        u8::try_from(id).map_or(b"<special>".to_vec(), |byte| vec![byte])
    }

    fn decoder(&self, _continues: bool) -> Box<dyn Decoder> {
        Box::new(Characters(Vec::new()))
    }
}

struct Characters(Vec<u8>);

impl Decoder for Characters {
    fn push(&mut self, id: u32) -> String {
        self.0.extend(u8::try_from(id).ok());
        match std::str::from_utf8(&self.0) {
            Ok(text) => {
                let text = text.to_owned();
                self.0.clear();
                text
            }
            Err(_) => String::new(),
        }
    }

    fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()
    }
}

/// A head that hands its sequences to the caller.
pub struct FakeHead {
    /// For the API.
    pub handle: HeadHandle,
    /// What was submitted.
    pub pending: mpsc::UnboundedReceiver<Pending>,
    /// The state it reports.
    pub status: watch::Sender<HeadStatus>,
}

/// A serving head of one stage with this context.
pub fn head(context: u32) -> FakeHead {
    let (sender, pending) = mpsc::unbounded_channel();
    let (status, watched) = watch::channel(HeadStatus {
        state: "serving".to_owned(),
        model: "tiny".to_owned(),
        ..HeadStatus::default()
    });
    let limits = Limits {
        context,
        vocab: VOCAB,
    };
    let state = watched.clone();
    let accept = move |pending: Pending| {
        let status = state.borrow().clone();
        match status.state.as_str() {
            "serving" => sender.send(pending).map_err(|_| SubmitError::Stopping),
            "full" => Err(SubmitError::Overloaded),
            _ => Err(SubmitError::Degraded(status.reason.unwrap_or_default())),
        }
    };
    FakeHead {
        handle: HeadHandle::from_parts(limits, watched, Box::new(accept)),
        pending,
        status,
    }
}

/// An API state over a fake head.
pub fn state(handle: &HeadHandle, api_key_sha256: Option<&str>, grace: Duration) -> ApiState {
    ApiState {
        handle: handle.clone(),
        language: Arc::new(Bytes),
        model: "tiny".to_owned(),
        api_key_sha256: api_key_sha256.map(str::to_owned),
        grace,
    }
}
