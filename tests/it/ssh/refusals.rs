//! What is refused, and how it is said: each names the step, and comes within the limit.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use windlass::event::Exit;
use windlass::ssh::{Connector, SshError, Target, Trusted};

use super::server::{Agent, Place, fingerprint, keygen, silent};

/// The error, which must come long before the limit of a test that hangs, and exit with 4.
async fn refused(connector: &Connector, target: &Target) -> (String, String) {
    let limit = connector.options().limit + Duration::from_secs(60);
    let error = tokio::time::timeout(limit, connector.connect(target))
        .await
        .expect("it hangs")
        .expect_err("it is let in");
    let failure = error.failure("lab");
    assert_eq!(failure.kind.exit(), Exit::Unreachable, "{error:?}");
    assert_eq!(failure.host.as_deref(), Some("lab"));
    assert!(failure.message.starts_with("lab: "), "{failure}");
    (failure.step.unwrap(), failure.message)
}

fn contains(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_is_refused_headless_with_its_fingerprint() {
    let place = Place::new();
    let server = place.stranger(&["host_ed25519"], "");
    let print = fingerprint(&place.path("host_ed25519.pub"));
    let (step, message) = refused(&place.connector(place.options()), &server.target()).await;
    assert_eq!(step, "host key");
    contains(
        &message,
        &[&print, "ED25519", "windlass inventory trust lab"],
    );
    assert!(!place.known_hosts().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_key_is_taken_once_when_new_ones_may_be() {
    let place = Place::new();
    let server = place.stranger(&["host_ed25519", "host_rsa"], "");
    let mut options = place.options();
    options.accept_new = true;
    place
        .connector(options)
        .connect(&server.target())
        .await
        .unwrap();
    let text = fs::read_to_string(place.known_hosts()).unwrap();
    let public = fs::read_to_string(place.path("host_ed25519.pub")).unwrap();
    let key = public.split(' ').nth(1).unwrap();
    let port = server.address.port();
    assert_eq!(text, format!("[127.0.0.1]:{port} ssh-ed25519 {key}\n"));
    let mode = fs::metadata(place.known_hosts())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // Known from then on, without leave.
    place
        .connector(place.options())
        .connect(&server.target())
        .await
        .unwrap();
    assert_eq!(fs::read_to_string(place.known_hosts()).unwrap(), text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_is_asked_about_an_unknown_key_and_only_about_that() {
    let place = Place::new();
    let server = place.stranger(&["host_ed25519"], "");
    let print = fingerprint(&place.path("host_ed25519.pub"));
    let (no, person) = place.asking(place.options(), &[("host key", "n")]);
    let (step, _) = refused(&no, &server.target()).await;
    assert_eq!(step, "host key");
    assert_eq!(person.asked().len(), 1);
    contains(&person.asked()[0], &["lab", &print]);
    assert!(!place.known_hosts().exists());
    let (yes, person) = place.asking(place.options(), &[("host key", "y")]);
    yes.connect(&server.target()).await.unwrap();
    yes.connect(&server.target()).await.unwrap();
    assert_eq!(person.asked().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_key_is_refused_whatever_is_allowed() {
    let place = Place::new();
    let server = place.stranger(&["host_ed25519"], "");
    keygen(&place.path("other"), "ed25519", "");
    fs::write(place.known_hosts(), "# mine\n").unwrap();
    place.know(&server, "other");
    let before = fs::read_to_string(place.known_hosts()).unwrap();
    let mut accepting = place.options();
    accepting.accept_new = true;
    let (asking, person) = place.asking(place.options(), &[("host key", "y")]);
    for connector in [
        place.connector(place.options()),
        place.connector(accepting),
        asking,
    ] {
        let (step, message) = refused(&connector, &server.target()).await;
        assert_eq!(step, "host key");
        let line = format!("{}:2", place.known_hosts().display());
        let old = fingerprint(&place.path("other.pub"));
        let new = fingerprint(&place.path("host_ed25519.pub"));
        contains(&message, &["CHANGED", &line, &old, &new]);
        let trust = connector.trust(&server.target(), false).await.unwrap_err();
        contains(&trust.to_string(), &["CHANGED"]);
    }
    assert!(person.asked().is_empty());
    assert_eq!(fs::read_to_string(place.known_hosts()).unwrap(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_kind_of_key_of_a_known_host_is_refused_in_calm_words() {
    let place = Place::new();
    let server = place.stranger(&["host_rsa"], "");
    keygen(&place.path("other"), "ed25519", "");
    place.know(&server, "other");
    let mut options = place.options();
    options.accept_new = true;
    let (step, message) = refused(&place.connector(options), &server.target()).await;
    assert_eq!(step, "host key");
    contains(
        &message,
        &["is known", "RSA", "ED25519", "inventory trust lab"],
    );
    assert!(!message.contains("CHANGED"), "{message}");
    // A person may take it.
    let (yes, person) = place.asking(place.options(), &[("host key", "y")]);
    assert!(matches!(
        yes.trust(&server.target(), false).await.unwrap(),
        Trusted::Written(_)
    ));
    assert_eq!(person.asked().len(), 1);
    yes.connect(&server.target()).await.unwrap();
    assert_eq!(
        yes.trust(&server.target(), false).await.unwrap(),
        Trusted::Known
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_known_by_one_key_shows_that_one_though_it_has_better_ones() {
    let place = Place::new();
    let server = place.stranger(&["host_ed25519", "host_ecdsa", "host_rsa"], "");
    place.know(&server, "host_rsa");
    place
        .connector(place.options())
        .connect(&server.target())
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_and_unreadable_keys_and_pinned_others_are_refused() {
    let place = Place::new();
    let server = place.server("");
    let text = fs::read_to_string(place.known_hosts()).unwrap();
    fs::write(place.known_hosts(), format!("{text}@revoked {text}")).unwrap();
    let (step, message) = refused(&place.connector(place.options()), &server.target()).await;
    assert_eq!(step, "host key");
    contains(&message, &["revoked", "known_hosts:2"]);

    fs::remove_file(place.known_hosts()).unwrap();
    fs::create_dir(place.known_hosts()).unwrap();
    let mut options = place.options();
    options.accept_new = true;
    let (step, message) = refused(&place.connector(options), &server.target()).await;
    assert_eq!(step, "host key");
    contains(&message, &["known_hosts", "cannot be told"]);

    let mut target = server.target();
    keygen(&place.path("other"), "ed25519", "");
    let pin = |name: &str| Some(fs::read_to_string(place.path(name)).unwrap());
    target.host_key = pin("other.pub");
    let (step, message) = refused(&place.connector(place.options()), &target).await;
    assert_eq!(step, "host key");
    contains(&message, &["ssh.host_key"]);
    target.host_key = pin("host_ed25519.pub");
    place
        .connector(place.options())
        .connect(&target)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_key_is_not_written_through_a_link() {
    let place = Place::new();
    let server = place.stranger(&["host_ed25519"], "");
    fs::write(place.path("elsewhere"), "").unwrap();
    std::os::unix::fs::symlink(place.path("elsewhere"), place.known_hosts()).unwrap();
    let mut options = place.options();
    options.accept_new = true;
    let (step, message) = refused(&place.connector(options), &server.target()).await;
    assert_eq!(step, "host key");
    contains(&message, &["link"]);
    assert_eq!(fs::read_to_string(place.path("elsewhere")).unwrap(), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_and_silent_ports_and_strangers_are_named_by_step_within_the_limit() {
    let place = Place::new();
    let mut options = place.options();
    options.limit = Duration::from_millis(700);
    let connector = place.connector(options);
    let at = |port: u16| Target {
        host: "lab".into(),
        address: "127.0.0.1".into(),
        port: Some(port),
        user: Some("root".into()),
        ..Target::default()
    };
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let (step, message) = refused(&connector, &at(closed)).await;
    assert_eq!(step, "connect");
    contains(
        &message,
        &[&format!("127.0.0.1:{closed}"), "nothing listens"],
    );

    let (step, message) = refused(&connector, &at(silent("").port())).await;
    assert_eq!(step, "handshake");
    contains(&message, &["0.7 s"]);
    let (step, message) = refused(&connector, &at(silent("SSH-2.0-Silent\r\n").port())).await;
    assert_eq!(step, "handshake");
    contains(&message, &["0.7 s"]);
    let (step, message) = refused(&connector, &at(silent("220 mail ready\r\n").port())).await;
    assert_eq!(step, "handshake");
    assert!(!message.is_empty());

    let mut unknown = at(22);
    unknown.address = "no-such-host.invalid".into();
    let (step, message) = refused(&connector, &unknown).await;
    assert_eq!(step, "resolve");
    contains(&message, &["no-such-host.invalid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_that_hangs_after_the_login_is_given_up_within_the_limit() {
    let place = Place::new();
    let server = place.server("ForceCommand sleep 600");
    let mut options = place.options();
    options.limit = Duration::from_secs(4);
    let (step, message) = refused(&place.connector(options), &server.target()).await;
    assert_eq!(step, "open");
    contains(&message, &["4 s", "login shell"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_shell_that_runs_no_sh_is_refused_with_what_it_said() {
    let place = Place::new();
    for (command, wanted) in [
        (
            "echo 'This account is currently not available.'; exit 1",
            "not available",
        ),
        ("rbash -c \"$SSH_ORIGINAL_COMMAND\"", "restricted"),
        (
            "echo \"'exec' is not recognized as an internal or external command,\" >&2; exit 1",
            "WSL2",
        ),
    ] {
        let server = place.server(&format!("ForceCommand {command}"));
        let error = place
            .connector(place.options())
            .connect(&server.target())
            .await
            .unwrap_err();
        assert!(matches!(error, SshError::Unfit { .. }), "{error:?}");
        contains(&error.to_string(), &[wanted]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_windows_server_is_known_before_anyone_logs_in() {
    let place = Place::new();
    let server = place.server("VersionAddendum OpenSSH_for_Windows_9.5");
    let error = place
        .connector(place.options())
        .connect(&server.target())
        .await
        .unwrap_err();
    assert!(matches!(error, SshError::Unfit { .. }), "{error:?}");
    contains(&error.to_string(), &["Windows", "WSL2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_key_is_refused_headless_and_after_three_wrong_passphrases() {
    let place = Place::new();
    let server = place.server("");
    keygen(&place.path("locked"), "ed25519", "open sesame");
    fs::copy(place.path("locked.pub"), place.path("authorized_keys")).unwrap();
    let mut target = server.target();
    target.identity = Some(place.path("locked"));
    let file = place.path("locked").display().to_string();
    let (step, message) = refused(&place.connector(place.options()), &target).await;
    assert_eq!(step, "login");
    contains(&message, &[&file, "encrypted", "ssh-add"]);
    let (wrong, person) = place.asking(place.options(), &[("passphrase", "sesame")]);
    let (step, message) = refused(&wrong, &target).await;
    assert_eq!(step, "login");
    contains(&message, &[&file, "wrong 3 times"]);
    assert_eq!(person.asked().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passphrase_is_not_asked_for_a_key_that_the_host_would_not_take() {
    let place = Place::new();
    let server = place.server("");
    keygen(&place.path("locked"), "ed25519", "open sesame");
    let mut target = server.target();
    target.identity = Some(place.path("locked"));
    let (connector, person) = place.asking(place.options(), &[("passphrase", "open sesame")]);
    let (step, message) = refused(&connector, &target).await;
    assert_eq!(step, "login");
    contains(&message, &["tried", "locked", "publickey"]);
    assert!(person.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_names_user_and_what_was_tried() {
    let place = Place::new();
    let server = place.server("");
    fs::write(place.path("authorized_keys"), "").unwrap();
    let (step, message) = refused(&place.connector(place.options()), &server.target()).await;
    assert_eq!(step, "login");
    let id = place.path("id").display().to_string();
    contains(&message, &["root", &id, "publickey"]);
    let mut target = server.target();
    target.identity = Some(place.path("nothing here"));
    let (_, message) = refused(&place.connector(place.options()), &target).await;
    contains(&message, &["there is no", "nothing here"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_attempts_are_named_and_a_named_key_is_not_starved() {
    let place = Place::new();
    let agent = Agent::start(place.path("agent"));
    for number in 0..7 {
        let key = place.path(&format!("extra_{number}"));
        keygen(&key, "ed25519", "");
        agent.add(&key);
    }
    let mut options = place.options();
    options.agent = Some(agent.socket.clone());
    // Below the server's usual limit of six we end by ourselves.
    let server = place.server("");
    let mut target = server.target();
    target.identity = None;
    let (step, message) = refused(&place.connector(options.clone()), &target).await;
    assert_eq!(step, "login");
    assert_eq!(message.matches("of the agent").count(), 5, "{message}");
    assert!(!server.log().contains("maximum authentication attempts"));
    // A server that allows fewer ends the connection.
    let strict = place.server("MaxAuthTries 2");
    let mut target = strict.target();
    target.identity = None;
    let (step, message) = refused(&place.connector(options.clone()), &target).await;
    assert_eq!(step, "login");
    contains(
        &message,
        &["too many authentication attempts", "ssh.identity"],
    );
    // The key that was named is tried though the agent has many.
    place
        .connector(options)
        .connect(&server.target())
        .await
        .unwrap();
}
