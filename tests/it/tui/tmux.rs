//! The screens in tmux, a terminal that people use: what somebody does who has the keys alone, at
//! three sizes, and what a closed terminal leaves behind.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::fleet::controller::{give_model, run};
use crate::lab::{Kind, Lab, PATIENCE, absent};

/// A tmux server of its own with one program in it.
struct Tmux {
    folder: tempfile::TempDir,
}

impl Tmux {
    /// Starts a program at this size, with the environment that the command names.
    fn start(command: &Command, columns: u16, rows: u16) -> Self {
        let tmux = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let settings = "set -g status off\nset -g default-terminal tmux-256color\n\
                        set -s escape-time 0\n";
        std::fs::write(tmux.settings(), settings).unwrap();
        let mut start = tmux.tmux(&["new-session", "-d"]);
        start.args(["-x", &columns.to_string(), "-y", &rows.to_string()]);
        start.env_remove("NO_COLOR");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => start.env(name, value),
                None => start.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            start.arg("-c").arg(folder);
        }
        // What tmux says of a program's end is sometimes empty.
        start.args([
            "/bin/sh",
            "-c",
            "\"$@\"; echo \"ended with $?\"; exec cat",
            "sh",
        ]);
        start.arg(command.get_program()).args(command.get_args());
        let output = start.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        tmux
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("tmux.conf")
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command
            .arg("-S")
            .arg(self.folder.path().join("socket"))
            .arg("-f")
            .arg(self.settings())
            .args(arguments);
        command
    }

    fn told(&self, arguments: &[&str]) -> String {
        let output = self.tmux(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What is on the screen.
    fn contents(&self) -> String {
        self.told(&["capture-pane", "-p"])
    }

    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let contents = self.contents();
            if wanted(&contents) {
                return contents;
            }
            assert!(Instant::now() < end, "no {what} on the screen:\n{contents}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn shows(&self, text: &str) -> String {
        self.until(text, |contents| contents.contains(text))
    }

    /// Types bytes as they are.
    fn types(&self, text: &str) {
        let hex: Vec<String> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut send = self.tmux(&["send-keys", "-H"]);
        assert!(send.args(hex).status().unwrap().success());
    }

    /// Waits until the program has ended with this status.
    fn ended_with(&self, status: i32) {
        let contents = self.until("end", |c| c.contains("ended with "));
        let wanted = format!("ended with {status}");
        assert!(contents.lines().any(|line| line == wanted), "{contents}");
    }

    /// The program's id.
    fn pid(&self) -> u32 {
        let shell = self.told(&["list-panes", "-F", "#{pane_pid}"]);
        let children = super::pty::children(shell.trim().parse().unwrap());
        assert_eq!(children.len(), 1);
        children[0]
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.tmux(&["kill-server"]).output();
    }
}

fn is_serving(contents: &str) -> bool {
    contents.contains("tok/s") && contents.contains("● serving")
}

#[test]
fn it_attaches_at_every_size_and_a_closed_terminal_stops_nothing() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let up = run(&lab, &["up", "smollm2"]).ended(0);
    let mut times = Vec::new();
    for (columns, rows) in [(80, 24), (120, 40), (40, 12)] {
        let begin = Instant::now();
        let tmux = Tmux::start(&lab.windlass(&[]), columns, rows);
        tmux.until("tokens per second", is_serving);
        times.push(begin.elapsed());
        tmux.types("q");
        tmux.ended_with(0);
    }
    times.sort();
    println!("from start to tokens per second, median: {:?}", times[1]);

    let tmux = Tmux::start(&lab.windlass(&[]), 100, 30);
    tmux.until("tokens per second", is_serving);
    let proc = PathBuf::from(format!("/proc/{}", tmux.pid()));
    assert!(proc.exists());
    drop(tmux);
    let end = Instant::now() + PATIENCE;
    while proc.exists() {
        assert!(Instant::now() < end, "it outlives its terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = run(&lab, &["status"]).ended(0);
    assert_eq!(status.summary["deployment"], up.summary["deployment"]);
}

#[test]
fn by_keys_alone_hosts_are_compared_and_what_differs_is_read() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    for (columns, rows) in [(100, 30), (60, 20)] {
        let tmux = Tmux::start(&lab.windlass(&[]), columns, rows);
        tmux.shows("No deployment. Press u");
        tmux.types("2d");
        tmux.shows("Not verified yet. Press v");
        tmux.types("v");
        tmux.shows("Nothing differs");
        lab.sh("h2", "ip link set eth0 mtu 1400");
        tmux.types("v");
        tmux.until("what differs", |c| {
            c.contains("drift against h1") && c.contains("data_mtu") && c.contains("1400")
        });
        tmux.shows("transfer hangs");
        tmux.types("q");
        tmux.ended_with(0);
        lab.sh("h2", "ip link set eth0 mtu 1500");
    }
}

/// An inventory of the lab's first host; what further hosts need stands in the defaults.
fn inventory(lab: &Lab) -> PathBuf {
    let hosts = lab.hosts();
    let text = format!(
        "[cluster]\nname = \"keys\"\n\n[defaults]\nuser = \"root\"\n\
         ssh = {{ identity = \"{}\", known_hosts = \"{}\" }}\n\n\
         [hosts.h1]\naddress = \"{}\"\n",
        hosts.place().identity().display(),
        lab.known_hosts().display(),
        hosts.host("h1").unwrap().address(),
    );
    let path = lab.home().join("inventory.toml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn by_keys_alone_a_host_is_added_a_playbook_run_the_model_asked_and_a_dead_worker_understood() {
    if absent() {
        return;
    }
    let lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::Root)]);
    if !give_model(lab.home()) {
        return;
    }
    let inventory = inventory(&lab);
    let playbooks = lab.home().join("playbooks");
    std::fs::create_dir(&playbooks).unwrap();
    let playbook = "name = \"small\"\nabout = \"a model over all hosts\"\n\
                    [[tasks]]\nname = \"look\"\nfacts = true\n\
                    [[tasks]]\nname = \"serve\"\nup = { model = \"smollm2\" }\n\
                    [[tasks]]\nname = \"measure\"\nbench = { concurrency = 1, tokens = 4, requests = 1 }\n";
    std::fs::write(playbooks.join("small.toml"), playbook).unwrap();
    let mut command = lab.controller(env!("CARGO_BIN_EXE_windlass"));
    command.arg("-i").arg(&inventory);
    let tmux = Tmux::start(&command, 120, 40);

    // Add a host.
    tmux.shows("No deployment. Press u");
    tmux.types("2a");
    tmux.shows("add a host");
    let address = lab.hosts().host("h2").unwrap().address();
    tmux.types(&format!("h2\t{address}\r"));
    tmux.shows("+[hosts.h2]");
    tmux.types("y");
    tmux.until("the new host", |c| {
        c.contains("h2") && !c.contains("write this")
    });

    // Run a playbook; the last of the list.
    tmux.types("4");
    tmux.shows("small");
    tmux.types("G\r");
    tmux.shows("playbook run");
    tmux.until("its end", |c| c.contains("exit 0"));
    let shown = tmux.contents();
    for wanted in ["look", "serve", "measure", "h1", "h2"] {
        assert!(shown.contains(wanted), "{wanted}:\n{shown}");
    }

    // Chat.
    tmux.types("5");
    // Where the screen came before the model was found, nothing is being typed yet.
    tmux.until("a model to talk to", |c| {
        c.contains(" you:") || c.contains("Press enter, write")
    });
    if !tmux.contents().contains(" you:") {
        tmux.types("\r");
    }
    tmux.shows(" you:");
    tmux.types("Say yes.\r");
    tmux.until("an answer with its speed", |c| {
        c.contains("you: Say yes.") && c.contains('✓') && c.contains("tok/s")
    });
    tmux.types("\u{1b}");
    tmux.shows("enter: write to the model");

    // See a killed worker, and read why.
    tmux.types("1");
    tmux.until("both hosts serving", |c| {
        c.lines().filter(|line| line.contains("● serving")).count() == 3
    });
    lab.sh("h2", "pkill -9 -f '[w]indlass-worker serve'");
    tmux.until("the reason", |c| {
        c.lines()
            .any(|line| line.contains("h2") && line.contains("signal 9"))
    });
    tmux.types("q");
    tmux.ended_with(0);
}
