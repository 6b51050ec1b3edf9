//! `align`: what differs from the reference and windlass can mend is made as on it, so that
//! `windlass align --undo` takes it back. What is left to a person is told.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::Kind;
use super::argument::{Argument, Form};
use super::verify::{found, reference, seen};
use super::work::{Acted, Done, Reached, Work};
use crate::deploy::remote::locks;
use crate::event::{Event, Failure, FailureKind, Level, Scope, Status};
use crate::facts::{Facts, Settings};
use crate::figures::counted;
use crate::provision::align::{self, Plan, plan::needs_ground, work as doing};
use crate::provision::drift::{self, Comparison, compare};

/// The kind.
#[derive(Debug)]
pub struct Align;

impl Kind for Align {
    fn name(&self) -> &'static str {
        "align"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[Argument::may("against", Form::Text)];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("against")
    }

    fn together(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let read = join_all(
                work.hosts
                    .iter()
                    // What was read before is older than what tasks have done since.
                    .map(|host| async move { (host, found(work, host, None, true).await) }),
            )
            .await;
            let reference = reference(work, &read)?;
            let comparison = compare(&reference, &seen(&read), drift::rules());
            let wanted = read
                .iter()
                .find(|(host, _)| host.name() == reference)
                .and_then(|(_, found)| found.as_ref().ok()?.1.as_ref());
            let (comparison, id) = (&comparison, work.record());
            let each = join_all(read.iter().map(|(host, found)| {
                let id = id.as_str();
                async move {
                    let alone = |done: Done| Ok((asked(done, 0, false), String::new()));
                    let verdict = match (found, wanted) {
                        (Err(failure), _) => Err(failure.clone()),
                        (Ok(_), None) => {
                            alone(Done::new(Status::Unknown, "the reference said nothing"))
                        }
                        (Ok(_), _) if host.name() == comparison.reference => {
                            alone(Done::new(Status::Ok, "the reference"))
                        }
                        (Ok((facts, settings)), Some(wanted)) => {
                            let of = (facts, settings.as_ref());
                            one(work, host, of, comparison, wanted, id).await
                        }
                    };
                    (host.name().to_owned(), verdict)
                }
            }))
            .await;
            let mut acted = Acted::default();
            for (host, verdict) in each {
                let verdict = verdict.map(|(done, lines)| {
                    if !lines.is_empty() {
                        acted.text.push_str(&format!("{host}\n{lines}"));
                    }
                    done
                });
                acted.hosts.insert(host, verdict);
            }
            Ok(acted)
        }
        .boxed()
    }
}

/// One host that is to become as the reference, whose settings are `wanted`; with the lines that are
/// left to a person.
async fn one(
    work: &Work<'_>,
    host: &Reached,
    (facts, settings): (&Facts, Option<&Settings>),
    comparison: &Comparison,
    wanted: &Settings,
    id: &str,
) -> Result<(Done, String), Failure> {
    let Some(settings) = settings else {
        let done = Done::new(Status::Unknown, "it does not say what is set there");
        return Ok((asked(done, 0, false), String::new()));
    };
    let name = host.name();
    let ground = match needs_ground(comparison, name) {
        true => match doing::ground(&host.session).await {
            Ok(ground) => Some(ground),
            // A file that is no text keeps only kernel parameters from being changed.
            Err(failure) if failure.kind == FailureKind::Host => {
                let scope = Scope::host(name).in_task(work.task);
                let event = Event::log(Level::Warn, failure.message);
                work.context.emitter.emit(scope, event);
                None
            }
            Err(failure) => return Err(failure.at(work.task)),
        },
        false => None,
    };
    let data = host.host.data.parse().ok();
    let subject = align::Subject {
        host: name,
        settings,
        user: facts.login.user.as_deref().unwrap_or("root"),
        interface: data
            .and_then(|data| facts.interface_of(data))
            .map(|(interface, _)| interface.name.as_str()),
        ground: ground.as_ref(),
    };
    let mut plan = align::plan(comparison, subject, wanted);
    if plan.reboot.is_none() {
        plan.reboot = doing::pending(&host.session).await;
    }
    for change in &plan.changes {
        work.change(name, &change.words(), String::new);
    }
    if !work.context.check && !plan.changes.is_empty() {
        let holder = locks::holder(&work.context.run);
        doing::make(&host.session, id, &holder, &plan)
            .await
            .map_err(|failure| taken_back_by(failure, id).at(work.task))?;
    }
    Ok((said(&plan, work.context.check, id), lines(&plan)))
}

/// With the command that takes back what was done until then.
fn taken_back_by(mut failure: Failure, id: &str) -> Failure {
    let line = format!("; what was done until then is taken back by: windlass align --undo {id}");
    failure.message.push_str(&line);
    failure
}

/// What is said of a host, by what is to be done there.
fn said(plan: &Plan, check: bool, id: &str) -> Done {
    let mut words = match plan.changes.len() {
        0 => "nothing to change".to_owned(),
        count => counted(count, "change", "changes"),
    };
    if !plan.by_hand.is_empty() {
        let left = counted(plan.by_hand.len(), "difference", "differences");
        words.push_str(&format!("; left to be mended by hand: {left}"));
    }
    if let Some(why) = &plan.reboot {
        words.push_str(&format!("; takes effect with the next reboot: {why}"));
    }
    let mut done = match plan.changes.is_empty() {
        true => Done::new(Status::Ok, words),
        false => Done::change(check, words),
    };
    if !plan.changes.is_empty() && !check {
        done = done.with("undo", id);
    }
    asked(done, plan.by_hand.len(), plan.reboot.is_some())
}

/// With what every host's result has, so that later tasks may ask for it.
fn asked(done: Done, by_hand: usize, reboot: bool) -> Done {
    done.with("by_hand", by_hand).with("reboot", reboot)
}

/// What a person does there, for people.
fn lines(plan: &Plan) -> String {
    let line = |one: &align::ByHand| {
        let key = one.key.as_ref().map(|key| format!(" {key}"));
        let key = key.unwrap_or_default();
        let line = format!("  by hand, {}{key}: {}", one.subject, one.line);
        let harmless = |c: char| if c.is_control() { ' ' } else { c };
        line.chars().map(harmless).chain(['\n']).collect::<String>()
    };
    plan.by_hand.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provision::align::{ByHand, Change};
    use serde_json::json;

    #[test]
    fn what_is_left_to_a_person_and_to_a_reboot_is_said_beside_what_was_done() {
        let change = Change::File {
            path: "/etc/x".into(),
            was: None,
            text: None,
        };
        let hand = ByHand {
            subject: "kernel".into(),
            key: None,
            line: "install it".into(),
        };
        let done = said(&Plan::default(), false, "r1t0");
        assert_eq!(
            (done.status, done.message.as_str()),
            (Status::Ok, "nothing to change")
        );
        assert_eq!(done.values.get("undo"), None);
        let plan = Plan {
            changes: vec![change],
            by_hand: vec![hand],
            reboot: Some("the kernel is another".into()),
        };
        let done = said(&plan, false, "r1t0");
        assert_eq!(done.status, Status::Changed);
        assert_eq!(
            done.message,
            "1 change; left to be mended by hand: 1 difference; takes effect with the next reboot: \
             the kernel is another"
        );
        assert_eq!(done.values["undo"], json!("r1t0"));
        assert_eq!(
            (&done.values["reboot"], &done.values["by_hand"]),
            (&json!(true), &json!(1))
        );
        let done = said(&plan, true, "r1t0");
        assert_eq!(
            (done.status, done.values.get("undo")),
            (Status::WouldChange, None)
        );
    }
}
