//! A comparison as text: hosts as columns, only what differs, then why it matters and what mends it.
//! Must not know how it was made.

use std::collections::BTreeSet;

use super::super::table::table;
use crate::figures::counted;
use crate::provision::drift::{Bad, Comparison, Row, rules};
use crate::report::plain::harmless;

/// Most characters of a value in a column.
const WIDEST: usize = 36;
/// Most rows of one subject; a machine that lacks a desktop has a thousand packages less.
const MOST: usize = 12;

/// The whole text.
pub fn text(comparison: &Comparison, bad: &[Bad]) -> String {
    let mut out = String::new();
    if !comparison.rows.is_empty() {
        out.push_str(&rows(comparison));
        out.push('\n');
        out.push_str(&reasons(comparison));
    }
    for bad in bad {
        out.push_str(&format!(
            "{}: {}\n",
            harmless(&bad.host),
            harmless(&bad.words())
        ));
    }
    if !bad.is_empty() {
        out.push('\n');
    }
    out.push_str(&format!(
        "{} as the rules ask",
        counted(comparison.equal, "subject", "subjects")
    ));
    if !comparison.untold.is_empty() {
        out.push_str(&format!("; no host tells {}", comparison.untold.join(", ")));
    }
    out.push('\n');
    out
}

fn rows(comparison: &Comparison) -> String {
    let drifted = comparison.drifted();
    let first = comparison.reference.as_str();
    let hosts: Vec<&str> = std::iter::once(first)
        .chain(drifted.into_iter().filter(|host| *host != first))
        .collect();
    let mut heading = vec!["SUBJECT".to_owned(), format!("{first} (reference)")];
    heading.extend(hosts.iter().skip(1).map(|host| (*host).to_owned()));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut lines = Vec::new();
    for subject in subjects(comparison) {
        let of: Vec<&Row> = comparison
            .rows
            .iter()
            .filter(|row| row.subject == subject)
            .collect();
        lines.extend(of.iter().take(MOST).map(|row| line(row, &hosts)));
        if of.len() > MOST {
            let mut more = vec![format!("{subject}: {} more", of.len() - MOST)];
            more.extend(hosts.iter().map(|host| {
                let differs = |row: &&&Row| row.differs.contains(*host);
                match of.iter().skip(MOST).filter(differs).count() {
                    0 => String::new(),
                    count => format!("✗ {count} (all of them with --json)"),
                }
            }));
            lines.push(more);
        }
    }
    table(&heading, &lines, &[])
}

fn line(row: &Row, hosts: &[&str]) -> Vec<String> {
    let name = match &row.key {
        Some(key) => format!("{} {key}", row.subject),
        None => row.subject.clone(),
    };
    let mut cells = vec![short(&harmless(&name))];
    let reference = hosts.first().and_then(|host| row.values.get(*host));
    cells.extend(hosts.iter().enumerate().map(|(column, host)| {
        let Some(value) = row.values.get(*host) else {
            return "–".to_owned();
        };
        let shown = value
            .as_deref()
            .map_or_else(|| "unknown".to_owned(), |v| short(&harmless(v)));
        if row.differs.contains(*host) {
            format!("✗ {shown}")
        } else if row.unknown.contains(*host) {
            format!("? {shown}")
        } else if column > 0 && reference == Some(value) {
            "=".to_owned()
        } else {
            shown
        }
    }));
    cells
}

/// The subjects that have rows, in order.
fn subjects(comparison: &Comparison) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let all = comparison.rows.iter().map(|row| row.subject.as_str());
    all.filter(|subject| seen.insert(*subject)).collect()
}

fn reasons(comparison: &Comparison) -> String {
    let mut out = String::new();
    for subject in subjects(comparison) {
        let of: Vec<&Row> = comparison
            .rows
            .iter()
            .filter(|row| row.subject == subject)
            .collect();
        let (Some(row), Some(rule)) = (of.first(), rules::rule(subject)) else {
            continue;
        };
        let keys: Vec<&str> = of.iter().filter_map(|row| row.key.as_deref()).collect();
        let named = match keys.as_slice() {
            [] => String::new(),
            [first, second, third, _, ..] => format!("{first}, {second}, {third}, …"),
            few => few.join(", "),
        };
        out.push_str(&format!(
            "{subject}: {}\n  mend: {}\n",
            row.why,
            rule.mend.replace("{key}", &harmless(&named))
        ));
    }
    out.push('\n');
    out
}

fn short(text: &str) -> String {
    if text.chars().count() <= WIDEST {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(WIDEST - 1).collect();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Facts, Settings};
    use crate::provision::drift::{Seen, compare};

    fn host(kernel: &str, packages: &[(&str, &str)]) -> (Facts, Settings) {
        let mut facts = Facts {
            system: Some("linux".into()),
            ..Facts::default()
        };
        facts.kernel.release = Some(kernel.into());
        let packages = packages
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        let settings = Settings {
            packages: Some(std::sync::Arc::new(packages.collect())),
            ..Settings::default()
        };
        (facts, settings)
    }

    fn shown(hosts: &[(&str, &(Facts, Settings))]) -> String {
        let seen: Vec<Seen<'_>> = hosts
            .iter()
            .map(|(host, (facts, settings))| Seen {
                host,
                facts,
                settings: Some(settings),
                data: None,
            })
            .collect();
        text(&compare("halo1", &seen, rules::rules()), &[])
    }

    #[test]
    fn only_hosts_and_rows_that_differ_are_shown_with_why_and_what_mends_it() {
        let good = host("6.18.9", &[("zstd", "1.5")]);
        let other = host("6.17.1", &[("zstd", "1.4"), ("odd\u{1b}[2J", "1")]);
        let found = shown(&[("halo1", &good), ("halo2", &good), ("halo3", &other)]);
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines[0], "SUBJECT           halo1 (reference)  halo3");
        assert_eq!(lines[1], "kernel            6.18.9             ✗ 6.17.1");
        assert_eq!(lines[2], "packages odd\u{fffd}[2J  absent             ✗ 1");
        assert_eq!(lines[3], "packages zstd     1.5                ✗ 1.4");
        assert!(found.contains("kernel: the GPU's driver"), "{found}");
        assert!(
            found.contains("or install odd\u{fffd}[2J, zstd in"),
            "{found}"
        );
        assert!(
            !found.contains("halo2") && !found.contains('\u{1b}'),
            "{found}"
        );
    }

    #[test]
    fn a_machine_that_lacks_many_packages_does_not_flood_the_table() {
        let names: Vec<String> = (0..40).map(|n| format!("p{n:02}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        let found = shown(&[("halo1", &host("1", &many)), ("halo2", &host("1", &[]))]);
        assert!(
            found.contains("packages: 28 more") && found.contains("✗ 28"),
            "{found}"
        );
        assert_eq!(
            found
                .lines()
                .filter(|line| line.starts_with("packages "))
                .count(),
            MOST
        );
    }

    #[test]
    fn hosts_that_are_alike_are_one_line() {
        let good = host("6.18.9", &[]);
        let found = shown(&[("halo1", &good), ("halo2", &good)]);
        assert!(
            found.starts_with("4 subjects as the rules ask; no host tells"),
            "{found}"
        );
    }
}
