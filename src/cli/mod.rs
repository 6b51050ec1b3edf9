//! The command line: what the user asked, as values; the run around it; its exit status.
//!
//! Commands do nothing themselves: they call the core, which emits events, and a reader shows them.

mod align;
mod arguments;
mod bench;
mod clone;
mod demo;
mod doctor;
mod facts;
mod inventory;
mod memory;
mod model;
mod net;
mod plan;
mod playbook;
mod prompt;
mod replay;
mod run;
mod screens;
mod serve;
mod signals;
mod surface;
mod table;
mod verify;
mod work;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

pub use arguments::{Arguments, Common, DemoArguments, InventoryArguments, InventoryVerb, Verb};

use crate::event::{Exit, Failure, FailureKind};
use run::Run;

/// Runs the program with its real arguments.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    ExitCode::from(with_arguments(&arguments).code())
}

/// Runs the program with these arguments, the first being its name.
fn with_arguments(arguments: &[OsString]) -> Exit {
    run::catch_panics();
    let arguments = &flags_before_help(arguments);
    match Arguments::try_parse_from(arguments) {
        Ok(Arguments { common, verb }) => match alone(&common) {
            Some(error) => not_a_command(arguments, &error),
            None => command(&common, verb),
        },
        Err(error) => not_a_command(arguments, &error),
    }
}

/// The same arguments, with the flags behind `help` before it: what stands behind is taken for names of
/// commands.
fn flags_before_help(arguments: &[OsString]) -> Vec<OsString> {
    let mut all = arguments.to_vec();
    let is_flag = |word: &OsString| word.to_string_lossy().starts_with('-');
    let first = all.iter().skip(1).position(|word| !is_flag(word));
    if let Some(at) = first.map(|at| at + 1)
        && all.get(at).is_some_and(|word| word == "help")
    {
        let (flags, words): (Vec<_>, Vec<_>) = all.split_off(at).into_iter().partition(is_flag);
        all.extend(flags);
        all.extend(words);
    }
    all
}

/// A flag that means nothing without another.
fn alone(common: &Common) -> Option<clap::Error> {
    (common.fail_on_change && !common.check).then(|| {
        Arguments::command().error(
            clap::error::ErrorKind::MissingRequiredArgument,
            "--fail-on-change goes only with --check, which says what would be changed",
        )
    })
}

fn command(common: &Common, verb: Option<Verb>) -> Exit {
    match verb {
        Some(Verb::Demo(arguments)) => demo::demo(common, &arguments),
        Some(Verb::Push(arguments)) => serve::push(common, &arguments),
        Some(Verb::Up(arguments)) => serve::up(common, &arguments),
        Some(Verb::Down(arguments)) => serve::down(common, &arguments),
        Some(Verb::Status) => serve::status(common),
        Some(Verb::Logs(arguments)) => serve::logs(common, &arguments),
        Some(Verb::Api(arguments)) => serve::api(common, &arguments),
        Some(Verb::Chat(arguments)) => serve::chat(common, &arguments),
        Some(Verb::Exec(arguments)) => serve::exec(common, &arguments),
        Some(Verb::Facts(arguments)) => facts::facts(common, &arguments),
        Some(Verb::Align(arguments)) => align::align(common, &arguments),
        Some(Verb::Clone(arguments)) => clone::clone(common, &arguments),
        Some(Verb::Verify(arguments)) => verify::verify(common, &arguments),
        Some(Verb::Net(arguments)) => net::net(common, &arguments),
        Some(Verb::Memory(arguments)) => memory::memory(common, &arguments),
        Some(Verb::Plan(arguments)) => plan::plan(common, &arguments),
        Some(Verb::Model(arguments)) => model::model(common, &arguments.verb),
        Some(Verb::Playbook(arguments)) => playbook::playbook(common, &arguments.verb),
        Some(Verb::Bench(arguments)) => bench::bench(common, &arguments.verb),
        Some(Verb::Replay(arguments)) => replay::replay(common, &arguments),
        Some(Verb::Doctor) => doctor::doctor(common),
        Some(Verb::Completions(arguments)) => {
            let text = surface::completions(arguments.shell);
            Run::start(common, "completions").text("completions", &text)
        }
        Some(Verb::Man) => {
            let text = surface::man();
            Run::start(common, "man").text("man", &text)
        }
        Some(Verb::Paths) => paths(common),
        Some(Verb::Inventory(arguments)) => inventory::inventory(common, &arguments.verb),
        None if screens::wanted(common) => screens::screens(common),
        None => {
            let help = Arguments::command().render_help();
            Run::start(common, "help").text("help", &help.to_string())
        }
    }
}

/// The folders windlass uses.
fn paths(common: &Common) -> Exit {
    let run = Run::start(common, "paths");
    match crate::paths::Paths::of_user() {
        Ok(paths) => {
            let mut text = String::new();
            let mut fields = serde_json::Map::new();
            for (name, path) in paths.all() {
                text.push_str(&format!("{name:<8} {}\n", path.display()));
                fields.insert(name.to_owned(), path.display().to_string().into());
            }
            run.data(&text, "paths", fields.into())
        }
        Err(error) => run.finish(
            serde_json::Map::new(),
            Some(Failure::new(FailureKind::Config, error.to_string())),
        ),
    }
}

/// What clap has to say instead of a command: help, the version, or an error.
fn not_a_command(arguments: &[OsString], error: &clap::Error) -> Exit {
    let common = Common {
        json: wants_json(arguments),
        ..Common::default()
    };
    if !error.use_stderr() {
        let command = match error.kind() {
            clap::error::ErrorKind::DisplayVersion => "version",
            _ => "help",
        };
        let text = if io::stdout().is_terminal() && !common.json {
            error.render().ansi().to_string()
        } else {
            error.render().to_string()
        };
        return Run::start(&common, command).text(command, &text);
    }
    let text = error.render().to_string();
    if !common.json {
        let shown = if io::stderr().is_terminal() {
            error.render().ansi().to_string()
        } else {
            text
        };
        // When stderr is gone there is nobody to tell.
        let _ = write!(io::stderr(), "{shown}");
        return Exit::Usage;
    }
    let message = text.trim().trim_start_matches("error: ").to_owned();
    Run::start(&common, &named_command(arguments)).finish(
        serde_json::Map::new(),
        Some(Failure::new(FailureKind::Usage, message)),
    )
}

/// Whether `--json` stands among arguments that could not be parsed.
fn wants_json(arguments: &[OsString]) -> bool {
    arguments
        .iter()
        .skip(1)
        .take_while(|argument| *argument != "--")
        .any(|argument| argument == "--json")
}

/// The command among arguments that could not be parsed, as far as can be told.
fn named_command(arguments: &[OsString]) -> String {
    arguments
        .iter()
        .skip(1)
        .map(|argument| argument.to_string_lossy())
        .find(|argument| !argument.starts_with('-'))
        .map_or_else(|| "windlass".to_owned(), |word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_command_table_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn common_flags_stand_before_or_after_the_command() {
        for line in [
            "windlass --json -i x.toml demo --workers 3",
            "windlass demo --workers 3 --json -i x.toml",
        ] {
            let arguments = parsed(line).unwrap();
            assert!(arguments.common.json);
            assert_eq!(
                arguments.common.inventory.as_deref(),
                Some(std::path::Path::new("x.toml"))
            );
            let Some(Verb::Demo(demo)) = arguments.verb else {
                panic!("{line}");
            };
            assert_eq!(demo.workers, 3);
        }
    }

    #[test]
    fn the_demo_has_the_defaults_of_the_contract() {
        let Some(Verb::Demo(demo)) = parsed("windlass demo").unwrap().verb else {
            panic!("no demo");
        };
        assert_eq!((demo.workers, demo.tokens), (2, 128));
        assert_eq!(demo.model, "smollm2");
    }

    #[test]
    fn values_out_of_range_and_unknown_commands_are_refused() {
        for line in [
            "windlass demo --workers 0",
            "windlass demo --workers 9",
            "windlass demo --tokens 0",
            "windlass demo --tokens 5000",
            "windlass demo extra",
            "windlass playbook run",
            "windlass playbook run x --resume y",
            "windlass playbook run x --var y",
            "windlass bench serve --concurrency 0",
            "windlass demo --frobnicate",
        ] {
            assert!(parsed(line).unwrap_err().use_stderr(), "{line}");
        }
    }

    #[test]
    fn flags_of_help_may_stand_behind_the_command_it_is_about() {
        let words =
            |line: &str| -> Vec<OsString> { line.split_whitespace().map(OsString::from).collect() };
        for (line, wanted) in [
            ("windlass help up --json", "windlass --json help up"),
            ("windlass --json help", "windlass --json help"),
            (
                "windlass exec h1 -- help --json",
                "windlass exec h1 -- help --json",
            ),
            ("windlass up help --json", "windlass up help --json"),
            ("windlass", "windlass"),
        ] {
            assert_eq!(flags_before_help(&words(line)), words(wanted), "{line}");
        }
    }

    #[test]
    fn failing_on_changes_needs_a_check() {
        let common = |line: &str| parsed(line).unwrap().common;
        for (line, refused) in [
            ("windlass up m --fail-on-change", true),
            ("windlass --fail-on-change up m --check", false),
            ("windlass up m --check", false),
        ] {
            let error = alone(&common(line));
            assert_eq!(error.is_some(), refused, "{line}");
            if let Some(error) = error {
                assert!(error.use_stderr() && error.to_string().contains("--check"));
            }
        }
    }

    #[test]
    fn json_is_seen_among_arguments_that_cannot_be_parsed() {
        let words =
            |line: &str| -> Vec<OsString> { line.split_whitespace().map(OsString::from).collect() };
        assert!(wants_json(&words("windlass nonsense --json")));
        assert!(!wants_json(&words("windlass exec x -- ls --json")));
        assert_eq!(
            named_command(&words("windlass --json nonsense -x")),
            "nonsense"
        );
        assert_eq!(named_command(&words("windlass --json")), "windlass");
    }
}
