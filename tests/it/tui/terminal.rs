//! A program in a pseudo-terminal of its own: its screen as a person would see it, keys, signals,
//! and whether the terminal is as it was.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

/// How long a screen or an end is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program in a terminal.
pub struct Terminal {
    master: File,
    slave: OwnedFd,
    child: Child,
    before: Termios,
    screen: Arc<(Mutex<vt100::Parser>, Condvar)>,
}

/// A test that failed while it looked at the screen leaves it as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ends of a new pseudo-terminal.
#[allow(unsafe_code)]
fn open() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    // SAFETY: both descriptors are written before they are taken, and owned by nobody else.
    unsafe {
        let opened = libc::openpty(
            &mut master,
            &mut slave,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        );
        assert_eq!(opened, 0, "no pseudo-terminal");
        libc::fcntl(master, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(slave, libc::F_SETFD, libc::FD_CLOEXEC);
        (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
    }
}

impl Terminal {
    /// Starts a program in a terminal of this size.
    #[allow(unsafe_code)]
    pub fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let (master, slave) = open();
        tcsetwinsize(&slave, size(columns, rows)).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        command
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(end())
            .stdout(end())
            .stderr(end());
        // SAFETY: only system calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let parser = vt100::Parser::default();
        let screen = Arc::new((Mutex::new(parser), Condvar::new()));
        set_size(&screen, columns, rows);
        let master = File::from(master);
        let (mut reader, shared) = (master.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut buffer = [0; 8192];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                lock(&shared.0).process(&buffer[..count]);
                shared.1.notify_all();
            }
        });
        Self {
            master,
            slave,
            child,
            before,
            screen,
        }
    }

    /// What is on the screen.
    pub fn contents(&self) -> String {
        lock(&self.screen.0).screen().contents().to_string()
    }

    /// Waits until the screen is as wanted.
    pub fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        let mut parser = lock(&self.screen.0);
        loop {
            let contents = parser.screen().contents().to_string();
            if wanted(&contents) {
                return contents;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {what} on the screen:\n{contents}");
            parser = self
                .screen
                .1
                .wait_timeout(parser, left.min(Duration::from_millis(200)))
                .unwrap()
                .0;
        }
    }

    /// Waits for a text on the screen.
    pub fn shows(&mut self, text: &str) -> String {
        self.until(text, |contents| contents.contains(text))
    }

    /// Types.
    pub fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Gives the terminal another size.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        set_size(&self.screen, columns, rows);
        tcsetwinsize(&self.slave, size(columns, rows)).unwrap();
    }

    /// Id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, and asserts that the terminal is as it was before.
    pub fn ended_sane(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        let end = Instant::now() + PATIENCE;
        loop {
            let parser = lock(&self.screen.0);
            let screen = parser.screen();
            // What was written last may still be on its way.
            let sane = !screen.alternate_screen()
                && !screen.bracketed_paste()
                && !screen.hide_cursor()
                && screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None;
            if sane {
                break;
            }
            assert!(
                Instant::now() < end,
                "the terminal was not given back: {}",
                screen.contents()
            );
            drop(
                self.screen
                    .1
                    .wait_timeout(parser, Duration::from_millis(50))
                    .unwrap(),
            );
        }
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(format!("{after:?}"), format!("{:?}", self.before));
        let contents = self.contents();
        (status, contents)
    }
}

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

fn set_size(screen: &(Mutex<vt100::Parser>, Condvar), columns: u16, rows: u16) {
    let mut parser = lock(&screen.0);
    let (columns, rows) = (columns.try_into().unwrap(), rows.try_into().unwrap());
    parser.screen_mut().set_size(rows, columns);
}

fn wait(child: &mut Child) -> ExitStatus {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= end {
            let _ = child.kill();
            panic!("the program did not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends a signal.
pub fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// For what only needs the descriptor.
impl AsFd for Terminal {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.slave.as_fd()
    }
}
