//! Questions of commands at a terminal: whoever does not answer gets the terminal back.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use super::terminal::{Terminal, signal};
use crate::command_line::windlass;
use crate::ssh::server::{Place, Server, keygen};

/// `exec` on the server, which is reached with this key.
fn exec(place: &Place, server: &Server, key: &str) -> Command {
    let inventory = place.path("inventory.toml");
    let text = format!(
        "[cluster]\nname = \"home\"\n[hosts.h1]\naddress = \"127.0.0.1\"\nuser = \"root\"\n\
         ssh = {{ port = {}, identity = \"{}\", known_hosts = \"{}\" }}\n",
        server.address.port(),
        place.path(key).display(),
        place.known_hosts().display(),
    );
    fs::write(&inventory, text).unwrap();
    let home = place.path("home");
    fs::create_dir_all(&home).unwrap();
    let mut command = windlass(&home, &["exec", "h1", "-i"]);
    command.arg(inventory).args(["--", "true"]);
    command
}

#[test]
fn ctrl_c_and_sigterm_at_a_passphrase_end_the_run_and_the_terminal_shows_what_is_typed() {
    let place = Place::new();
    let server = place.server("");
    keygen(&place.path("locked"), "ed25519", "open sesame");
    fs::copy(place.path("locked.pub"), place.path("authorized_keys")).unwrap();
    for (end, code) in [(None, 130), (Some(Signal::TERM), 143)] {
        let mut terminal = Terminal::start(exec(&place, &server, "locked"), 120, 24);
        terminal.shows("passphrase");
        match end {
            Some(end) => signal(terminal.pid(), end),
            None => terminal.types("\u{3}"),
        }
        let (status, shown) = terminal.ended_sane();
        assert_eq!(status.code(), Some(code), "{shown}");
    }
}

#[test]
fn ctrl_c_at_the_question_about_a_host_key_ends_the_run() {
    let place = Place::new();
    let server = place.stranger(&["host_ed25519"], "");
    let mut terminal = Terminal::start(exec(&place, &server, "id"), 120, 24);
    terminal.shows("[y/n]");
    terminal.types("\u{3}");
    let (status, shown) = terminal.ended_sane();
    assert_eq!(status.code(), Some(130), "{shown}");
}
