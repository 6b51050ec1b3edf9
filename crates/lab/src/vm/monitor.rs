//! The monitor of a virtual machine: a socket on which QEMU takes commands, one JSON object a line
//! (QEMU Machine Protocol). Must not know what machines are for.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::command::{Context, Result, wrong};

/// Name of the socket in a machine's folder.
pub const SOCKET: &str = "monitor";
/// How long QEMU may take to answer. It is busy while it emulates, but its monitor has a thread.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest line that is read, bytes.
const LONGEST: u64 = 1 << 20;

/// An open monitor.
pub struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    /// Opens the monitor of the machine in this folder.
    ///
    /// # Errors
    /// When it is off, or what answers is no monitor.
    pub fn open(folder: &Path) -> Result<Self> {
        // The path of a socket has a hundred bytes; by way of the folder it is always short enough.
        let open = File::open(folder).during(folder.display())?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd());
        let stream = UnixStream::connect(path)
            .during(format_args!("the monitor in {}", folder.display()))?;
        stream
            .set_read_timeout(Some(PATIENCE))
            .during("the monitor")?;
        let mut monitor = Self {
            stream: BufReader::new(stream),
        };
        let greeting = monitor.line()?;
        if !greeting.starts_with("{\"QMP\"") {
            return wrong(format!("what answers is no monitor: {greeting}"));
        }
        monitor.ask("{\"execute\": \"qmp_capabilities\"}")?;
        Ok(monitor)
    }

    /// Gives a command, a JSON object in one line, and returns its answer's line.
    ///
    /// # Errors
    /// When QEMU refuses it or does not answer.
    pub fn ask(&mut self, command: &str) -> Result<String> {
        self.stream
            .get_mut()
            .write_all(format!("{command}\n").as_bytes())
            .during("the monitor")?;
        loop {
            let line = self.line()?;
            if line.starts_with("{\"return\"") {
                return Ok(line);
            }
            if line.starts_with("{\"error\"") {
                return wrong(format!("{command}: {line}"));
            }
            // An event: something happened in the machine meanwhile.
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self
            .stream
            .by_ref()
            .take(LONGEST)
            .read_line(&mut line)
            .during("the monitor")?;
        if read == 0 {
            return wrong("the monitor was closed: the machine is off");
        }
        Ok(line.trim().to_owned())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A folder with a monitor that says these lines: the greeting, then what follows each command.
    fn saying(name: &str, lines: &'static [&'static str]) -> std::path::PathBuf {
        // Longer than the path of a socket may be.
        let folder = std::env::temp_dir()
            .join(format!("windlass-{name}-{}", std::process::id()))
            .join("a-long-name".repeat(10));
        std::fs::create_dir_all(&folder).unwrap();
        let open = File::open(&folder).unwrap();
        let path = format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd());
        let listener = UnixListener::bind(path).unwrap();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut commands = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut stream = stream;
            for line in lines {
                stream.write_all(line.as_bytes()).unwrap();
                if commands.next().is_none() {
                    return;
                }
            }
        });
        folder
    }

    #[test]
    fn what_happens_meanwhile_is_no_answer_and_a_refusal_is_an_error() {
        let folder = saying(
            "monitor",
            &[
                "{\"QMP\": {}}\r\n",
                "{\"return\": {}}\r\n",
                "{\"timestamp\": {}, \"event\": \"STOP\"}\r\n{\"return\": {\"a\": 1}}\r\n",
                "{\"error\": {\"desc\": \"no such thing\"}}\r\n",
            ],
        );
        let mut monitor = Monitor::open(&folder).unwrap();
        assert_eq!(monitor.ask("{}").unwrap(), "{\"return\": {\"a\": 1}}");
        let error = monitor.ask("{}").unwrap_err().to_string();
        assert!(error.contains("no such thing"), "{error}");
        let error = monitor.ask("{}").unwrap_err().to_string();
        assert!(error.contains("monitor"), "{error}");
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
        assert!(Monitor::open(&folder).is_err());
    }

    #[test]
    fn what_does_not_greet_as_a_monitor_is_none() {
        let folder = saying("no-monitor", &["SSH-2.0-x\r\n"]);
        let error = Monitor::open(&folder).err().unwrap().to_string();
        assert!(error.contains("SSH-2.0-x"), "{error}");
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }
}
