//! The API before a head that computes nothing: to try clients without a model.
//!
//! `fake_api [LISTEN] [KEY_SHA256]` prints its address and answers until stdin ends. The tokens
//! are bytes; what is "sampled" depends on the seed and the position alone.

#[path = "../src/api/tests/fake.rs"]
mod fake;

/// What `fake` needs.
mod prelude {
    pub use tokio::sync::{mpsc, watch};
    pub use windlass_wire::telemetry::HeadStatus;
    pub use windlass_worker::api::ApiState;
    pub use windlass_worker::api::language::{ChatMessage, Decoder, Language};
    pub use windlass_worker::head::handle::{HeadHandle, Limits, Pending, SubmitError};
}

use std::io::Read;
use std::time::{Duration, Instant};

use windlass_wire::payload::Sampled;
use windlass_worker::api::serve;
use windlass_worker::head::handle::{FinishReason, Pending, SequenceTimings, TokenEvent};

const TEXT: &str = "The keeper lit the lamp — höher und höher — and the sea 🌊 went on. ";

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().unwrap_or("127.0.0.1:0".to_owned());
    let key = arguments.next();
    let fake::FakeHead {
        handle,
        mut pending,
        status: _status,
    } = fake::head(4096);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("http://{}/v1", listener.local_addr()?);
    tokio::spawn(async move {
        while let Some(pending) = pending.recv().await {
            tokio::spawn(play(pending));
        }
    });
    let state = fake::state(&handle, key.as_deref(), Duration::from_secs(1));
    serve(listener, None, state, async {
        let end = || std::io::stdin().read_to_end(&mut Vec::new());
        let _ = tokio::task::spawn_blocking(end).await;
    })
    .await?;
    Ok(())
}

async fn play(pending: Pending) {
    let begun = Instant::now();
    let _ = pending.admitted.set(begun);
    let asked = &pending.submission;
    let mut text = TEXT.bytes().cycle();
    let mut tokens = 0;
    while tokens < asked.max_tokens {
        // Slow enough to leave a stream in the middle.
        tokio::time::sleep(Duration::from_millis(2)).await;
        let id = if asked.sampling.temperature == 0.0 {
            u32::from(text.next().unwrap_or(b' '))
        } else {
            let mixed = (asked.sampling.seed ^ u64::from(tokens) << 40)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .rotate_left(29)
                .wrapping_mul(0xbf58_476d_1ce4_e5b9);
            97 + u32::try_from(mixed >> 59).unwrap_or(0) % 26
        };
        // Half the mass on the token, the rest on all others.
        let own = -(2f32.ln());
        let other = own - (fake::VOCAB as f32 - 1.0).ln();
        let top = asked.sampling.top_logprobs.map_or(Vec::new(), |count| {
            let others = (0..fake::VOCAB).filter(|other| *other != id);
            let all = std::iter::once((id, own)).chain(others.map(|id| (id, other)));
            all.take(count as usize).collect()
        });
        let token = Sampled {
            id,
            logprob: own,
            top,
        };
        let at = Instant::now();
        if pending
            .events
            .send(TokenEvent::Token { token, at })
            .is_err()
        {
            return;
        }
        tokens += 1;
    }
    let timings = SequenceTimings {
        queue: begun.saturating_duration_since(pending.submitted),
        decode: begun.elapsed(),
        prompt_tokens: u32::try_from(asked.prompt.len()).unwrap_or(u32::MAX),
        tokens,
        ..SequenceTimings::default()
    };
    let reason = FinishReason::Length;
    let _ = pending
        .events
        .send(TokenEvent::Finished { reason, timings });
}
