//! A worker kept where there is no systemd.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::cluster::harness::{Model, Settings, worker_program};
use super::super::cluster::http::{PATIENCE, exact};
use super::unit::Deployment;
use crate::support::is_alive;

fn supervise(folder: &Path) -> u32 {
    let done = Command::new(worker_program())
        .arg("supervise")
        .arg(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    let text = std::fs::read_to_string(folder.join("supervisor.pid")).unwrap();
    text.trim().parse().unwrap()
}

/// The process that a supervisor started.
fn worker_of(supervisor: u32) -> Option<u32> {
    let path = format!("/proc/{supervisor}/task/{supervisor}/children");
    let text = std::fs::read_to_string(path).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Looks until it is so: what other processes do gives this one no event.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} was never so");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Ends it whatever becomes of the test.
struct Ending(u32);

impl Drop for Ending {
    fn drop(&mut self) {
        if is_alive(self.0) {
            signal(self.0, "TERM");
        }
    }
}

fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill")
        .args(["-s", name, &pid.to_string()])
        .status();
}

#[test]
fn a_supervised_worker_comes_back_and_ends_with_its_supervisor() {
    let model = Model::tiny();
    let all = Deployment::new(&model, &Settings::of(1));
    let folder = &all.folders[0];
    let supervisor = supervise(folder);
    let _ending = Ending(supervisor);
    let socket = || all.socket().exists().then_some(());
    eventually("its socket", socket);
    exact(all.api, "a prompt", 2);
    let worker = worker_of(supervisor).unwrap();

    signal(worker, "KILL");
    let again = eventually("another worker", || {
        worker_of(supervisor).filter(|pid| *pid != worker)
    });
    eventually("its answer", || std::net::TcpStream::connect(all.api).ok());
    exact(all.api, "a prompt", 2);

    // A second one takes the place of the first.
    let second = supervise(folder);
    let _ending = Ending(second);
    assert!(second != supervisor && !is_alive(again));
    eventually("the end of the first", || {
        (!is_alive(supervisor)).then_some(())
    });
    eventually("its answer", || std::net::TcpStream::connect(all.api).ok());

    let worker = eventually("its worker", || worker_of(second));
    signal(second, "TERM");
    eventually("the end", || {
        (!is_alive(second) && !is_alive(worker)).then_some(())
    });
    let log = std::fs::read_to_string(folder.join("worker.log")).unwrap();
    for wanted in ["\"event\":\"serving\"", "signal 9", "the supervisor ends"] {
        assert!(log.contains(wanted), "{wanted} in {log}");
    }

    // One that is killed takes its worker with it.
    let third = supervise(folder);
    let _ending = Ending(third);
    let worker = eventually("its worker", || worker_of(third));
    eventually("its answer", || std::net::TcpStream::connect(all.api).ok());
    signal(third, "KILL");
    eventually("the worker's end", || (!is_alive(worker)).then_some(()));
}

#[test]
fn a_folder_that_is_not_there_is_said() {
    let done = Command::new(worker_program())
        .args(["supervise", "/nonexistent/halo"])
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(1));
    let text = String::from_utf8(done.stderr).unwrap();
    assert!(text.contains("/nonexistent/halo"), "{text}");
}
