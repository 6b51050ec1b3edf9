//! /etc/kernel/cmdline: the command line that kernel-install(8), mkinitcpio and Proxmox's boot tool give
//! to the kernels they install. Must not know who of them reads it.

use super::{Refusal, Wish, cmdline, line_of};

/// Keys of loader entries, and the one that is often written for `options`.
const KEYS: &[&str] = &[
    "title",
    "version",
    "linux",
    "initrd",
    "efi",
    "options",
    "option",
    "machine-id",
    "sort-key",
];

/// The command line in the file.
///
/// # Errors
/// When the file holds something else.
pub fn read(text: &str) -> Result<String, Refusal> {
    let filled = || {
        text.lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
    };
    let key = |line: &str| {
        let word = line.split_whitespace().next().unwrap_or_default();
        KEYS.contains(&word) && line.trim() != word
    };
    if let Some((number, _)) = filled().find(|(_, line)| key(line)) {
        return Err(Refusal::new(
            number + 1,
            "the file holds a loader entry and no command line",
        )
        .by_hand("put the command line alone into it, on one line"));
    }
    if let Some(at) = text.find("\r\n") {
        return Err(Refusal::new(line_of(text, at), "the line ends in CR LF")
            .by_hand("sed -i 's/\\r$//' on the file, then again"));
    }
    let mut lines = filled();
    let Some((_, line)) = lines.next() else {
        return Err(Refusal::new(
            None,
            "the file is empty, so a kernel would not find its root file system",
        )
        .by_hand("put the command line into it, as `cat /proc/cmdline` says it"));
    };
    if let Some((number, _)) = lines.next() {
        return Err(Refusal::new(
            number + 1,
            "there is more than one line, and not everyone reads more than the first",
        )
        .by_hand("put the whole command line on one line"));
    }
    Ok(line.trim().to_owned())
}

/// The file's text with a wish fulfilled; all else stays.
///
/// # Errors
/// When the file holds something else than one command line.
pub fn edit(text: &str, wish: &Wish) -> Result<String, Refusal> {
    read(text)?;
    Ok(cmdline::edit(text, wish))
}
