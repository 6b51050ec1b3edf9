//! Deployments whose stages run from folders, as units do.

use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use serde_json::Value;
use windlass_wire::assignment::{FromWorker, ORDERS_FILE, Orders};
use windlass_wire::telemetry::HeadStatus;

use super::super::cluster::harness::{
    Heard, Model, Settings, assignments, hear, lock, worker_program,
};
use super::super::cluster::http::{PATIENCE, control};

/// Addresses whose ports were free a moment ago. They are this process's alone: no other test takes one
/// of the ports before a stage does.
fn addresses(count: usize) -> Vec<SocketAddr> {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 64 | high, middle, low);
    let all: Vec<_> = (0..count)
        .map(|_| TcpListener::bind((own, 0)).unwrap())
        .collect();
    all.iter().map(|one| one.local_addr().unwrap()).collect()
}

/// A stage's process.
pub struct Process {
    child: Child,
    said: Heard,
}

impl Process {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a report, among all there were and will be.
    pub fn report<T>(&self, what: &str, pick: impl Fn(&FromWorker) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut said = lock(&self.said);
        loop {
            if let Some(found) = said.reports.iter().find_map(&pick) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !said.ended && !left.is_zero(),
                "it did not say {what}: {:?}",
                said.reports
            );
            said = self.said.1.wait_timeout(said, left).unwrap().0;
        }
    }

    /// Everything it said so far.
    pub fn said(&self) -> Vec<FromWorker> {
        lock(&self.said).reports.clone()
    }

    /// Waits for its own end.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        let mut said = lock(&self.said);
        while !said.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it goes on: {:?}", said.reports);
            said = self.said.1.wait_timeout(said, left).unwrap().0;
        }
        drop(said);
        self.child.wait().unwrap()
    }

    pub fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended; nothing is left in either case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A deployment: a folder and perhaps a process for each stage.
pub struct Deployment {
    pub folders: Vec<PathBuf>,
    pub running: Vec<Option<Process>>,
    pub api: SocketAddr,
    /// Words before the program's name, e.g. to run it in a namespace.
    prefix: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Deployment {
    /// Writes the folders; nothing runs.
    pub fn new(model: &Model, settings: &Settings) -> Self {
        Self::within(model, settings, &[])
    }

    pub fn within(model: &Model, settings: &Settings, prefix: &[&str]) -> Self {
        let top = tempfile::tempdir().unwrap();
        let addresses = addresses(settings.workers as usize + 1);
        let peers: Vec<String> = addresses[1..].iter().map(ToString::to_string).collect();
        let api = addresses[0].to_string();
        let all = assignments(model, settings, Path::new("/nonexistent"));
        let hosts: Vec<String> = all.iter().map(|one| one.host.clone()).collect();
        let folders = all.into_iter().map(|mut assignment| {
            let folder = top.path().join(assignment.stage.to_string());
            std::fs::create_dir(&folder).unwrap();
            assignment
                .listen
                .clone_from(&peers[assignment.stage as usize]);
            assignment.follow_stdin = false;
            if let Some(head) = &mut assignment.api {
                head.listen.clone_from(&api);
            }
            let orders = Orders {
                assignment,
                peers: peers.clone(),
                hosts: hosts.clone(),
            };
            let file = std::fs::OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o600)
                .open(folder.join(ORDERS_FILE))
                .unwrap();
            serde_json::to_writer(file, &orders).unwrap();
            folder
        });
        Self {
            folders: folders.collect(),
            running: (0..settings.workers).map(|_| None).collect(),
            api: api.parse().unwrap(),
            prefix: prefix.iter().map(ToString::to_string).collect(),
            _folder: top,
        }
    }

    /// Starts a stage.
    pub fn start(&mut self, stage: usize) {
        let mut words = self.prefix.clone();
        words.push(worker_program().to_str().unwrap().to_owned());
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .arg("serve")
            .arg(&self.folders[stage])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = hear(child.stdout.take().unwrap());
        self.running[stage] = Some(Process { child, said });
    }

    /// SIGKILL.
    pub fn kill(&mut self, stage: usize) {
        drop(self.running[stage].take());
    }

    pub fn process(&mut self, stage: usize) -> &mut Process {
        self.running[stage].as_mut().unwrap()
    }

    /// Waits until the head's sockets are open.
    pub fn head_is_up(&self) {
        let head = self.running[0].as_ref().unwrap();
        head.report("that it answers", |r| {
            matches!(r, FromWorker::Serving { .. }).then_some(())
        });
    }

    pub fn socket(&self) -> PathBuf {
        self.folders[0].join("control.sock")
    }

    pub fn status(&self) -> HeadStatus {
        serde_json::from_reader(control(&self.socket(), "/control/status")).unwrap()
    }

    /// Waits for a state, looking again whenever the head has news.
    pub fn until(&self, what: &str, wanted: impl Fn(&HeadStatus) -> bool) -> HeadStatus {
        let mut events = control(&self.socket(), "/control/events");
        loop {
            let now = self.status();
            if wanted(&now) {
                return now;
            }
            let mut line = String::new();
            let read = events.read_line(&mut line);
            let said: Vec<_> = self.running.iter().flatten().map(Process::said).collect();
            assert!(
                matches!(read, Ok(1..)),
                "{what} was never so: {now:#?}\n{said:#?}"
            );
        }
    }

    pub fn serves(&self) -> HeadStatus {
        self.until("serving", |status| status.state == "serving")
    }
}

/// The message of an error.
pub fn message(answer: &Value) -> &str {
    answer["error"]["message"].as_str().unwrap()
}
