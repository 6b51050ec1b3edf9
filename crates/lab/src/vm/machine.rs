//! One virtual machine: its disk, what it is told of itself, its power.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::hardware::{self, Hardware};
use super::image::Image;
use super::monitor::{Monitor, SOCKET};
use crate::cgroup;
use crate::command::{Context, LabError, Result, run, until, wrong};
use crate::files;
use crate::lab::Host;
use crate::network;
use crate::place::Place;

/// Memory of a machine, MiB: the least with which something can be given to a GPU. It takes of the real
/// machine what its system touches, a few hundred.
const MEMORY: u32 = 3072;
/// The disk that it starts from, until that is taken out.
const FIRST: &str = "disk.qcow2";
/// How long a machine may take to boot: it has an emulated processor, and others use the real one.
pub const BOOT: Duration = Duration::from_secs(400);

/// How long it is waited for that a machine goes off, whatever it does until then.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Writes what a new machine starts from; its public key is returned as `known_hosts` wants it.
pub fn write(
    place: &Place,
    image: &Image,
    hardware: Hardware,
    host: &Host,
    all: &[Host],
) -> Result<String> {
    let folder = place.host(&host.name);
    fs::create_dir_all(&folder).during(folder.display())?;
    hardware.write(&folder)?;
    run(
        "qemu-img",
        &[
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            "raw",
            "-b",
            &image.disk().to_string_lossy(),
            &folder.join(FIRST).to_string_lossy(),
        ],
    )?;
    identity(place, host, all)
}

/// Makes the archive that the machine unpacks at its first boot.
fn identity(place: &Place, host: &Host, all: &[Host]) -> Result<String> {
    let folder = place.host(&host.name);
    let tree = folder.join("identity");
    let put = |path: &str, text: &str| -> Result<()> {
        let path = tree.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).during(parent.display())?;
        }
        fs::write(&path, text).during(path.display())
    };
    put("etc/hostname", &format!("{}\n", host.name))?;
    let mut names = String::from("127.0.0.1 localhost\n::1 localhost\n");
    for other in all {
        for address in other.addresses() {
            names.push_str(&format!("{address} {}\n", other.name));
        }
    }
    put("etc/hosts", &names)?;
    let addresses: String = [true, false]
        .map(|ipv4| {
            let length = if ipv4 { 24 } else { 64 };
            format!(
                "Address={}/{length}\n",
                network::address(false, ipv4, host.number)
            )
        })
        .concat();
    put(
        "etc/systemd/network/lab.network",
        &format!(
            "[Match]\nName=eth0\n[Network]\nLinkLocalAddressing=ipv6\nIPv6AcceptRA=no\n{addresses}"
        ),
    )?;
    let authorized = fs::read_to_string(place.identity().with_extension("pub"))
        .during("the lab's public key")?;
    put("root/.ssh/authorized_keys", &authorized)?;
    put("etc/ssh/.keep", "")?;
    let key = tree.join("etc/ssh/ssh_host_ed25519_key");
    files::new_key(&key, &host.name)?;
    run("chmod", &["700", &tree.join("root/.ssh").to_string_lossy()])?;
    run(
        "tar",
        &[
            "--create",
            "--file",
            &folder.join("identity.tar").to_string_lossy(),
            "--directory",
            &tree.to_string_lossy(),
            "--owner=0",
            "--group=0",
            "etc/hostname",
            "etc/hosts",
            "etc/systemd/network/lab.network",
            "etc/ssh/ssh_host_ed25519_key",
            "etc/ssh/ssh_host_ed25519_key.pub",
            "root/.ssh",
        ],
    )?;
    files::public_key(&key)
}

/// Plugs a machine's cable into the switch.
pub fn plug(place: &Place, host: &Host) -> Result<()> {
    let (switches, tap) = (place.netns("sw"), tap(host));
    run(
        "ip",
        &[
            "-n", &switches, "tuntap", "add", "dev", &tap, "mode", "tap", "vnet_hdr",
        ],
    )?;
    run(
        "ip",
        &["-n", &switches, "link", "set", &tap, "master", "br1", "up"],
    )
    .map(drop)
}

fn tap(host: &Host) -> String {
    format!("v{}", host.number)
}

/// Switches a machine on; returns at once. With `tied` it ends with the thread that calls this.
pub fn on(place: &Place, host: &Host, tied: bool) -> Result<()> {
    let folder = place.host(&host.name);
    let group = place.serving_cgroup("vm", &host.name)?;
    cgroup::make(&group)?;
    let log = folder.join("qemu.log");
    let output = File::create(&log).during(log.display())?;
    let errors = output.try_clone().during(log.display())?;
    // Where stock kernels boot with it, KVM is ten times as fast; that it is there says nothing.
    let kvm = std::env::var_os("WINDLASS_VM_ACCEL").is_some_and(|value| value == "kvm");
    let (accelerator, processor) = match kvm {
        true => ("kvm", "host"),
        false => ("tcg,tb-size=256", "max"),
    };
    let mut command = Command::new("/bin/sh");
    command
        .arg("-c")
        .arg("echo 0 >\"$0/cgroup.procs\" && exec \"$@\"")
        .arg(&group)
        .args([
            "setpriv",
            "--pdeathsig",
            if tied { "KILL" } else { "clear" },
        ])
        .arg("nsenter")
        .arg(format!("--net={}", place.netns_path("sw").display()))
        .args(["qemu-system-x86_64", "-name", &host.name])
        .args(["-machine", "q35,usb=off,vmport=off"])
        .args(["-accel", accelerator, "-cpu", processor, "-smp", "1"])
        .args(["-m", &MEMORY.to_string()])
        .args(["-nodefaults", "-no-user-config", "-display", "none"])
        .args(["-serial", "file:console.log"])
        .args(["-qmp", &format!("unix:{SOCKET},server=on,wait=off")])
        .args(["-device", "virtio-rng-pci"])
        .args(["-fw_cfg", "name=opt/windlass/identity,file=identity.tar"])
        .args(hardware::arguments(&folder, FIRST))
        .args([
            "-netdev",
            &format!(
                "tap,id=net,ifname={},script=no,downscript=no,vhost=off",
                tap(host)
            ),
        ])
        .args([
            "-device",
            &format!(
                "virtio-net-pci,netdev=net,romfile=,mac={}",
                network::hardware(false, host.number)
            ),
        ])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        // An interrupt at the terminal is not for the machines.
        .process_group(0);
    let mut child = command.spawn().during("/bin/sh")?;
    // Where this process stays, it may not leave a zombie behind.
    std::thread::spawn(move || child.wait());
    Ok(())
}

/// Takes the disk out that a machine started from; it has a second one then. It must be off.
pub fn take_out(place: &Place, host: &Host) -> Result<()> {
    must_be_off(place, host)?;
    let folder = place.host(&host.name);
    let first = folder.join(FIRST);
    fs::rename(&first, first.with_extension("out")).during(first.display())
}

/// Waits until a machine goes off by itself.
pub fn goes_off(place: &Place, host: &Host) -> Result<()> {
    let gone = until(PATIENCE, || {
        std::thread::sleep(Duration::from_millis(200));
        (!is_on(place, host)).then_some(())
    });
    match gone {
        Some(()) => Ok(()),
        None => wrong(format!(
            "{} does not go off in {} s",
            host.name,
            PATIENCE.as_secs()
        )),
    }
}

/// Cuts a machine's power.
pub fn off(place: &Place, host: &Host) -> Result<()> {
    let group = place.serving_cgroup("vm", &host.name)?;
    cgroup::kill(&group)?;
    cgroup::remove(&group)
}

/// Whether a machine has power.
pub fn is_on(place: &Place, host: &Host) -> bool {
    place
        .serving_cgroup("vm", &host.name)
        .is_ok_and(|group| cgroup::populated(&group))
}

/// The monitor of a machine that is on.
pub fn monitor(place: &Place, host: &Host) -> Result<Monitor> {
    let folder = place.host(&host.name);
    let open = until(Duration::from_secs(20), || Monitor::open(&folder).ok());
    open.map_or_else(|| Monitor::open(&folder), Ok)
}

/// Waits until a machine, in another boot than `before`, lets root in; gives the boot's id.
pub fn ready(
    place: &Place,
    host: &Host,
    before: Option<&str>,
    log_in: impl Fn() -> Command,
) -> Result<String> {
    let group = place.serving_cgroup("vm", &host.name)?;
    until(Duration::from_secs(10), || {
        cgroup::populated(&group).then_some(())
    });
    let boot = until(BOOT, || {
        if !cgroup::populated(&group) {
            return Some(Err("went off again"));
        }
        let output = log_in()
            .arg("cat /proc/sys/kernel/random/boot_id")
            .stdin(Stdio::null())
            .output()
            .ok();
        let boot = output
            .filter(|output| output.status.success())
            .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
            .filter(|boot| Some(boot.as_str()) != before);
        if boot.is_none() {
            std::thread::sleep(Duration::from_millis(500));
        }
        boot.map(Ok)
    });
    let why = match boot {
        Some(Ok(boot)) => return Ok(boot),
        Some(Err(why)) => why.to_owned(),
        None => format!("does not let root in after {} s", BOOT.as_secs()),
    };
    let folder = place.host(&host.name);
    Err(LabError(format!(
        "{} was switched on and {why}; QEMU says\n{}\nits console ends with\n{}",
        host.name,
        tail(&folder.join("qemu.log")),
        tail(&folder.join("console.log")),
    )))
}

/// The end of a log.
fn tail(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines
        .get(lines.len().saturating_sub(20)..)
        .unwrap_or(&[])
        .join("\n")
}

/// Refuses a machine that has power already.
pub fn must_be_off(place: &Place, host: &Host) -> Result<()> {
    match is_on(place, host) {
        true => wrong(format!("{} is on", host.name)),
        false => Ok(()),
    }
}
