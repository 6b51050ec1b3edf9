//! `service`: a unit of systemd that runs or not, and starts with the host or not.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Work};
use super::{Kind, remote};
use crate::event::{Failure, Status};
use crate::playbook::expression::Template;
use crate::ssh::quote;

/// The kind.
#[derive(Debug)]
pub struct Service;

impl Kind for Service {
    fn name(&self) -> &'static str {
        "service"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("name", Form::Text),
            Argument::may("state", Form::Word(&["started", "stopped", "restarted"])),
            Argument::may("enabled", Form::Flag),
            Argument::may("user", Form::Flag),
            Argument::may("root", Form::Flag),
        ];
        ALL
    }

    fn check(&self, arguments: &[(String, Template)]) -> Option<String> {
        let has = |name: &str| arguments.iter().any(|(given, _)| given == name);
        (!has("state") && !has("enabled"))
            .then(|| "say what is wanted, state or enabled".to_owned())
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let name = work.given.must("name");
            let user = work.given.flag("user");
            let root = work.given.given_flag("root").unwrap_or(!user);
            let systemctl = if user {
                "systemctl --user"
            } else {
                "systemctl"
            };
            let unit = quote(name);
            let look = format!(
                "command -v systemctl >/dev/null 2>&1 || {{ echo none; exit 0; }}\n\
                 {systemctl} show -p LoadState -- {unit} | sed 's/.*=//'\n\
                 {systemctl} is-active -- {unit} 2>/dev/null || :\n\
                 {systemctl} is-enabled -- {unit} 2>/dev/null || :\n"
            );
            let said = remote::run(work, host, false, &look, remote::SHORT)
                .await?
                .text();
            let wanted = Wanted {
                state: work.given.text("state"),
                enabled: work.given.given_flag("enabled"),
            };
            let verbs = match decide(&said, wanted) {
                Ok(verbs) => verbs,
                Err(reason) => return Err(work.failed(host.name(), format!("{name}: {reason}"))),
            };
            if verbs.is_empty() {
                return Ok(work.one(Done::new(Status::Ok, format!("{name} is as wanted"))));
            }
            work.change(host.name(), name, String::new);
            if !work.context.check {
                for verb in &verbs {
                    let script = format!("{systemctl} {verb} -- {unit}\n");
                    remote::must(work, host, root, &script, &format!("`{verb} {name}`")).await?;
                }
            }
            let what = verbs.join(", ");
            Ok(work.one(Done::change(work.context.check, format!("{name}: {what}"))))
        }
        .boxed()
    }
}

/// What is wanted of a service.
#[derive(Clone, Copy, Debug)]
struct Wanted<'a> {
    state: Option<&'a str>,
    enabled: Option<bool>,
}

/// What is to be done, in order, by what the host says: load state, activity, whether enabled.
fn decide(said: &str, wanted: Wanted<'_>) -> Result<Vec<&'static str>, String> {
    let mut lines = said.lines().map(str::trim);
    let load = lines.next().unwrap_or_default();
    let activity = lines.next().unwrap_or_default();
    let enabled = lines.next().unwrap_or_default();
    match load {
        "none" => return Err("the host has no systemd".to_owned()),
        "not-found" => return Err("there is no such service".to_owned()),
        "masked" => return Err("the service is masked".to_owned()),
        "" => return Err("systemd does not answer".to_owned()),
        _ => {}
    }
    let runs = matches!(activity, "active" | "activating" | "reloading");
    let mut verbs = Vec::new();
    match wanted.enabled {
        Some(true)
            if !matches!(
                enabled,
                "enabled" | "static" | "indirect" | "generated" | "alias"
            ) =>
        {
            verbs.push("enable");
        }
        Some(false) if enabled.starts_with("enabled") => verbs.push("disable"),
        _ => {}
    }
    match wanted.state {
        Some("started") if !runs => verbs.push("start"),
        Some("stopped") if runs => verbs.push("stop"),
        Some("restarted") => verbs.push("restart"),
        _ => {}
    }
    Ok(verbs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_so_is_done() {
        let table = [
            (
                "loaded\nactive\nenabled\n",
                Some("started"),
                Some(true),
                Ok(""),
            ),
            (
                "loaded\ninactive\ndisabled\n",
                Some("started"),
                Some(true),
                Ok("enable start"),
            ),
            (
                "loaded\nactive\nenabled\n",
                Some("stopped"),
                Some(false),
                Ok("disable stop"),
            ),
            ("loaded\nfailed\nenabled\n", Some("stopped"), None, Ok("")),
            (
                "loaded\nactive\nenabled\n",
                Some("restarted"),
                None,
                Ok("restart"),
            ),
            ("loaded\ninactive\nstatic\n", None, Some(true), Ok("")),
            (
                "not-found\ninactive\n",
                Some("started"),
                None,
                Err("no such"),
            ),
            ("none\n", Some("started"), None, Err("no systemd")),
            ("", Some("started"), None, Err("does not answer")),
        ];
        for (said, state, enabled, expected) in table {
            match (decide(said, Wanted { state, enabled }), expected) {
                (Ok(verbs), Ok(expected)) => assert_eq!(verbs.join(" "), expected, "{said}"),
                (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{reason}"),
                (got, _) => panic!("{said}: {got:?}"),
            }
        }
    }
}
