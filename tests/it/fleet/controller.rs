//! A person at the controlling machine: runs commands, reads their summaries.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cluster::harness::fixtures;
use crate::lab::Lab;
use crate::support::json_lines;

/// Digest of the real model's file.
pub const SHA256: &str = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
/// Its file.
pub const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Puts the real model into a controller's cache, as `model pull` would leave it; `false` when the
/// fixture is absent.
pub fn give_model(home: &Path) -> bool {
    let from = fixtures().join(FILE);
    if !from.exists() {
        let required = std::env::var_os("WINDLASS_REQUIRE_FIXTURES").is_some_and(|v| v == "1");
        assert!(!required, "{} is missing", from.display());
        eprintln!("SKIPPED: {} is missing", from.display());
        return false;
    }
    let folder = home.join("cache/windlass/models").join(SHA256);
    std::fs::create_dir_all(&folder).unwrap();
    let to = folder.join(FILE);
    if std::fs::hard_link(&from, &to).is_err() {
        std::fs::copy(&from, &to).unwrap();
    }
    true
}

/// What a command came to.
pub struct Ran {
    /// Exit status.
    pub code: i32,
    /// The summary.
    pub summary: Value,
    /// What was said on stderr.
    pub stderr: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let events = json_lines(&output.stdout);
        let summary = events.last().cloned().unwrap_or(Value::Null);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(summary["event"], "summary", "{stderr}\n{events:?}");
        crate::schema::check(&summary);
        let code = output.status.code().unwrap_or(-1);
        assert_eq!(summary["exit"], json!(code), "{summary}");
        Self {
            code,
            summary,
            stderr,
        }
    }

    /// Asserts that it ended with this status.
    pub fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{:#}\n{}", self.summary, self.stderr);
        self
    }

    /// The error's message.
    pub fn message(&self) -> &str {
        self.summary["error"]["message"].as_str().unwrap_or("")
    }

    /// Bytes sent to a host, as the summary counts them.
    pub fn sent(&self, host: &str) -> u64 {
        self.summary["pushed"][host]["sent_bytes"]
            .as_u64()
            .unwrap_or(0)
    }
}

/// Runs a command that was put together with `--json`.
pub fn run_by(mut command: std::process::Command) -> Ran {
    Ran::of(&command.output().unwrap())
}

/// Runs a command with `--json`.
pub fn run(lab: &Lab, arguments: &[&str]) -> Ran {
    Ran::of(&lab.windlass(&["--json"]).args(arguments).output().unwrap())
}

/// The same for a controller with another home.
pub fn run_at(lab: &Lab, home: &Path, arguments: &[&str]) -> Ran {
    let output = lab
        .controller_at(home, env!("CARGO_BIN_EXE_windlass"))
        .arg("-i")
        .arg(lab.inventory())
        .arg("--json")
        .args(arguments)
        .output()
        .unwrap();
    Ran::of(&output)
}

/// `windlass api` in the background.
pub struct Api {
    child: Child,
    port: u16,
}

impl Api {
    /// Opens it; returns once it is open.
    pub fn open(lab: &Lab, port: u16) -> Self {
        let mut child = lab
            .windlass(&["api", "--port", &port.to_string(), "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let open = lines.any(|line| line.is_ok_and(|line| line.contains("http://127.0.0.1:")));
        assert!(open, "the API was not opened");
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, port }
    }

    /// Posts a request from inside the controller's network; gives the answer's JSON.
    pub fn post(&self, lab: &Lab, path: &str, body: &Value) -> Value {
        const SCRIPT: &str = "import sys, urllib.request as u\n\
            r = u.Request(sys.argv[1], sys.stdin.buffer.read(), {'Content-Type': 'application/json'})\n\
            sys.stdout.buffer.write(u.urlopen(r, timeout=120).read())\n";
        let mut child = lab
            .controller("python3")
            .args([
                "-c",
                SCRIPT,
                &format!("http://127.0.0.1:{}{path}", self.port),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(body.to_string().as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asserts that no worker is left on a host once `down` has returned. What held the lock ends with
/// the connection, which the host notices a moment later; that is waited for.
pub fn nothing_left(lab: &Lab, host: &str) {
    let serving = lab.sh(
        host,
        "pgrep -fl '[w]indlass-worker (serve|supervise)' || true",
    );
    assert_eq!(serving, "", "still there on {host}");
    lab.wait_for(host, "! pgrep windlass-worker");
}

/// Runs `status` until it says `state`, with a deadline.
pub fn wait_for_state(lab: &Lab, home: &Path, state: &str) -> Ran {
    let end = Instant::now() + Duration::from_secs(90);
    loop {
        let ran = run_at(lab, home, &["status"]);
        if ran.summary["state"] == state {
            return ran;
        }
        assert!(Instant::now() < end, "not {state}: {:#}", ran.summary);
    }
}

/// Runs a command at a terminal where somebody answers: each pair is what is waited for and what is
/// typed then. Gives the exit status and all that was shown.
pub fn at_a_terminal(lab: &Lab, arguments: &[&str], answers: &[(&str, &str)]) -> (i32, String) {
    const SCRIPT: &str = r"
import json, os, pty, sys
answers = json.loads(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen, at = b'', 0
while True:
    try:
        data = os.read(terminal, 4096)
    except OSError:
        break
    if not data:
        break
    sys.stdout.buffer.write(data)
    sys.stdout.flush()
    seen += data
    while answers and answers[0][0].encode() in seen[at:]:
        wanted, answer = answers.pop(0)
        at = seen.index(wanted.encode(), at) + len(wanted)
        os.write(terminal, answer.encode() + b'\n')
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";
    let output = lab
        .controller("timeout")
        .args(["120", "python3", "-c", SCRIPT])
        .arg(json!(answers).to_string())
        .arg(env!("CARGO_BIN_EXE_windlass"))
        .args(arguments)
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().unwrap_or(-1), shown)
}
