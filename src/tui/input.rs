//! What a person does at the terminal, as plain values. Must not know which terminal.

/// A key with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which key.
    pub code: Code,
    /// With Control.
    pub ctrl: bool,
}

/// A key without its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A character, shift included.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift and Tab.
    BackTab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Arrow.
    Up,
    /// Arrow.
    Down,
    /// Arrow.
    Left,
    /// Arrow.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
}

/// Something a person did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Pressed a key.
    Key(Key),
    /// Pasted a text.
    Paste(String),
    /// Clicked on a cell.
    Click {
        /// Column from 0.
        column: u16,
        /// Row from 0.
        row: u16,
    },
    /// Turned the wheel, up when true.
    Wheel(bool),
    /// The terminal has another size.
    Resized,
}

impl Key {
    /// A key alone.
    pub fn plain(code: Code) -> Self {
        Self { code, ctrl: false }
    }

    /// From its name in the command table: `q`, `?`, `ctrl-c`, `tab`, `pgdn`.
    pub fn parse(name: &str) -> Option<Self> {
        let (ctrl, rest) = match name.strip_prefix("ctrl-") {
            Some(rest) => (true, rest),
            None => (false, name),
        };
        let mut chars = rest.chars();
        let code = match (chars.next(), chars.next()) {
            (Some(c), None) => Code::Char(c),
            _ => match rest {
                "enter" => Code::Enter,
                "esc" => Code::Esc,
                "tab" => Code::Tab,
                "shift-tab" => Code::BackTab,
                "backspace" => Code::Backspace,
                "delete" => Code::Delete,
                "up" => Code::Up,
                "down" => Code::Down,
                "left" => Code::Left,
                "right" => Code::Right,
                "home" => Code::Home,
                "end" => Code::End,
                "pgup" => Code::PageUp,
                "pgdn" => Code::PageDown,
                "space" => Code::Char(' '),
                _ => return None,
            },
        };
        Some(Self { code, ctrl })
    }
}
