//! Names in expressions that can be known before a run: which there are, and which was meant. Pure.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::facts::Facts;
use crate::inventory::fault::offer;
use crate::playbook::expression::is_function;

/// What an expression may begin with.
const ROOTS: [&str; 4] = ["vars", "host", "facts", "results"];
/// What is known of a host without reaching it.
pub const HOST: [&str; 8] = [
    "name",
    "address",
    "data",
    "data_port",
    "user",
    "connection",
    "groups",
    "vars",
];

/// Names of the facts at the first level, as the facts themselves have them.
static FACTS: LazyLock<Vec<String>> =
    LazyLock::new(|| match serde_json::to_value(Facts::default()) {
        Ok(serde_json::Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => Vec::new(),
    });

/// What names an expression may use, where it stands.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Values of the file.
    pub vars: BTreeSet<String>,
    /// Registered by earlier tasks of the file.
    pub results: BTreeSet<String>,
    /// Further beginnings.
    pub further: &'static [&'static str],
    /// Why `host` and `facts` are not known here.
    pub no_host: Option<String>,
    /// Whether only `vars` are known here.
    pub only_vars: bool,
}

/// A name that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The name, with its dots, as far as it is wrong.
    pub name: String,
    /// What is wrong.
    pub message: String,
    /// The nearest valid one.
    pub nearest: Option<String>,
    /// The result it names, when an included file may have registered it.
    pub result: Option<String>,
}

impl Known {
    /// What is wrong with a name, with its dots.
    pub fn wrong(&self, name: &str) -> Option<Wrong> {
        let mut parts = name.split('.');
        let root = parts.next().unwrap_or_default();
        let second = parts.next();
        let wrong = |message: String, nearest: Option<String>| {
            Some(Wrong {
                name: second.map_or_else(|| root.to_owned(), |second| format!("{root}.{second}")),
                message,
                nearest,
                result: None,
            })
        };
        if is_function(root) || self.further.contains(&root) {
            return None;
        }
        if !ROOTS.contains(&root) {
            let (offered, nearest) =
                offer(root, ROOTS.into_iter().chain(self.further.iter().copied()));
            let message = format!(
                "there is no \"{root}\"{offered} (known are {})",
                ROOTS.join(", ")
            );
            return Some(Wrong {
                name: root.to_owned(),
                message,
                nearest,
                result: None,
            });
        }
        if self.only_vars && root != "vars" {
            return wrong(
                format!("{root} is not known here: only vars are"),
                Some("vars".to_owned()),
            );
        }
        if let ("host" | "facts", Some(why)) = (root, &self.no_host) {
            return wrong(format!("{root} is not known here: {why}"), None);
        }
        let second = second?;
        let among = |valid: &[&str], what: &str| {
            if valid.contains(&second) {
                return None;
            }
            let (offered, nearest) = offer(second, valid.iter().copied());
            let none = if valid.is_empty() {
                format!(": no {what} is there yet")
            } else {
                String::new()
            };
            wrong(
                format!("there is no {root}.{second}{offered}{none}"),
                nearest,
            )
        };
        match root {
            "vars" => {
                let valid: Vec<&str> = self.vars.iter().map(String::as_str).collect();
                among(&valid, "value of `vars`")
            }
            "host" => among(&HOST, "value"),
            "facts" => {
                let valid: Vec<&str> = FACTS.iter().map(String::as_str).collect();
                among(&valid, "fact")
            }
            _ => {
                let valid: Vec<&str> = self.results.iter().map(String::as_str).collect();
                among(&valid, "registered result of an earlier task").map(|wrong| Wrong {
                    result: Some(second.to_owned()),
                    ..wrong
                })
            }
        }
    }
}

/// Where in a text a name stands as a whole, in bytes from its start.
pub fn find(text: &str, name: &str) -> Option<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).and_then(|t| t.chars().next_back());
        let after = text.get(at + name.len()..).and_then(|t| t.chars().next());
        !before.is_some_and(|c| is_part(c) || c == '.') && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            vars: ["model".to_owned(), "context".to_owned()].into(),
            results: ["served".to_owned()].into(),
            ..Known::default()
        }
    }

    #[test]
    fn known_names_pass_and_unknown_ones_come_with_the_nearest() {
        let known = known();
        for name in [
            "vars.model",
            "vars",
            "host.name",
            "host.vars.rack",
            "facts.os.name",
            "facts.memory",
            "results.served.changed",
            "range",
        ] {
            assert_eq!(known.wrong(name), None, "{name}");
        }
        for (name, nearest) in [
            ("vars.modle", "model"),
            ("var.model", "vars"),
            ("host.adress", "address"),
            ("facts.memry.total_bytes", "memory"),
            ("results.serve.changed", "served"),
        ] {
            let wrong = known.wrong(name).unwrap();
            assert_eq!(wrong.nearest.as_deref(), Some(nearest), "{name}");
            assert!(wrong.message.contains(nearest), "{}", wrong.message);
        }
    }

    #[test]
    fn what_works_on_all_hosts_knows_no_single_one() {
        let known = Known {
            no_host: Some("up works on all hosts at once".into()),
            ..known()
        };
        assert!(known.wrong("facts.os.name").is_some());
        assert!(known.wrong("vars.model").is_none());
    }

    #[test]
    fn a_name_is_found_as_a_whole_only() {
        assert_eq!(find("vars.models + vars.model", "vars.model"), Some(14));
        assert_eq!(find("xvars.a", "vars.a"), None);
    }
}
