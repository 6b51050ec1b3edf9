//! Which instructions the processor has, and on which threads kernels run.

use std::sync::Arc;

use rayon::prelude::*;

use crate::engine::error::EngineError;

/// Whether AVX2, FMA and F16C are there.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c")
}

/// Name of the instruction tier in use, e.g. `x86-64/avx2`.
pub fn tier_name() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if has_avx2() {
            "x86-64/avx2"
        } else {
            "x86-64/baseline"
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        std::env::consts::ARCH
    }
}

/// Defines a function compiled twice: for the baseline, and on x86-64 with AVX2, FMA and F16C,
/// chosen at run time. The body is the same, and Rust neither reorders nor fuses floating-point
/// operations, so both give the same bits.
macro_rules! by_tier {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident $([const $constant:ident: usize])? (
        $($argument:ident: $type:ty),* $(,)?
    ) $(-> $result:ty)? $body:block) => {
        $(#[$attribute])*
        $visibility fn $name $(<const $constant: usize>)? ($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn body $(<const $constant: usize>)? ($($argument: $type),*) $(-> $result)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn wide $(<const $constant: usize>)? ($($argument: $type),*) $(-> $result)? {
                    body $(::<$constant>)? ($($argument),*)
                }
                if $crate::engine::ops::tier::has_avx2() {
                    // SAFETY: the processor has the features, checked in the line before.
                    #[allow(unsafe_code, reason = "calling a function compiled for checked features")]
                    return unsafe { wide $(::<$constant>)? ($($argument),*) };
                }
            }
            body $(::<$constant>)? ($($argument),*)
        }
    };
}

/// Runs pieces of work on the engine's threads, or inline when there is one.
#[derive(Clone, Debug)]
pub struct Runner {
    pool: Option<Arc<rayon::ThreadPool>>,
    threads: usize,
}

impl Runner {
    /// A runner with this many threads (0 counts as 1).
    pub fn new(threads: u32) -> Result<Runner, EngineError> {
        let threads = threads.max(1);
        let pool = if threads == 1 {
            None
        } else {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads as usize)
                .thread_name(|i| format!("kernel-{i}"))
                .build()
                .map_err(|error| EngineError::Threads {
                    threads,
                    reason: error.to_string(),
                })?;
            Some(Arc::new(pool))
        };
        Ok(Runner {
            pool,
            threads: threads as usize,
        })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` where nested calls of this runner find their threads at hand.
    pub fn enter<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Calls `work` with the number and the slice of each chunk of `data`.
    pub fn chunks(&self, data: &mut [f32], chunk: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
        let chunk = chunk.max(1);
        match &self.pool {
            Some(pool) if data.len() > chunk => pool.install(|| {
                data.par_chunks_mut(chunk)
                    .enumerate()
                    .for_each(|(i, part)| work(i, part));
            }),
            _ => data
                .chunks_mut(chunk)
                .enumerate()
                .for_each(|(i, part)| work(i, part)),
        }
    }

    /// Calls `work` with each part.
    pub fn each<T: Send>(&self, parts: Vec<T>, work: impl Fn(T) + Send + Sync) {
        match &self.pool {
            Some(pool) if parts.len() > 1 => {
                pool.install(|| parts.into_par_iter().for_each(work));
            }
            _ => parts.into_iter().for_each(work),
        }
    }
}
