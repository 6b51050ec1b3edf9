//! The recap of a run in lines: why it failed, what was done to which host, how to go on. Pure.

use super::plain::{STEP_WIDTH, Style, paint};
use crate::event::Summary;
use crate::figures::{seconds, size};

/// The last line or lines.
pub(super) fn recap(summary: &Summary, run: &str, open: &[String], style: Style) -> String {
    let mut lines = Vec::new();
    if let Some(error) = &summary.error {
        let place: Vec<_> = [error.host.as_deref(), error.step.as_deref()]
            .into_iter()
            .flatten()
            .collect();
        let place = if place.is_empty() {
            String::new()
        } else {
            format!("{}: ", place.join(", "))
        };
        let word = paint(style, true, "error");
        lines.push(format!("{word}: {place}{}", error.message));
    }
    if style.quiet {
        return lines.join("\n");
    }
    if !open.is_empty() {
        lines.push(format!("{:<STEP_WIDTH$} {}", "not begun", open.join(", ")));
    }
    let mut parts = Vec::new();
    for (host, count) in &summary.hosts {
        let words = [
            (count.ok, "ok"),
            (count.changed, "changed"),
            (count.would_change, "would change"),
            (count.skipped, "skipped"),
            (count.failed, "failed"),
            (count.unreachable, "unreachable"),
            (count.unknown, "unknown"),
        ];
        let mut words: Vec<_> = words
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if count.bytes_sent > 0 {
            words.push(format!("{} sent", size(count.bytes_sent)));
        }
        if !words.is_empty() {
            parts.push(format!("{host} {}", words.join(" ")));
        }
    }
    // A command that did nothing to any host and went well has nothing to recap.
    if !summary.hosts.is_empty() || summary.exit != 0 {
        lines.push(format!(
            "{:<STEP_WIDTH$} {}{}exit {}   {}   run {run}",
            "recap",
            parts.join(" · "),
            if parts.is_empty() { "" } else { "   " },
            summary.exit,
            seconds(summary.seconds),
        ));
    }
    if let Some(resume) = summary.fields.get("resume").and_then(|text| text.as_str()) {
        lines.push(format!("{:<STEP_WIDTH$} {resume}", "resume"));
    }
    lines.join("\n")
}
