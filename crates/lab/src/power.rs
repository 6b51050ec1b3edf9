//! Power: on, off without warning, reboot; and the way into a running host.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::cgroup;
use crate::command::{Context, LabError, Result, until, wrong};
use crate::lab::Host;
use crate::network;
use crate::place::Place;

/// The longest a host may take to boot or to reboot.
const BOOT: Duration = Duration::from_secs(60);

/// What root of a host may not do, because it would be done to the machine: set the clock, load
/// modules, reach raw devices, clear the kernel's log.
const WITHOUT: &str = "--bounding-set=-sys_time,-sys_module,-sys_rawio,-syslog";

/// Search path in a host.
const SEARCH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Switches a host on; returns at once.
pub fn on(place: &Place, host: &Host) -> Result<()> {
    let folder = place.host(&host.name);
    let group = place.host_cgroup(&host.name)?;
    let supply = place.serving_cgroup("power", &host.name)?;
    cgroup::make(&group)?;
    cgroup::make(&supply)?;
    let console = folder.join("console.log");
    let console = File::create(&console).during(console.display())?;
    let errors = console.try_clone().during("the console")?;
    let first = if host.kind.traits().systemd {
        "systemd"
    } else {
        "sshd"
    };
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg("echo 0 >\"$0/cgroup.procs\" && exec /bin/sh \"$@\"")
        .arg(&supply)
        .arg(folder.join("power.sh"))
        .arg(&folder)
        .arg(place.netns_path(&host.name))
        .arg(&group)
        .arg(first)
        .arg(WITHOUT)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(errors)
        // An interrupt at the terminal is not for the hosts.
        .process_group(0)
        .spawn()
        .during(format_args!("{}: /bin/sh", host.name))?;
    // Where this process stays, it may not leave a zombie behind.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Cuts a host's power: every process of it is gone when this returns, without a word to anybody.
pub fn off(place: &Place, host: &Host) -> Result<()> {
    for group in [
        place.serving_cgroup("power", &host.name)?,
        place.host_cgroup(&host.name)?,
    ] {
        cgroup::kill(&group)?;
        cgroup::remove(&group)?;
    }
    let _ = fs::remove_file(place.host(&host.name).join("pid"));
    Ok(())
}

/// The host's first process, seen from outside; `None` when the host is off.
pub fn first_process(place: &Place, host: &Host) -> Option<u32> {
    let text = fs::read_to_string(place.host(&host.name).join("pid")).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    // The number may be of another process by now.
    let group = format!("/{}/host-{}", place.id(), host.name);
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    groups
        .lines()
        .any(|line| {
            line.strip_prefix("0::")
                .and_then(|path| {
                    path.find(&group)
                        .and_then(|at| path.get(at + group.len()..))
                })
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
        .then_some(pid)
}

/// Which boot of the host this is.
pub fn boot_id(place: &Place, host: &Host) -> Option<String> {
    let text = fs::read_to_string(place.host(&host.name).join("boot_id")).ok()?;
    Some(text.trim().to_owned())
}

/// Waits until the host, in another boot than `before`, lets users in.
pub fn ready(place: &Place, host: &Host, before: Option<&str>) -> Result<()> {
    let address = host.address();
    let netns = place.netns_path(&host.name);
    let supply = place.serving_cgroup("power", &host.name)?;
    // It joins its group right after it is started.
    until(BOOT, || cgroup::populated(&supply).then_some(()));
    let up = network::inside(&netns, || {
        until(BOOT, || {
            if !cgroup::populated(&supply) {
                return Some(false);
            }
            let boot = boot_id(place, host)?;
            let pid = first_process(place, host)?;
            let booting = Path::new("/proc")
                .join(pid.to_string())
                .join("root/run/nologin");
            (Some(boot.as_str()) != before && network::sshd_answers(&address) && !booting.exists())
                .then_some(true)
        })
    })?;
    if up == Some(true) {
        return Ok(());
    }
    let log = fs::read_to_string(place.host(&host.name).join("console.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines
        .get(lines.len().saturating_sub(20)..)
        .unwrap_or(&[])
        .join("\n");
    wrong(format!(
        "{} was switched on and {}; its console ends with\n{tail}",
        host.name,
        if up.is_some() {
            "went off again".to_owned()
        } else {
            format!("does not let users in after {} s", BOOT.as_secs())
        }
    ))
}

/// A command inside a running host, as root; the program and its arguments are to be added.
pub fn command(place: &Place, host: &Host) -> Result<Command> {
    let pid = first_process(place, host)
        .ok_or_else(|| LabError(format!("{} is off; `lab start` switches it on", host.name)))?;
    let mut command = Command::new("nsenter");
    command.args([
        "--target",
        &pid.to_string(),
        "--mount",
        "--uts",
        "--ipc",
        "--net",
        "--pid",
        "--cgroup",
        "--",
        // As for the host's own processes: entered from outside, root would be the machine's, whose
        // clock has no namespace.
        "setpriv",
        WITHOUT,
        "/usr/bin/env",
        "-i",
        "HOME=/root",
        "USER=root",
        "LOGNAME=root",
        "SHELL=/bin/sh",
        SEARCH,
    ]);
    if let Some(term) = std::env::var_os("TERM") {
        let mut setting = std::ffi::OsString::from("TERM=");
        setting.push(term);
        command.arg(setting);
    }
    Ok(command)
}

/// Reboots a host in good order and waits until it is back.
pub fn reboot(place: &Place, host: &Host) -> Result<()> {
    let before = boot_id(place, host);
    if host.kind.traits().systemd {
        // It may end before the tool that asked for it does.
        let _ = command(place, host)?
            .args(["systemctl", "--no-block", "reboot"])
            .stdin(Stdio::null())
            .output();
    } else {
        let _ = command(place, host)?
            .args(["/bin/sh", "-c", "kill -TERM -1"])
            .stdin(Stdio::null())
            .output();
        off(place, host)?;
        on(place, host)?;
    }
    ready(place, host, before.as_deref())
}

/// Puts the folders in which a worker keeps things onto a disk of this many bytes, with what they
/// hold. The host must be off.
pub fn small_disk(place: &Place, host: &Host, bytes: u64) -> Result<()> {
    let folder = place.host(&host.name);
    let stage = folder.join("stage");
    let image = folder.join("disk.img");
    let _ = fs::remove_dir_all(&stage);
    let _ = fs::remove_file(&image);
    for (from, to) in [
        ("upper/var/lib/windlass", "windlass"),
        ("upper/home", "home"),
    ] {
        let to = stage.join(to);
        fs::create_dir_all(&to).during(to.display())?;
        let from: PathBuf = folder.join(from);
        if from.is_dir() {
            crate::command::run(
                "cp",
                &[
                    "-a",
                    "--no-preserve=xattr",
                    &format!("{}/.", from.display()),
                    &to.to_string_lossy(),
                ],
            )?;
        }
    }
    let made = crate::command::run(
        "mke2fs",
        &[
            "-q",
            "-t",
            "ext4",
            "-m",
            "0",
            "-O",
            "^has_journal",
            "-d",
            &stage.to_string_lossy(),
            &image.to_string_lossy(),
            &format!("{}k", bytes / 1024),
        ],
    );
    let _ = fs::remove_dir_all(&stage);
    made.map(drop)
}
