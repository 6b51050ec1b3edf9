//! `cargo xtask vm`: virtual machines by hand. What they are and do is the crate `windlass-lab`'s.

use std::path::PathBuf;
use std::time::Instant;

use windlass_lab::{Firmware, Hardware, Image, VM_PACKAGES, Vms, missing_of, missing_packages};

use super::{arguments, ends, packages, text};
use crate::chores::{Done, target_folder};

const HELP: &str = "\
cargo xtask vm up N                   make N virtual machines h1, h2, …, emulated and slow
            [--uefi]                  that start by UEFI
            [--disk GIB]              with a second, empty disk of this size, /dev/vdb
cargo xtask vm sh HOST [CMD…]         log in to one, as root
cargo xtask vm ctl [CMD…]             run in the controller's network, with this machine's files
cargo xtask vm status                 the machines
cargo xtask vm kill HOST              cut its power            vm start HOST   give it back
cargo xtask vm reboot HOST…           reboot in good order
cargo xtask vm down                   take all of it away; the image stays
cargo xtask vm image                  make the disk that they start from
cargo xtask vm packages               install what they need

Every command takes --name LAB (default: hand).
";

/// The most that are made at once: each takes a processor, and a few hundred MB.
const MOST: usize = 8;

/// Runs a chore of the virtual machines.
pub fn vm(arguments: &[String]) -> Done {
    let (name, arguments) = arguments::lab_name(arguments)?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let folder = folder().join("labs").join(&name);
    let open = || Vms::open(&folder).map_err(text);
    match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["up", number, options @ ..] => {
            let hardware = hardware(options)?;
            let number: usize = number
                .parse()
                .ok()
                .filter(|number| (1..=MOST).contains(number))
                .ok_or_else(|| format!("{number} is no number from 1 to {MOST}"))?;
            up(&name, number, hardware)
        }
        ["down"] => Vms::clear(&folder).map_err(text),
        ["status"] => {
            status(&open()?);
            Ok(())
        }
        ["image"] => make_image().map(drop),
        ["packages"] => install(),
        ["sh", host, command @ ..] => {
            let mut login = open()?.ssh(host).map_err(text)?;
            if command.is_empty() {
                login.env("TERM", "vt100");
            }
            ends({
                login.args(command);
                login
            })
        }
        ["ctl", command @ ..] => {
            let mut inside = open()?.controller();
            match command {
                [] => inside.args(["/bin/bash", "-i"]),
                _ => inside.args(command),
            };
            ends(inside)
        }
        ["kill", host] => open()?.kill(host).map_err(text),
        ["start", host] => open()?.start(host).map_err(text),
        ["reboot", hosts @ ..] if !hosts.is_empty() => open()?.reboot(hosts).map_err(text),
        [other, ..] => Err(format!(
            "there is no `vm {other}` with these arguments\n\n{HELP}"
        )),
    }
}

/// Where the image and the machines made by hand are.
pub fn folder() -> PathBuf {
    target_folder().join("vm")
}

/// Installs what virtual machines need beside hosts in namespaces.
pub fn install() -> Done {
    packages::install_missing(|| {
        let mut missing = missing_packages();
        missing.extend(missing_of(VM_PACKAGES));
        missing
    })
}

/// The image, made where it is not there.
pub fn make_image() -> Result<Image, String> {
    let image = Image::at(&folder());
    if image.is_there() {
        return Ok(image);
    }
    println!(
        "\nmaking {}: a Debian system of some 700 MB of packages",
        image.disk().display()
    );
    let started = Instant::now();
    image.make().map_err(text)?;
    println!("made in {:.0} s", started.elapsed().as_secs_f64());
    Ok(image)
}

/// What options of `vm up` make of a machine.
fn hardware(options: &[&str]) -> Result<Hardware, String> {
    let mut hardware = Hardware::default();
    let mut rest = options.iter();
    while let Some(option) = rest.next() {
        match *option {
            "--uefi" => hardware.firmware = Firmware::Uefi,
            "--disk" => {
                let gib = rest.next().and_then(|gib| gib.parse::<u64>().ok());
                let gib = gib.filter(|gib| (1..=1024).contains(gib));
                let gib = gib.ok_or("--disk needs a size from 1 to 1024, GiB")?;
                hardware.blank = Some(gib << 30);
            }
            other => return Err(format!("vm up does not know {other}")),
        }
    }
    Ok(hardware)
}

fn up(name: &str, number: usize, hardware: Hardware) -> Done {
    install()?;
    let image = make_image()?;
    let folder = folder().join("labs").join(name);
    let names: Vec<String> = (1..=number).map(|number| format!("h{number}")).collect();
    let machines: Vec<_> = names.iter().map(|name| (name.as_str(), hardware)).collect();
    let started = Instant::now();
    let vms = Vms::up(&folder, &image, &machines, false).map_err(text)?;
    status(&vms);
    let option = match name {
        "hand" => String::new(),
        _ => format!(" --name {name}"),
    };
    let place = vms.place();
    println!(
        "\n{number} up in {:.0} s\ninventory    {inventory}\nknown hosts  {}\nkey          {}\n\n\
         cargo xtask vm{option} ctl windlass -i {inventory} facts\n\
         cargo xtask vm{option} sh h1\n\
         cargo xtask vm{option} down",
        started.elapsed().as_secs_f64(),
        place.known_hosts().display(),
        place.identity().display(),
        inventory = place.inventory().display(),
    );
    Ok(())
}

fn status(vms: &Vms) {
    for host in vms.hosts() {
        println!(
            "{:16} {:4} {}",
            host.name,
            if vms.is_on(&host.name) { "on" } else { "off" },
            host.addresses().join(" "),
        );
    }
}
