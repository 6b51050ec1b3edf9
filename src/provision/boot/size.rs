//! How much memory a GPU may use, in the figures that parameters take. Pure.

/// The least that is left to the system, bytes: 2 GiB. With less, logins and the driver itself begin
/// to fail, and the host is only mended at its console.
pub const REST: u64 = 2 << 30;

/// A mebibyte and a gibibyte.
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What is left to the system unless a size is given, bytes: a sixteenth of its memory and at least
/// 4 GiB. Pages that the GPU has cannot be swapped; the system, the worker's own buffers and the cache
/// that a model is read through come out of this, and the last grows with the model and so with the
/// memory. Of a machine of 128 GB (125 GiB seen) it leaves 8.
pub fn reserve(ram: u64) -> u64 {
    (ram / 16).max(4 * GIB)
}

/// What a GPU may use when nobody says: memory without the reserve, in whole gibibytes.
///
/// # Errors
/// When nothing is left.
pub fn usual(ram: u64) -> Result<u64, String> {
    let left = ram.saturating_sub(reserve(ram)) / GIB * GIB;
    match left {
        0 => Err(format!(
            "it has {} of memory, and nothing of it can be given away",
            crate::figures::memory(ram)
        )),
        left => Ok(left),
    }
}

/// Whether this much can be given away.
///
/// # Errors
/// When too little would be left to the system.
pub fn fits(size: u64, ram: u64) -> Result<(), String> {
    let most = ram.saturating_sub(REST);
    if size == 0 {
        return Err("a size of 0 gives the GPU nothing; `reset` gives the default back".to_owned());
    }
    if size > most {
        return Err(format!(
            "{} are more than can be given away: it has {} of memory, of which {} stay for the system; \
             the most is {}GiB",
            crate::figures::memory(size),
            crate::figures::memory(ram),
            crate::figures::memory(REST),
            most / GIB
        ));
    }
    Ok(())
}

/// Pages for `pages_limit`: those that are full. `page`: bytes of one, 4096 but on some ARM machines.
pub fn pages(size: u64, page: u64) -> u64 {
    size / page.max(1)
}

/// Bytes of so many pages; `None` when no memory is that large.
pub fn of_pages(pages: u64, page: u64) -> Option<u64> {
    pages.checked_mul(page)
}

/// Mebibytes for macOS and for `amdgpu.gttsize`: those that are full.
pub fn mebibytes(size: u64) -> u64 {
    size / MIB
}
