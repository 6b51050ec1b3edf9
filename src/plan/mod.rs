//! Decides which stage holds which layers and what that takes. Pure: numbers in, numbers out; asks no
//! host, opens nothing.
//!
//! - here: the most equal split.
//! - [`demand`]: memory by layers, context and concurrency.
//! - [`place`](place()): hosts by usable memory.
//! - [`misfit`]: a model that does not fit, in figures.
//! - [`devices`]: what computes, and what is left unused.

pub mod demand;
pub mod devices;
pub mod misfit;
mod place;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use windlass_gguf::{GgufError, ModelSize, Slice};

pub use demand::{BATCH_ROWS, DEFAULT_CONCURRENCY, DEFAULT_CONTEXT, Demand, Need, kv_blocks};
pub use misfit::{DoesNotFit, HostNeed};
pub use place::{Before, Capacity, PlacedStage, Placement, largest_context, place, place_again};

/// Bytes of a model's parts, as a split needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Bytes of each layer.
    pub layers: Vec<u64>,
    /// Bytes of the token embedding, held by the first stage.
    pub embedding: u64,
    /// Bytes of the final norm and output matrix, held by the last stage.
    pub output: u64,
    /// Whether the output also needs the embedding, which the last stage then holds too.
    pub tied_output: bool,
}

impl Parts {
    /// The parts of a sized model.
    pub fn of(size: &ModelSize) -> Self {
        Self {
            layers: (0..size.layers)
                .map(|layer| size.bytes(Slice::Layer(layer)))
                .collect(),
            embedding: size.bytes(Slice::Embedding),
            output: size.bytes(Slice::Output),
            tied_output: size.tied_output,
        }
    }

    /// Tensor bytes of a stage with the layers `from..to`.
    fn bytes(&self, from: usize, to: usize, first: bool, last: bool) -> u64 {
        let layers = self.layers.get(from..to).unwrap_or_default();
        layers.iter().fold(self.extra(first, last), |sum, bytes| {
            sum.saturating_add(*bytes)
        })
    }

    /// Bytes that a stage holds besides its layers.
    fn extra(&self, first: bool, last: bool) -> u64 {
        let mut bytes = 0u64;
        if first || (last && self.tied_output) {
            bytes = bytes.saturating_add(self.embedding);
        }
        if last {
            bytes = bytes.saturating_add(self.output);
        }
        bytes
    }
}

/// What one stage holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagePlan {
    /// Stage, from 0.
    pub stage: u32,
    /// First layer.
    pub first_layer: u32,
    /// Number of layers.
    pub layers: u32,
    /// Tensor bytes, embedding and output included.
    pub bytes: u64,
    /// The slices to hold, in order.
    pub slices: Vec<Slice>,
}

/// Why a model cannot be split or placed as asked.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The model's header.
    #[error(transparent)]
    Model(#[from] GgufError),
    /// A number in the header that cannot be.
    #[error("metadata key {key} is {found}; such a model cannot be planned, 1 to 16777216 can")]
    Size {
        /// The key.
        key: String,
        /// Its value.
        found: u64,
    },
    /// More context than the model was made for, or none.
    #[error("a context of {asked} is not possible: {model} was made for 1 to {most} tokens")]
    Context {
        /// Name of the model.
        model: String,
        /// Tokens asked for.
        asked: u32,
        /// Tokens possible.
        most: u32,
    },
    /// No sequence, or more than can be counted.
    #[error(
        "a concurrency of {asked} with context {context} is not possible: ask for at least 1 and for fewer than 2^32 blocks of 32 tokens"
    )]
    Concurrency {
        /// Sequences asked for.
        asked: u32,
        /// Tokens of context.
        context: u32,
    },
    /// The head is none of the hosts.
    #[error("the head {head} is none of the hosts to plan for")]
    NoHead {
        /// Its name.
        head: String,
    },
    /// Too little memory.
    #[error("{0}")]
    DoesNotFit(DoesNotFit),
    /// No stage at all.
    #[error("a plan needs at least one worker")]
    NoStages,
    /// A stage would hold nothing.
    #[error(
        "{stages} workers cannot share {layers} layer{}: each holds at least one; ask for at most {layers}",
        if *layers == 1 { "" } else { "s" }
    )]
    TooManyStages {
        /// Workers asked for.
        stages: usize,
        /// Layers of the model.
        layers: usize,
    },
}

/// Splits the layers into `stages` runs so that the largest stage is as small as can be, and among
/// those splits the stages are as equal as can be (least sum of squares). The same input always
/// gives the same split: where two are equally good, earlier stages are the smaller ones.
///
/// # Errors
/// When there are no stages, or more than layers.
pub fn split(parts: &Parts, stages: usize) -> Result<Vec<StagePlan>, PlanError> {
    let layers = parts.layers.len();
    if stages == 0 {
        return Err(PlanError::NoStages);
    }
    if stages > layers {
        return Err(PlanError::TooManyStages { stages, layers });
    }
    let mut before = vec![0u64];
    let mut sum = 0u64;
    for bytes in &parts.layers {
        sum = sum.saturating_add(*bytes);
        before.push(sum);
    }
    let span = |from: usize, to: usize| {
        let at = |i: usize| before.get(i).copied().unwrap_or(0);
        at(to).saturating_sub(at(from))
    };
    let cost = |stage: usize, from: usize, to: usize| {
        span(from, to).saturating_add(parts.extra(stage == 0, stage + 1 == stages))
    };
    // First how large the largest stage must be, then the most equal split that keeps to it: the
    // two aims together do not decompose, each alone does.
    let largest = best(
        layers,
        stages,
        |stage, from, to| Some(u128::from(cost(stage, from, to))),
        u128::max,
    )
    .0;
    let (_, ends) = best(
        layers,
        stages,
        |stage, from, to| {
            let bytes = u128::from(cost(stage, from, to));
            (bytes <= largest).then(|| bytes.saturating_mul(bytes))
        },
        u128::saturating_add,
    );

    let mut plan = Vec::with_capacity(stages);
    let mut from = 0;
    for (stage, to) in ends.into_iter().enumerate() {
        let last = stage + 1 == stages;
        plan.push(StagePlan {
            stage: number(stage),
            first_layer: number(from),
            layers: number(to - from),
            bytes: cost(stage, from, to),
            slices: slices(
                number(from),
                number(to),
                stage == 0,
                last,
                parts.tied_output,
            ),
        });
        from = to;
    }
    Ok(plan)
}

/// Layer counts come from a model whose own count is a `u32`.
fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// The slices a stage holds. The head holds the metadata, which has the tokenizer.
fn slices(from: u32, to: u32, first: bool, last: bool, tied_output: bool) -> Vec<Slice> {
    let mut slices = Vec::new();
    if first {
        slices.push(Slice::Metadata);
    }
    if first || (last && tied_output) {
        slices.push(Slice::Embedding);
    }
    slices.extend((from..to).map(Slice::Layer));
    if last {
        slices.push(Slice::Output);
    }
    slices
}

/// The best way to cut `layers` into `stages` runs, by dynamic programming over prefixes: `cost`
/// of a run (`None`: not allowed), combined by `join`. Returns the total and each run's end.
fn best(
    layers: usize,
    stages: usize,
    cost: impl Fn(usize, usize, usize) -> Option<u128>,
    join: impl Fn(u128, u128) -> u128,
) -> (u128, Vec<usize>) {
    // For every stage, by number of layers used up to its end: the best total and where the stage
    // begins.
    let mut table: Vec<Vec<Option<(u128, usize)>>> = Vec::with_capacity(stages);
    for stage in 0..stages {
        let previous = table.last();
        let mut row = vec![None; layers + 1];
        for (end, slot) in row.iter_mut().enumerate().skip(stage + 1) {
            for start in stage..end {
                let before = match previous {
                    None if start == 0 => Some(0),
                    None => None,
                    Some(previous) => previous
                        .get(start)
                        .copied()
                        .flatten()
                        .map(|(total, _)| total),
                };
                let (Some(before), Some(run)) = (before, cost(stage, start, end)) else {
                    continue;
                };
                let total = join(before, run);
                if slot.is_none_or(|(known, _)| total < known) {
                    *slot = Some((total, start));
                }
            }
        }
        table.push(row);
    }
    let mut ends = Vec::with_capacity(stages);
    let mut end = layers;
    let mut total = 0;
    for (stage, row) in table.iter().enumerate().rev() {
        ends.push(end);
        if let Some((sum, start)) = row.get(end).copied().flatten() {
            if stage + 1 == stages {
                total = sum;
            }
            end = start;
        }
    }
    ends.reverse();
    (total, ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(layers: &[u64]) -> Parts {
        Parts {
            layers: layers.to_vec(),
            embedding: 0,
            output: 0,
            tied_output: false,
        }
    }

    fn counts(plan: &[StagePlan]) -> Vec<u32> {
        plan.iter().map(|stage| stage.layers).collect()
    }

    #[test]
    fn known_splits() {
        let even = |n: usize| vec![10; n];
        let table: [(Parts, usize, &[u32]); 7] = [
            (parts(&even(30)), 1, &[30]),
            (parts(&even(30)), 2, &[15, 15]),
            (parts(&even(30)), 4, &[7, 7, 8, 8]),
            (parts(&[1, 1, 1, 9]), 2, &[3, 1]),
            // The embedding counts for the first stage, the output for the last.
            (
                Parts {
                    embedding: 40,
                    ..parts(&even(10))
                },
                2,
                &[3, 7],
            ),
            (
                Parts {
                    output: 40,
                    ..parts(&even(10))
                },
                2,
                &[7, 3],
            ),
            // A tied embedding counts for both, so the middle takes the layers.
            (
                Parts {
                    embedding: 301,
                    output: 1,
                    tied_output: true,
                    ..parts(&vec![22; 30])
                },
                5,
                &[1, 9, 9, 10, 1],
            ),
        ];
        for (parts, stages, wanted) in table {
            assert_eq!(counts(&split(&parts, stages).unwrap()), wanted, "{parts:?}");
        }
    }

    #[test]
    fn one_stage_holds_a_tied_embedding_once() {
        let parts = Parts {
            embedding: 100,
            output: 1,
            tied_output: true,
            ..parts(&[10, 10])
        };
        let plan = split(&parts, 1).unwrap();
        assert_eq!(plan[0].bytes, 121);
        assert_eq!(plan[0].slices, Slice::all(2));
    }

    #[test]
    fn only_the_head_holds_the_tokenizer_and_only_the_ends_the_matrices() {
        let tied = Parts {
            tied_output: true,
            ..parts(&[1, 1, 1])
        };
        let plan = split(&tied, 3).unwrap();
        assert_eq!(
            plan[0].slices,
            [Slice::Metadata, Slice::Embedding, Slice::Layer(0)]
        );
        assert_eq!(plan[1].slices, [Slice::Layer(1)]);
        assert_eq!(
            plan[2].slices,
            [Slice::Embedding, Slice::Layer(2), Slice::Output]
        );
        let plan = split(&parts(&[1, 1, 1]), 3).unwrap();
        assert_eq!(plan[2].slices, [Slice::Layer(2), Slice::Output]);
    }

    #[test]
    fn more_workers_than_layers_is_refused_with_the_most_that_fit() {
        let error = split(&parts(&[1, 1]), 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "3 workers cannot share 2 layers: each holds at least one; ask for at most 2"
        );
        assert!(matches!(split(&parts(&[1]), 0), Err(PlanError::NoStages)));
    }

    /// The smallest largest stage, by trying every split.
    fn smallest_largest(parts: &Parts, stages: usize) -> u64 {
        fn go(parts: &Parts, stage: usize, stages: usize, from: usize) -> u64 {
            let n = parts.layers.len();
            let sum = |a: usize, b: usize| parts.layers[a..b].iter().sum::<u64>();
            if stage + 1 == stages {
                return sum(from, n) + parts.extra(stage == 0, true);
            }
            (from + 1..=n - (stages - stage - 1))
                .map(|to| {
                    let own = sum(from, to) + parts.extra(stage == 0, false);
                    own.max(go(parts, stage + 1, stages, to))
                })
                .min()
                .unwrap()
        }
        go(parts, 0, stages, 0)
    }

    proptest! {
        #[test]
        fn the_largest_stage_is_as_small_as_any_split_allows(
            layers in proptest::collection::vec(0u64..100, 1..11),
            stages in 1usize..6,
            embedding in 0u64..200,
            output in 0u64..200,
            tied_output: bool,
        ) {
            let parts = Parts { layers, embedding, output, tied_output };
            prop_assume!(stages <= parts.layers.len());
            let plan = split(&parts, stages).unwrap();
            prop_assert_eq!(plan.len(), stages);
            let largest = plan.iter().map(|stage| stage.bytes).max().unwrap();
            prop_assert_eq!(largest, smallest_largest(&parts, stages));
            // Contiguous, complete, none empty.
            let mut next = 0;
            for (i, stage) in plan.iter().enumerate() {
                prop_assert_eq!(stage.stage as usize, i);
                prop_assert_eq!(stage.first_layer, next);
                prop_assert!(stage.layers >= 1);
                next += stage.layers;
            }
            prop_assert_eq!(next as usize, parts.layers.len());
            prop_assert_eq!(&split(&parts, stages).unwrap(), &plan);
        }

        #[test]
        fn sizes_beyond_any_machine_do_not_overflow(
            layers in proptest::collection::vec(any::<u64>(), 1..6),
            embedding: u64, output: u64, tied_output: bool,
        ) {
            let parts = Parts { layers, embedding, output, tied_output };
            for stages in 1..=parts.layers.len() {
                let plan = split(&parts, stages).unwrap();
                prop_assert_eq!(plan.iter().map(|s| s.layers as usize).sum::<usize>(), parts.layers.len());
            }
        }
    }
}
