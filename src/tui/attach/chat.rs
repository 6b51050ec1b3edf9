//! Questions to the model and their answers, one at a time.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{Shared, lock};
use crate::deploy::answer::{self, Answer};
use crate::deploy::client::{ChatRequest, Turn};
use crate::event::{Bus, Event, RequestState, Scope, bus};

/// The conversation.
pub struct Chatting {
    bus: Bus,
    asked: u32,
    answering: Option<(String, JoinHandle<()>)>,
}

impl Drop for Chatting {
    fn drop(&mut self) {
        self.stop();
        self.bus.close();
    }
}

impl Chatting {
    /// Nothing said yet.
    pub fn new(shared: &Shared) -> Self {
        let bus = Bus::new(format!("chat-{}", bus::new_id()));
        shared.pass(bus.subscribe());
        Self {
            bus,
            asked: 0,
            answering: None,
        }
    }

    /// Asks; an answer that still comes is stopped.
    pub fn ask(&mut self, shared: &Arc<Shared>, prompt: String, before: Vec<Turn>) {
        self.stop();
        let Some(way) = lock(&shared.way).clone() else {
            shared.note("there is no model to talk to");
            return;
        };
        self.asked += 1;
        let id = format!("chat-{}", self.asked);
        let emitter = self.bus.emitter();
        let request = ChatRequest {
            model: way.model.clone(),
            before,
            prompt,
            max_tokens: None,
            ignore_eos: false,
        };
        let name = id.clone();
        let task = tokio::spawn(async move {
            // Held as long as the answer comes, even when another way is found meanwhile.
            let _held = way.held;
            // What comes of it is told as events.
            let _ = answer::chat(
                &request,
                &name,
                &emitter,
                &way.client,
                &mut Answer::default(),
            )
            .await;
        });
        self.answering = Some((id, task));
    }

    /// Stops the answer that comes: its connection is closed, which cancels it on all stages.
    pub fn stop(&mut self) {
        let Some((id, task)) = self.answering.take() else {
            return;
        };
        if task.is_finished() {
            return;
        }
        task.abort();
        self.bus.emitter().emit(
            Scope::request(id).in_task("answer"),
            Event::Request {
                state: RequestState::Cancelled,
                message: None,
                prompt: None,
            },
        );
    }
}
