//! What frames carry besides hidden states: greetings, admissions, sampled tokens.
//!
//! JSON where a message is rare, fixed little-endian layouts where it is sent for every token.

use serde::{Deserialize, Serialize};

use crate::frame::FrameError;

/// Most alternatives a token may carry.
pub const MAX_TOP: usize = 1 << 18;

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// From a stage to the next one; from the last to the head.
    Data,
    /// From a stage to the head: telemetry, faults, resets.
    Control,
}

/// First frame on a connection, from the side that opened it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Deployment the sender belongs to.
    pub deployment: String,
    /// Stage of the sender.
    pub stage: u32,
    /// Name of its host, for messages.
    pub host: String,
    /// What the connection is for.
    pub role: Role,
    /// Version and build of the sender, e.g. `0.1.0+abc`.
    pub build: String,
    /// Digest of the model the sender holds a part of.
    pub model_sha256: String,
    /// Floats in a row of hidden states.
    pub hidden: u32,
    /// Instruction tier of the sender's kernels, e.g. `x86-64/avx2`.
    pub tier: String,
    /// Round of the head's that a data connection belongs to; 0 where links are made only once.
    #[serde(default)]
    pub round: u64,
}

/// How tokens are chosen. The defaults are those of the OpenAI API, without its filters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the k most probable tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set whose probability reaches this.
    pub top_p: f32,
    /// Keep tokens at least this probable relative to the best.
    pub min_p: f32,
    /// Key of the counter-based generator; the counter is the position.
    pub seed: u64,
    /// Divides positive and multiplies negative logits of tokens seen; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of each generated token, times its count.
    pub frequency_penalty: f32,
    /// Subtracted from the logit of each token generated at least once.
    pub presence_penalty: f32,
    /// Added to the logits of these tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Tokens that are never chosen.
    pub banned: Vec<u32>,
    /// How many alternatives with their log-probabilities to return; `None`: not even the token's own.
    pub top_logprobs: Option<u32>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            seed: 0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            banned: Vec::new(),
            top_logprobs: None,
        }
    }
}

/// A sequence begins. The last stage needs all of it, the others only the number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Admit {
    /// Number of the sequence, unique within the epoch.
    pub seq: u32,
    /// Most positions it will ever hold.
    pub max_positions: u32,
    /// How to sample.
    pub sampling: Sampling,
    /// The prompt, sent only when a penalty looks at it.
    pub prompt: Vec<u32>,
}

/// One sampled token.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Sampled {
    /// The token.
    pub id: u32,
    /// Natural log of its probability before filters, NaN when not asked for.
    pub logprob: f32,
    /// Most probable alternatives, best first.
    pub top: Vec<(u32, f32)>,
}

/// Appends sampled tokens: for each, id, log-probability, count, then (id, log-probability) pairs.
pub fn encode_sampled(tokens: &[Sampled], out: &mut Vec<u8>) {
    for token in tokens {
        out.extend_from_slice(&token.id.to_le_bytes());
        out.extend_from_slice(&token.logprob.to_le_bytes());
        out.extend_from_slice(&(token.top.len() as u32).to_le_bytes());
        for (id, logprob) in &token.top {
            out.extend_from_slice(&id.to_le_bytes());
            out.extend_from_slice(&logprob.to_le_bytes());
        }
    }
}

/// Reads exactly `count` sampled tokens that fill `bytes`.
pub fn decode_sampled(mut bytes: &[u8], count: usize) -> Result<Vec<Sampled>, FrameError> {
    fn word(bytes: &mut &[u8]) -> Result<[u8; 4], FrameError> {
        let (head, rest) = bytes.split_first_chunk::<4>().ok_or(FrameError::Short {
            what: "sampled tokens",
            needed: 4,
            got: bytes.len(),
        })?;
        *bytes = rest;
        Ok(*head)
    }
    let mut tokens = Vec::new();
    for _ in 0..count {
        let id = u32::from_le_bytes(word(&mut bytes)?);
        let logprob = f32::from_le_bytes(word(&mut bytes)?);
        let tops = u32::from_le_bytes(word(&mut bytes)?) as usize;
        if tops > MAX_TOP || tops * 8 > bytes.len() {
            return Err(FrameError::Short {
                what: "alternatives",
                needed: tops.saturating_mul(8),
                got: bytes.len(),
            });
        }
        let mut top = Vec::with_capacity(tops);
        for _ in 0..tops {
            top.push((
                u32::from_le_bytes(word(&mut bytes)?),
                f32::from_le_bytes(word(&mut bytes)?),
            ));
        }
        tokens.push(Sampled { id, logprob, top });
    }
    if bytes.is_empty() {
        Ok(tokens)
    } else {
        Err(FrameError::Malformed("bytes after the last token"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_count_beyond_the_payload_is_refused() {
        let mut bytes = Vec::new();
        encode_sampled(
            &[Sampled {
                id: 5,
                logprob: -0.5,
                top: vec![(5, -0.5), (6, -1.0)],
            }],
            &mut bytes,
        );
        assert_eq!(bytes.len(), 12 + 16);
        assert!(decode_sampled(&bytes, 2).is_err());
        assert!(decode_sampled(&bytes, 0).is_err());
        bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode_sampled(&bytes, 1).is_err());
    }

    proptest! {
        #[test]
        fn sampled_tokens_round_trip(tokens in proptest::collection::vec((any::<u32>(), -9f32..0.0, proptest::collection::vec((any::<u32>(), -9f32..0.0), 0..4)), 0..5)) {
            let tokens: Vec<_> = tokens.into_iter().map(|(id, logprob, top)| Sampled { id, logprob, top }).collect();
            let mut bytes = Vec::new();
            encode_sampled(&tokens, &mut bytes);
            prop_assert_eq!(decode_sampled(&bytes, tokens.len()), Ok(tokens));
        }

        #[test]
        fn any_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0usize..9) {
            let _ = decode_sampled(&bytes, count);
        }
    }
}
