//! The patterns of OpenSSH's files: `*`, `?`, `!`. Must not know what they are about.

/// Whether the whole text matches: `*` any characters, `?` one. Letters count as they stand.
pub fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star did not match: the star takes one more.
    let mut again: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                again = Some((p + 1, t));
                p += 1;
            }
            Some(c) if *c == '?' || Some(c) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => match again {
                Some((star, taken)) => {
                    again = Some((star, taken + 1));
                    p = star;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

/// Whether any pattern matches and none that begins with `!` does.
pub fn any<'a>(patterns: impl IntoIterator<Item = &'a str>, text: &str) -> bool {
    let mut found = false;
    for pattern in patterns {
        match pattern.strip_prefix('!') {
            Some(not) if matches(not, text) => return false,
            Some(_) => {}
            None => found |= matches(pattern, text),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_marks_match_as_in_ssh_config() {
        let table = [
            ("*", "", true),
            ("*", "a.b", true),
            ("", "", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "A", false),
            ("?", "", false),
            ("?", "ab", false),
            ("a?c", "abc", true),
            ("*.lan", "x.lan", true),
            ("*.lan", "x.lan.org", false),
            ("10.0.*.1", "10.0.7.1", true),
            ("a*b*c", "a1b2b3c", true),
            ("a*b*c", "a1b2b3", false),
            ("**a**", "bab", true),
            ("[ab]", "a", false),
        ];
        for (pattern, text, wanted) in table {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_end_quickly() {
        let pattern = "*a".repeat(60);
        assert!(!matches(&pattern, &"a".repeat(59)));
        assert!(matches(&pattern, &"a".repeat(4000)));
        assert!(!matches(&format!("{pattern}b"), &"a".repeat(4000)));
    }

    #[test]
    fn a_negated_pattern_forbids_and_never_allows() {
        assert!(any(["*.lan", "!x.lan"], "y.lan"));
        assert!(!any(["*.lan", "!x.lan"], "x.lan"));
        assert!(!any(["!x.lan", "*.lan"], "x.lan"));
        assert!(!any(["!x.lan"], "y.lan"));
    }
}
