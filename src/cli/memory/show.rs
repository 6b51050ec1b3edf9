//! What GPUs may use, as it is.

use serde_json::{Map, Value, json};

use super::{Looked, finish, look, outcome, waits};
use crate::cli::table::table;
use crate::cli::work::{Outcome, Work};
use crate::event::{Failure, Status};
use crate::figures;
use crate::provision::boot::change::{faults, settings};
use crate::provision::boot::mechanism::mechanism;
use crate::provision::memory::{STEP, Seen, plan, work as doing};

/// `memory show`.
pub async fn show(work: &Work) -> Result<Outcome, Failure> {
    let (_, looked, mut failures) = look(work, false).await?;
    let (mut rows, mut notes, mut by_host) = (Vec::new(), String::new(), Map::new());
    for Looked { host, seen, .. } in &looked {
        let name = &host.name;
        let (pending, faults) = (plan::pending(seen), faults(&seen.ground));
        rows.push(row(name, seen));
        for line in faults.iter().chain(&pending) {
            notes.push_str(&format!("{name}: {}\n", plain(line)));
        }
        for path in &seen.unreadable {
            notes.push_str(&format!(
                "{name}: {} may only be read by root\n",
                plain(path)
            ));
        }
        by_host.insert(name.clone(), shown(seen));
        // A setting that is ignored is worse than none: it looks as if all were well.
        if let Some(fault) = faults.first() {
            finish(work, name, Status::Failed, plain(fault));
            failures.push(doing::failed(name, plain(fault)).at(STEP));
        } else {
            finish(work, name, Status::Ok, in_words(seen));
            failures.extend(waits(name, &pending));
        }
    }
    let text = match rows.is_empty() {
        true => String::new(),
        false => {
            let heading = ["HOST", "GPU MAY USE", "OF", "ACCORDING TO", "SET BY"];
            table(&heading, &rows, &[1, 2]) + &notes
        }
    };
    Ok(outcome(by_host, text, failures))
}

fn row(name: &str, seen: &Seen) -> Vec<String> {
    let (bytes, by) = match plan::in_force(seen) {
        Some((bytes, by)) => (figures::memory(bytes), by),
        None => ("default".to_owned(), "–".to_owned()),
    };
    let way = mechanism(&seen.ground).map_or("–", |way| way.words());
    vec![
        name.to_owned(),
        bytes,
        seen.ram
            .map_or_else(|| "unknown".to_owned(), figures::memory),
        by,
        way.to_owned(),
    ]
}

/// A host's state in a few words.
fn in_words(seen: &Seen) -> String {
    match plan::in_force(seen) {
        Some((bytes, by)) => format!("{} by {by}", figures::memory(bytes)),
        None => "the driver's own choice".to_owned(),
    }
}

/// A host's state for the summary.
pub fn shown(seen: &Seen) -> Value {
    let force = plan::in_force(seen);
    let settings: Vec<Value> = settings(&seen.ground)
        .into_iter()
        .map(|own| json!({"place": own.place, "name": own.name, "value": own.value}))
        .collect();
    json!({
        "mechanism": mechanism(&seen.ground).ok().map(|way| way.words()),
        "ram_bytes": seen.ram,
        "in_force_bytes": force.as_ref().map(|(bytes, _)| *bytes),
        "in_force_by": force.map(|(_, by)| by),
        "settings": settings,
        "pending": plan::pending(seen),
        "faults": faults(&seen.ground),
        "runs": seen.records.iter().map(|record| record.run.clone()).collect::<Vec<_>>(),
    })
}

/// A host's text for a terminal.
pub fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    text.chars().map(plain).collect()
}
