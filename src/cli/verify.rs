//! `windlass verify`: whether the hosts are the same where it matters; the table of what is not, and
//! the summary. Decides nothing about what matters.

pub(super) mod text;

use super::arguments::{Common, VerifyArguments};
use super::work::{Outcome, Work, perform};
use crate::event::{Exit, Failure};
use crate::provision::drift::{Seen, judge};

pub(super) use crate::deploy::remote::read::{Read, read, read_all};

/// Runs the command.
pub fn verify(common: &Common, arguments: &VerifyArguments) -> Exit {
    let against = arguments.against.clone();
    perform(common, "verify", Vec::new(), move |work| async move {
        match run(&work, against.as_deref()).await {
            Ok(outcome) => outcome,
            Err(failure) => failure.into(),
        }
    })
}

async fn run(work: &Work, against: Option<&str>) -> Result<Outcome, Failure> {
    let (reference, read, failures) = read_all(work, against, drop).await?;
    let seen = seen(read.iter().map(|(read, ())| read));
    let judged = judge(&reference, &seen);
    judged.tell(&seen, &work.emitter);
    Ok(Outcome {
        fields: judged.fields(),
        text: text::text(&judged.comparison, &judged.bad),
        failure: failures.into_iter().next().or_else(|| judged.failure()),
        ..Outcome::default()
    })
}

/// The interface that carries a host's data path, where that is known.
pub(super) fn interface(read: &Read) -> Option<&str> {
    let seen = Seen::of(&read.host, &read.facts, &read.settings);
    seen.data_interface()
        .map(|interface| interface.name.as_str())
}

/// What was read, to be compared.
pub(super) fn seen<'a>(read: impl IntoIterator<Item = &'a Read>) -> Vec<Seen<'a>> {
    let read = read.into_iter();
    read.map(|read| Seen::of(&read.host, &read.facts, &read.settings))
        .collect()
}
