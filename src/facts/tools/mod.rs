//! What tools print, read on its own: text in, figures out. Must not know how or why it was asked
//! for, nor anything of a host.
//!
//! - [`ip`]: addresses, in the four forms that ip(8) has for them.
//! - [`ethtool`]: a card's link and driver.
//! - [`lscpu`], [`free`]: processor and memory, where only these were asked.
//! - [`iperf3`]: what a link carried.

pub mod ethtool;
pub mod free;
pub mod ip;
pub mod iperf3;
pub mod lscpu;

/// What stands behind `name:` on the first line that begins so, without blanks around.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix(name)?
                .trim_start()
                .strip_prefix(':')
        })
        .map(str::trim)
        .filter(|value| !value.is_empty())
}
