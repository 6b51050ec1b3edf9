//! `windlass inventory …`: from arguments to the core's reading and editing, and the summary.
//!
//! None of it connects anywhere but `trust` and `add --copy-key`.

use std::fs::{self, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use super::arguments::{Common, InventoryVerb};
use super::run::{Run, guarded};
use super::work::{Outcome, Work, perform};
use crate::deploy::remote::site::status_of;
use crate::event::{Exit, Failure, FailureKind, Level, Scope, Status};
use crate::inventory::edit::{Edit, Whom, edited};
use crate::inventory::file::{self, LoadError, fault_lines};
use crate::inventory::{Host, Inventory, diff, show};
use crate::paths::{Paths, private_folder};
use crate::ssh::{Connector, Options, Trusted};

/// What a verb came to, and what is to be said on the way.
#[derive(Default)]
struct Done {
    outcome: Outcome,
    talk: Vec<(Level, String)>,
}

impl From<Failure> for Done {
    fn from(failure: Failure) -> Self {
        Self {
            outcome: failure.into(),
            talk: Vec::new(),
        }
    }
}

/// Runs a verb.
pub fn inventory(common: &Common, verb: &InventoryVerb) -> Exit {
    if let InventoryVerb::Trust { host } = verb {
        return trust(common, host);
    }
    if let InventoryVerb::Add {
        name,
        values,
        copy_key: true,
    } = verb
    {
        return add_with_key(common, name, values);
    }
    let name = match verb {
        InventoryVerb::List => "inventory list",
        InventoryVerb::Show { .. } => "inventory show",
        InventoryVerb::Add { .. } => "inventory add",
        InventoryVerb::Set { .. } => "inventory set",
        InventoryVerb::Remove { .. } => "inventory remove",
        InventoryVerb::Check => "inventory check",
        InventoryVerb::Edit => "inventory edit",
        InventoryVerb::Trust { .. } => "inventory trust",
    };
    let run = Run::start(common, name);
    let done = guarded(|| match Paths::of_user() {
        Ok(paths) => act(common, verb, &paths),
        Err(error) => Failure::new(FailureKind::Config, error.to_string()).into(),
    })
    .unwrap_or_else(Done::from);
    let emitter = run.emitter();
    for (level, message) in done.talk {
        emitter.log(level, message);
    }
    run.conclude(
        done.outcome.fields,
        &done.outcome.text,
        done.outcome.failure,
    )
}

fn act(common: &Common, verb: &InventoryVerb, paths: &Paths) -> Done {
    let reads = matches!(verb, InventoryVerb::List | InventoryVerb::Show { .. });
    if common.limit.is_some() && !reads {
        return Failure::new(
            FailureKind::Usage,
            "--limit does not apply here: name the host in the command",
        )
        .into();
    }
    match verb {
        InventoryVerb::List => shown(common, paths, None, false),
        InventoryVerb::Show { host } => shown(common, paths, host.as_deref(), true),
        InventoryVerb::Check => check(common, paths),
        InventoryVerb::Add { name, values, .. } => {
            change(common, paths, &Edit::Add(Whom::parse(name), values.clone()))
        }
        InventoryVerb::Set { whom, values } => {
            change(common, paths, &Edit::Set(Whom::parse(whom), values.clone()))
        }
        InventoryVerb::Remove { whom } => change(common, paths, &Edit::Remove(Whom::parse(whom))),
        InventoryVerb::Edit => edit(common, paths),
        // Both connect, and were taken before.
        InventoryVerb::Trust { .. } => Done::default(),
    }
}

/// A failure to load with its faults as a field.
fn not_loaded(error: &LoadError) -> Done {
    let mut done = Done::from(error.failure());
    if let LoadError::Faults { path, faults } = error {
        done.outcome.fields = file_field(path);
        done.outcome.fields.insert("faults".into(), json!(faults));
    }
    done
}

fn file_field(path: &Path) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert(
        "inventory".into(),
        json!({ "path": path.display().to_string() }),
    );
    fields
}

fn warnings(inventory: &Inventory) -> Vec<(Level, String)> {
    inventory
        .warnings
        .iter()
        .map(|fault| (Level::Warn, format!("{}:{fault}", inventory.path.display())))
        .collect()
}

/// `list` and `show`.
fn shown(common: &Common, paths: &Paths, selector: Option<&str>, origins: bool) -> Done {
    let inventory = match Inventory::load(common.inventory.as_deref(), paths) {
        Ok(inventory) => inventory,
        Err(error) => return not_loaded(&error),
    };
    let mut hosts: Vec<&Host> = inventory.hosts.iter().collect();
    for selector in [selector, common.limit.as_deref()].into_iter().flatten() {
        match inventory.select(selector) {
            Ok(picked) => hosts.retain(|host| picked.iter().any(|other| other.name == host.name)),
            Err(error) => return error.failure().into(),
        }
    }
    if hosts.is_empty() {
        return Failure::new(
            FailureKind::Nothing,
            "no host is left by both the selector and --limit",
        )
        .into();
    }
    let mut parts = Vec::new();
    if origins {
        if selector.is_none() {
            parts.push(show::cluster(&inventory));
        }
        parts.extend(hosts.iter().map(|host| show::host(&inventory, host)));
    } else {
        parts.push(show::list(&inventory, &hosts));
    }
    let mut fields = Map::new();
    fields.insert("inventory".into(), show::json(&inventory, &hosts, origins));
    Done {
        outcome: Outcome {
            fields,
            text: parts.join("\n"),
            failure: None,
            ..Outcome::default()
        },
        talk: warnings(&inventory),
    }
}

fn check(common: &Common, paths: &Paths) -> Done {
    let inventory = match Inventory::load(common.inventory.as_deref(), paths) {
        Ok(inventory) => inventory,
        Err(LoadError::Faults { path, faults }) => {
            let count = faults.len();
            let mut fields = file_field(&path);
            fields.insert("faults".into(), json!(faults));
            fields.insert("warnings".into(), json!([]));
            return Done {
                outcome: Outcome {
                    fields,
                    text: format!("{}\n", fault_lines(&path, &faults)),
                    failure: Some(Failure::new(
                        FailureKind::Config,
                        format!(
                            "{} has {count} fault{}",
                            path.display(),
                            if count == 1 { "" } else { "s" }
                        ),
                    )),
                    ..Outcome::default()
                },
                talk: Vec::new(),
            };
        }
        Err(error) => return not_loaded(&error),
    };
    let mut fields = file_field(&inventory.path);
    fields.insert("faults".into(), json!([]));
    fields.insert("warnings".into(), json!(inventory.warnings));
    let many =
        |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    Done {
        outcome: Outcome {
            fields,
            text: format!(
                "{} is valid: {}, {}\n",
                inventory.path.display(),
                many(inventory.hosts.len(), "host"),
                many(inventory.groups.len(), "group")
            ),
            failure: None,
            ..Outcome::default()
        },
        talk: warnings(&inventory),
    }
}

/// `add`, `set` and `remove`.
fn change(common: &Common, paths: &Paths, edit: &Edit) -> Done {
    let path = match file::find(common.inventory.as_deref(), paths) {
        Ok((path, _)) => path,
        // The first host makes the file.
        Err(LoadError::Nowhere(_)) if matches!(edit, Edit::Add(..)) => PathBuf::from(file::NAME),
        Err(error) => return not_loaded(&error),
    };
    let is_new = matches!(edit, Edit::Add(..)) && fs::symlink_metadata(&path).is_err();
    let old = if is_new {
        None
    } else {
        match file::read(&path) {
            Ok(text) => Some(text),
            Err(error) => return not_loaded(&error),
        }
    };
    match edited(&path, old.as_deref().unwrap_or_default(), edit) {
        Ok(new) => taken(common, &path, old.as_deref(), &new),
        Err(error) => {
            let mut done = Done::from(error.failure());
            done.outcome.fields = unchanged(&path);
            done
        }
    }
}

fn unchanged(path: &Path) -> Map<String, Value> {
    let mut fields = file_field(path);
    fields.insert("changed".into(), false.into());
    fields.insert("would_change".into(), false.into());
    fields.insert("diff".into(), "".into());
    fields
}

/// Writes the new text, or with `--check` only says what would be written.
fn taken(common: &Common, path: &Path, old: Option<&str>, new: &str) -> Done {
    let shown = path.display().to_string();
    let difference = diff::unified(&shown, old.unwrap_or_default(), new);
    let differs = !difference.is_empty();
    let mut fields = unchanged(path);
    if differs
        && !common.check
        && let Err(error) = file::replace(path, old, new)
    {
        let mut done = Done::from(error.failure());
        done.outcome.fields = fields;
        return done;
    }
    fields.insert("changed".into(), (differs && !common.check).into());
    fields.insert("would_change".into(), (differs && common.check).into());
    fields.insert("diff".into(), difference.as_str().into());
    let said = match (differs, common.check, old) {
        (false, _, _) => format!("{shown} says so already"),
        (true, true, _) => format!("{shown} would be changed"),
        (true, false, None) => format!("{shown} was made"),
        (true, false, Some(_)) => format!("{shown} was changed"),
    };
    // What stands in the file now may be worth a word.
    let mut talk = vec![(Level::Info, said)];
    if let Ok(inventory) = Inventory::parse(path, new) {
        talk.extend(warnings(&inventory));
    }
    Done {
        outcome: Outcome {
            fields,
            text: if common.check || common.diff {
                difference
            } else {
                String::new()
            },
            failure: None,
            ..Outcome::default()
        },
        talk,
    }
}

/// Opens a copy in the user's editor and takes it when it is valid.
fn edit(common: &Common, paths: &Paths) -> Done {
    let path = match file::find(common.inventory.as_deref(), paths) {
        Ok((path, _)) => path,
        Err(error) => return not_loaded(&error),
    };
    let old = match file::read(&path) {
        Ok(text) => text,
        Err(error) => return not_loaded(&error),
    };
    let named = ["VISUAL", "EDITOR"]
        .into_iter()
        .filter_map(std::env::var_os)
        .find_map(|value| {
            value
                .into_string()
                .ok()
                .filter(|text| !text.trim().is_empty())
        });
    if common.no_input || (named.is_none() && !io::stdin().is_terminal()) {
        return Failure::new(
            FailureKind::Usage,
            "there is nobody to edit the inventory: use `windlass inventory set`",
        )
        .into();
    }
    let editor = named.unwrap_or_else(|| "vi".to_owned());
    let folder = paths.state.join("edits");
    let copy = match private_folder(&folder).and_then(|()| new_copy(&folder, &old)) {
        Ok(copy) => copy,
        Err(error) => {
            return Failure::new(
                FailureKind::Io,
                format!("no copy can be written in {}: {error}", folder.display()),
            )
            .into();
        }
    };
    let failure = match opened(common, &editor, &copy) {
        Ok(()) => None,
        Err(reason) => Some(Failure::new(
            FailureKind::Io,
            format!(
                "the editor {editor} failed, {reason}: {} is as it was",
                path.display()
            ),
        )),
    };
    let new = match file::read(&copy) {
        Ok(new) => new,
        Err(error) => return not_loaded(&error),
    };
    let kept = format!("your text is kept in {}", copy.display());
    let mut done = match failure {
        Some(mut failure) => {
            if new != old {
                failure.message = format!("{}; {kept}", failure.message);
            }
            failure.into()
        }
        None if new == old => taken(common, &path, Some(&old), &new),
        None => match Inventory::parse(&path, &new) {
            Ok(_) => taken(common, &path, Some(&old), &new),
            Err(faults) => {
                let mut done = Done::from(Failure::new(
                    FailureKind::Config,
                    format!(
                        "the edited inventory is not valid and was not taken, {kept}:\n{}",
                        fault_lines(&copy, &faults)
                    ),
                ));
                done.outcome.fields = unchanged(&path);
                done.outcome.fields.insert("faults".into(), json!(faults));
                done.outcome
                    .fields
                    .insert("kept".into(), copy.display().to_string().into());
                done
            }
        },
    };
    let lost = done.outcome.failure.is_some() && new != old;
    if lost {
        if let Some(failure) = &mut done.outcome.failure
            && !failure.message.contains(&kept)
        {
            failure.message = format!("{}; {kept}", failure.message);
        }
    } else {
        // Only a copy of what is in its place.
        let _ = fs::remove_file(&copy);
    }
    done
}

/// A new file with this text, for its owner alone, and never over a text that was kept before.
fn new_copy(folder: &Path, text: &str) -> io::Result<PathBuf> {
    for count in 0_u32.. {
        let copy = folder.join(format!("inventory-{}-{count}.toml", std::process::id()));
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&copy)
        {
            Ok(mut file) => return file.write_all(text.as_bytes()).map(|()| copy),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Runs the editor, whose setting may be a command with arguments, as the shell reads it.
fn opened(common: &Common, editor: &str, file: &Path) -> Result<(), String> {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(file);
    if common.json {
        // Stdout is for JSON lines.
        command.stdout(Stdio::from(io::stderr()));
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(status.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// Shows a host's key and asks whether to trust it.
fn trust(common: &Common, selector: &str) -> Exit {
    let loaded = Paths::of_user()
        .map_err(|error| Failure::new(FailureKind::Config, error.to_string()))
        .and_then(|paths| {
            let inventory = Inventory::load(common.inventory.as_deref(), &paths)
                .map_err(|error| error.failure())?;
            let hosts = inventory
                .select(selector)
                .map_err(|error| error.failure())?
                .into_iter()
                .cloned()
                .collect::<Vec<Host>>();
            Ok((inventory, hosts))
        });
    let names = match &loaded {
        Ok((_, hosts)) => hosts.iter().map(|host| host.name.clone()).collect(),
        Err(_) => Vec::new(),
    };
    perform(common, "inventory trust", names, |work| async move {
        match loaded {
            Ok((inventory, hosts)) => trust_hosts(work, inventory, hosts).await,
            Err(failure) => failure.into(),
        }
    })
}

/// The hosts' keys, each shown and asked about.
async fn trust_hosts(work: Work, inventory: Inventory, hosts: Vec<Host>) -> Outcome {
    let connector = connector(&work);
    let mut outcome = Outcome::default();
    let mut trusted = Map::new();
    let mut failures = Vec::new();
    for host in &hosts {
        let task = work
            .emitter
            .task(Scope::host(&host.name).in_task("trust"), None);
        match crate::reach::trust(&inventory, host, &connector, work.check).await {
            Ok(Trusted::Written(file)) => {
                trusted.insert(host.name.clone(), json!(file));
                task.finish(Status::Changed, format!("written to {}", file.display()));
            }
            Ok(Trusted::Known) => {
                trusted.insert(host.name.clone(), json!(null));
                task.finish(Status::Ok, "known already");
            }
            Ok(Trusted::Would(key)) => {
                task.finish(Status::WouldChange, format!("{key} would be asked about"));
            }
            Err(failure) => {
                task.finish(status_of(&failure), "");
                failures.push(failure);
            }
        }
    }
    failures.sort_by_key(|failure| failure.kind.exit());
    outcome.failure = failures.into_iter().next();
    outcome.fields.insert("trusted".into(), trusted.into());
    outcome
}

fn connector(work: &Work) -> Connector {
    Connector::new(
        Options::of_user(work.common.accept_new_host_keys),
        work.asker.clone(),
        work.emitter.clone(),
    )
}

/// Adds a host and puts the public key on it. A host that is there already, named without values,
/// only gets the key: what failed half way can be done again.
fn add_with_key(common: &Common, name: &str, values: &[String]) -> Exit {
    let (name, values) = (name.to_owned(), values.to_vec());
    let hosts = vec![name.clone()];
    perform(common, "inventory add", hosts, |work| async move {
        let known = Inventory::load(work.common.inventory.as_deref(), &work.paths)
            .ok()
            .filter(|inventory| values.is_empty() && inventory.select(&name).is_ok());
        let mut outcome = match known {
            Some(inventory) => Outcome {
                fields: unchanged(&inventory.path),
                ..Outcome::default()
            },
            None => {
                let edit = Edit::Add(Whom::parse(&name), values);
                let Done { outcome, talk } = change(&work.common, &work.paths, &edit);
                for (level, message) in talk {
                    work.emitter.log(level, message);
                }
                outcome
            }
        };
        let mut copied = Map::new();
        if outcome.failure.is_none() && !work.common.check {
            outcome.failure = copy_keys(&work, &name, &mut copied).await.err();
            if let Some(failure) = &mut outcome.failure {
                let again = format!("; then run `windlass inventory add {name} --copy-key` again");
                failure.message.push_str(&again);
            }
        }
        outcome.fields.insert("copied".into(), copied.into());
        outcome
    })
}

/// Copies the public key to these hosts; `copied` says of each whether it was not there before.
async fn copy_keys(
    work: &Work,
    name: &str,
    copied: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let inventory = Inventory::load(work.common.inventory.as_deref(), &work.paths)
        .map_err(|error| error.failure())?;
    inventory.allow_commands(&work.asker, &work.paths).await?;
    let connector = connector(work);
    let hosts = inventory.select(name).map_err(|error| error.failure())?;
    let mut failures = Vec::new();
    for host in hosts {
        match copy_key(work, &inventory, host, &connector).await {
            Ok(new) => {
                copied.insert(host.name.clone(), new.into());
            }
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure| failure.kind.exit());
    failures.into_iter().next().map_or(Ok(()), Err)
}

async fn copy_key(
    work: &Work,
    inventory: &Inventory,
    host: &Host,
    connector: &Connector,
) -> Result<bool, Failure> {
    let of_ssh = |error: crate::ssh::SshError| error.failure(&host.name);
    let home = connector.options().home.clone();
    let key = crate::reach::public_key(&home, host.ssh.identity.as_deref()).map_err(of_ssh)?;
    let session = crate::reach::one(inventory, host, connector, &work.emitter).await?;
    let task = work
        .emitter
        .task(Scope::host(&host.name).in_task("copy key"), None);
    match crate::reach::copy_key(&session, &key).await {
        Ok(true) => {
            task.finish(Status::Changed, "the public key is there now");
            Ok(true)
        }
        Ok(false) => {
            task.finish(Status::Ok, "the public key was there");
            Ok(false)
        }
        Err(error) => {
            let failure = of_ssh(error);
            task.finish(status_of(&failure), "");
            Err(failure)
        }
    }
}
