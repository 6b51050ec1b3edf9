//! A lab for one test: named after it, taken away when it ends, cleaned up by the next run when it
//! was killed.
//!
//! ```ignore
//! if lab::absent() { return; }
//! let mut lab = Lab::up(&[("h1", Kind::Root), ("h2", Kind::SudoPassword)]);
//! let output = lab.windlass(&["facts"]).output().unwrap();
//! lab.kill("h1");
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use windlass_lab::{Cut, Disk, Keeper, Kind, Lab as Hosts, Wanted, refusal};

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Whether this machine can hold no lab; says so. Where the test command has installed what a lab
/// needs, a missing package is a failure.
pub fn absent() -> bool {
    let Some(reason) = refusal() else {
        return false;
    };
    let required = std::env::var_os("WINDLASS_REQUIRE_FIXTURES").is_some_and(|v| v == "1");
    assert!(!required || !reason.contains("packages"), "{reason}");
    eprintln!("SKIPPED: {reason}");
    true
}

/// Hosts for one test. Every method that changes something waits until it is done.
pub struct Lab {
    hosts: Hosts,
    home: PathBuf,
}

impl Lab {
    /// These hosts, on plain cables and the machine's disk.
    pub fn up(hosts: &[(&str, Kind)]) -> Self {
        Self::with(hosts, |_| {})
    }

    /// The same, and more: small disks, delays, a rate.
    pub fn with(hosts: &[(&str, Kind)], more: impl FnOnce(&mut Wanted)) -> Self {
        Self::named(&test_name(), hosts, more)
    }

    /// A lab of this name, for tests that need several.
    pub fn named(name: &str, hosts: &[(&str, Kind)], more: impl FnOnce(&mut Wanted)) -> Self {
        let mut wanted = Wanted {
            hosts: hosts
                .iter()
                .map(|(name, kind)| ((*name).to_owned(), *kind))
                .collect(),
            hidden: hidden(),
            ..Wanted::default()
        };
        more(&mut wanted);
        let hosts = Hosts::up(&folder(name), &wanted, Keeper::threads())
            .unwrap_or_else(|error| panic!("{error}"));
        let home = hosts.place().folder().join("home");
        std::fs::create_dir_all(&home).unwrap();
        Self { hosts, home }
    }

    /// The lab itself, for what has no shorter way here.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The inventory that names every host.
    pub fn inventory(&self) -> PathBuf {
        self.hosts.place().inventory()
    }

    /// The hosts' keys.
    pub fn known_hosts(&self) -> PathBuf {
        self.hosts.place().known_hosts()
    }

    /// The controller's home: its configuration, caches, state and `.ssh`.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// A program in the controller's network, with the controller's home and without this
    /// machine's agent.
    pub fn controller(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        self.controller_at(&self.home, program)
    }

    /// The same with another home: another controller, or one that lost its state.
    pub fn controller_at(&self, home: &Path, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.hosts.controller();
        command.arg(program);
        as_controller(&mut command, home);
        command
    }

    /// The tool under test, in the controller's network, with the lab's inventory.
    pub fn windlass(&self, arguments: &[&str]) -> Command {
        let mut command = self.controller(env!("CARGO_BIN_EXE_windlass"));
        command.arg("-i").arg(self.inventory()).args(arguments);
        command
    }

    /// What a script, run as root inside a host, prints; it must succeed.
    pub fn sh(&self, host: &str, script: &str) -> String {
        let output = self.try_sh(host, script);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{host}: {script}: {}\n{stdout}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        stdout
    }

    /// How a script, run as root inside a host, ends.
    pub fn try_sh(&self, host: &str, script: &str) -> Output {
        self.hosts
            .inside(host)
            .unwrap_or_else(|error| panic!("{error}"))
            .args(["/bin/sh", "-c", script])
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs a script inside a host until it succeeds.
    pub fn wait_for(&self, host: &str, script: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let output = self.try_sh(host, script);
            if output.status.success() {
                return String::from_utf8_lossy(&output.stdout).into_owned();
            }
            assert!(
                Instant::now() < end,
                "{host}: {script} did not succeed: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// OpenSSH's client on its way to a host, strict about keys; the remote command is to be added.
    pub fn ssh(&self, user: &str, address: &str) -> Command {
        let mut command = self.controller("ssh");
        command.args([
            "-F",
            "none",
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=60",
        ]);
        command
            .arg("-o")
            .arg(format!(
                "UserKnownHostsFile={}",
                self.known_hosts().display()
            ))
            .arg("-i")
            .arg(self.hosts.place().identity())
            .arg(format!("{user}@{address}"));
        command
    }

    /// Cuts a host's power.
    pub fn kill(&mut self, host: &str) {
        self.hosts.kill(host).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Gives it back, to a host that may be powering itself off as well.
    pub fn start(&mut self, host: &str) {
        let end = Instant::now() + PATIENCE;
        while let Err(error) = self.hosts.start(host) {
            let on = error.to_string().ends_with(" is on");
            assert!(on && Instant::now() < end, "{error}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Reboots a host in good order.
    pub fn reboot(&mut self, host: &str) {
        self.hosts.reboot(host).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Cuts a host's links.
    pub fn cut(&self, host: &str, cut: Cut) {
        self.hosts.cut(host, cut).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Undoes cuts and filters.
    pub fn mend(&self, host: &str) {
        self.hosts.mend(host).unwrap_or_else(|e| panic!("{e}"));
    }

    /// Drops what comes to a TCP port.
    pub fn filter(&self, host: &str, port: u16) {
        self.hosts
            .filter(host, port)
            .unwrap_or_else(|e| panic!("{e}"));
    }

    /// Moves what a host stores onto a disk of this many bytes; its power is cut for it.
    pub fn disk(&mut self, host: &str, bytes: u64) {
        self.hosts
            .disk(host, bytes)
            .unwrap_or_else(|e| panic!("{e}"));
    }

    /// Cables with a one-way delay in microseconds and a rate.
    pub fn delay(&mut self, host: &str, micros: u64, rate: Option<&str>) {
        self.hosts
            .delay(host, micros, rate.map(str::to_owned))
            .unwrap_or_else(|e| panic!("{e}"));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.hosts.down() {
            // A test that fails already is not to be ended by its cleaning.
            eprintln!("the lab was not taken away: {error}");
        }
    }
}

/// Gives a command a controller's home, and takes this machine's agent from it.
pub fn as_controller(command: &mut Command, home: &Path) {
    command
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home.join("config"))
        .env("XDG_DATA_HOME", home.join("data"))
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("XDG_STATE_HOME", home.join("state"))
        .env("XDG_RUNTIME_DIR", home.join("run"))
        .env_remove("SSH_AUTH_SOCK")
        .env_remove("SSH_ASKPASS")
        .current_dir(home)
        .stdin(Stdio::null());
}

/// A small disk for [`Lab::with`].
pub fn small(host: &str, bytes: u64) -> Disk {
    Disk {
        host: host.to_owned(),
        bytes,
    }
}

/// Where the lab of this name lies.
pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("lab")
        .join(name)
}

/// The project and what is built from it.
fn hidden() -> Vec<PathBuf> {
    vec![
        PathBuf::from(env!("CARGO_MANIFEST_DIR")),
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")),
    ]
}

/// A name fit for a lab, made of the test's: its end, and a number for all of it.
pub fn test_name() -> String {
    let thread = std::thread::current();
    let name = thread
        .name()
        .filter(|name| *name != "main")
        .map_or_else(|| format!("process-{}", std::process::id()), str::to_owned);
    let number = name.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let tail: String = name
        .chars()
        .rev()
        .take(20)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let tail: String = tail.chars().rev().collect();
    format!("t{number:08x}-{}", tail.trim_matches('-'))
}
