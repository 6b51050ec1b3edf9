//! The terminal: the only place that touches it. It is put back as it was on every way out: when
//! the value is dropped, and in a panic before the panic is told.

use std::io::{self, Stdout, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture, Event,
    EventStream, KeyCode, KeyEventKind, KeyModifiers, MouseButton, MouseEventKind,
};
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use futures_util::StreamExt;
use ratatui::Frame;
use ratatui::backend::CrosstermBackend;
use tokio::sync::Notify;

use super::input::{Code, Input, Key};

/// Whether the terminal is ours now.
static ENTERED: AtomicBool = AtomicBool::new(false);
/// Whether something panicked while it was.
static PANICKED: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();
static PANIC: Notify = Notify::const_new();

/// A terminal that shows screens. Dropping it gives the terminal back.
pub struct Term {
    terminal: ratatui::Terminal<CrosstermBackend<Stdout>>,
    events: EventStream,
}

impl Term {
    /// Takes the terminal: raw mode, alternate screen, pasted texts as such, the mouse when asked.
    ///
    /// # Errors
    /// When it is none, or refuses. It is then as it was.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        HOOK.call_once(chain_panic_hook);
        enable_raw_mode()?;
        ENTERED.store(true, Ordering::SeqCst);
        let entered = (|| {
            let mut out = io::stdout();
            execute!(
                out,
                EnterAlternateScreen,
                EnableBracketedPaste,
                cursor::Hide
            )?;
            if mouse {
                execute!(out, EnableMouseCapture)?;
            }
            ratatui::Terminal::new(CrosstermBackend::new(out))
        })();
        match entered {
            Ok(terminal) => Ok(Self {
                terminal,
                events: EventStream::new(),
            }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Columns and rows.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Draws a frame; a terminal that can shows it at once.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub fn draw(&mut self, picture: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if PANICKED.load(Ordering::SeqCst) {
            return Ok(());
        }
        execute!(io::stdout(), BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(picture).map(|_| ());
        execute!(io::stdout(), EndSynchronizedUpdate)?;
        drawn
    }

    /// What the person does next; `None` when the terminal is gone.
    pub async fn input(&mut self) -> Option<Input> {
        loop {
            let event = self.events.next().await?.ok()?;
            if let Some(input) = input(event) {
                return Some(input);
            }
        }
    }
}

impl Drop for Term {
    fn drop(&mut self) {
        restore();
    }
}

/// Waits until something panicked while the screens were shown; they are gone then.
pub async fn panicked() {
    while !PANICKED.load(Ordering::SeqCst) {
        PANIC.notified().await;
    }
}

/// Gives the terminal back, once. What a terminal that is gone refuses does not matter.
fn restore() {
    if !ENTERED.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ = execute!(out, EndSynchronizedUpdate, DisableMouseCapture);
    let _ = execute!(
        out,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = out.flush();
    let _ = disable_raw_mode();
}

/// Gives the terminal back before a panic is told as it would have been.
fn chain_panic_hook() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if ENTERED.load(Ordering::SeqCst) {
            PANICKED.store(true, Ordering::SeqCst);
            restore();
            PANIC.notify_one();
        }
        told(info);
    }));
}

/// A terminal's event as an input; nothing for what is of no use.
fn input(event: Event) -> Option<Input> {
    match event {
        Event::Key(event) if event.kind != KeyEventKind::Release => {
            let code = match event.code {
                KeyCode::Char(c) => Code::Char(c),
                KeyCode::Enter => Code::Enter,
                KeyCode::Esc => Code::Esc,
                KeyCode::Tab => Code::Tab,
                KeyCode::BackTab => Code::BackTab,
                KeyCode::Backspace => Code::Backspace,
                KeyCode::Delete => Code::Delete,
                KeyCode::Up => Code::Up,
                KeyCode::Down => Code::Down,
                KeyCode::Left => Code::Left,
                KeyCode::Right => Code::Right,
                KeyCode::Home => Code::Home,
                KeyCode::End => Code::End,
                KeyCode::PageUp => Code::PageUp,
                KeyCode::PageDown => Code::PageDown,
                _ => return None,
            };
            let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
            Some(Input::Key(Key { code, ctrl }))
        }
        Event::Paste(text) => Some(Input::Paste(text)),
        Event::Mouse(event) => match event.kind {
            MouseEventKind::Down(MouseButton::Left) => Some(Input::Click {
                column: event.column,
                row: event.row,
            }),
            MouseEventKind::ScrollUp => Some(Input::Wheel(true)),
            MouseEventKind::ScrollDown => Some(Input::Wheel(false)),
            _ => None,
        },
        Event::Resize(..) => Some(Input::Resized),
        _ => None,
    }
}
