//! Virtual machines for one test: named after it, taken away when it ends, ended with it when it is killed.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use windlass_lab::{Hardware, Image, Vms as Machines};

use crate::fleet::controller::{Ran, run_by};
use crate::lab::{as_controller, test_name};

/// Machines and the person who controls them.
pub struct Vms {
    machines: Machines,
    home: PathBuf,
    began: Instant,
}

impl Vms {
    /// Machines of these names, booted.
    pub fn up(names: &[&str]) -> Self {
        Self::of(names, Hardware::default())
    }

    /// The same, of some hardware.
    pub fn of(names: &[&str], hardware: Hardware) -> Self {
        let wanted: Vec<_> = names.iter().map(|name| (*name, hardware)).collect();
        Self::with(&wanted)
    }

    /// The same, each of its own hardware.
    pub fn with(wanted: &[(&str, Hardware)]) -> Self {
        let began = Instant::now();
        let names: Vec<&str> = wanted.iter().map(|(name, _)| *name).collect();
        say(began, &format!("booting {}", names.join(" and ")));
        let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let image = Image::at(&tmp.with_file_name("vm"));
        let folder = tmp.join("vm").join(test_name());
        let machines =
            Machines::up(&folder, &image, wanted, true).unwrap_or_else(|error| panic!("{error}"));
        let home = machines.place().folder().join("home");
        // An emulated machine may take half a minute for a login when several work at once.
        std::fs::create_dir_all(home.join(".ssh")).unwrap();
        std::fs::write(home.join(".ssh/config"), "Host *\n  ConnectTimeout 90\n").unwrap();
        let vms = Self {
            machines,
            home,
            began,
        };
        vms.say("booted");
        vms
    }

    /// Says what the test is at: it takes minutes.
    pub fn say(&self, what: &str) {
        say(self.began, what);
    }

    /// The machines themselves.
    pub fn machines(&self) -> &Machines {
        &self.machines
    }

    /// The controller's home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Runs the tool under test in the controller's network, with the machines' inventory and `--json`.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.say(&format!("windlass {}", arguments.join(" ")));
        let mut command = self.machines.controller();
        command.arg(env!("CARGO_BIN_EXE_windlass"));
        as_controller(&mut command, &self.home);
        command
            .arg("-i")
            .arg(self.machines.place().inventory())
            .arg("--json")
            .args(arguments);
        let ran = run_by(command);
        self.say(&format!("it ended with {}", ran.code));
        ran
    }

    /// What a script, run by root's login shell on a machine, prints; it must succeed.
    pub fn sh(&self, host: &str, script: &str) -> String {
        let mut login: Command = self.machines.ssh(host).unwrap_or_else(|e| panic!("{e}"));
        let output = login.arg(script).stdin(Stdio::null()).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{host}: {script}: {}\n{stdout}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        stdout
    }

    /// From now on logins of the tests know a machine by this key, and by no other.
    pub fn knows(&self, host: &str, key: &str) {
        let place = self.machines.place();
        let file = place.known_hosts();
        let hosts = self.machines.hosts();
        let one = hosts.iter().find(|one| one.name == host).unwrap();
        let own = one.addresses();
        let text = std::fs::read_to_string(&file).unwrap();
        let others = text.lines().filter(|line| {
            let address = line.split(' ').next().unwrap_or_default();
            !own.iter().any(|one| one == address)
        });
        let others: String = others.map(|line| format!("{line}\n")).collect();
        let its: String = own.iter().map(|one| format!("{one} {key}\n")).collect();
        std::fs::write(&file, others + &its).unwrap();
    }

    /// Sets a machine's clock to this one's, to some tenths of a second: it is told the time once it is
    /// logged in and waits for it, since an emulated machine takes a second or more for a login.
    pub fn set_clock(&self, host: &str) {
        let mut login: Command = self.machines.ssh(host).unwrap_or_else(|e| panic!("{e}"));
        let mut child = login
            .arg("echo; read now; date -s @$now >/dev/null")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        from.read_exact(&mut [0]).unwrap();
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        // Starting `date` takes a moment too.
        writeln!(to, "{:.3}", now.as_secs_f64() + 0.05).unwrap();
        drop(to);
        assert!(child.wait().unwrap().success());
    }

    /// Which boot a machine is in.
    pub fn boot(&self, host: &str) -> String {
        self.sh(host, "cat /proc/sys/kernel/random/boot_id")
    }
}

/// Tells it to whoever runs the tests: at once where that is asked for, else with the test's own output.
fn say(began: Instant, what: &str) {
    let thread = std::thread::current();
    let test = thread
        .name()
        .unwrap_or("deep")
        .split("::")
        .nth(1)
        .unwrap_or("");
    let line = format!("{:5} s  {test:6}  {what}\n", began.elapsed().as_secs());
    let told = std::env::var_os("WINDLASS_DEEP_SAYS").is_some_and(|path| {
        let file = OpenOptions::new().append(true).open(path);
        file.is_ok_and(|mut file| file.write_all(line.as_bytes()).is_ok())
    });
    if !told {
        eprint!("{line}");
    }
}

impl Drop for Vms {
    fn drop(&mut self) {
        self.say("taking all away");
        if let Err(error) = self.machines.down() {
            // A test that fails already is not to be ended by its cleaning.
            eprintln!("the machines were not taken away: {error}");
        }
    }
}
