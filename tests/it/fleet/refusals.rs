//! Hosts that are not let in or not reached: exit 4 within the connect limit, with a sentence that
//! names host and step, whatever is wrong.

use std::fs;

use super::controller::{Ran, at_a_terminal, run_by};
use crate::lab::{Kind, Lab, absent};
use crate::ssh::server::{Agent, fingerprint, keygen};

/// Seconds in the ssh configuration of the controller: the connect limit.
const LIMIT: &str = "8";

/// Hosts with something wrong on each port but the first.
struct Bench {
    lab: Lab,
    agent: Agent,
}

impl Bench {
    fn new() -> Self {
        let lab = Lab::up(&[
            ("h1", Kind::Root),
            ("h2", Kind::Password),
            ("h3", Kind::SudoPassword),
        ]);
        let home = lab.home();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::write(
            home.join(".ssh/config"),
            format!("Host *\n  ConnectTimeout {LIMIT}\n"),
        )
        .unwrap();
        fs::write(home.join("wrong"), "not the password\n").unwrap();
        fs::write(home.join("none"), "").unwrap();
        keygen(&home.join("other"), "ed25519", "");
        keygen(&home.join("locked"), "ed25519", "open sesame");
        let public = fs::read_to_string(home.join("locked.pub")).unwrap();
        lab.sh(
            "h1",
            &format!("echo '{}' >>/root/.ssh/authorized_keys", public.trim()),
        );
        // A login that never answers, and one that allows few attempts.
        for (port, option) in [(2201, "ForceCommand=sleep 600"), (2202, "MaxAuthTries=2")] {
            lab.sh("h1", &format!("/usr/sbin/sshd -p {port} -o '{option}'"));
        }
        // One that takes connections and says nothing.
        lab.sh(
            "h1",
            "setsid python3 -c 'import socket, time; s = socket.create_server((\"\", 2203)); time.sleep(3600)' >/dev/null 2>&1 &",
        );
        lab.wait_for("h1", "ss -ltn | grep -q :2203");
        lab.filter("h1", 2204);

        let agent = Agent::start(home.join("agent"));
        for number in 0..4 {
            let key = home.join(format!("extra_{number}"));
            keygen(&key, "ed25519", "");
            agent.add(&key);
        }
        Self { lab, agent }
    }

    fn home(&self, name: &str) -> String {
        self.lab.home().join(name).display().to_string()
    }

    /// An inventory of one host, `ssh` and `more` as they are to be.
    fn inventory(&self, host: &str, user: &str, ssh: &str, more: &str) -> String {
        let address = self.lab.hosts().host(host).unwrap().address();
        let file = self.home("case.toml");
        fs::write(
            &file,
            format!(
                "[cluster]\nname = \"lab\"\n[hosts.{host}]\naddress = \"{address}\"\nuser = \"{user}\"\nssh = {{ {ssh} }}\n{more}\n"
            ),
        )
        .unwrap();
        file
    }

    /// Known by its key on these ports.
    fn known(&self, key: &str) -> String {
        let address = self.lab.hosts().host("h1").unwrap().address();
        let mut text = format!("{address} {key}\n");
        for port in 2201..2205 {
            text.push_str(&format!("[{address}]:{port} {key}\n"));
        }
        let file = self.home("known");
        fs::write(&file, text).unwrap();
        file
    }

    fn run(&self, inventory: &str, arguments: &[&str]) -> Ran {
        let mut command = self.lab.controller("timeout");
        command
            .args([
                "120",
                env!("CARGO_BIN_EXE_windlass"),
                "--json",
                "-i",
                inventory,
            ])
            .args(arguments)
            .env("SSH_AUTH_SOCK", &self.agent.socket);
        run_by(command)
    }
}

fn first_words(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap();
    let mut words = text.split_whitespace();
    format!("{} {}", words.next().unwrap(), words.next().unwrap())
}

#[test]
fn whatever_keeps_a_host_from_being_used_is_exit_4_with_its_name_and_step() {
    if absent() {
        return;
    }
    let bench = Bench::new();
    let lab = &bench.lab;
    let id = lab.hosts().place().identity().display().to_string();
    let all_known = lab.known_hosts().display().to_string();
    let h1 = lab.hosts().host("h1").unwrap().address();
    let key = fs::read_to_string(&all_known)
        .unwrap()
        .lines()
        .find_map(|line| Some(line.strip_prefix(&format!("{h1} "))?.to_owned()))
        .unwrap();
    fs::write(bench.home("h1.pub"), &key).unwrap();
    let print = fingerprint(&lab.home().join("h1.pub"));
    let other = first_words(&bench.home("other.pub"));
    let other_print = fingerprint(&lab.home().join("other.pub"));
    let exec: &[&str] = &["exec", "@all", "--", "hostname"];
    let accepting: &[&str] = &["exec", "@all", "--accept-new-host-keys", "--", "hostname"];

    let by_key = |known: &str, port: u16| {
        format!("identity = \"{id}\", known_hosts = \"{known}\", port = {port}")
    };
    let by_password =
        |file: &str| format!("known_hosts = \"{all_known}\", password = {{ file = \"{file}\" }}");
    let known = bench.known(&key);
    let limit = format!("{LIMIT} s");
    let closed = format!("{h1}:2299");

    struct Case<'a> {
        name: &'a str,
        inventory: String,
        arguments: &'a [&'a str],
        host: &'a str,
        step: &'a str,
        says: Vec<&'a str>,
    }
    let case = |name, ssh: String, arguments, step, says| Case {
        name,
        inventory: format!("h1\0root\0{ssh}\0"),
        arguments,
        host: "h1",
        step,
        says,
    };
    let unknown = by_key(&bench.home("none"), 22);
    fs::write(bench.home("changed"), format!("{h1} {other}\n")).unwrap();
    let changed = by_key(&bench.home("changed"), 22);
    let locked = format!(
        "identity = \"{}\", known_hosts = \"{known}\"",
        bench.home("locked")
    );
    let starved = format!("known_hosts = \"{known}\", port = 2202");
    let wrong = bench.home("wrong");
    let table = [
        case(
            "unknown key",
            unknown,
            exec,
            "host key",
            vec![&print, "inventory trust h1"],
        ),
        case(
            "changed key",
            changed.clone(),
            exec,
            "host key",
            vec!["CHANGED", &print, &other_print],
        ),
        case(
            "changed key, new ones accepted",
            changed,
            accepting,
            "host key",
            vec!["CHANGED", &print, &other_print],
        ),
        case(
            "passphrase and nobody to ask",
            locked,
            exec,
            "login",
            vec!["locked", "encrypted", "ssh-add"],
        ),
        case(
            "closed port",
            by_key(&known, 2299),
            exec,
            "connect",
            vec![&closed, "nothing listens"],
        ),
        case(
            "filtered port",
            by_key(&known, 2204),
            exec,
            "connect",
            vec![&limit],
        ),
        case(
            "silent port",
            by_key(&known, 2203),
            exec,
            "handshake",
            vec![&limit],
        ),
        case(
            "hangs after the login",
            by_key(&known, 2201),
            exec,
            "open",
            vec!["login shell", &limit],
        ),
        case(
            "too many attempts",
            starved,
            exec,
            "login",
            vec!["too many authentication attempts", "ssh.identity"],
        ),
        Case {
            name: "wrong password",
            inventory: format!("h2\0root\0{}\0", by_password(&wrong)),
            arguments: exec,
            host: "h2",
            step: "login",
            says: vec!["password", "root"],
        },
        Case {
            name: "wrong password for sudo",
            inventory: format!(
                "h3\0ai\0identity = \"{id}\", known_hosts = \"{all_known}\"\0sudo = {{ password = {{ file = \"{wrong}\" }} }}"
            ),
            arguments: &["status"],
            host: "h3",
            step: "sudo",
            says: vec!["wrong", "sudo.password"],
        },
    ];
    for case in &table {
        let parts: Vec<&str> = case.inventory.split('\0').collect();
        let [host, user, ssh, more] = parts[..] else {
            panic!("{}", case.inventory);
        };
        let file = bench.inventory(host, user, ssh, more);
        let ran = bench.run(&file, case.arguments);
        let (summary, message) = (&ran.summary, ran.message());
        assert_eq!(ran.code, 4, "{}: {summary:#}", case.name);
        assert_eq!(
            summary["error"]["host"], case.host,
            "{}: {summary:#}",
            case.name
        );
        assert_eq!(
            summary["error"]["step"], case.step,
            "{}: {summary:#}",
            case.name
        );
        assert_eq!(
            summary["hosts"][case.host]["unreachable"], 1,
            "{}: {summary:#}",
            case.name
        );
        assert!(
            message.starts_with(&format!("{}: ", case.host)),
            "{}: {message}",
            case.name
        );
        assert!(!message.contains('\n'), "{}: {message}", case.name);
        for wanted in &case.says {
            assert!(
                message.contains(wanted),
                "{}: {wanted:?} in {message}",
                case.name
            );
        }
    }
    assert_eq!(fs::read_to_string(bench.home("none")).unwrap(), "");
    assert_eq!(
        fs::read_to_string(bench.home("changed")).unwrap(),
        format!("{h1} {other}\n")
    );

    // Somebody types, and it is wrong each time.
    let locked = format!(
        "identity = \"{}\", known_hosts = \"{known}\"",
        bench.home("locked")
    );
    let file = bench.inventory("h1", "root", &locked, "");
    let answers = [("passphrase", "sesame"); 3];
    let (code, shown) = at_a_terminal(
        lab,
        &["-i", &file, "exec", "h1", "--", "hostname"],
        &answers,
    );
    assert_eq!(code, 4, "{shown}");
    for wanted in ["h1", "login", "locked", "wrong 3 times"] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    let (code, shown) = at_a_terminal(
        lab,
        &["-i", &file, "exec", "h1", "--", "hostname"],
        &[("passphrase", "open sesame")],
    );
    assert_eq!(code, 0, "{shown}");
}
