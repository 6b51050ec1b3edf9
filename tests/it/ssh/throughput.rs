//! How fast bytes go to a host, beside OpenSSH's own client. By hand:
//! `cargo test --release --test it ssh::throughput -- --ignored --nocapture`

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;

use super::server::Place;

const BYTES: usize = 1 << 30;
const BLOCK: usize = 256 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes both cores for a minute; prints a figure"]
async fn a_stream_of_1_gib_beside_openssh() {
    let place = Place::new();
    let server = place.server("");
    let block = vec![7u8; BLOCK];
    let connector = place.connector(place.options());
    let session = connector.connect(&server.target()).await.unwrap();
    for round in 0..3 {
        let begin = Instant::now();
        let script = "exec cat >/dev/null";
        let mut stream = session.open("a stream", script, false).await.unwrap();
        for _ in 0..BYTES / BLOCK {
            stream.stdin.write_all(&block).await.unwrap();
        }
        stream.stdin.shutdown().await.unwrap();
        let (ending, _) = stream.ended.await.unwrap();
        assert_eq!(ending, windlass::ssh::Ending::Status(0));
        let ours = begin.elapsed();

        let theirs = openssh(&place, server.address.port(), &block);
        let rate = |time: Duration| BYTES as f64 / 1e6 / time.as_secs_f64();
        println!(
            "round {round}: windlass {:.0} MB/s, ssh {:.0} MB/s, ratio {:.2}",
            rate(ours),
            rate(theirs),
            rate(ours) / rate(theirs)
        );
    }
}

/// The time OpenSSH's client takes for the same, with the cipher that is fastest for it.
fn openssh(place: &Place, port: u16, block: &[u8]) -> Duration {
    let begin = Instant::now();
    let known = format!("UserKnownHostsFile={}", place.known_hosts().display());
    let mut child = Command::new("ssh")
        .args(["-F", "/dev/null", "-c", "aes128-gcm@openssh.com", "-p"])
        .arg(port.to_string())
        .arg("-i")
        .arg(place.path("id"))
        .args(["-o", &known, "root@127.0.0.1", "cat >/dev/null"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for _ in 0..BYTES / BLOCK {
        stdin.write_all(block).unwrap();
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
    begin.elapsed()
}
