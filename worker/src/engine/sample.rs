//! From logits to a token. Must not know models or sequences' states beyond the tokens seen.
//!
//! Order: the log-probabilities that are reported come from the logits as the model gave them.
//! Then bias and bans, penalties (repetition, frequency, presence), temperature, top-k, top-p,
//! min-p, and the draw. The draw's random number is a function of seed and position alone, so a
//! replay of a sequence says the same.

use std::collections::HashMap;

use windlass_wire::payload::{Admit, Sampled, Sampling};

/// Chooses the tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// For tokens of the prompt and generated ones: how often it was generated.
    seen: HashMap<u32, u32>,
    /// Scratch: candidates as (weight, id).
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// A sampler for an admitted sequence.
    pub fn new(admit: &Admit) -> Sampler {
        let mut sampler = Sampler {
            sampling: admit.sampling.clone(),
            seen: HashMap::new(),
            candidates: Vec::new(),
        };
        if sampler.penalises() {
            sampler.seen.extend(admit.prompt.iter().map(|&id| (id, 0)));
        }
        sampler
    }

    /// Chooses the token that follows position `pos`, and counts it as generated.
    ///
    /// `logits` is one row, and is changed. A row without a single usable value gives token 0.
    pub fn sample(&mut self, logits: &mut [f32], pos: u32) -> Sampled {
        let raw = self.sampling.top_logprobs.map(|count| {
            let norm = log_sum_exp(logits);
            (norm, self.best(logits, count as usize, norm))
        });
        let raw_logits: Option<Vec<f32>> = raw.as_ref().map(|_| logits.to_vec());
        self.adjust(logits);
        let id = if self.sampling.temperature > 0.0 {
            self.draw(logits, pos)
        } else {
            greedy(logits)
        };
        if self.penalises() {
            *self.seen.entry(id).or_insert(0) += 1;
        }
        let mut sampled = Sampled {
            id,
            logprob: f32::NAN,
            top: Vec::new(),
        };
        if let (Some((norm, top)), Some(raw)) = (raw, raw_logits) {
            let logit = raw.get(id as usize).copied().unwrap_or(f32::NEG_INFINITY);
            sampled.logprob = (f64::from(logit) - norm) as f32;
            sampled.top = top;
        }
        sampled
    }

    fn penalises(&self) -> bool {
        let s = &self.sampling;
        s.repetition_penalty != 1.0 || s.frequency_penalty != 0.0 || s.presence_penalty != 0.0
    }

    /// Bias, bans and penalties.
    fn adjust(&self, logits: &mut [f32]) {
        let s = &self.sampling;
        for &(id, bias) in &s.logit_bias {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit += bias;
            }
        }
        for &id in &s.banned {
            if let Some(logit) = logits.get_mut(id as usize) {
                *logit = f32::NEG_INFINITY;
            }
        }
        for (&id, &count) in &self.seen {
            let Some(logit) = logits.get_mut(id as usize) else {
                continue;
            };
            if s.repetition_penalty > 0.0 {
                if *logit > 0.0 {
                    *logit /= s.repetition_penalty;
                } else {
                    *logit *= s.repetition_penalty;
                }
            }
            if count > 0 {
                *logit -= s.frequency_penalty * count as f32 + s.presence_penalty;
            }
        }
    }

    /// The `count` most probable tokens with their log-probabilities, best first.
    fn best(&mut self, logits: &[f32], count: usize, norm: f64) -> Vec<(u32, f32)> {
        self.fill(logits);
        let all = &mut self.candidates;
        keep_best(all, count);
        all.iter()
            .map(|&(logit, id)| (id, (f64::from(logit) - norm) as f32))
            .collect()
    }

    /// Takes all usable logits as candidates, by id.
    fn fill(&mut self, logits: &[f32]) {
        self.candidates.clear();
        self.candidates.extend(
            logits
                .iter()
                .zip(0..)
                .filter(|(l, _)| **l > f32::NEG_INFINITY)
                .map(|(&l, id)| (l, id)),
        );
    }

    fn draw(&mut self, logits: &[f32], pos: u32) -> u32 {
        self.fill(logits);
        let s = &self.sampling;
        let all = &mut self.candidates;
        let best = all.iter().fold(f32::NEG_INFINITY, |a, c| a.max(c.0));
        if !best.is_finite() {
            return greedy(logits);
        }
        if s.top_k > 0 {
            keep_best(all, s.top_k as usize);
        }
        // Weights relative to the best token's, which is 1.
        for candidate in all.iter_mut() {
            candidate.0 = ((candidate.0 - best) / s.temperature).exp();
        }
        if s.top_p < 1.0 {
            keep_mass(all, s.top_p);
        }
        if s.min_p > 0.0 {
            all.retain(|c| c.0 >= s.min_p);
        }
        let total: f64 = all.iter().map(|c| f64::from(c.0)).sum();
        let mut left = uniform(s.seed, pos) * total;
        let mut chosen = None;
        for &(weight, id) in all.iter() {
            if weight > 0.0 {
                chosen = Some(id);
                left -= f64::from(weight);
                if left < 0.0 {
                    break;
                }
            }
        }
        chosen.unwrap_or_else(|| greedy(logits))
    }
}

/// The largest logit's token; the lowest id of equals.
fn greedy(logits: &[f32]) -> u32 {
    let mut best = (f32::NEG_INFINITY, 0);
    for (&logit, id) in logits.iter().zip(0..) {
        if logit > best.0 {
            best = (logit, id);
        }
    }
    best.1
}

fn descending(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

/// Keeps the `count` largest, sorted; of equals the lower ids.
fn keep_best(all: &mut Vec<(f32, u32)>, count: usize) {
    if count < all.len() {
        if count > 0 {
            all.select_nth_unstable_by(count - 1, descending);
        }
        all.truncate(count);
    }
    all.sort_unstable_by(descending);
}

/// Keeps the smallest set of the largest whose share of all reaches `share`, at least one.
fn keep_mass(all: &mut Vec<(f32, u32)>, share: f32) {
    let total: f64 = all.iter().map(|c| f64::from(c.0)).sum();
    let wanted = f64::from(share.max(0.0)) * total;
    // Few tokens usually suffice, so that the whole vocabulary is seldom sorted.
    let mut look = 256.min(all.len());
    loop {
        if look < all.len() {
            all.select_nth_unstable_by(look, descending);
        }
        let Some(head) = all.get_mut(..look) else {
            return;
        };
        head.sort_unstable_by(descending);
        let mut mass = 0.0;
        for (i, candidate) in head.iter().enumerate() {
            mass += f64::from(candidate.0);
            if mass >= wanted {
                all.truncate(i + 1);
                return;
            }
        }
        if look == all.len() {
            return;
        }
        look = (look * 8).min(all.len());
    }
}

/// Natural log of the sum of the exponentials.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let best = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    if !best.is_finite() {
        return f64::from(best);
    }
    let sum: f64 = logits
        .iter()
        .map(|&l| f64::from(l - best).exp())
        .filter(|e| !e.is_nan())
        .sum();
    f64::from(best) + sum.ln()
}

/// A number from 0 (inclusive) to 1 (exclusive) for a seed and a position.
///
/// SplitMix64's output function, applied to the seed and to seed plus counter.
pub fn uniform(seed: u64, pos: u32) -> f64 {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
    fn mix(mut z: u64) -> u64 {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    let key = mix(seed.wrapping_add(GAMMA));
    let bits = mix(key.wrapping_add((u64::from(pos) + 1).wrapping_mul(GAMMA)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(sampling: Sampling, prompt: &[u32]) -> Sampler {
        Sampler::new(&Admit {
            seq: 1,
            max_positions: 100,
            sampling,
            prompt: prompt.to_vec(),
        })
    }

    fn greedy_with(sampling: Sampling) -> Sampling {
        Sampling {
            temperature: 0.0,
            ..sampling
        }
    }

    /// How often each token is drawn at 4,000 positions.
    fn shares(sampling: Sampling, logits: &[f32]) -> Vec<f64> {
        let mut counts = vec![0u32; logits.len()];
        let mut s = sampler(sampling, &[]);
        for pos in 0..4000 {
            counts[s.sample(&mut logits.to_vec(), pos).id as usize] += 1;
        }
        counts.iter().map(|&c| f64::from(c) / 4000.0).collect()
    }

    /// Within five standard deviations of a share measured at 4,000 positions.
    fn close(found: &[f64], expected: &[f64]) {
        for (f, e) in found.iter().zip(expected) {
            let sigma = (e * (1.0 - e) / 4000.0).sqrt();
            assert!((f - e).abs() <= 5.0 * sigma, "{found:?} {expected:?}");
        }
    }

    /// Logits whose probabilities are 1/2, 1/4, 1/8, 1/8.
    fn halves() -> Vec<f32> {
        [0.5f32, 0.25, 0.125, 0.125]
            .iter()
            .map(|p| p.ln() + 3.0)
            .collect()
    }

    #[test]
    fn temperature_zero_takes_the_largest_and_the_lowest_id_of_equals() {
        let mut s = sampler(greedy_with(Sampling::default()), &[]);
        assert_eq!(s.sample(&mut [1.0, 5.0, 5.0, -1.0], 0).id, 1);
        assert_eq!(s.sample(&mut [f32::NAN, f32::NEG_INFINITY, -3.0], 1).id, 2);
        assert_eq!(s.sample(&mut [f32::NAN, f32::NEG_INFINITY], 1).id, 0);
    }

    #[test]
    fn draws_follow_the_probabilities_and_temperature_reshapes_them() {
        close(
            &shares(Sampling::default(), &halves()),
            &[0.5, 0.25, 0.125, 0.125],
        );
        // p^(1/0.5): 1/4, 1/16, 1/64, 1/64 over 22/64.
        let cold = Sampling {
            temperature: 0.5,
            ..Sampling::default()
        };
        close(
            &shares(cold, &halves()),
            &[16.0 / 22.0, 4.0 / 22.0, 1.0 / 22.0, 1.0 / 22.0],
        );
    }

    #[test]
    fn top_k_keeps_the_k_best_and_the_lower_ids_of_equals() {
        let s = Sampling {
            top_k: 3,
            ..Sampling::default()
        };
        let found = shares(s, &halves());
        close(&found, &[4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0]);
        let one = Sampling {
            top_k: 1,
            ..Sampling::default()
        };
        assert_eq!(shares(one, &halves())[0], 1.0);
    }

    #[test]
    fn top_p_keeps_the_smallest_set_that_reaches_it() {
        let s = |top_p| Sampling {
            top_p,
            ..Sampling::default()
        };
        close(
            &shares(s(0.7), &halves()),
            &[2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0],
        );
        close(
            &shares(s(0.76), &halves()),
            &[4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0, 0.0],
        );
        assert_eq!(shares(s(0.0), &halves())[0], 1.0);
    }

    #[test]
    fn top_p_over_a_flat_vocabulary_looks_beyond_the_first_candidates() {
        let mut all: Vec<(f32, u32)> = (0..5000).map(|id| (1.0, id)).collect();
        keep_mass(&mut all, 0.5);
        assert_eq!(all.len(), 2500);
        assert!(all.iter().all(|c| c.1 < 2500));
    }

    #[test]
    fn min_p_is_relative_to_the_best() {
        let s = |min_p| Sampling {
            min_p,
            ..Sampling::default()
        };
        close(
            &shares(s(0.3), &halves()),
            &[2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0],
        );
        close(&shares(s(0.2), &halves()), &[0.5, 0.25, 0.125, 0.125]);
        assert_eq!(shares(s(0.6), &halves())[0], 1.0);
    }

    #[test]
    fn repetition_penalty_divides_positive_and_multiplies_negative_logits() {
        let s = greedy_with(Sampling {
            repetition_penalty: 2.0,
            ..Sampling::default()
        });
        let mut logits = [3.0, 2.0, -1.0, -1.5];
        sampler(s, &[0, 2]).sample(&mut logits, 0);
        assert_eq!(logits, [1.5, 2.0, -2.0, -1.5]);
    }

    #[test]
    fn frequency_counts_and_presence_does_not_and_both_ignore_the_prompt() {
        let s = greedy_with(Sampling {
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            ..Sampling::default()
        });
        let mut s = sampler(s, &[1, 1]);
        for _ in 0..2 {
            assert_eq!(s.sample(&mut [9.0, 0.0, 0.0], 0).id, 0);
        }
        let mut logits = [9.0, 1.0, 0.0];
        s.sample(&mut logits, 0);
        // 9 - 2 * 0.5 - 0.25
        assert_eq!(logits, [7.75, 1.0, 0.0]);
    }

    #[test]
    fn bias_is_added_and_banned_tokens_are_never_chosen() {
        let s = greedy_with(Sampling {
            logit_bias: vec![(2, 4.0), (9, 1.0)],
            banned: vec![1, 7],
            ..Sampling::default()
        });
        let mut logits = [1.0, 9.0, -2.0];
        assert_eq!(sampler(s, &[]).sample(&mut logits, 0).id, 2);
        assert_eq!(logits, [1.0, f32::NEG_INFINITY, 2.0]);
        let s = Sampling {
            banned: vec![0],
            ..Sampling::default()
        };
        close(&shares(s, &halves()), &[0.0, 0.5, 0.25, 0.25]);
    }

    #[test]
    fn log_probabilities_are_the_models_own_before_all_filters() {
        let s = greedy_with(Sampling {
            banned: vec![0],
            top_logprobs: Some(4),
            ..Sampling::default()
        });
        let sampled = sampler(s, &[]).sample(&mut halves(), 0);
        assert_eq!(sampled.id, 1);
        assert!((sampled.logprob - 0.25f32.ln()).abs() < 1e-6);
        let ids: Vec<u32> = sampled.top.iter().map(|t| t.0).collect();
        assert_eq!(ids, [0, 1, 2, 3]);
        let sum: f32 = sampled.top.iter().map(|t| t.1.exp()).sum();
        assert!((sum - 1.0).abs() < 1e-6);
        let s = greedy_with(Sampling {
            top_logprobs: Some(2),
            ..Sampling::default()
        });
        assert_eq!(sampler(s, &[]).sample(&mut halves(), 0).top.len(), 2);
        let s = greedy_with(Sampling {
            top_logprobs: Some(0),
            ..Sampling::default()
        });
        let sampled = sampler(s, &[]).sample(&mut halves(), 0);
        assert!((sampled.logprob - 0.5f32.ln()).abs() < 1e-6 && sampled.top.is_empty());
        let plain = sampler(greedy_with(Sampling::default()), &[]).sample(&mut halves(), 0);
        assert!(plain.logprob.is_nan());
    }

    #[test]
    fn the_same_seed_and_position_draw_the_same_number_and_others_do_not() {
        assert_eq!(uniform(7, 3), uniform(7, 3));
        let mut all: Vec<f64> = (0..50)
            .flat_map(|seed| (0..50).map(move |pos| uniform(seed, pos)))
            .collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        assert_eq!(all.len(), 2500);
        assert!(all.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = all.iter().sum::<f64>() / 2500.0;
        assert!((mean - 0.5).abs() < 5.0 * (1.0f64 / 12.0 / 2500.0).sqrt());
    }
}
