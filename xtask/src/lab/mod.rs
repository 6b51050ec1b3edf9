//! `cargo xtask lab`: test hosts by hand. What a lab is and does is the crate `windlass-lab`'s.

mod arguments;
mod deep;
mod packages;
mod vm;

use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use windlass_lab::{Cut, Keeper, Kind, Lab, Wanted, serve_wire};

pub use deep::deep;
pub use packages::install as install_packages;
pub use vm::vm;

use crate::chores::{Done, root, target_folder};

const HELP: &str = "\
cargo xtask lab up N [--kind NAME=KIND]… [--all-kinds] [--disk NAME=SIZE]… [--delay NAME=MICROS]…
               [--rate RATE]          make N hosts h1, h2, … (root by key unless a kind is given;
                                      --kind with a new name adds a host; --all-kinds adds one host
                                      of each kind, named after it)
cargo xtask lab sh HOST [CMD…]        run inside a host, as root
cargo xtask lab ctl [CMD…]            run in the controller's network, with this machine's files
cargo xtask lab status                the hosts
cargo xtask lab kill HOST             cut its power            lab start HOST   give it back
cargo xtask lab reboot HOST           reboot in good order
cargo xtask lab cut HOST [--silent]   pull its cables (--silent: packets vanish, nobody is told)
cargo xtask lab mend HOST             undo every cut and filter
cargo xtask lab filter HOST PORT      drop what comes to a TCP port
cargo xtask lab disk HOST SIZE        /var/lib/windlass and /home on a disk of SIZE, e.g. 64M
cargo xtask lab delay HOST MICROS [--rate RATE]   cables with a one-way delay, e.g. 5000 --rate 1gbit
cargo xtask lab down                  take all of it away
cargo xtask lab kinds                 the kinds of hosts
cargo xtask lab packages              install what a lab needs

Every command takes --name LAB (default: hand); labs of different names do not meet.
";

/// Runs a chore of the lab.
pub fn lab(arguments: &[String]) -> Done {
    let (name, arguments) = arguments::lab_name(arguments)?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let folder = folder(&name);
    let open = || Lab::open(&folder, keeper()?).map_err(text);
    match words.as_slice() {
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        ["up", rest @ ..] => up(&name, arguments::wanted(rest)?),
        ["down"] => Lab::clear(&folder).map_err(text),
        ["status"] => status(&open()?),
        ["kinds"] => {
            for kind in Kind::ALL {
                let traits = kind.traits();
                println!("{:16} {}", traits.name, traits.about);
            }
            Ok(())
        }
        ["packages"] => packages::install(),
        ["sh", host, command @ ..] => {
            let mut inside = open()?.inside(host).map_err(text)?;
            match command {
                [] => inside.args(["/bin/bash", "-i"]),
                [script] => inside.args(["/bin/sh", "-c", script]),
                _ => inside.args(command),
            };
            ends(inside)
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
        ["reboot", host] => open()?.reboot(host).map_err(text),
        ["cut", host] => open()?.cut(host, Cut::Pulled).map_err(text),
        ["cut", host, "--silent"] | ["cut", "--silent", host] => {
            open()?.cut(host, Cut::Silent).map_err(text)
        }
        ["mend", host] => open()?.mend(host).map_err(text),
        ["filter", host, port] => {
            let port = port.parse().map_err(|_| format!("{port} is no TCP port"))?;
            open()?.filter(host, port).map_err(text)
        }
        ["disk", host, size] => {
            let bytes = arguments::size(size)?;
            open()?.disk(host, bytes).map_err(text)
        }
        ["delay", host, micros, rest @ ..] => {
            let micros = arguments::micros(micros)?;
            let rate = match rest {
                [] => None,
                ["--rate", rate] => Some((*rate).to_owned()),
                _ => return Err(format!("lab delay HOST MICROS [--rate RATE]\n\n{HELP}")),
            };
            open()?.delay(host, micros, rate).map_err(text)
        }
        // What `keeper` starts; not for hands.
        ["wire", ..] => serve_wire(arguments.get(1..).unwrap_or(&[])).map_err(text),
        [other, ..] => Err(format!(
            "there is no `lab {other}` with these arguments\n\n{HELP}"
        )),
    }
}

fn up(name: &str, mut wanted: Wanted) -> Done {
    let folder = folder(name);
    wanted.hidden = vec![root(), target_folder()];
    let started = std::time::Instant::now();
    let lab = Lab::up(&folder, &wanted, keeper()?).map_err(text)?;
    status(&lab)?;
    let place = lab.place();
    let option = match name {
        "hand" => String::new(),
        _ => format!(" --name {name}"),
    };
    println!(
        "\n{} hosts up in {:.1} s\ninventory    {}\nknown hosts  {}\nkey          {}\npassword     {}\n\n\
         cargo xtask lab{option} ctl windlass -i {} facts\n\
         cargo xtask lab{option} sh {}\n\
         cargo xtask lab{option} down",
        lab.hosts().len(),
        started.elapsed().as_secs_f64(),
        place.inventory().display(),
        place.known_hosts().display(),
        place.identity().display(),
        place.password().display(),
        place.inventory().display(),
        lab.hosts().first().map_or("HOST", |host| &host.name),
    );
    Ok(())
}

fn status(lab: &Lab) -> Done {
    for host in lab.hosts() {
        let traits = host.kind.traits();
        println!(
            "{:16} {:16} {:5} {:4} {}",
            host.name,
            traits.name,
            traits.user,
            if lab.is_on(&host.name) { "on" } else { "off" },
            host.addresses().join(" "),
        );
    }
    Ok(())
}

fn folder(name: &str) -> PathBuf {
    target_folder().join("lab").join(name)
}

/// Wires outlive this program: they are processes of it.
fn keeper() -> Result<Keeper, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    Ok(Keeper::Program(
        program,
        vec!["lab".to_owned(), "wire".to_owned()],
    ))
}

fn text(error: windlass_lab::LabError) -> String {
    error.to_string()
}

/// Runs a command for the user; its exit status becomes this program's.
fn ends(mut command: Command) -> Done {
    let status: ExitStatus = command
        .status()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if status.success() {
        return Ok(());
    }
    std::process::exit(status.code().unwrap_or(1));
}
