//! Colours, and what is done to a drawn frame where there are none, or only plain letters. Meaning
//! never hangs on colour: a mark and a word stand with each state.

use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier, Style};

/// What the terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Colours.
    pub colour: bool,
    /// Only characters of ASCII for what windlass itself draws.
    pub ascii: bool,
}

/// How a thing is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As it should be.
    Good,
    /// On its way.
    Busy,
    /// Worth a look.
    Careful,
    /// Wrong.
    Bad,
    /// Of no matter now.
    Faint,
    /// Neither.
    Plain,
}

impl Tone {
    /// The style.
    pub fn style(self) -> Style {
        match self {
            Self::Good => Style::new().fg(Color::Green),
            Self::Busy => Style::new().fg(Color::Cyan),
            Self::Careful => Style::new().fg(Color::Yellow),
            Self::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            Self::Faint => Style::new().add_modifier(Modifier::DIM),
            Self::Plain => Style::new(),
        }
    }
}

/// Titles and headings.
pub fn heading() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// The chosen row.
pub fn chosen() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// Keys in the footer and in the help.
pub fn key() -> Style {
    Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)
}

impl Theme {
    /// Takes from a drawn frame what the terminal cannot show.
    pub fn finish(self, buffer: &mut Buffer) {
        if self.colour && !self.ascii {
            return;
        }
        for cell in &mut buffer.content {
            if !self.colour {
                cell.fg = Color::Reset;
                cell.bg = Color::Reset;
            }
            if self.ascii
                && let Some(plain) = ascii(cell.symbol())
            {
                cell.set_symbol(plain);
            }
        }
    }
}

/// What stands for a character of ours in ASCII.
fn ascii(symbol: &str) -> Option<&'static str> {
    Some(match symbol {
        "│" | "┤" | "├" => "|",
        "─" | "–" => "-",
        "╭" | "╮" | "╰" | "╯" | "┼" => "+",
        "●" => "*",
        "○" => "o",
        "✗" => "x",
        "✓" => "v",
        "▲" => "!",
        "▸" | "▶" => ">",
        "·" => ".",
        "…" => "~",
        "×" => "x",
        "█" | "▉" | "▊" | "▋" => "#",
        "▌" | "▍" | "▎" | "▏" => "=",
        "▁" => "_",
        "▂" | "▃" => ".",
        "▄" | "▅" => "o",
        "▆" | "▇" => "O",
        "↑" => "^",
        "↓" => "v",
        "•" => "*",
        "↵" => "/",
        _ => return None,
    })
}
