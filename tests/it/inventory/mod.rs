//! `inventory.toml`: what it means, what is wrong in it, edits that touch nothing else, and the
//! commands around it.

mod bad;
mod commands;
mod edits;
mod meaning;
mod random;

use std::path::Path;

use windlass::inventory::Inventory;

/// A commented inventory of 60 lines.
pub const SIXTY: &str = include_str!("sixty.toml");

/// A text's inventory; its faults are a panic.
pub fn parsed(text: &str) -> Inventory {
    Inventory::parse(Path::new("inventory.toml"), text).unwrap_or_else(|faults| {
        let all: Vec<String> = faults.iter().map(ToString::to_string).collect();
        panic!("{}\n{text}", all.join("\n"))
    })
}
