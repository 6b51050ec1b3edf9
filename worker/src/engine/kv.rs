//! Blocks of key and value storage: who has which. Knows no floats and no layers.
//!
//! A block holds [`BLOCK`] positions of one sequence, in all layers of the stage.

use std::collections::HashMap;

use thiserror::Error;

/// Positions in a block.
pub const BLOCK: usize = 32;

/// There are not enough free blocks.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "KV cache is full: {needed} blocks of {BLOCK} positions are needed, {free} of {total} are free; \
     let requests end, or plan with more context"
)]
pub struct KvFull {
    /// Blocks needed.
    pub needed: u32,
    /// Blocks free.
    pub free: u32,
    /// Blocks in all.
    pub total: u32,
}

#[derive(Debug, Default)]
struct Table {
    blocks: Vec<u32>,
    positions: u32,
}

/// The blocks of a stage.
#[derive(Debug)]
pub struct BlockPool {
    total: u32,
    /// Blocks given back, the last one on top: it is still in cache.
    returned: Vec<u32>,
    /// Blocks from this one on were never used.
    fresh: u32,
    tables: HashMap<u32, Table>,
}

impl BlockPool {
    /// A pool of `total` blocks, all free.
    pub fn new(total: u32) -> BlockPool {
        BlockPool {
            total,
            returned: Vec::new(),
            fresh: 0,
            tables: HashMap::new(),
        }
    }

    /// Blocks in all.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// Blocks that sequences hold.
    pub fn used(&self) -> u32 {
        self.fresh - self.returned.len() as u32
    }

    /// Positions that the sequence holds.
    pub fn positions(&self, seq: u32) -> u32 {
        self.tables.get(&seq).map_or(0, |table| table.positions)
    }

    /// The sequence's blocks, in the order of positions.
    pub fn blocks(&self, seq: u32) -> &[u32] {
        self.tables.get(&seq).map_or(&[], |table| &table.blocks)
    }

    /// Makes each sequence of `(seq, positions)` hold that many positions (never fewer than
    /// before). All or none: on an error nothing was changed. A sequence may appear once.
    pub fn grow(&mut self, wanted: &[(u32, u32)]) -> Result<(), KvFull> {
        let missing = |pool: &Self, seq, positions: u32| {
            let have = pool.blocks(seq).len() as u64;
            u64::from(positions)
                .div_ceil(BLOCK as u64)
                .saturating_sub(have)
        };
        let needed: u64 = wanted.iter().map(|&(seq, n)| missing(self, seq, n)).sum();
        let free = self.total - self.used();
        if needed > u64::from(free) {
            return Err(KvFull {
                needed: needed.min(u64::from(u32::MAX)) as u32,
                free,
                total: self.total,
            });
        }
        for &(seq, positions) in wanted {
            for _ in 0..missing(self, seq, positions) {
                let block = self.returned.pop().unwrap_or_else(|| {
                    self.fresh += 1;
                    self.fresh - 1
                });
                self.tables.entry(seq).or_default().blocks.push(block);
            }
            if positions > 0 {
                let table = self.tables.entry(seq).or_default();
                table.positions = table.positions.max(positions);
            }
        }
        Ok(())
    }

    /// Frees the sequence's blocks; nothing happens when it holds none.
    pub fn free(&mut self, seq: u32) {
        if let Some(table) = self.tables.remove(&seq) {
            self.returned.extend(table.blocks.into_iter().rev());
        }
    }

    /// Frees all blocks.
    pub fn clear(&mut self) {
        self.tables.clear();
        self.returned.clear();
        self.fresh = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_batch_that_does_not_fit_changes_nothing() {
        let mut pool = BlockPool::new(3);
        pool.grow(&[(1, 33)]).unwrap();
        let error = pool.grow(&[(1, 64), (2, 33)]).unwrap_err();
        assert_eq!(
            error,
            KvFull {
                needed: 2,
                free: 1,
                total: 3
            }
        );
        assert_eq!(
            (pool.used(), pool.positions(1), pool.positions(2)),
            (2, 33, 0)
        );
    }

    #[test]
    fn freeing_twice_or_a_stranger_is_harmless() {
        let mut pool = BlockPool::new(2);
        pool.grow(&[(7, 64)]).unwrap();
        pool.free(7);
        pool.free(7);
        pool.free(8);
        assert_eq!(pool.used(), 0);
        pool.grow(&[(1, 32), (2, 32)]).unwrap();
        assert_ne!(pool.blocks(1), pool.blocks(2));
    }

    proptest! {
        #[test]
        fn blocks_never_leak_nor_serve_two(steps in proptest::collection::vec((0u32..5, 0u32..200, any::<bool>()), 0..80)) {
            let mut pool = BlockPool::new(12);
            for (seq, positions, free) in steps {
                if free {
                    pool.free(seq);
                } else {
                    let before = (pool.used(), pool.positions(seq));
                    match pool.grow(&[(seq, positions)]) {
                        Ok(()) => prop_assert_eq!(pool.positions(seq), before.1.max(positions)),
                        Err(_) => prop_assert_eq!((pool.used(), pool.positions(seq)), before),
                    }
                }
                let mut seen = HashSet::new();
                for seq in 0..5 {
                    prop_assert_eq!(pool.blocks(seq).len(), (pool.positions(seq) as usize).div_ceil(BLOCK));
                    for &block in pool.blocks(seq) {
                        prop_assert!(block < 12 && seen.insert(block));
                    }
                }
                prop_assert_eq!(pool.used() as usize, seen.len());
            }
            for seq in 0..5 {
                pool.free(seq);
            }
            prop_assert_eq!(pool.used(), 0);
        }
    }
}
