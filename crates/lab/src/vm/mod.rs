//! Virtual machines as hosts: each with its own kernel, GRUB and disk, for what namespaces cannot show
//! (kernel parameters that a kernel took, modules, real reboots, the clock). Slow: QEMU emulates the
//! processor. They are reached and named as the hosts in namespaces are, and live in one folder likewise.

mod hardware;
mod image;
mod machine;
mod monitor;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

pub use hardware::{Firmware, Hardware};
pub use image::Image;

use crate::cgroup;
use crate::command::{Context, Result, wrong};
use crate::files;
use crate::inventory;
use crate::kind::Kind;
use crate::lab::{self, Host};
use crate::network;
use crate::place::Place;

/// Debian packages that virtual machines need beside those of hosts in namespaces, and the program by
/// which each is known to be there.
pub const PACKAGES: &[(&str, &str)] = &[
    ("mmdebstrap", "/usr/bin/mmdebstrap"),
    (
        "debian-archive-keyring",
        "/usr/share/keyrings/debian-archive-keyring.gpg",
    ),
    ("qemu-system-x86", "/usr/bin/qemu-system-x86_64"),
    ("qemu-utils", "/usr/bin/qemu-img"),
    ("seabios", "/usr/share/seabios/bios-256k.bin"),
    ("ovmf", "/usr/share/OVMF/OVMF_CODE_4M.fd"),
    ("fdisk", "/usr/sbin/sfdisk"),
    ("dosfstools", "/usr/sbin/mkfs.fat"),
    ("mtools", "/usr/bin/mcopy"),
    ("kmod", "/usr/sbin/modprobe"),
];

/// Why no virtual machines can be made here; `None` when they can.
pub fn refusal() -> Option<String> {
    if let Some(reason) = crate::refusal() {
        return Some(reason);
    }
    if cfg!(not(target_arch = "x86_64")) {
        return Some("virtual machines are made on x86-64 only".into());
    }
    let missing = crate::missing_of(PACKAGES);
    (!missing.is_empty()).then(|| {
        format!(
            "virtual machines need these Debian packages: {}; `cargo xtask vm packages` installs them",
            missing.join(" ")
        )
    })
}

/// Running virtual machines. Dropping it leaves them running.
pub struct Vms {
    place: Place,
    hosts: Vec<Host>,
    tied: bool,
}

impl Vms {
    /// Makes machines of these names and this hardware in this folder and waits until all let root in. Those that are
    /// there already are taken away first. With `tied` they end with the thread that calls this.
    ///
    /// # Errors
    /// When the image was not made, the real machine lacks something, or one does not come up; what was
    /// made by then is taken away.
    pub fn up(
        folder: &Path,
        image: &Image,
        machines: &[(&str, Hardware)],
        tied: bool,
    ) -> Result<Self> {
        if let Some(reason) = refusal() {
            return wrong(reason);
        }
        if !image.is_there() {
            return wrong(format!(
                "{} is not there; `cargo xtask vm image` makes it",
                image.disk().display()
            ));
        }
        let wanted: Vec<(String, Kind)> = machines
            .iter()
            .map(|(name, _)| ((*name).to_owned(), Kind::Root))
            .collect();
        let vms = Self {
            place: Place::at(folder)?,
            hosts: Host::number(&wanted)?,
            tied,
        };
        lab::down(&vms.place)?;
        match vms.build(image, machines) {
            Ok(()) => Ok(vms),
            Err(error) => {
                // What the machine's console said last is part of the error already.
                let _ = vms.down();
                Err(error)
            }
        }
    }

    fn build(&self, image: &Image, machines: &[(&str, Hardware)]) -> Result<()> {
        let (place, hosts) = (&self.place, &self.hosts);
        fs::create_dir_all(place.folder()).during(place.folder().display())?;
        let names: String = hosts
            .iter()
            .map(|host| format!("{}\n", host.name))
            .collect();
        let file = place.folder().join("vms.txt");
        fs::write(&file, names).during(file.display())?;
        files::new_key(&place.identity(), place.name())?;
        cgroup::make(&place.cgroup()?)?;
        network::up(place)?;
        let keys = hosts
            .iter()
            .zip(machines)
            .map(|(host, (_, hardware))| machine::write(place, image, *hardware, host, hosts))
            .collect::<Result<Vec<_>>>()?;
        let file = place.known_hosts();
        fs::write(&file, inventory::known_hosts(hosts, &keys)).during(file.display())?;
        let file = place.inventory();
        fs::write(&file, inventory::inventory(place, hosts)).during(file.display())?;
        for host in hosts {
            machine::plug(place, host)?;
            machine::on(place, host, self.tied)?;
        }
        for host in hosts {
            machine::ready(place, host, None, || self.log_in(host))?;
        }
        Ok(())
    }

    /// Finds machines again.
    ///
    /// # Errors
    /// When there are none in this folder.
    pub fn open(folder: &Path) -> Result<Self> {
        let place = Place::at(folder)?;
        let Ok(text) = fs::read_to_string(place.folder().join("vms.txt")) else {
            return wrong(format!(
                "there are no virtual machines in {}; `vm up` makes some",
                place.folder().display()
            ));
        };
        let wanted: Vec<(String, Kind)> = text
            .lines()
            .map(|name| (name.to_owned(), Kind::Root))
            .collect();
        Ok(Self {
            hosts: Host::number(&wanted)?,
            place,
            tied: false,
        })
    }

    /// Where they keep things.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The machines as hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    fn host(&self, name: &str) -> Result<&Host> {
        lab::named(&self.hosts, name)
    }

    /// A command with the real machine's files in the controller's network; the program and its arguments are
    /// to be added.
    pub fn controller(&self) -> Command {
        lab::controller(&self.place)
    }

    /// A login as root, by SSH; the remote command is to be added.
    ///
    /// # Errors
    /// When there is no such machine.
    pub fn ssh(&self, name: &str) -> Result<Command> {
        Ok(self.log_in(self.host(name)?))
    }

    fn log_in(&self, host: &Host) -> Command {
        let mut command = self.controller();
        command
            .args([
                "ssh",
                "-F",
                "none",
                "-q",
                "-o",
                "BatchMode=yes",
                "-o",
                "ConnectTimeout=10",
            ])
            .args([
                "-o",
                "ServerAliveInterval=15",
                "-o",
                "ServerAliveCountMax=4",
            ])
            .arg("-o")
            .arg(format!(
                "UserKnownHostsFile={}",
                self.place.known_hosts().display()
            ))
            .arg("-i")
            .arg(self.place.identity())
            .arg(format!("root@{}", host.address()))
            .env_remove("SSH_AUTH_SOCK");
        command
    }

    /// Whether a machine has power.
    pub fn is_on(&self, name: &str) -> bool {
        self.host(name)
            .is_ok_and(|host| machine::is_on(&self.place, host))
    }

    /// Waits until a machine, in another boot than `before`, lets root in; gives the boot's id.
    ///
    /// # Errors
    /// When it does not, with the end of its console.
    pub fn ready(&self, name: &str, before: Option<&str>) -> Result<String> {
        let host = self.host(name)?;
        machine::ready(&self.place, host, before, || self.log_in(host))
    }

    /// Cuts a machine's power.
    ///
    /// # Errors
    /// When there is no such machine or it cannot be ended.
    pub fn kill(&self, name: &str) -> Result<()> {
        machine::off(&self.place, self.host(name)?)
    }

    /// Gives it back, with the disk it had, and waits until it lets root in.
    ///
    /// # Errors
    /// When there is no such machine, it is on, or it does not come up.
    pub fn start(&self, name: &str) -> Result<()> {
        let host = self.host(name)?;
        machine::must_be_off(&self.place, host)?;
        machine::on(&self.place, host, self.tied)?;
        self.ready(name, None).map(drop)
    }

    /// Reboots machines in good order, all at once, and waits until they let root in again.
    ///
    /// # Errors
    /// When there is no such machine or one does not come back.
    pub fn reboot(&self, names: &[&str]) -> Result<()> {
        let mut before = Vec::new();
        for name in names {
            before.push(self.ready(name, None)?);
            // It may end before the tool that asked for it does.
            let _ = self.ssh(name)?.arg("systemctl --no-block reboot").output();
        }
        thread::scope(|scope| {
            let waiting: Vec<_> = names
                .iter()
                .zip(&before)
                .map(|(name, before)| scope.spawn(move || self.ready(name, Some(before))))
                .collect();
            waiting.into_iter().try_for_each(|one| {
                one.join()
                    .unwrap_or_else(|_| wrong("a thread of the lab ended in a panic"))
                    .map(drop)
            })
        })
    }

    /// From now on a machine that reboots goes down in good order and then stands still, as one does that
    /// hangs in its firmware, until its power is cut and given back.
    ///
    /// # Errors
    /// When there is no such machine or it is off.
    pub fn hang_at_reboot(&self, name: &str) -> Result<()> {
        machine::monitor(&self.place, self.host(name)?)?
            .ask("{\"execute\": \"set-action\", \"arguments\": {\"reboot\": \"shutdown\", \"shutdown\": \"pause\"}}")
            .map(drop)
    }

    /// From now on a machine that reboots stands still with its power off, so that something can be done
    /// to it before it starts again.
    ///
    /// # Errors
    /// When there is no such machine or it is off.
    pub fn stop_at_reboot(&self, name: &str) -> Result<()> {
        machine::monitor(&self.place, self.host(name)?)?
            .ask("{\"execute\": \"set-action\", \"arguments\": {\"reboot\": \"shutdown\", \"shutdown\": \"poweroff\"}}")
            .map(drop)
    }

    /// Waits until a machine goes off by itself, takes the disk out that it started from, and gives it its
    /// power back: it starts from its second disk. Whether it comes up is not waited for.
    ///
    /// # Errors
    /// When there is no such machine or it does not go off.
    pub fn start_from_second(&self, name: &str) -> Result<()> {
        let host = self.host(name)?;
        machine::goes_off(&self.place, host)?;
        machine::take_out(&self.place, host)?;
        machine::on(&self.place, host, self.tied)
    }

    /// Takes the machines away with all that was made for them; the image stays.
    ///
    /// # Errors
    /// When something cannot be removed; the error names it.
    pub fn down(&self) -> Result<()> {
        lab::down(&self.place)
    }

    /// Takes machines away that may be in any state, or not there at all.
    ///
    /// # Errors
    /// When something cannot be removed; the error names it.
    pub fn clear(folder: &Path) -> Result<()> {
        lab::down(&Place::at(folder)?)
    }
}
