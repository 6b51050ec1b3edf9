//! Changes made on a host over its session, and taken back. Must not know what differs, nor why.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::STEP;
use super::change::Change;
use super::plan::Plan;
use super::script::{self, Record, VERSION};
use crate::event::{Failure, FailureKind};
use crate::facts::settings;
use crate::provision::boot::Ground;
use crate::provision::lock::{self, Lock};
use crate::provision::memory;
use crate::ssh::{Caps, Session, quote};

/// How long a package manager may take.
const LONG: Duration = Duration::from_secs(1800);
/// How long files may take to be on the disk: a large model that was just written is before them.
const KEEPING: Duration = Duration::from_secs(600);
/// How long anything else of ours may take there.
const SOON: Duration = Duration::from_secs(20);

fn caps(time: Duration) -> Caps {
    Caps {
        stdout: 8 << 20,
        stderr: 256 << 10,
        time,
    }
}

fn failed(session: &Session, step: &str, what: impl Into<String>) -> Failure {
    Failure::new(
        FailureKind::Host,
        format!("{}: {}", session.host(), what.into()),
    )
    .on(session.host())
    .at(step)
}

/// Holds a host against other runs that change it; one that cannot be held is not changed.
async fn lock(session: &Session, holder: &str) -> Result<Lock, Failure> {
    let lock = lock::hold(session, holder).await?;
    if lock.keeps_off {
        return Ok(lock);
    }
    Err(failed(
        session,
        "lock",
        "there is no flock, so another run could change this host at the same time; install util-linux there",
    ))
}

/// Where administration's programs are; a login's own path may lack it.
const PATHS: &str =
    "PATH=\"${PATH:-/usr/bin:/bin}:/usr/sbin:/sbin\"; LC_ALL=C; export PATH LC_ALL\n";

/// Runs a script as root that must end well.
async fn must(
    session: &Session,
    step: &str,
    script: &str,
    time: Duration,
) -> Result<String, Failure> {
    let output = session
        .run_as_root(step, &format!("{PATHS}{script}"), caps(time))
        .await
        .map_err(|error| error.failure(session.host()))?;
    if output.ok() {
        return Ok(output.text());
    }
    let words = output.last_words();
    let why = match words.is_empty() {
        true => "it ended without a word".to_owned(),
        false => words
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
    };
    Err(failed(session, step, format!("{step}: {why}")))
}

/// What decides how a host's kernel parameters are set.
///
/// # Errors
/// When it cannot be read.
pub async fn ground(session: &Session) -> Result<Ground, Failure> {
    let seen = match memory::look(session, true).await {
        Ok(seen) => seen,
        // What the login may read is mostly enough.
        Err(_) => memory::look(session, false)
            .await
            .map_err(|error| error.failure(session.host()).at(STEP))?,
    };
    let unread = seen.unreadable.first().or_else(|| seen.not_text.first());
    match unread {
        Some(path) => Err(failed(
            session,
            STEP,
            format!("{path} cannot be read, so no kernel parameter is changed"),
        )),
        None => Ok(seen.ground),
    }
}

/// The record of a plan's changes on a host, as it is written before the first.
pub fn recorded(run: &str, plan: &Plan) -> Record {
    Record {
        v: VERSION,
        run: run.to_owned(),
        changes: plan.changes.clone(),
        reboot: plan.waits(),
    }
}

/// Makes a plan's changes on a host, which is held meanwhile. What takes them back is written down
/// before the first.
///
/// # Errors
/// With the step that failed and its last words; what was changed until then can be taken back.
pub async fn make(session: &Session, run: &str, holder: &str, plan: &Plan) -> Result<(), Failure> {
    let _lock = lock(session, holder).await?;
    let record = recorded(run, plan);
    let script = script::begin(&record).map_err(Failure::internal)?;
    must(session, "keep what takes it back", &script, KEEPING).await?;
    for (number, change) in record.changes.iter().enumerate() {
        let script = script::apply(run, number, change);
        must(session, &change.words(), &script, LONG).await?;
    }
    let script = script::remember(&record);
    must(session, "keep what was made", &script, KEEPING).await?;
    Ok(())
}

/// Why a host is to be rebooted by what was changed on it before; `None` when it is not, or does not
/// say.
pub async fn pending(session: &Session) -> Option<String> {
    let script = script::pending();
    let output = session.run("what it waits for", &script, caps(SOON)).await;
    let text = output.ok()?.text();
    let why = text.trim();
    (!why.is_empty()).then(|| why.to_owned())
}

/// What a run did on a host; `None` when it did nothing there, or was taken back.
///
/// # Errors
/// When the host cannot be asked, or its record is not understood.
pub async fn record(session: &Session, run: &str) -> Result<Option<Record>, Failure> {
    let text = must(session, "read the run's record", &script::read(run), SOON).await?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let record = Record::parse(&text).map_err(|error| {
        let folder = script::folder(run);
        failed(session, "undo", format!("{folder}/record.json: {error}"))
    })?;
    Ok(Some(record))
}

/// Runs that can be taken back on a host, the newest first.
///
/// # Errors
/// When the host cannot be asked.
pub async fn runs(session: &Session) -> Result<Vec<String>, Failure> {
    let text = must(session, "list the runs", &script::list(), SOON).await?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// What is left when a run was taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undone {
    /// Packages that are as neither the run left them nor they were before, in sentences: they are as
    /// they are.
    pub left: Vec<String>,
    /// Why a reboot is waited for.
    pub reboot: Option<String>,
}

/// Takes a run back on a host, which is held meanwhile: its changes in reverse, packages to the versions
/// that were there before, those too that came along with others. What was taken back stays so when a
/// later step fails, and running it again goes on.
///
/// # Errors
/// When something was changed since by someone else, and then nothing is done; or with the step that
/// failed.
pub async fn undo(session: &Session, holder: &str, record: &Record) -> Result<Undone, Failure> {
    let _lock = lock(session, holder).await?;
    const STEP: &str = "take the run back";
    must(session, STEP, &script::busy(&record.run), SOON).await?;
    let script = script::changed_since(record);
    let said = must(session, "compare with what the run left", &script, SOON).await?;
    if let Some(why) = strange(record, &said) {
        return Err(failed(session, "undo", why));
    }
    must(session, STEP, &script::undoing(&record.run), SOON).await?;
    for (number, change) in record.changes.iter().enumerate().rev() {
        if let Some(script) = script::undo(&record.run, number, change) {
            must(session, STEP, &script, LONG).await?;
        }
    }
    // What is computed from other things is done when those are back.
    let mut undone = Undone::default();
    let mut late = Vec::new();
    for change in &record.changes {
        if let Change::Packages {
            installer,
            install,
            remove,
        } = change
        {
            let now = settings::gather(session)
                .await
                .map_err(|error| error.failure(session.host()))?;
            let now = now.packages.unwrap_or_default();
            let script = script::packages_kept(&record.run);
            let said = must(session, "read the packages of before", &script, SOON).await?;
            let Some(kept) = Kept::parse(&said) else {
                let why = "which packages were there before was not written down";
                return Err(failed(session, "undo", why));
            };
            let back = kept.back(install, remove, &now);
            if !(back.install.is_empty() && back.remove.is_empty()) {
                let (install, remove) = (&back.install, &back.remove);
                late.push(script::packages_back(
                    &record.run,
                    installer,
                    install,
                    remove,
                ));
            }
            undone.left.extend(back.left);
        }
    }
    late.extend(script::undo_late(record));
    for script in late {
        must(session, STEP, &script, LONG).await?;
    }
    let said = must(
        session,
        "end the run's record",
        &script::ended(record),
        SOON,
    )
    .await?;
    let why = said.trim();
    undone.reboot = (!why.is_empty()).then(|| why.to_owned());
    Ok(undone)
}

/// What someone else changed since, as a sentence, from what [`script::changed_since`] prints. `None`
/// when nothing is.
fn strange(record: &Record, said: &str) -> Option<String> {
    let first = said.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let kind = words.next()?;
        let number: usize = words.next()?.parse().ok()?;
        Some((kind, number, words.next().unwrap_or_default()))
    });
    let (kind, number, state) = first?;
    let more = match said.lines().count() {
        0 | 1 => String::new(),
        count => format!(" (and {} more)", count - 1),
    };
    let change = record.changes.get(number)?;
    let (run, kept) = (&record.run, script::kept(&record.run, number));
    let why = match (kind, change) {
        ("unit", Change::Unit { unit, from, to }) => {
            let state: String = state.chars().filter(|c| !c.is_control()).collect();
            format!(
                "{unit} is {state}{more}, and run {run} left it {to}: someone else changed it, so nothing                  is taken back here. Make it {to} (or {from}, as it was before), and take the run back then"
            )
        }
        (_, Change::File { path, text, .. }) => {
            let after = match text {
                Some(_) => format!("cat {} >{}", script::after(run, number), quote(path)),
                None => format!("rm {}", quote(path)),
            };
            format!(
                "{path} was changed since run {run} by someone else{more}, so nothing is taken back here.                  As it was before that run it lies in {kept}. To take the run back all the same, first                  keep what is yours, and type there: {after}"
            )
        }
        (_, Change::Kept { path }) => format!(
            "{path} was changed since run {run} by someone else{more}, so nothing is taken back here. As it              was before that run it lies in {kept}. To take the run back all the same, first keep what is              yours, and type there: cp -a {} {}",
            script::after(run, number),
            quote(path)
        ),
        _ => return None,
    };
    Some(why)
}

/// Packages before a run's, and as it left them.
struct Kept {
    before: BTreeMap<String, String>,
    /// Not known of a run that was cut off.
    after: Option<BTreeMap<String, String>>,
}

/// How packages are brought back.
#[derive(Debug, Default, PartialEq, Eq)]
struct Back {
    install: BTreeMap<String, String>,
    remove: BTreeSet<String>,
    left: Vec<String>,
}

impl Kept {
    /// From what [`script::packages_kept`] prints.
    fn parse(said: &str) -> Option<Self> {
        let said = said.strip_prefix("= before\n")?;
        let (before, after) = match said.split_once("= after\n") {
            Some((before, after)) => (before, Some(settings::packages(after))),
            None => (said, None),
        };
        Some(Self {
            before: settings::packages(before),
            after,
        })
    }

    /// What brings the run's packages back, and those that came along: what others did since stays. Of
    /// a run that was cut off only those are known that it was to change: these are `install` and
    /// `remove`.
    fn back(
        &self,
        install: &BTreeMap<String, String>,
        remove: &BTreeSet<String>,
        now: &BTreeMap<String, String>,
    ) -> Back {
        let mut back = Back::default();
        let mut names: BTreeSet<&String> = self.before.keys().chain(now.keys()).collect();
        names.extend(self.after.iter().flat_map(BTreeMap::keys));
        for name in names {
            let (was, is) = (self.before.get(name), now.get(name));
            let (by_run, made) = match &self.after {
                Some(after) => (after.get(name) != was, after.get(name)),
                None => (
                    install.contains_key(name) || remove.contains(name),
                    install.get(name),
                ),
            };
            if !by_run || is == was {
                continue;
            }
            // Several versions or architectures of one are told apart by no manager's words here.
            let plain = |version: Option<&String>| version.is_none_or(|one| !one.contains(' '));
            if is != made || !plain(was) || !plain(is) || name.contains(':') {
                let say = |version: Option<&String>| match version {
                    Some(version) => format!("at {version}"),
                    None => "not there".to_owned(),
                };
                back.left.push(format!(
                    "{name} is {} now and was {} before; it is left as it is",
                    say(is),
                    say(was)
                ));
            } else if let Some(version) = was {
                back.install.insert(name.clone(), version.clone());
            } else {
                back.remove.insert(name.clone());
            }
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(packages: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
        packages.iter().map(owned).collect()
    }

    #[test]
    fn packages_of_the_run_go_back_and_what_others_did_since_stays() {
        let kept = |after| Kept {
            before: map(&[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("e", "1")]),
            after,
        };
        let after = map(&[
            ("a", "1"),
            ("b", "2"),
            ("came", "1"),
            ("d", "2"),
            ("e", "1"),
        ]);
        // Since: d is newer still, e too; one is new, and is a person's.
        let now = map(&[
            ("a", "1"),
            ("b", "2"),
            ("came", "1"),
            ("d", "3"),
            ("e", "2"),
            ("mine", "1"),
        ]);
        let install = map(&[("b", "2"), ("d", "2")]);
        let remove = ["c".to_owned()].into();
        let back = kept(Some(after)).back(&install, &remove, &now);
        assert_eq!(back.install, map(&[("b", "1"), ("c", "1")]));
        assert_eq!(back.remove, ["came".to_owned()].into());
        let said = "d is at 3 now and was at 1 before; it is left as it is";
        assert_eq!(back.left, [said]);
        // Of a run that was cut off, only what it was to change is its own.
        let back = kept(None).back(&install, &remove, &now);
        assert_eq!(back.install, map(&[("b", "1"), ("c", "1")]));
        assert_eq!((back.remove.len(), back.left.len()), (0, 1));
        // All is back already.
        let before = kept(None).before;
        assert_eq!(kept(None).back(&install, &remove, &before), Back::default());
    }

    #[test]
    fn the_lists_of_packages_are_told_apart_by_their_first_lines() {
        let kept = Kept::parse(
            "= before\ninstalled a:all 1\nconfig-files b:all 1\n= after\ninstalled a:all 2\n",
        );
        let kept = kept.unwrap();
        assert_eq!(kept.before, map(&[("a", "1")]));
        assert_eq!(kept.after, Some(map(&[("a", "2")])));
        let kept = Kept::parse("= before\ninstalled a:all 1\n").unwrap();
        assert_eq!(kept.after, None);
        assert!(Kept::parse("").is_none());
    }

    #[test]
    fn what_someone_else_changed_is_said_with_what_to_type() {
        let file = |text: Option<&str>| Change::File {
            path: "/etc/a".into(),
            was: None,
            text: text.map(str::to_owned),
        };
        let record = Record {
            v: VERSION,
            run: "r1".into(),
            changes: vec![
                file(Some("x")),
                file(None),
                Change::Unit {
                    unit: "x.service".into(),
                    from: "disabled".into(),
                    to: "enabled".into(),
                },
            ],
            reboot: None,
        };
        assert_eq!(strange(&record, ""), None);
        let said = |text: &str| strange(&record, text).unwrap();
        let one = said("file 0\nfile 1\n");
        assert!(one.contains("someone else (and 1 more)"), "{one}");
        assert!(
            one.ends_with("cat /var/lib/windlass/undo/r1/after/0 >/etc/a"),
            "{one}"
        );
        assert!(said("file 1\n").ends_with("rm /etc/a"));
        assert!(said("unit 2 masked\n").contains("x.service is masked"));
    }
}
