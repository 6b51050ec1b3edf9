//! Commands and streams on a host that is reached.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass::ssh::{Caps, Ending, Session, SshError};

use super::server::Place;

async fn reached(place: &Place, more: &str) -> (Session, super::server::Server) {
    let server = place.server(more);
    let session = place
        .connector(place.options())
        .connect(&server.target())
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
    (session, server)
}

/// Both ways to a host: they must not differ.
async fn both(place: &Place) -> (Vec<Session>, super::server::Server) {
    let (session, server) = reached(place, "").await;
    (vec![session, Session::local("here")], server)
}

async fn run(session: &Session, script: &str) -> (Ending, String, String) {
    let output = session
        .run("a test", script, Caps::default())
        .await
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.ending.clone(), output.text(), err)
}

fn status(status: u32) -> Ending {
    Ending::Status(status)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_gives_its_output_and_how_it_ended() {
    let place = Place::new();
    let (sessions, _server) = both(&place).await;
    for session in sessions {
        let said = run(&session, "echo out; echo err >&2; exit 3").await;
        assert_eq!(said, (status(3), "out\n".into(), "err\n".into()));
        // No input, and no way out of the fence.
        assert_eq!(run(&session, "cat; printf x").await.1, "x");
        assert_eq!(run(&session, "echo 'ä\"$HOME'").await.1, "ä\"$HOME\n");
        assert_eq!(run(&session, "echo 'open").await.0, status(2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_script_leaves_running_with_its_streams_open_is_not_waited_for() {
    let place = Place::new();
    let (sessions, _server) = both(&place).await;
    for session in sessions {
        let left = run(&session, "sleep 600 & echo $!").await;
        assert_eq!(left.0, status(0));
        run(&session, &format!("kill {}", left.1)).await;
        // Its own shell is killed, and what it ran is not.
        let killed = run(&session, "sleep 600 & echo $!; kill -TERM $$; wait").await;
        assert_eq!(killed.0, Ending::Signal("TERM".into()));
        run(&session, &format!("kill {}", killed.1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_status_is_never_lost_to_the_end_of_output_that_comes_before_it() {
    let place = Place::new();
    let (session, _server) = reached(&place, "").await;
    for number in 0..60 {
        assert_eq!(
            run(&session, &format!("exit {number}")).await.0,
            status(number)
        );
    }
    let many = (0..8).map(|number| {
        let session = session.clone();
        async move { run(&session, &format!("seq 20000; exit {number}")).await }
    });
    let all = futures_util::future::join_all(many).await;
    for (number, said) in (0..8).zip(all) {
        assert_eq!((said.0, said.1.len()), (status(number), 108_894));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_and_time_are_capped_and_the_session_lives_on() {
    let place = Place::new();
    let (sessions, _server) = both(&place).await;
    for session in sessions {
        let caps = Caps {
            stdout: 1000,
            stderr: 1000,
            time: Duration::from_secs(30),
        };
        let error = session.run("a flood", "yes", caps).await.unwrap_err();
        assert!(
            matches!(
                &error,
                SshError::TooMuch {
                    stream: "stdout",
                    ..
                }
            ),
            "{error}"
        );
        let error = session.run("a flood", "yes >&2", caps).await.unwrap_err();
        assert!(
            matches!(
                &error,
                SshError::TooMuch {
                    stream: "stderr",
                    ..
                }
            ),
            "{error}"
        );
        let caps = Caps {
            time: Duration::from_millis(300),
            ..caps
        };
        let error = session.run("a nap", "sleep 60", caps).await.unwrap_err();
        assert_eq!(error.to_string(), "a nap did not end within 0.3 s");
        assert_eq!(run(&session, "echo still here").await.1, "still here\n");
    }
}

/// Waits until none of these processes lives.
async fn gone(session: &Session, pids: &str) {
    let pids = pids.split_whitespace().collect::<Vec<_>>().join(" ");
    let wait =
        format!("for p in {pids}; do while kill -0 $p 2>/dev/null; do sleep 0.05; done; done");
    assert_eq!(run(session, &wait).await.0, status(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_command_ends_with_all_it_started_however_it_is_given_up() {
    let place = Place::new();
    let (sessions, _server) = both(&place).await;
    for (number, session) in sessions.into_iter().enumerate() {
        let caps = Caps::default();
        let said = session.run_bound(false, "a test", "echo out; echo err >&2; exit 3", caps);
        let said = said.await.unwrap();
        assert_eq!(
            (said.ending.clone(), said.text()),
            (status(3), "out\n".into())
        );

        let file = place.path(&format!("pids_{number}")).display().to_string();
        let file = windlass::ssh::quote(&file);
        let script = format!(
            "sleep 600 & echo $! >{file}.new; sh -c 'echo $$ >>{file}.new; mv {file}.new {file}; exec sleep 600'"
        );
        let short = Caps {
            time: Duration::from_secs(1),
            ..caps
        };
        let error = session
            .run_bound(false, "a nap", &script, short)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "a nap did not end within 1 s");
        let pids = run(&session, &format!("cat {file}; rm {file}")).await.1;
        // At once.
        let look = format!(
            "for p in {}; do kill -0 $p && exit 9; done; exit 0",
            pids.replace('\n', " ")
        );
        assert_eq!(run(&session, &look).await.0, status(0));

        // It floods once it said who it is: it is ended with the first bytes that are too many.
        let flood = format!("{script} & until [ -e {file} ]; do sleep 0.02; done; yes");
        let little = Caps {
            stdout: 1000,
            ..caps
        };
        let error = session
            .run_bound(false, "a flood", &flood, little)
            .await
            .unwrap_err();
        assert!(matches!(&error, SshError::TooMuch { .. }), "{error}");
        let wait = format!("until [ -e {file} ]; do sleep 0.02; done; cat {file}; rm {file}");
        gone(&session, &run(&session, &wait).await.1).await;

        let other = session.clone();
        let dropped =
            tokio::spawn(async move { other.run_bound(false, "a nap", &script, caps).await });
        let pids = run(&session, &wait).await.1;
        dropped.abort();
        gone(&session, &pids).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_of_the_login_is_no_output_whatever_the_login_shell() {
    let place = Place::new();
    let noise = "ForceCommand echo 'Welcome!'; echo 'no tty' >&2; printf 'no line end';";
    for shell in [
        "exec sh -c \"$SSH_ORIGINAL_COMMAND\"",
        "exec bash -c \"$SSH_ORIGINAL_COMMAND\"",
        "exec /usr/bin/fish -c \"$SSH_ORIGINAL_COMMAND\"",
        "exec /usr/bin/csh -c \"$SSH_ORIGINAL_COMMAND\"",
        "exec /usr/bin/tcsh -c \"$SSH_ORIGINAL_COMMAND\"",
    ] {
        let program = shell.split(' ').nth(1).unwrap();
        if program.starts_with('/') && !std::path::Path::new(program).exists() {
            continue;
        }
        let (session, _server) = reached(&place, &format!("{noise} {shell}")).await;
        let said = run(&session, "echo out; echo err >&2; exit 4").await;
        assert_eq!(said, (status(4), "out\n".into(), "err\n".into()), "{shell}");
        let mut stream = session.open("a stream", "exec cat", false).await.unwrap();
        stream.stdin.write_all(b"there and back").await.unwrap();
        stream.stdin.shutdown().await.unwrap();
        let mut back = String::new();
        stream.stdout.read_to_string(&mut back).await.unwrap();
        assert_eq!(back, "there and back", "{shell}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_carries_bytes_both_ways_and_says_how_it_ended() {
    let place = Place::new();
    let (sessions, _server) = both(&place).await;
    for session in sessions {
        let script = "printf 'begin\\0'; echo words >&2; cat; exec sh -c 'echo last >&2; exit 9'";
        let stream = session.open("a stream", script, false).await.unwrap();
        let (mut stdin, mut stdout) = (stream.stdin, stream.stdout);
        let sent: Vec<u8> = (0..5_000_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        let copy = sent.clone();
        let writer = tokio::spawn(async move {
            stdin.write_all(&copy).await.unwrap();
            stdin.shutdown().await.unwrap();
        });
        let mut back = Vec::new();
        stdout.read_to_end(&mut back).await.unwrap();
        writer.await.unwrap();
        assert_eq!(back.len(), sent.len() + 6);
        assert!(back.starts_with(b"begin\0") && back.ends_with(&sent));
        let (ending, words) = stream.ended.await.unwrap();
        assert_eq!(ending, status(9));
        assert_eq!(String::from_utf8(words).unwrap(), "words\nlast\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_or_cannot_start_stops_the_writer() {
    let place = Place::new();
    let (sessions, _server) = both(&place).await;
    for session in sessions {
        for (script, wanted) in [("exec true", 0), ("exec /no/such/program", 127)] {
            let mut stream = session.open("a stream", script, false).await.unwrap();
            let block = vec![0; 1 << 20];
            // More than every window and buffer on the way.
            let mut refused = false;
            for _ in 0..64 {
                if stream.stdin.write_all(&block).await.is_err() {
                    refused = true;
                    break;
                }
            }
            assert!(refused, "{script}");
            let (ending, words) = stream.ended.await.unwrap();
            assert_eq!(ending, status(wanted));
            assert_eq!(words.is_empty(), wanted == 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stream_ends_its_program() {
    let place = Place::new();
    let (sessions, _server) = both(&place).await;
    for (number, session) in sessions.into_iter().enumerate() {
        let mark = place.path(&format!("ended_{number}"));
        let script = format!(
            "trap '' PIPE; echo begun; cat >/dev/null; echo ended >{}",
            windlass::ssh::quote(&mark.display().to_string())
        );
        let mut stream = session.open("a stream", &script, false).await.unwrap();
        let mut begun = [0; 6];
        stream.stdout.read_exact(&mut begun).await.unwrap();
        drop(stream);
        if session.is_local() {
            continue; // Killed at once; there are no last words.
        }
        let wait = format!(
            "until test -e {}; do sleep 0.02; done",
            windlass::ssh::quote(&mark.display().to_string())
        );
        assert_eq!(run(&session, &wait).await.0, status(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_ends_what_runs_with_an_error_that_says_so() {
    let place = Place::new();
    let (session, server) = reached(&place, "").await;
    let stream = session
        .open("a stream", "exec sleep 600", false)
        .await
        .unwrap();
    let other = session.clone();
    let running = tokio::spawn(async move {
        let script = "echo begun >&2; sleep 600";
        other.run("a long task", script, Caps::default()).await
    });
    // The command is on its way at the latest when another one has been answered.
    run(&session, "true").await;
    server.cut();
    let error = running.await.unwrap().unwrap_err();
    assert!(matches!(error, SshError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("connection was lost"), "{error}");
    let (ending, words) = stream.ended.await.unwrap();
    assert_eq!(ending, Ending::Unknown);
    assert!(String::from_utf8_lossy(&words).contains("the connection was lost"));
    let error = session
        .run("more", "true", Caps::default())
        .await
        .unwrap_err();
    assert!(matches!(error, SshError::Unreachable { .. }), "{error:?}");
    assert!(session.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_login_is_told_and_root_needs_no_sudo() {
    let place = Place::new();
    let (sessions, _server) = both(&place).await;
    for session in sessions {
        let login = session.login().await.unwrap();
        assert_eq!((login.uid, login.user.as_str()), (0, "root"));
        assert!(login.home.starts_with('/'), "{login:?}");
        let output = session
            .run_as_root("a test", "id -u", Caps::default())
            .await
            .unwrap();
        assert_eq!(output.text(), "0\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_streams_than_a_connection_carries_take_further_connections() {
    let place = Place::new();
    let (session, _server) = reached(&place, "MaxSessions 3").await;
    let mut streams = Vec::new();
    for _ in 0..10 {
        streams.push(session.open("a test", "exec cat", false).await.unwrap());
    }
    for (number, stream) in streams.iter_mut().enumerate() {
        let word = format!("word {number}");
        stream.stdin.write_all(word.as_bytes()).await.unwrap();
        stream.stdin.shutdown().await.unwrap();
        let mut back = String::new();
        stream.stdout.read_to_string(&mut back).await.unwrap();
        assert_eq!(back, word);
    }
    assert_eq!(run(&session, "echo on").await.1, "on\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_program_s_input_ends_when_it_is_shut_down() {
    let session = Session::local("here");
    let mut stream = session.open("a test", "exec cat", false).await.unwrap();
    stream.stdin.write_all(b"all").await.unwrap();
    stream.stdin.shutdown().await.unwrap();
    let mut back = String::new();
    stream.stdout.read_to_string(&mut back).await.unwrap();
    assert_eq!(back, "all");
    assert!(stream.stdin.write_all(b"more").await.is_err());
}
