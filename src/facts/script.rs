//! The script that reads a host, and its answer cut into sections. Must not know what is in them.

use std::collections::BTreeMap;

use crate::ssh::quote;

/// The script without what is set before it.
const SCRIPT: &str = concat!(include_str!("gather_gpu.sh"), include_str!("gather.sh"));

/// A marker that no file on the host can hold by chance.
///
/// # Errors
/// When the system has no random numbers.
pub fn mark() -> Result<String, String> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("#facts-{digits}"))
}

/// The script. `folder`: one more folder to ask the room of.
pub fn script(mark: &str, folder: Option<&str>) -> String {
    format!(
        "mark={}\nfolder={}\n{SCRIPT}",
        quote(mark),
        quote(folder.unwrap_or_default())
    )
}

/// What the script said, by section.
#[derive(Clone, Debug, Default)]
pub struct Sections<'a> {
    texts: BTreeMap<&'a str, &'a str>,
}

impl<'a> Sections<'a> {
    /// Cuts the answer at its marker lines.
    ///
    /// # Errors
    /// When it does not reach its last marker.
    pub fn parse(text: &'a str, mark: &str) -> Result<Self, String> {
        let mut texts = BTreeMap::new();
        // What stands before the first marker is not ours.
        for part in text.split(&format!("\n{mark} ")).skip(1) {
            let (name, text) = part.split_once('\n').unwrap_or((part, ""));
            if name.trim_end() == "end" {
                return Ok(Self { texts });
            }
            texts.insert(name.trim_end(), text);
        }
        Err(match texts.last_key_value() {
            Some(_) => "the answer was cut off".into(),
            None => "the host's shell gave no answer".into(),
        })
    }

    /// A section's text; empty when it is not there.
    pub fn get(&self, name: &str) -> &'a str {
        self.texts.get(name).copied().unwrap_or_default()
    }

    /// A section's text, when the script has written it.
    pub fn find(&self, name: &str) -> Option<&'a str> {
        self.texts.get(name).copied()
    }
}

/// The value of the first line `name value`, without blanks around; `None` when it is empty.
pub(super) fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(' ')?.trim();
        (!value.is_empty()).then_some(value)
    })
}

/// Whether this line is there.
pub(super) fn says(text: &str, line: &str) -> bool {
    text.lines().any(|found| found.trim_end() == line)
}

/// A number behind a name.
pub(super) fn number<T: std::str::FromStr>(text: &str, name: &str) -> Option<T> {
    value(text, name)?.parse().ok()
}

/// The parts of a text that begin with a line `name …`, each with what stands behind the name.
pub(super) fn parts<'a>(text: &'a str, name: &str) -> Vec<(&'a str, &'a str)> {
    let start = format!("{name} ");
    let mut found: Vec<(&str, &str)> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        if let Some(label) = line.strip_prefix(&start) {
            let end = match after.starts_with(&start) {
                true => 0,
                false => after
                    .find(&format!("\n{start}"))
                    .map_or(after.len(), |at| at + 1),
            };
            let (part, next) = after.split_at_checked(end).unwrap_or((after, ""));
            found.push((label.trim(), part));
            rest = next;
        } else {
            rest = after;
        }
    }
    found
}

/// A text that says something, without blanks around.
pub(super) fn some(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
