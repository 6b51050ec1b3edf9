//! A lab as a whole: made, found again, changed, taken away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use crate::cgroup;
use crate::command::{Context, LabError, Result, wrong};
use crate::files;
use crate::inventory;
use crate::kind::{Kind, Network};
use crate::network::{self, Cable, Cut};
use crate::place::{Place, is_name};
use crate::power;
use crate::wire::Keeper;

/// The most hosts of a lab: their numbers are the last part of their addresses.
const MOST: usize = 200;

/// One host.
#[derive(Clone, Debug)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Last part of its addresses.
    pub number: u8,
    /// Whether it is on the second network.
    pub second: bool,
}

impl Host {
    /// Gives each host its number and its networks.
    pub(crate) fn number(wanted: &[(String, Kind)]) -> Result<Vec<Host>> {
        if wanted.is_empty() || wanted.len() > MOST {
            return wrong(format!("a lab has 1 to {MOST} hosts"));
        }
        let second = wanted
            .iter()
            .any(|(_, kind)| kind.traits().network == Network::Second);
        let mut hosts: Vec<Host> = Vec::new();
        for (number, (name, kind)) in (11..).zip(wanted) {
            if !is_name(name) || ["sw", "ctl"].contains(&name.as_str()) {
                return wrong(format!(
                    "{name} cannot be a host's name: letters, digits and dashes, and neither sw nor ctl"
                ));
            }
            if hosts.iter().any(|host| host.name == *name) {
                return wrong(format!("two hosts are named {name}"));
            }
            hosts.push(Host {
                name: name.clone(),
                kind: *kind,
                number,
                second,
            });
        }
        if second && inventory::jump(&hosts).is_none() {
            return wrong(
                "a host behind a jump host needs one to jump over: add one of kind root".to_owned(),
            );
        }
        Ok(hosts)
    }

    /// Where sshd is reached: from the controller, or for hosts it cannot reach from the others.
    pub fn address(&self) -> String {
        let traits = self.kind.traits();
        network::address(traits.network == Network::Second, traits.ipv4, self.number)
    }

    /// Every address of the host.
    pub fn addresses(&self) -> Vec<String> {
        let traits = self.kind.traits();
        let mut networks = Vec::new();
        if traits.network == Network::Controllers {
            networks.push(false);
        }
        if self.second {
            networks.push(true);
        }
        let families: &[bool] = if traits.ipv4 {
            &[true, false]
        } else {
            &[false]
        };
        networks
            .into_iter()
            .flat_map(|second| {
                families
                    .iter()
                    .map(move |ipv4| network::address(second, *ipv4, self.number))
            })
            .collect()
    }
}

/// A small disk under a host's `/var/lib/windlass` and `/home`.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The host.
    pub host: String,
    /// Size of the file system, bytes.
    pub bytes: u64,
}

/// What a lab shall be.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Names and kinds of the hosts.
    pub hosts: Vec<(String, Kind)>,
    /// Hosts on small disks.
    pub disks: Vec<Disk>,
    /// Hosts with a delay on their cables, microseconds one way.
    pub delays: Vec<(String, u64)>,
    /// Rate of every cable, as `tc` writes it.
    pub rate: Option<String>,
    /// Folders of the machine that no host may see, beside what is hidden anyway.
    pub hidden: Vec<PathBuf>,
}

/// A running lab. Dropping it leaves it running.
pub struct Lab {
    place: Place,
    hosts: Vec<Host>,
    keeper: Keeper,
}

impl Lab {
    /// Makes a lab in this folder. One that is there already is taken away first.
    ///
    /// # Errors
    /// When the machine lacks something, a name is wrong, or a host does not come up; what was made
    /// by then is taken away.
    pub fn up(folder: &Path, wanted: &Wanted, keeper: Keeper) -> Result<Self> {
        if let Some(reason) = crate::refusal() {
            return wrong(reason);
        }
        let place = Place::at(folder)?;
        let hosts = Host::number(&wanted.hosts)?;
        let mut lab = Self {
            place,
            hosts,
            keeper,
        };
        down(&lab.place)?;
        match lab.build(wanted) {
            Ok(()) => Ok(lab),
            Err(error) => {
                // The console of a host that failed is part of the error already.
                let _ = lab.down();
                Err(error)
            }
        }
    }

    fn build(&mut self, wanted: &Wanted) -> Result<()> {
        let place = self.place.clone();
        for name in wanted
            .disks
            .iter()
            .map(|disk| &disk.host)
            .chain(wanted.delays.iter().map(|(name, _)| name))
        {
            self.host(name)?;
        }
        fs::create_dir_all(place.folder()).during(place.folder().display())?;
        // What a later `down` needs stands before anything is made.
        let state: String = self
            .hosts
            .iter()
            .map(|host| format!("{} {}\n", host.name, host.kind.traits().name))
            .collect();
        let file = place.folder().join("hosts.txt");
        fs::write(&file, state).during(file.display())?;
        let password = place.password();
        fs::write(&password, format!("{}\n", files::PASSWORD)).during(password.display())?;
        private(&password)?;
        files::new_key(&place.identity(), place.name())?;
        cgroup::make(&place.cgroup()?)?;
        network::up(&place)?;

        let mut hidden = wanted.hidden.clone();
        hidden.push(place.folder().to_owned());
        let hosts = &self.hosts;
        let keys: Vec<Result<String>> = thread::scope(|scope| {
            let threads: Vec<_> = hosts
                .iter()
                .map(|host| {
                    let (place, hidden) = (&place, &hidden);
                    scope.spawn(move || files::write(place, host, hosts, hidden))
                })
                .collect();
            threads.into_iter().map(joined).collect()
        });
        let keys = keys.into_iter().collect::<Result<Vec<_>>>()?;
        let known_hosts = place.known_hosts();
        fs::write(&known_hosts, inventory::known_hosts(hosts, &keys))
            .during(known_hosts.display())?;
        let file = place.inventory();
        fs::write(&file, inventory::inventory(&place, hosts)).during(file.display())?;

        for disk in &wanted.disks {
            power::small_disk(&place, self.host(&disk.host)?, disk.bytes)?;
        }
        for host in self.hosts.clone() {
            let delay = wanted.delays.iter().find(|(name, _)| *name == host.name);
            let cable = Cable {
                delay: delay.map_or(0, |(_, micros)| *micros),
                rate: wanted.rate.clone(),
            };
            self.write_cable(&host, &cable)?;
            self.plug(&host)?;
            power::on(&place, &host)?;
        }
        for host in &self.hosts {
            power::ready(&place, host, None)?;
        }
        Ok(())
    }

    /// Finds a lab again.
    ///
    /// # Errors
    /// When there is none in this folder.
    pub fn open(folder: &Path, keeper: Keeper) -> Result<Self> {
        let place = Place::at(folder)?;
        let file = place.folder().join("hosts.txt");
        let Ok(text) = fs::read_to_string(&file) else {
            return wrong(format!(
                "there is no lab in {}; `lab up` makes one",
                place.folder().display()
            ));
        };
        let mut wanted = Vec::new();
        for line in text.lines() {
            let Some((name, kind)) = line.split_once(' ') else {
                return wrong(format!("{}: {line}", file.display()));
            };
            wanted.push((name.to_owned(), Kind::parse(kind)?));
        }
        let hosts = Host::number(&wanted)?;
        Ok(Self {
            place,
            hosts,
            keeper,
        })
    }

    /// Where the lab keeps things.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Its hosts.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host of this name.
    ///
    /// # Errors
    /// When there is none; the error lists them.
    pub fn host(&self, name: &str) -> Result<&Host> {
        named(&self.hosts, name)
    }

    /// A command with the machine's own files in the controller's network; the program and its
    /// arguments are to be added.
    pub fn controller(&self) -> Command {
        controller(&self.place)
    }

    /// A command inside a host, as root; the program and its arguments are to be added.
    ///
    /// # Errors
    /// When there is no such host or it is off.
    pub fn inside(&self, host: &str) -> Result<Command> {
        power::command(&self.place, self.host(host)?)
    }

    /// Whether a host has power.
    pub fn is_on(&self, host: &str) -> bool {
        self.host(host)
            .is_ok_and(|host| power::first_process(&self.place, host).is_some())
    }

    /// Which boot of a host this is.
    pub fn boot_id(&self, host: &str) -> Option<String> {
        power::boot_id(&self.place, self.host(host).ok()?)
    }

    /// Cuts a host's power. Its peers hear nothing.
    ///
    /// # Errors
    /// When there is no such host or it cannot be ended.
    pub fn kill(&mut self, host: &str) -> Result<()> {
        let host = self.host(host)?.clone();
        if self.place.netns_path(&host.name).exists() {
            // First the cable: dying processes must not say goodbye.
            network::carrier(&self.place, &host, false)?;
        }
        power::off(&self.place, &host)?;
        self.keeper.cut(&self.place, &host.name)?;
        network::remove(&self.place, &host.name)
    }

    /// Gives a host its power back, with the disk it had, and waits until it lets users in.
    ///
    /// # Errors
    /// When there is no such host, it is on, or it does not come up.
    pub fn start(&mut self, host: &str) -> Result<()> {
        let host = self.host(host)?.clone();
        if power::first_process(&self.place, &host).is_some() {
            return wrong(format!("{} is on", host.name));
        }
        // What is left of a host that powered itself off.
        self.kill(&host.name)?;
        let before = power::boot_id(&self.place, &host);
        self.plug(&host)?;
        power::on(&self.place, &host)?;
        power::ready(&self.place, &host, before.as_deref())
    }

    /// Reboots a host in good order and waits until it lets users in again.
    ///
    /// # Errors
    /// When there is no such host, it is off, or it does not come back.
    pub fn reboot(&mut self, host: &str) -> Result<()> {
        power::reboot(&self.place, self.host(host)?)
    }

    /// Cuts a host off from all networks.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn cut(&self, host: &str, cut: Cut) -> Result<()> {
        let host = self.host(host)?;
        match cut {
            Cut::Pulled => network::carrier(&self.place, host, false),
            Cut::Silent => network::silence(&self.place, host, true),
        }
    }

    /// Undoes every cut and filter of a host.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn mend(&self, host: &str) -> Result<()> {
        let host = self.host(host)?;
        network::silence(&self.place, host, false)?;
        network::filter(&self.place, host, None)?;
        network::carrier(&self.place, host, true)
    }

    /// Drops what comes to a TCP port of a host, as its firewall would, until [`Lab::mend`] or a
    /// power cut.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn filter(&self, host: &str, port: u16) -> Result<()> {
        network::filter(&self.place, self.host(host)?, Some(port))
    }

    /// Replaces a host's cables by such with a one-way delay in microseconds and a rate. The links
    /// are down for a moment.
    ///
    /// # Errors
    /// When there is no such host, it is off, or the cable cannot be laid.
    pub fn delay(&mut self, host: &str, micros: u64, rate: Option<String>) -> Result<()> {
        let host = self.host(host)?.clone();
        self.write_cable(
            &host,
            &Cable {
                delay: micros,
                rate,
            },
        )?;
        self.lay(&host)
    }

    /// Puts a host's `/var/lib/windlass` and `/home` onto a disk of so many bytes, with what they
    /// hold. The host's power is cut for it.
    ///
    /// # Errors
    /// When there is no such host, or the size cannot hold what is there.
    pub fn disk(&mut self, host: &str, bytes: u64) -> Result<()> {
        let host = self.host(host)?.clone();
        self.kill(&host.name)?;
        power::small_disk(&self.place, &host, bytes)?;
        self.start(&host.name)
    }

    /// Takes the lab away with all it made.
    ///
    /// # Errors
    /// When something cannot be removed; the error names it.
    pub fn down(&mut self) -> Result<()> {
        for host in &self.hosts {
            self.keeper.cut(&self.place, &host.name)?;
        }
        down(&self.place)
    }

    /// Takes a lab away that may be in any state, or not there at all.
    ///
    /// # Errors
    /// When something cannot be removed; the error names it.
    pub fn clear(folder: &Path) -> Result<()> {
        down(&Place::at(folder)?)
    }

    /// Makes a host's network namespace and connects it.
    fn plug(&mut self, host: &Host) -> Result<()> {
        network::add(&self.place, host)?;
        self.lay(host)
    }

    /// Lays the cables that stand written for a host.
    fn lay(&mut self, host: &Host) -> Result<()> {
        let cable = self.read_cable(host);
        let ports = network::ports(host);
        self.keeper.cut(&self.place, &host.name)?;
        for port in &ports {
            network::unplug(&self.place, port);
            if cable.delay == 0 {
                network::veth(&self.place, &host.name, port)?;
            } else {
                self.keeper.lay(
                    &self.place,
                    &host.name,
                    port.interface,
                    &port.port,
                    cable.delay,
                )?;
            }
        }
        network::configure(&self.place, &host.name, &ports)?;
        match &cable.rate {
            Some(rate) => network::shape(&self.place, host, rate),
            None => Ok(()),
        }
    }

    fn write_cable(&self, host: &Host, cable: &Cable) -> Result<()> {
        let file = self.place.host(&host.name).join("cable");
        let rate = cable.rate.as_deref().unwrap_or("");
        fs::write(&file, format!("{} {rate}", cable.delay)).during(file.display())
    }

    fn read_cable(&self, host: &Host) -> Cable {
        let file = self.place.host(&host.name).join("cable");
        let text = fs::read_to_string(file).unwrap_or_default();
        let (delay, rate) = text.split_once(' ').unwrap_or(("0", ""));
        Cable {
            delay: delay.parse().unwrap_or(0),
            rate: (!rate.is_empty()).then(|| rate.to_owned()),
        }
    }
}

/// The host of this name among these.
pub fn named<'a>(hosts: &'a [Host], name: &str) -> Result<&'a Host> {
    hosts.iter().find(|host| host.name == name).ok_or_else(|| {
        let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
        LabError(format!(
            "there is no host {name}; there are {}",
            names.join(", ")
        ))
    })
}

/// A command with the machine's own files in the network of a lab's controller.
pub fn controller(place: &Place) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", &place.netns("ctl")]);
    command
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| wrong("a thread of the lab ended in a panic"))
}

/// Only its owner may read it.
fn private(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).during(path.display())
}

/// Removes processes, control groups, network namespaces and the folder; mounts end with the
/// processes.
pub fn down(place: &Place) -> Result<()> {
    let group = place.cgroup()?;
    cgroup::kill(&group)?;
    cgroup::remove(&group)?;
    network::down(place)?;
    // Every mount of a lab is a host's own; should one be seen here, what it shows is not the lab's.
    let mounts = fs::read_to_string("/proc/self/mounts").during("/proc/self/mounts")?;
    let below = format!("{}/", place.folder().display());
    if let Some(mount) = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .find(|mount| mount.starts_with(&below))
    {
        return wrong(format!("{mount} is mounted; unmount it, then try again"));
    }
    match fs::remove_dir_all(place.folder()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => wrong(format!("{}: {error}", place.folder().display())),
    }
}
