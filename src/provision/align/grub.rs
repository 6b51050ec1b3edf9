//! `/etc/default/grub` and the files beside it, which a shell reads: the values that become the kernel's
//! command line, edited in place. What a shell would compute is not edited. Must not know which
//! parameters matter.

use thiserror::Error;

use super::words::{self as parameters, Quotes};

/// Variables whose values are added to every entry, and to all but the recovery ones. The first one
/// stands first on the command line (grub manual, "Simple configuration").
pub const VARIABLES: [&str; 2] = ["GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"];

/// Why a file is not edited.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GrubError {
    /// A shell computes the value.
    #[error(
        "line {line}: the value of {variable} is computed by a shell; set {parameter} there by hand"
    )]
    Computed {
        /// The line, from 1.
        line: usize,
        /// The variable.
        variable: String,
        /// What was to be set.
        parameter: String,
    },
    /// The value goes on over several lines, or its quote does not end.
    #[error(
        "line {line}: the value of {variable} does not end on its line; set {parameter} there by hand"
    )]
    Open {
        /// The line, from 1.
        line: usize,
        /// The variable.
        variable: String,
        /// What was to be set.
        parameter: String,
    },
    /// The value cannot stand in such a file without being read as something else.
    #[error("{value:?} cannot be written into a file that a shell reads")]
    Value {
        /// The value.
        value: String,
    },
    /// Neither variable is set in the file.
    #[error("neither GRUB_CMDLINE_LINUX nor GRUB_CMDLINE_LINUX_DEFAULT is set in it")]
    NoVariable,
}

/// An assignment: where its value stands within the text, quotes left out.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Assignment {
    variable: &'static str,
    line: usize,
    from: usize,
    to: usize,
    quote: Option<char>,
    /// Whether the quote ends on the line.
    whole: bool,
}

impl Assignment {
    fn quotes(&self) -> Quotes {
        match self.quote {
            Some('"') => Quotes::Escaped,
            _ => Quotes::Plain,
        }
    }
}

/// The assignments of the variables, in order.
fn assignments(text: &str) -> Vec<Assignment> {
    let mut found = Vec::new();
    let mut start = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        found.extend(assignment(line, number + 1, start));
        start += line.len();
    }
    found
}

fn assignment(line: &str, number: usize, start: usize) -> Option<Assignment> {
    let bare = line.trim_start();
    let bare = bare.strip_prefix("export ").map_or(bare, str::trim_start);
    let (variable, rest) = VARIABLES.iter().find_map(|variable| {
        let rest = bare.strip_prefix(variable)?;
        let value = rest.strip_prefix("+=").or_else(|| rest.strip_prefix('='))?;
        Some((*variable, value))
    })?;
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
    let value = quote.map_or(rest, |_| rest.get(1..).unwrap_or_default());
    let from = start + (line.len() - value.len());
    let (mut to, mut whole) = (value.len(), quote.is_none());
    let mut escaped = false;
    for (at, c) in value.char_indices() {
        let ends = match quote {
            Some('"') => c == '"' && !escaped,
            Some(quote) => c == quote,
            None => c.is_whitespace() || c == '#' || c == ';',
        };
        if ends {
            (to, whole) = (at, true);
            break;
        }
        escaped = c == '\\' && !escaped;
    }
    Some(Assignment {
        variable,
        line: number,
        from,
        to: from + to,
        quote,
        whole,
    })
}

/// Whether a shell computes more of a value than the variables themselves.
fn computed(value: &str, quote: Option<char>) -> bool {
    quote != Some('\'') && (value.contains('`') || value.contains("$("))
}

/// Whether a value can stand in either kind of quotes, and without.
fn is_plain(value: &str) -> bool {
    value
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_.,:=/@+%-".contains(&byte))
}

/// The value that counts in a file, the last on the command line; `Some(None)` for a parameter without
/// a value.
pub fn value(text: &str, name: &str) -> Option<Option<String>> {
    let mut assignments = assignments(text);
    // Those of GRUB_CMDLINE_LINUX stand before the others, whatever their order in the file.
    assignments.sort_by_key(|one| VARIABLES.iter().position(|name| *name == one.variable));
    assignments.iter().rev().find_map(|one| {
        let line = text.get(one.from..one.to)?;
        parameters::value(line, name, one.quotes()).map(|value| value.map(str::to_owned))
    })
}

/// The text with a parameter set (`value`: `Some(None)` without a value) or taken out (`None`): where it
/// stands already, else in `GRUB_CMDLINE_LINUX_DEFAULT`, else in the other. All else stays, byte for
/// byte.
///
/// # Errors
/// When the place is not one that can be edited without running a shell.
pub fn edit(text: &str, name: &str, value: Option<Option<&str>>) -> Result<String, GrubError> {
    if let Some(Some(value)) = value
        && !is_plain(value)
    {
        return Err(GrubError::Value {
            value: value.to_owned(),
        });
    }
    let all = assignments(text);
    let within = |one: &Assignment| text.get(one.from..one.to).unwrap_or_default();
    let has = |one: &&Assignment| parameters::value(within(one), name, one.quotes()).is_some();
    let Some(wanted) = value else {
        return unset(text, name, &all);
    };
    let last = |variable: &str| all.iter().rfind(|one| one.variable == variable);
    let place = all
        .iter()
        .rfind(has)
        .or_else(|| last(VARIABLES[1]))
        .or_else(|| last(VARIABLES[0]));
    let place = place.ok_or(GrubError::NoVariable)?;
    check(place, within(place), name)?;
    let line = parameters::set(within(place), name, wanted, place.quotes());
    Ok(put(text, place, &line))
}

fn unset(text: &str, name: &str, all: &[Assignment]) -> Result<String, GrubError> {
    let mut out = text.to_owned();
    // From the end, so that the places before stay where they are.
    for one in all.iter().rev() {
        let Some(line) = text.get(one.from..one.to) else {
            continue;
        };
        if parameters::value(line, name, one.quotes()).is_some() {
            check(one, line, name)?;
            out = put(&out, one, &parameters::unset(line, name, one.quotes()));
        }
    }
    Ok(out)
}

fn check(place: &Assignment, value: &str, parameter: &str) -> Result<(), GrubError> {
    let (line, variable) = (place.line, place.variable.to_owned());
    let parameter = parameter.to_owned();
    if !place.whole {
        return Err(GrubError::Open {
            line,
            variable,
            parameter,
        });
    }
    if computed(value, place.quote) {
        return Err(GrubError::Computed {
            line,
            variable,
            parameter,
        });
    }
    Ok(())
}

fn put(text: &str, place: &Assignment, line: &str) -> String {
    let before = text.get(..place.from).unwrap_or_default();
    let after = text.get(place.to..).unwrap_or_default();
    // More than one word needs quotes where there are none.
    match place.quote.is_none() && line.contains(char::is_whitespace) {
        true => format!("{before}\"{line}\"{after}"),
        false => format!("{before}{line}{after}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts in the forms that distributions and their users have; what `ttm.pages_limit=9` and then
    /// taking out `quiet` makes of each.
    const TABLE: &[(&str, &str, &str)] = &[
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet splash ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"splash\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT='quiet nowatchdog'\n# a stray ' here\n",
            "GRUB_CMDLINE_LINUX_DEFAULT='quiet nowatchdog ttm.pages_limit=9'\n# a stray ' here\n",
            "GRUB_CMDLINE_LINUX_DEFAULT='nowatchdog'\n# a stray ' here\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=quiet",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=9\"",
            "GRUB_CMDLINE_LINUX_DEFAULT=",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=ttm.pages_limit=9\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\n",
        ),
        (
            "GRUB_CMDLINE_LINUX=\"rhgb quiet\"\nGRUB_TIMEOUT=5\n",
            "GRUB_CMDLINE_LINUX=\"rhgb quiet ttm.pages_limit=9\"\nGRUB_TIMEOUT=5\n",
            "GRUB_CMDLINE_LINUX=\"rhgb\"\nGRUB_TIMEOUT=5\n",
        ),
        (
            "GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
            "GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"ttm.pages_limit=1 b\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\nGRUB_CMDLINE_LINUX=\"ttm.pages_limit=9 b\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"\"\nGRUB_CMDLINE_LINUX=\"ttm.pages_limit=1 b\"\n",
        ),
        (
            "#GRUB_CMDLINE_LINUX_DEFAULT=\"old\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"x\" # mine\n",
            "#GRUB_CMDLINE_LINUX_DEFAULT=\"old\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"x ttm.pages_limit=9\" # mine\n",
            "#GRUB_CMDLINE_LINUX_DEFAULT=\"old\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"x\" # mine\n",
        ),
        (
            "GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX b quiet\"\n",
            "GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX b quiet ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX=\"a\"\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX b\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT+=\" quiet\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT+=\" quiet ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT+=\"\"\n",
        ),
        (
            "export GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n",
            "export GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=9\"\n",
            "export GRUB_CMDLINE_LINUX_DEFAULT=\"\"\n",
        ),
        (
            "  GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\r\nA=1\r\n",
            "  GRUB_CMDLINE_LINUX_DEFAULT=\"quiet ttm.pages_limit=9\"\r\nA=1\r\n",
            "  GRUB_CMDLINE_LINUX_DEFAULT=\"\"\r\nA=1\r\n",
        ),
        (
            "GRUB_CMDLINE_LINUX=\"dyndbg=\\\"module a +p\\\" quiet\"\n",
            "GRUB_CMDLINE_LINUX=\"dyndbg=\\\"module a +p\\\" quiet ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX=\"dyndbg=\\\"module a +p\\\"\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX=\"rd.luks.uuid=l-1 rd.luks.uuid=l-2 quiet\"\n",
            "GRUB_CMDLINE_LINUX=\"rd.luks.uuid=l-1 rd.luks.uuid=l-2 quiet ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX=\"rd.luks.uuid=l-1 rd.luks.uuid=l-2\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=1 quiet ttm.pages_limit=2\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=1 quiet ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=1 ttm.pages_limit=2\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"loglevel=3 ttm.pages-limit=1\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"loglevel=3 ttm.pages-limit=9\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"loglevel=3 ttm.pages-limit=1\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT='d=\"module a +p\" quiet'\n",
            "GRUB_CMDLINE_LINUX_DEFAULT='d=\"module a +p\" quiet ttm.pages_limit=9'\n",
            "GRUB_CMDLINE_LINUX_DEFAULT='d=\"module a +p\"'\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_RECOVERY=\"quiet\"\nGRUB_CMDLINE_LINUX=\"a\"\n",
            "GRUB_CMDLINE_LINUX_RECOVERY=\"quiet\"\nGRUB_CMDLINE_LINUX=\"a ttm.pages_limit=9\"\n",
            "GRUB_CMDLINE_LINUX_RECOVERY=\"quiet\"\nGRUB_CMDLINE_LINUX=\"a\"\n",
        ),
        (
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet  splash \"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet  splash ttm.pages_limit=9 \"\n",
            "GRUB_CMDLINE_LINUX_DEFAULT=\" splash \"\n",
        ),
    ];

    #[test]
    fn the_wanted_change_is_made_and_nothing_else_and_twice_changes_nothing() {
        for (text, set, unset) in TABLE {
            let once = edit(text, "ttm.pages_limit", Some(Some("9"))).unwrap();
            assert_eq!(&once, set, "{text:?}");
            assert_eq!(
                edit(&once, "ttm.pages_limit", Some(Some("9"))).unwrap(),
                *set
            );
            assert_eq!(
                value(&once, "ttm.pages_limit"),
                Some(Some("9".to_owned())),
                "{text:?}"
            );
            let without = edit(text, "quiet", None).unwrap();
            assert_eq!(&without, unset, "{text:?}");
            assert_eq!(edit(&without, "quiet", None).unwrap(), *unset);
        }
    }

    #[test]
    fn what_is_set_anew_goes_away_again_byte_for_byte() {
        for (text, ..) in TABLE.iter().filter(|(text, ..)| !text.contains("pages")) {
            let set = edit(text, "ttm.pages_limit", Some(Some("9"))).unwrap();
            let back = edit(&set, "ttm.pages_limit", None).unwrap();
            // Quotes that were needed for a second word stay.
            assert_eq!(
                back.replace("\"quiet\"", "quiet"),
                text.replace("\"quiet\"", "quiet")
            );
        }
    }

    #[test]
    fn what_a_shell_would_compute_is_left_to_a_person_with_the_line() {
        for (text, line) in [
            ("A=1\nGRUB_CMDLINE_LINUX=\"$(cat /etc/x)\"\n", "line 2: "),
            ("GRUB_CMDLINE_LINUX=`x`\n", "line 1: "),
            ("GRUB_CMDLINE_LINUX=\"a \\\n b\"\n", "line 1: "),
            ("GRUB_CMDLINE_LINUX='open\n", "line 1: "),
        ] {
            let error = edit(text, "a.b", Some(Some("9"))).unwrap_err().to_string();
            assert!(
                error.starts_with(line) && error.contains("a.b"),
                "{text:?}: {error}"
            );
        }
        assert_eq!(edit("A=1\n", "a", Some(None)), Err(GrubError::NoVariable));
        for value in ["a b", "$x", "a\"", "`x`", "a;b"] {
            let text = "GRUB_CMDLINE_LINUX=\"\"\n";
            assert!(edit(text, "a", Some(Some(value))).is_err(), "{value}");
        }
        // Where nothing is to go, nothing is touched.
        let text = "GRUB_CMDLINE_LINUX=\"$(x)\"\n";
        assert_eq!(edit(text, "a", None).unwrap(), text);
    }
}
