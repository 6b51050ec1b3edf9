//! The command line described for shells and for people: completions and the manual page, both made
//! from the one table of arguments.

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::Arguments;

/// Name of the program.
const NAME: &str = "windlass";

/// Completions for a shell, to be written where that shell looks for them.
pub fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The manual page, in roff: the program, then every command with its arguments.
pub fn man() -> String {
    let mut text = Vec::new();
    let program = Arguments::command();
    // Writing into memory does not fail.
    let _ = clap_mangen::Man::new(program.clone()).render(&mut text);
    commands(&program, &mut Vec::new(), &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn commands(parent: &Command, path: &mut Vec<String>, text: &mut Vec<u8>) {
    for command in parent.get_subcommands() {
        if command.is_hide_set() || command.get_name() == "help" {
            continue;
        }
        path.push(command.get_name().to_owned());
        let name = format!("{NAME} {}", path.join(" "));
        // Its own help names the whole way to it; the flags of every command stand once, at the top.
        let shown = command
            .clone()
            .bin_name(name.clone())
            .display_name(name.clone())
            .disable_help_flag(true);
        let page = clap_mangen::Man::new(shown);
        text.extend_from_slice(format!(".SH {}\n", name.to_uppercase()).as_bytes());
        for part in [
            clap_mangen::Man::render_synopsis_section,
            clap_mangen::Man::render_description_section,
            clap_mangen::Man::render_options_section,
        ] {
            let mut section = Vec::new();
            if part(&page, &mut section).is_ok() {
                // One level below the command's own heading.
                let section = String::from_utf8_lossy(&section).replace(".SH ", ".SS ");
                text.extend_from_slice(section.as_bytes());
            }
        }
        commands(command, path, text);
        path.pop();
    }
}
