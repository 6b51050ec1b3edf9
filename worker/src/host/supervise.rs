//! `supervise`: keeps `serve` running where there is no systemd. Leaves the session that started it,
//! writes its pid, starts the worker again whenever it ends, keeps what it says in `worker.log`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use super::lock;

/// Name of the file with the supervisor's pid, locked while it runs.
pub const PID_FILE: &str = "supervisor.pid";
/// Name of the log; the one before it has `.1` at its end.
pub const LOG_FILE: &str = "worker.log";
/// Size of the log at which another is begun, in bytes.
const MAX_LOG: u64 = 8 << 20;
/// Longest line kept, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// How long the one before may take to end.
const REPLACING: Duration = Duration::from_secs(15);
/// How long the worker may take to end before it is killed.
const ENDING: Duration = Duration::from_secs(8);
/// Shortest and longest pause before the worker is started again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// A worker that ran this long is no longer one that fails at its start.
const SETTLED: Duration = Duration::from_secs(60);

/// What the detached process says when it supervises.
const READY: &str = "ready\n";

/// Starts a supervisor of a folder in the background and returns once it supervises. One that was
/// there before is ended first.
///
/// # Errors
/// A sentence, when it cannot be.
pub fn start(folder: &Path) -> Result<(), String> {
    let failed = |what: &str, error: io::Error| format!("{what}: {error}");
    let folder = folder
        .canonicalize()
        .map_err(|e| failed(&format!("the folder {}", folder.display()), e))?;
    let program = std::env::current_exe().map_err(|e| failed("find this program", e))?;
    let mut child = Command::new(program)
        .arg("supervise")
        .arg("--detached")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| failed("start the supervisor", e))?;
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output.take(4096)).read_line(&mut said);
    }
    if said == READY {
        return Ok(());
    }
    let _ = child.wait();
    Err(match said.trim() {
        "" => "the supervisor ended without a word".to_owned(),
        said => said.to_owned(),
    })
}

/// Supervises until told to end: the process that [`start`] started.
///
/// # Errors
/// A sentence, when it cannot begin.
pub fn run(folder: &Path) -> Result<(), String> {
    let words = |error: &dyn std::fmt::Display| error.to_string();
    // It is no leader of a group: it was just started by one that stays in its own.
    rustix::process::setsid().map_err(|e| words(&e))?;
    std::env::set_current_dir("/").map_err(|e| words(&e))?;
    let program = std::env::current_exe().map_err(|e| words(&e))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| words(&e))?;
    // Before the pid is known to anybody, so that no signal is missed.
    let mut stops = {
        let _inside = runtime.enter();
        [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
        ]
        .map(|kind| signal(kind).ok())
    };
    let pid_file = take_over(folder)?;
    lock::sign(&pid_file, &std::process::id().to_string())
        .map_err(|e| format!("{}: {e}", folder.join(PID_FILE).display()))?;
    if let Ok(mut output) = super::stdout() {
        let _ = output.write_all(READY.as_bytes());
    }
    let mut log = Log::open(folder);
    log.line("the supervisor begins");
    runtime.block_on(async {
        let [term, int, hup] = &mut stops;
        let stop = async {
            tokio::select! {
                () = heard(term) => "SIGTERM",
                () = heard(int) => "SIGINT",
            }
        };
        // Its terminal may go: that is what it is for.
        let ignore = async {
            loop {
                heard(hup).await;
            }
        };
        tokio::pin!(stop);
        tokio::pin!(ignore);
        let mut pause = PAUSES.0 / 2;
        loop {
            let began = Instant::now();
            let mut child = match worker(&program, folder, &log) {
                Ok(child) => child,
                Err(error) => {
                    log.line(&format!("the worker cannot be started: {error}"));
                    pause = PAUSES.1;
                    tokio::select! {
                        () = tokio::time::sleep(pause) => continue,
                        _ = &mut stop => return,
                        () = &mut ignore => return,
                    }
                }
            };
            let ended = tokio::select! {
                ended = child.wait() => ended,
                why = &mut stop => {
                    log.line(&format!("{why}: the worker is ended"));
                    end(&mut child).await;
                    return;
                }
                () = &mut ignore => return,
            };
            pause = next_pause(pause, began.elapsed());
            log.line(&format!(
                "the worker ended ({}) and is started again in {} ms",
                ended.map_or_else(|e| e.to_string(), how),
                pause.as_millis()
            ));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = &mut stop => return,
                () = &mut ignore => return,
            }
        }
    });
    log.line("the supervisor ends");
    let _ = pid_file.set_len(0);
    Ok(())
}

async fn heard(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

fn how(status: std::process::ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown".to_owned(),
    }
}

/// Doubles while the worker keeps failing at once.
fn next_pause(last: Duration, ran: Duration) -> Duration {
    if ran >= SETTLED {
        PAUSES.0
    } else {
        last.saturating_mul(2).min(PAUSES.1)
    }
}

fn worker(program: &Path, folder: &Path, log: &Log) -> io::Result<tokio::process::Child> {
    let (reader, writer) = io::pipe()?;
    let child = tokio::process::Command::new(program)
        .arg("serve")
        .arg("--with-parent")
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()?;
    let mut log = log.again();
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || {
            let mut reader = BufReader::new(reader);
            let mut line = Vec::new();
            loop {
                line.clear();
                match Read::take(&mut reader, MAX_LINE).read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) => log.line(String::from_utf8_lossy(&line).trim_end()),
                }
            }
        })?;
    Ok(child)
}

async fn end(child: &mut tokio::process::Child) {
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    if tokio::time::timeout(ENDING, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Locks the pid's file, having ended whoever held it.
fn take_over(folder: &Path) -> Result<File, String> {
    let path = folder.join(PID_FILE);
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    let began = Instant::now();
    let mut asked = None;
    loop {
        let file = lock::open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {
                // Whoever removed the file since took nothing with it.
                let here = file.metadata().map_err(failed)?.ino();
                if std::fs::metadata(&path).is_ok_and(|meta| meta.ino() == here) {
                    return Ok(file);
                }
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let pid = text.trim().parse().ok().and_then(Pid::from_raw);
                if began.elapsed() > REPLACING {
                    return Err(format!(
                        "a supervisor (pid {}) keeps {} and does not end: end it and try again",
                        text.trim(),
                        folder.display()
                    ));
                }
                // Only the one that holds the lock wrote this, so it is no other process's number.
                if let Some(pid) = pid.filter(|pid| asked != Some(*pid)) {
                    let _ = kill_process(pid, Signal::TERM);
                    asked = Some(pid);
                }
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The log: two files at most, each up to [`MAX_LOG`] bytes and a line.
struct Log {
    path: PathBuf,
}

impl Log {
    fn open(folder: &Path) -> Self {
        Self {
            path: folder.join(LOG_FILE),
        }
    }

    fn again(&self) -> Self {
        Self {
            path: self.path.clone(),
        }
    }

    /// A disk that is full costs the line, not the worker.
    fn line(&mut self, text: &str) {
        let _ = self.write(text);
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        if std::fs::metadata(&self.path).is_ok_and(|meta| meta.len() >= MAX_LOG) {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&self.path)?;
        let now = jiff::Timestamp::now();
        file.write_all(format!("{now:.3} {text}\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_fails_at_once_is_started_ever_less_often() {
        let at_once = Duration::from_millis(1);
        let mut pause = PAUSES.0 / 2;
        for wanted in [500, 1000, 2000, 4000, 8000, 10_000, 10_000] {
            pause = next_pause(pause, at_once);
            assert_eq!(pause.as_millis(), wanted);
        }
        assert_eq!(next_pause(pause, SETTLED), PAUSES.0);
    }

    #[test]
    fn a_log_is_two_files_and_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::open(folder.path());
        let line = "x".repeat(4 << 20);
        for _ in 0..7 {
            log.line(&line);
        }
        let sizes: Vec<u64> = [LOG_FILE, "worker.log.1"]
            .iter()
            .map(|name| std::fs::metadata(folder.path().join(name)).unwrap().len())
            .collect();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        assert!(
            sizes.iter().all(|size| (4 << 20..9 << 20).contains(size)),
            "{sizes:?}"
        );
    }
}
