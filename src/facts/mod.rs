//! What was read from a host: one script, one round trip, pure parsers. Must not know inventories,
//! plans, nor what is fit for what.
//!
//! A value that is not there, or is not understood, is unknown (`None`) and leaves all others be.
//! Sizes are bytes, times nanoseconds or seconds as their names say.
//!
//! - [`script`]: the script and its sections.
//! - [`os`], [`kernel`], [`libc`], [`cpu`], [`memory`], [`disk`], [`gpu`], [`network`], [`ports`],
//!   [`init`], [`login`], [`machine`]: a parser each.
//! - [`link`]: kinds of network interfaces.
//! - [`boot_firmware`], [`kernels`], [`packaging`], [`sleep`], [`sync`], [`sudo`], [`identity`],
//!   [`tuning`]: how the system is set up, a parser each.
//! - [`gpu_memory`], [`drivers`], [`firmware`], [`software`], [`containers`], [`engines`],
//!   [`kernel_log`], [`rdma`]: what GPUs and links can do, and what is there to use them, a parser
//!   each.
//! - [`tools`]: what tools print, on its own.
//! - [`darwin`]: the basic answers of macOS.
//! - [`settings`]: what is installed and set, read apart.
//! - [`clock`]: how far a host's clock is from ours.

pub mod boot_firmware;
pub mod clock;
pub mod containers;
pub mod cpu;
pub mod darwin;
pub mod disk;
pub mod drivers;
pub mod engines;
pub mod firmware;
pub mod gpu;
pub mod gpu_memory;
#[cfg(test)]
mod gpu_tests;
#[cfg(test)]
mod gpu_tool_tests;
pub mod identity;
pub mod init;
pub mod kernel;
pub mod kernel_log;
pub mod kernels;
pub mod libc;
pub mod link;
pub mod login;
pub mod machine;
pub mod memory;
pub mod network;
pub mod os;
pub mod packaging;
pub mod ports;
pub mod rdma;
pub mod script;
pub mod settings;
pub mod sleep;
pub mod software;
pub mod sudo;
pub mod sync;
#[cfg(test)]
mod system_tests;
#[cfg(test)]
mod tests;
pub mod tools;
#[cfg(test)]
mod tools_tests;
pub mod tuning;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::figures;
use crate::ssh::{Caps, Session, SshError};
use script::Sections;

pub use boot_firmware::BootFirmware;
pub use clock::{Clock, Sample, Skew, skew};
pub use containers::ContainerEngine;
pub use cpu::Cpu;
pub use disk::{FileSystem, Room};
pub use drivers::Drivers;
pub use engines::EngineBuild;
pub use firmware::Firmware;
pub use gpu::Gpu;
pub use gpu_memory::GpuMemory;
pub use identity::{HostKey, Identity};
pub use init::Init;
pub use kernel::Kernel;
pub use kernel_log::{Hint, HintKind};
pub use libc::Libc;
pub use login::Login;
pub use machine::Machine;
pub use memory::Memory;
pub use network::{Address, Interface};
pub use os::Os;
pub use packaging::Packaging;
pub use ports::Listening;
pub use rdma::RdmaPort;
pub use settings::Settings;
pub use sleep::Sleep;
pub use software::Software;
pub use sudo::Sudo;
pub use sync::Sync;
pub use tuning::Tuning;

/// What the script may take at most: 2 MiB, 64 KiB of complaints, 30 s.
const CAPS: Caps = Caps {
    stdout: 2 << 20,
    stderr: 64 << 10,
    time: Duration::from_secs(30),
};

/// What was read from a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The operating system: `linux`, `darwin`, ….
    pub system: Option<String>,
    /// The distribution.
    pub os: Os,
    /// The kernel.
    pub kernel: Kernel,
    /// What programs are built for here: `x86_64`, `aarch64`, `arm`, …. A 64-bit kernel may run
    /// 32-bit programs only; this is the programs' side.
    pub arch: Option<String>,
    /// The C library, where it is one that is known.
    pub libc: Option<Libc>,
    /// The processor.
    pub cpu: Cpu,
    /// Main memory.
    pub memory: Memory,
    /// The file systems of the folders that matter.
    pub rooms: Vec<FileSystem>,
    /// GPUs as the kernel shows them; `None` when it does not say.
    pub gpus: Option<Vec<Gpu>>,
    /// Network interfaces, loopback included; `None` when the host does not say.
    pub interfaces: Option<Vec<Interface>>,
    /// What listens on TCP; `None` when the host does not say.
    pub listening: Option<Vec<Listening>>,
    /// The host's clock.
    pub clock: Clock,
    /// What starts services.
    pub init: Init,
    /// Who is logged in, and which tools there are.
    pub login: Login,
    /// The machine itself.
    pub machine: Machine,
    /// What starts it.
    pub boot_firmware: BootFirmware,
    /// Kernels that are installed; `None` when the host does not say.
    pub kernels: Option<Vec<kernels::Installed>>,
    /// How software gets there.
    pub packaging: Packaging,
    /// Whether it may go to sleep.
    pub sleep: Sleep,
    /// How its clock is kept.
    pub sync: Sync,
    /// What the login may do by sudo.
    pub sudo: Sudo,
    /// What no other host may share with it.
    pub identity: Identity,
    /// Settings that speed or memory depend on.
    pub tuning: Tuning,
    /// How much of main memory GPUs may use.
    pub gpu_memory: GpuMemory,
    /// Drivers of GPUs.
    pub drivers: Drivers,
    /// Firmware of GPUs.
    pub firmware: Firmware,
    /// Libraries to compute with.
    pub software: Software,
    /// What runs containers; `None` when the host was not asked.
    pub containers: Option<Vec<ContainerEngine>>,
    /// Builds of engines; `None` when the host was not asked.
    pub engines: Option<Vec<EngineBuild>>,
    /// What the kernel's log tells of GPUs; `None` when the login may not see it.
    pub kernel_log: Option<Vec<Hint>>,
    /// Ports for RDMA; `None` when the host does not say.
    pub rdma: Option<Vec<RdmaPort>>,
}

impl Facts {
    /// From the script's sections.
    pub fn parse(sections: &Sections<'_>) -> Self {
        let kernel = kernel::parse(sections);
        let os = os::parse(sections);
        let machine = machine::parse(sections.get("machine"));
        let gpus = gpu::parse(sections);
        let mut facts = Self {
            gpu_memory: gpu_memory::parse(sections),
            drivers: drivers::parse(sections),
            firmware: firmware::parse(sections, gpus.as_deref()),
            software: software::parse(sections),
            containers: containers::parse(sections),
            engines: engines::parse(sections),
            kernel_log: kernel_log::parse(sections),
            rdma: rdma::parse(sections),
            boot_firmware: boot_firmware::parse(sections.get("boot_firmware")),
            kernels: kernels::parse(sections.find("kernels"), kernel.release.as_deref()),
            packaging: packaging::parse(sections.find("packaging"), &os),
            sleep: sleep::parse(sections),
            sync: sync::parse(sections),
            sudo: sudo::parse(sections.get("sudo")),
            identity: identity::parse(sections, machine.machine_id.as_deref()),
            tuning: tuning::parse(sections),
            os,
            system: script::some(sections.get("uname").lines().next().unwrap_or_default())
                .map(|name| name.to_lowercase()),
            arch: kernel::architecture(sections),
            libc: libc::parse(sections),
            cpu: cpu::parse(sections),
            memory: memory::parse(sections),
            rooms: disk::parse(sections),
            gpus,
            interfaces: network::parse(sections),
            listening: ports::parse(sections),
            clock: clock::parse(sections.get("clock")),
            init: init::parse(sections.get("init")),
            login: login::parse(sections.get("user")),
            machine,
            kernel,
        };
        if facts.system.as_deref() == Some("darwin") {
            darwin::fill(&mut facts, sections);
        }
        let (memory, ram) = (&facts.gpu_memory, facts.memory.total_bytes);
        for gpu in facts.gpus.iter_mut().flatten() {
            gpu::fill_nvidia(std::slice::from_mut(gpu), sections);
            gpu.usable_bytes = gpu_memory::usable_gpu_bytes(gpu, memory, ram);
        }
        facts
    }

    /// The file system of this folder among those that were asked of.
    pub fn room(&self, room: Room) -> Option<&FileSystem> {
        self.rooms.iter().find(|found| found.room == room)
    }

    /// The file system that a folder of the host is on: of those asked of, the one that is that
    /// folder's, else the one that is mounted nearest above it.
    fn room_of(&self, folder: &str) -> Option<&FileSystem> {
        let above = |room: &&FileSystem| {
            let mount = room.mount.as_deref().unwrap_or_default();
            let rest = folder.strip_prefix(mount.trim_end_matches('/'));
            !mount.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.rooms
            .iter()
            .find(|room| room.folder == folder)
            .or_else(|| {
                let by_length = |room: &&FileSystem| room.mount.as_ref().map(String::len);
                self.rooms.iter().filter(above).max_by_key(by_length)
            })
    }

    /// Bytes that this login may still use for a folder.
    pub fn free_bytes(&self, folder: &str) -> Option<u64> {
        self.room_of(folder)?.free_bytes
    }

    /// Size of the file system that a folder is on, bytes.
    pub fn disk_total(&self, folder: &str) -> Option<u64> {
        self.room_of(folder)?.total_bytes
    }

    /// The GPUs by name, e.g. `AMD 1586 (amdgpu)`.
    pub fn gpu_names(&self) -> Vec<String> {
        self.gpus.iter().flatten().map(Gpu::name).collect()
    }

    /// The host in one line: system, machine, memory.
    pub fn headline(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.os.name.clone().or_else(|| self.system.clone()));
        parts.extend(self.arch.clone());
        if let Some(cores) = self.cpu.cores {
            parts.push(match cores {
                1 => "1 core".to_owned(),
                cores => format!("{cores} cores"),
            });
        }
        if let Some(bytes) = self.memory.available_bytes {
            parts.push(format!("{} available", figures::memory(bytes)));
        }
        if parts.is_empty() {
            return "nothing is known".into();
        }
        parts.join(", ")
    }

    /// The interface with this address, and the address with its prefix.
    pub fn interface_of(&self, address: std::net::IpAddr) -> Option<(&Interface, &Address)> {
        self.interfaces.iter().flatten().find_map(|interface| {
            let found = interface.addresses.iter().find(|own| own.ip == address)?;
            Some((interface, found))
        })
    }
}

/// Reads a host's facts, in one round trip.
///
/// # Errors
/// When the script could not be run to its end, or its answer was cut off.
pub async fn gather(session: &Session) -> Result<Facts, SshError> {
    gather_with(session, None).await
}

/// The same. `folder`: one more folder to ask the room of.
///
/// # Errors
/// As [`gather`].
pub async fn gather_with(session: &Session, folder: Option<&str>) -> Result<Facts, SshError> {
    let what = "reading facts";
    let broken = |reason: String| SshError::Broken {
        what: what.to_owned(),
        reason,
    };
    let mark = script::mark().map_err(broken)?;
    let (sent_ns, began) = (clock::now_ns(), Instant::now());
    let output = session
        .run(what, &script::script(&mark, folder), CAPS)
        .await?;
    let received_ns = sent_ns.saturating_add(clock::nanoseconds(began.elapsed()));
    let text = output.text();
    let sections = Sections::parse(&text, &mark).map_err(|reason| {
        let words = output.last_words();
        broken(match words.is_empty() {
            true => reason,
            false => format!("{reason}; the host said: {words}"),
        })
    })?;
    let mut facts = Facts::parse(&sections);
    facts.clock.compare(sent_ns, received_ns);
    Ok(facts)
}
