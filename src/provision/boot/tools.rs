//! Hosts whose own tool sets parameters: the lines to run there, or the text to put there. Must not
//! know when they are run.

use super::{Parameter, Wish};
use crate::ssh::quote;

/// A line to run on the host, and the one that takes it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// To do it.
    pub line: String,
    /// To take it back.
    pub undo: String,
}

/// Lines of grubby(8), which changes all installed kernels' entries and what new ones are made from.
/// `now`: the command line that is in force.
pub fn grubby(wish: &Wish, now: &str) -> Vec<Line> {
    let all = "grubby --update-kernel=ALL";
    let mut lines = Vec::new();
    for (name, old) in old(&wish.remove, now) {
        lines.push(Line {
            line: format!("{all} --remove-args={}", quote(&name)),
            undo: format!(
                "{all} --args={}",
                quote(&Parameter::new(name, old).to_string())
            ),
        });
    }
    for parameter in &wish.set {
        let undo = match super::cmdline::value(now, &parameter.name) {
            Some(old) => {
                let old = Parameter::new(parameter.name.clone(), old);
                format!("--args={}", quote(&old.to_string()))
            }
            None => format!("--remove-args={}", quote(&parameter.name)),
        };
        lines.push(Line {
            line: format!("{all} --args={}", quote(&parameter.to_string())),
            undo: format!("{all} {undo}"),
        });
    }
    lines
}

/// Lines of rpm-ostree(1): one transaction, which makes a new deployment; the old one stays for a way
/// back. `now`: what `rpm-ostree kargs` says.
pub fn ostree(wish: &Wish, now: &str) -> Vec<Line> {
    let (mut words, mut undo) = (Vec::new(), Vec::new());
    let word = |option: &str, name: &str, value: &str| {
        quote(&format!("--{option}={}", Parameter::new(name, value)))
    };
    for (name, old) in old(&wish.remove, now) {
        words.push(word("delete-if-present", &name, &old));
        undo.push(word("append-if-missing", &name, &old));
    }
    for Parameter { name, value } in &wish.set {
        match super::cmdline::value(now, name) {
            Some(old) if old == *value => continue,
            Some(old) => {
                words.push(word("delete-if-present", name, &old));
                undo.push(word("append-if-missing", name, &old));
            }
            None => {}
        }
        words.push(word("append-if-missing", name, value));
        undo.push(word("delete-if-present", name, value));
    }
    if words.is_empty() {
        return Vec::new();
    }
    undo.reverse();
    vec![Line {
        line: format!("rpm-ostree kargs {}", words.join(" ")),
        undo: format!("rpm-ostree kargs {}", undo.join(" ")),
    }]
}

/// Those of the names that are set, with their values.
fn old(names: &[String], now: &str) -> Vec<(String, String)> {
    names
        .iter()
        .filter_map(|name| Some((name.clone(), super::cmdline::value(now, name)?)))
        .collect()
}

/// What a person does on NixOS, whose configuration is theirs alone: the text and the line to type.
pub fn nixos(wish: &Wish) -> Vec<String> {
    let text = |word: String| {
        let escaped = word
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace("${", "\\${");
        format!("\"{escaped}\"")
    };
    let words: Vec<String> = wish.set.iter().map(|own| text(own.to_string())).collect();
    let mut lines = Vec::new();
    if !wish.remove.is_empty() {
        lines.push(format!(
            "take out of boot.kernelParams: {}",
            wish.remove.join(", ")
        ));
    }
    if !words.is_empty() {
        lines.push(format!(
            "put into the system's configuration: boot.kernelParams = [ {} ];",
            words.join(" ")
        ));
    }
    lines.push("then: sudo nixos-rebuild boot, and reboot".to_owned());
    lines
}

/// The parameter on macOS, in MiB; 0 is the system's own choice.
pub const MACOS: &str = "iogpu.wired_limit_mb";
/// Where the service lies that sets it at each start.
pub const MACOS_PLIST: &str = "/Library/LaunchDaemons/org.windlass.gpu-memory.plist";
/// The service's name.
const MACOS_LABEL: &str = "org.windlass.gpu-memory";

/// The text of a service that sets the limit at each start, since it is lost with each.
pub fn macos_plist(mib: u64) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n<dict>\n\
         \t<key>Label</key>\n\t<string>{MACOS_LABEL}</string>\n\
         \t<key>ProgramArguments</key>\n\t<array>\n\
         \t\t<string>/usr/sbin/sysctl</string>\n\t\t<string>{MACOS}={mib}</string>\n\t</array>\n\
         \t<key>RunAtLoad</key>\n\t<true/>\n\
         </dict>\n</plist>\n"
    )
}

/// The limit in a service's text.
pub fn macos_limit(plist: &str) -> Option<u64> {
    let (_, rest) = plist.split_once(&format!("{MACOS}="))?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The line that makes the limit so at once, and the one for the value before.
pub fn macos_now(mib: u64, before: u64) -> Line {
    let line = |mib: u64| format!("/usr/sbin/sysctl {MACOS}={mib}");
    Line {
        line: line(mib),
        undo: line(before),
    }
}

/// The parameters in a NixOS configuration's text: the strings of each `boot.kernelParams = [ … ]`.
/// What stands there as an expression is passed over.
pub fn nixos_parameters(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (_, rest) in text.match_indices("kernelParams").filter_map(|(at, name)| {
        let rest = text.get(at + name.len()..)?;
        rest.split_once('[')
    }) {
        let (mut word, mut inside) = (String::new(), false);
        let mut chars = rest.chars();
        while let Some(c) = chars.next() {
            match (c, inside) {
                (']', false) => break,
                // A comment goes to the end of its line.
                ('#', false) => {
                    let _ = chars.by_ref().find(|c| *c == '\n');
                }
                ('"', false) => inside = true,
                ('"', true) => {
                    inside = false;
                    found.push(std::mem::take(&mut word));
                }
                ('\\', true) => word.extend(chars.next()),
                (c, true) => word.push(c),
                _ => {}
            }
        }
    }
    found
}
