//! Why a deployment is started anew, decided from what its hosts say. Pure.

use super::record::Record;

/// A host of the new deployment, as it was found.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Its name.
    pub host: &'a str,
    /// The record that lies there.
    pub record: Option<&'a Record>,
    /// How its worker is, in its keeper's word; `None` when that could not be found out.
    pub worker: Option<&'a str>,
    /// Pieces that its worker has as they were before they were replaced.
    pub stale: usize,
    /// Whether pieces were sent there, or made, in this run.
    pub sent: bool,
}

/// Whether anything is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing runs.
    First,
    /// What runs is what is wanted.
    Serves,
    /// What runs is stopped and started anew, for these reasons.
    Anew(Vec<String>),
}

/// Decides. `old` is the record that leads among those on the hosts, `head` what the head says it is, or
/// why it says nothing; `None` before it was asked, which is worth while only when the verdict is
/// [`Verdict::Serves`] without it.
pub fn verdict(
    old: Option<&Record>,
    new: &Record,
    seen: &[Seen<'_>],
    head: Option<Result<&str, &str>>,
) -> Verdict {
    let Some(old) = old else {
        return Verdict::First;
    };
    let mut reasons = old.changes(new);
    let planned = !reasons.is_empty();
    let pieces = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 piece that {one}"),
        count => format!("{count} pieces that {many}"),
    };
    for host in seen {
        let name = host.host;
        // What follows from a change is no reason of its own.
        let took_part = old.stage_on(name).is_some();
        match host.record {
            None if took_part => reasons.push(format!("{name} has no record of it any more")),
            Some(own) if own.deployment != old.deployment => {
                reasons.push(format!("{name} has the record of another deployment"));
            }
            _ => {}
        }
        // What was sent in this run replaced them just now.
        if host.stale > 0 && !host.sent {
            let what = pieces(host.stale, "was replaced since", "were replaced since");
            reasons.push(format!("the worker on {name} still has {what}"));
        }
        if !planned && host.sent {
            reasons.push(format!("pieces on {name} were missing or damaged"));
        }
        if took_part && !planned {
            match host.worker {
                Some("active") => {}
                Some(state) => reasons.push(format!("the worker on {name} is {state}")),
                None => reasons.push(format!(
                    "how the worker on {name} is could not be found out"
                )),
            }
        }
    }
    if reasons.is_empty() {
        match head {
            None | Some(Ok("serving")) => return Verdict::Serves,
            Some(Ok(state)) => reasons.push(format!("the head does not serve, it is {state}")),
            Some(Err(why)) => reasons.push(format!("the head does not answer ({why})")),
        }
    }
    Verdict::Anew(reasons)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{record, stage_of};
    use super::*;

    #[test]
    fn every_reason_for_a_new_start_is_the_true_one() {
        let two = |edit: fn(&mut Record)| {
            let mut record = record();
            record.stages.push(stage_of("halo2"));
            edit(&mut record);
            record
        };
        let same = two(|_| {});
        let other = two(|r| r.deployment = "halo-9".into());
        let more = two(|r| r.stages.push(stage_of("halo3")));
        let program = two(|r| r.stages[1].program_sha256.clear());
        struct Case<'a> {
            new: &'a Record,
            edit: fn(&mut [Seen<'_>; 2]),
            record: Option<&'a Record>,
            head: Option<Result<&'a str, &'a str>>,
            wanted: &'a [&'a str],
        }
        let plain = Case {
            new: &same,
            edit: |_| {},
            record: Some(&same),
            head: Some(Ok("serving")),
            wanted: &[],
        };
        let table = [
            Case { ..plain },
            Case {
                head: None,
                ..plain
            },
            // Only the hosts changed: it is neither the program, nor that it does not serve.
            Case {
                new: &more,
                edit: |seen| seen[1].sent = true,
                wanted: &["the hosts (halo3 is new)"],
                ..plain
            },
            Case {
                new: &program,
                wanted: &["the worker's program"],
                ..plain
            },
            // Repaired in this run, and repaired by a push before.
            Case {
                edit: |seen| seen[1].sent = true,
                wanted: &["pieces on halo2 were missing or damaged"],
                ..plain
            },
            Case {
                edit: |seen| (seen[1].sent, seen[1].stale) = (true, 1),
                wanted: &["pieces on halo2 were missing or damaged"],
                ..plain
            },
            Case {
                edit: |seen| seen[1].stale = 1,
                wanted: &["the worker on halo2 still has 1 piece that was replaced since"],
                ..plain
            },
            Case {
                edit: |seen| (seen[0].stale, seen[1].worker) = (3, Some("failed")),
                wanted: &[
                    "the worker on halo1 still has 3 pieces that were replaced since",
                    "the worker on halo2 is failed",
                ],
                ..plain
            },
            Case {
                edit: |seen| seen[1].worker = None,
                wanted: &["how the worker on halo2 is could not be found out"],
                ..plain
            },
            Case {
                record: None,
                wanted: &["halo2 has no record of it any more"],
                ..plain
            },
            Case {
                record: Some(&other),
                wanted: &["halo2 has the record of another deployment"],
                ..plain
            },
            Case {
                head: Some(Ok("starting")),
                wanted: &["the head does not serve, it is starting"],
                ..plain
            },
            Case {
                head: Some(Err("no socket")),
                wanted: &["the head does not answer (no socket)"],
                ..plain
            },
        ];
        for case in &table {
            let seen = |host, record| Seen {
                host,
                record,
                worker: Some("active"),
                stale: 0,
                sent: false,
            };
            let mut all = [seen("halo1", Some(&same)), seen("halo2", case.record)];
            (case.edit)(&mut all);
            let wanted = match case.wanted {
                [] => Verdict::Serves,
                reasons => Verdict::Anew(reasons.iter().map(|r| (*r).to_owned()).collect()),
            };
            assert_eq!(verdict(Some(&same), case.new, &all, case.head), wanted);
        }
        assert_eq!(verdict(None, &same, &[], None), Verdict::First);
    }
}
