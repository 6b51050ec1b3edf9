//! Locks, relays, clocks, probes, descriptions.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;

use sha2::{Digest, Sha256};
use windlass_wire::host::{Connected, Description, Listening, Locked, read_line};

use super::super::cluster::harness::worker_program;
use super::start;

#[test]
fn a_lock_dies_with_its_holder_however_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let take = |name: &str| {
        let mut child = start(&["lock", "--folder", path, "--holder", name]);
        let said = read_line::<Locked>(&mut BufReader::new(child.stdout.take().unwrap()));
        (child, said.unwrap().unwrap())
    };
    let (mut first, said) = take("ann@desk (run 7)");
    assert_eq!(said, Locked::Held);
    let (mut second, said) = take("bob");
    let by = "ann@desk (run 7)".to_owned();
    assert_eq!(said, Locked::Taken { by });
    assert_eq!(second.wait().unwrap().code(), Some(1));
    first.kill().unwrap();
    first.wait().unwrap();
    let (mut third, said) = take("bob");
    assert_eq!(said, Locked::Held);
    drop(third.stdin.take());
    assert_eq!(third.wait().unwrap().code(), Some(0));
}

#[test]
fn a_relay_passes_each_end_on_by_itself_and_does_not_hold_small_answers_back() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut child = start(&["relay", socket.to_str().unwrap()]);
    let (mut peer, _) = listener.accept().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdin.write_all(b"abc").unwrap();
    let mut got = [0; 3];
    peer.read_exact(&mut got).unwrap();
    peer.write_all(b"no line end").unwrap();
    let mut answer = [0; 11];
    stdout.read_exact(&mut answer).unwrap();
    assert_eq!((&got, &answer), (b"abc", b"no line end"));
    drop(stdin);
    let mut rest = Vec::new();
    peer.read_to_end(&mut rest).unwrap();
    // More than any pipe holds.
    let answer = std::thread::spawn(move || peer.write_all(&vec![7; 3 << 20]).unwrap());
    stdout.read_to_end(&mut rest).unwrap();
    answer.join().unwrap();
    assert_eq!(rest.len(), 3 << 20);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_relay_to_nobody_names_the_socket() {
    let child = start(&["relay", "/nonexistent/control.sock"]);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent/control.sock"), "{text}");
}

#[test]
fn a_clock_answers_each_line_at_once() {
    let mut child = start(&["clock"]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut last = 0;
    for _ in 0..3 {
        stdin.write_all(b"\n").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let now: u128 = line.trim().parse().unwrap();
        assert!(now > last);
        last = now;
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_description_proves_which_file_runs() {
    let output = start(&["describe"]).wait_with_output().unwrap();
    let said: Description = serde_json::from_slice(&output.stdout).unwrap();
    let digest = Sha256::digest(std::fs::read(worker_program()).unwrap());
    let sha256: String = digest.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(said.sha256, sha256);
    assert_eq!(said.arch, std::env::consts::ARCH);
    assert!(said.cores > 0 && said.pid > 0 && !said.tier.is_empty());
}

#[test]
fn two_ends_of_a_path_find_each_other_and_the_listener_ends_with_its_stdin() {
    let mut listener = start(&[
        "probe",
        "listen",
        "--address",
        "127.0.0.1",
        "--port",
        "0",
        "--nonce",
        "n1",
    ]);
    let mut stdout = BufReader::new(listener.stdout.take().unwrap());
    let said = read_line::<Listening>(&mut stdout).unwrap().unwrap();
    let Listening::Bound { address } = said else {
        panic!("{said:?}");
    };
    let port = address.rsplit(':').next().unwrap();
    let connect = |nonce: &str| {
        let arguments = [
            "probe",
            "connect",
            "--address",
            "127.0.0.1",
            "--port",
            port,
            "--nonce",
            nonce,
            "--time-ms",
            "20000",
        ];
        let output = start(&arguments).wait_with_output().unwrap();
        serde_json::from_slice::<Connected>(&output.stdout).unwrap()
    };
    assert!(matches!(connect("n1"), Connected::Reached { .. }));
    assert_eq!(connect("n2"), Connected::Stranger);
    let taken = start(&[
        "probe",
        "listen",
        "--address",
        "127.0.0.1",
        "--port",
        port,
        "--nonce",
        "n",
    ])
    .wait_with_output()
    .unwrap();
    let by = Some(format!("windlass-worker (pid {})", listener.id()));
    let said: Listening = serde_json::from_slice(&taken.stdout).unwrap();
    assert_eq!(said, Listening::Busy { by });
    drop(listener.stdin.take());
    assert_eq!(listener.wait().unwrap().code(), Some(0));
    assert!(matches!(connect("n1"), Connected::Refused { .. }));
}
