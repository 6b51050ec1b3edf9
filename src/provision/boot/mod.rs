//! Kernel parameters: where a host has them, what they are, and texts with them changed in which every
//! other byte stays. Pure; must not know sessions.
//!
//! - [`cmdline`]: the kernel's command line.
//! - [`grub`]: /etc/default/grub and what is read after it, by way of [`shell`].
//! - [`entry`]: loader entries (BLS); [`kernel_install`]: /etc/kernel/cmdline.
//! - [`modprobe`]: modprobe.d; [`initramfs`]: what must be built anew then.
//! - [`tools`]: hosts whose own tool sets parameters: grubby, rpm-ostree, NixOS, macOS.
//! - [`names`]: parameters that modules know, and what was probably meant.
//! - [`size`]: how much memory, in the figures that parameters take.
//! - [`mechanism`]: which of these is the host's own.
//! - [`change`]: from a wish to what is to be written and run on a host.
//! - [`edit`]: a change of a text that can be taken back.

pub mod change;
pub mod cmdline;
pub mod edit;
pub mod entry;
pub mod grub;
pub mod initramfs;
pub mod kernel_install;
pub mod mechanism;
pub mod modprobe;
pub mod names;
pub mod shell;
pub mod size;
#[cfg(test)]
mod tests;
pub mod tools;

use std::fmt;

pub use change::Change;
pub use edit::Edit;
pub use mechanism::{Ground, Mechanism};

/// A parameter by its full name, e.g. `ttm.pages_limit`, with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name, with the module before a dot where it is a module's.
    pub name: String,
    /// Value, without quotes; empty for a word without one, as `quiet`.
    pub value: String,
}

impl Parameter {
    /// A parameter.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.is_empty() {
            true => f.write_str(&self.name),
            false => write!(f, "{}={}", self.name, quoted(&self.value)),
        }
    }
}

/// A value as the command line has it: in double quotes when blanks are in it.
fn quoted(value: &str) -> String {
    match value.chars().any(char::is_whitespace) {
        true => format!("\"{value}\""),
        false => value.to_owned(),
    }
}

/// What is wanted of the parameters. All others stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// To have these values.
    pub set: Vec<Parameter>,
    /// Not to be there at all.
    pub remove: Vec<String>,
}

impl Wish {
    /// The parameters to set, as they stand on a command line.
    pub fn words(&self) -> String {
        let words: Vec<String> = self.set.iter().map(ToString::to_string).collect();
        words.join(" ")
    }
}

/// Why a text is not edited, and what a person can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The line, counted from 1.
    pub line: Option<usize>,
    /// What is wrong, as the end of a sentence that begins with the file's name.
    pub reason: String,
    /// What to type there by hand.
    pub hand: Option<String>,
}

impl Refusal {
    fn new(line: impl Into<Option<usize>>, reason: impl Into<String>) -> Self {
        Self {
            line: line.into(),
            reason: reason.into(),
            hand: None,
        }
    }

    fn by_hand(mut self, hand: impl Into<String>) -> Self {
        self.hand = Some(hand.into());
        self
    }

    /// The whole sentence about this file.
    pub fn of(&self, path: &str) -> String {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        let hand = match &self.hand {
            Some(hand) => format!("; by hand: {hand}"),
            None => String::new(),
        };
        format!("{path}{line}: {}{hand}", self.reason)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.of("the file"))
    }
}

/// The number of the line that a byte is in, counted from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or(text);
    before.matches('\n').count() + 1
}

/// Refuses a text whose lines end as on Windows: those who read it take the CR for a part of the
/// value.
fn no_carriage_returns(text: &str) -> Result<(), Refusal> {
    match text.find("\r\n") {
        Some(at) => Err(Refusal::new(
            line_of(text, at),
            "the line ends in CR LF, and the CR would become a part of the value",
        )
        .by_hand("sed -i 's/\\r$//' on the file, then again")),
        None => Ok(()),
    }
}
