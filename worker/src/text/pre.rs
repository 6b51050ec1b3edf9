//! Splitting text into the words within which byte pairs merge, by the rule a model file names.
//!
//! Each rule is a list of patterns applied one after the other, each within the fragments the one
//! before left; text between matches is a fragment too. The rules as published end in
//! `\s+(?!\S)|\s+`, whose look-ahead forces a backtracking matcher; here the pattern says `\s+` and
//! [`Spaces`] gives back the last space, so that every pattern runs in linear time.

use fancy_regex::Regex;

use super::error::TextError;

/// What happens to a match that ends in white space and is followed by something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spaces {
    /// It stays whole.
    Keep,
    /// A run of several gives its last character to the next word.
    Yield,
    /// The same, but not when the run ends in a line break.
    YieldUnlessBreak,
}

/// A rule as the file names it.
struct Rule {
    names: &'static [&'static str],
    patterns: &'static [(&'static str, Spaces)],
    /// A word that is a token as a whole is taken without merging.
    whole_words: bool,
    /// The begin token is wanted unless the file says otherwise.
    begin: bool,
}

const GPT2: (&str, Spaces) = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+",
    Spaces::Yield,
);

const RULES: &[Rule] = &[
    Rule {
        names: &["default"],
        patterns: &[
            (r"[\p{P}$+<=>^~|]+", Spaces::Keep),
            GPT2,
            (r"\p{N}+", Spaces::Keep),
            (r"[0-9][0-9][0-9]", Spaces::Keep),
        ],
        whole_words: false,
        begin: false,
    },
    Rule {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "lfm2",
            "pixtral",
        ],
        patterns: &[(
            r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessBreak,
        )],
        whole_words: true,
        begin: true,
    },
    Rule {
        names: &["dbrx", "smaug-bpe"],
        patterns: &[(
            r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessBreak,
        )],
        whole_words: false,
        begin: false,
    },
    Rule {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "megrez",
            "stablelm2",
            "hunyuan",
        ],
        patterns: &[(
            r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessBreak,
        )],
        whole_words: false,
        begin: false,
    },
    Rule {
        names: &["qwen35"],
        patterns: &[(
            r"'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessBreak,
        )],
        whole_words: false,
        begin: false,
    },
    Rule {
        names: &[
            "smollm",
            "starcoder",
            "refact",
            "command-r",
            "codeshell",
            "exaone",
            "minerva-7b",
        ],
        patterns: &[(r"\p{N}", Spaces::Keep), GPT2],
        whole_words: false,
        begin: false,
    },
    Rule {
        names: &[
            "gpt-2", "mpt", "olmo", "jais", "phi-2", "exaone4", "trillion",
        ],
        patterns: &[GPT2],
        whole_words: false,
        begin: false,
    },
    Rule {
        names: &["tekken"],
        patterns: &[(
            r"[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]*[\p{L}--[A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]+[\p{L}--[A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessBreak,
        )],
        whole_words: true,
        begin: true,
    },
    Rule {
        names: &["gpt-4o", "llama4"],
        patterns: &[(
            r"[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]*[\p{L}--[A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}--[a-z]]+[\p{L}--[A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
            Spaces::YieldUnlessBreak,
        )],
        whole_words: false,
        begin: false,
    },
    Rule {
        names: &["falcon"],
        patterns: &[
            (r"[\p{P}$+<=>^~|`]+", Spaces::Keep),
            GPT2,
            (r"[0-9][0-9][0-9]", Spaces::Keep),
        ],
        whole_words: false,
        begin: false,
    },
    Rule {
        names: &["deepseek-coder"],
        patterns: &[
            (r"[\r\n]", Spaces::Keep),
            (r"\s?\p{L}+", Spaces::Keep),
            (r"\s?\p{P}+", Spaces::Keep),
            (r"[一-龥ࠀ-一가-퟿]+", Spaces::Keep),
            (r"\p{N}", Spaces::Keep),
        ],
        whole_words: false,
        begin: false,
    },
];

/// A pre-tokenizer, ready to split.
#[derive(Debug)]
pub(super) struct Pre {
    steps: Vec<(Regex, Spaces)>,
    /// A word that is a token as a whole is taken without merging.
    pub(super) whole_words: bool,
    /// The begin token is wanted unless the file says otherwise.
    pub(super) begin: bool,
}

impl Pre {
    /// The rule of that name.
    ///
    /// # Errors
    /// When no rule has the name; the error lists those there are.
    pub(super) fn named(name: &str) -> Result<Pre, TextError> {
        let rule = RULES
            .iter()
            .find(|r| r.names.contains(&name))
            .ok_or_else(|| TextError::UnknownPre {
                name: name.chars().take(80).collect(),
                known: known().join(", "),
            })?;
        let steps = rule
            .patterns
            .iter()
            .map(|(pattern, spaces)| Ok((Regex::new(pattern).map_err(split_error)?, *spaces)))
            .collect::<Result<_, TextError>>()?;
        Ok(Pre {
            steps,
            whole_words: rule.whole_words,
            begin: rule.begin,
        })
    }

    /// The words of `text`, in order; together they are `text`.
    pub(super) fn split<'t>(&self, text: &'t str) -> Result<Vec<&'t str>, TextError> {
        let mut words = vec![text];
        for (regex, spaces) in &self.steps {
            let mut next = Vec::with_capacity(words.len());
            for word in words {
                apply(regex, *spaces, word, &mut next)?;
            }
            words = next;
        }
        Ok(words)
    }
}

/// All names, in the table's order.
fn known() -> Vec<&'static str> {
    RULES.iter().flat_map(|r| r.names.iter().copied()).collect()
}

fn split_error(e: fancy_regex::Error) -> TextError {
    TextError::Split {
        reason: e.to_string(),
    }
}

fn apply<'t>(
    regex: &Regex,
    spaces: Spaces,
    mut rest: &'t str,
    out: &mut Vec<&'t str>,
) -> Result<(), TextError> {
    while !rest.is_empty() {
        let found = regex.find(rest).map_err(split_error)?;
        let Some(found) = found.filter(|m| !m.as_str().is_empty()) else {
            out.push(rest);
            break;
        };
        let word = found.as_str();
        let more = found.end() < rest.len();
        let end = match word.char_indices().next_back() {
            Some((at, last)) if at > 0 && more && yields(spaces, last) => found.start() + at,
            _ => found.end(),
        };
        let (done, after) = rest.split_at(end);
        let (gap, word) = done.split_at(found.start());
        out.extend([gap, word].into_iter().filter(|s| !s.is_empty()));
        rest = after;
    }
    Ok(())
}

/// Whether a match that ends in `last` gives it to the next word.
fn yields(spaces: Spaces, last: char) -> bool {
    last.is_whitespace()
        && match spaces {
            Spaces::Keep => false,
            Spaces::Yield => true,
            Spaces::YieldUnlessBreak => !matches!(last, '\r' | '\n'),
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(name: &str, text: &str) -> Vec<String> {
        let words = Pre::named(name).unwrap();
        let words = words.split(text).unwrap();
        assert_eq!(words.concat(), text);
        words.into_iter().map(str::to_string).collect()
    }

    #[test]
    fn the_last_space_of_a_run_belongs_to_the_next_word() {
        assert_eq!(split("gpt-2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(split("gpt-2", "a \n b  "), ["a", " \n", " b", "  "]);
        assert_eq!(split("llama-bpe", "a   b"), ["a", "  ", " b"]);
        assert_eq!(split("llama-bpe", "a\n\n  b"), ["a", "\n\n", " ", " b"]);
        assert_eq!(split("llama-bpe", "a:\n\n  \n"), ["a", ":\n\n", "  \n"]);
    }

    #[test]
    fn digits_are_grouped_as_the_rule_says() {
        assert_eq!(split("smollm", "x1234"), ["x", "1", "2", "3", "4"]);
        assert_eq!(split("llama-bpe", "1234567"), ["123", "456", "7"]);
        assert_eq!(split("qwen2", "12"), ["1", "2"]);
        assert_eq!(split("gpt-2", "1234 5"), ["1234", " 5"]);
    }

    // A pattern with look-around or back-references would go to the backtracking matcher.
    #[test]
    fn every_rule_compiles_without_backtracking() {
        for name in known() {
            let pre = Pre::named(name).unwrap();
            for (regex, _) in &pre.steps {
                assert!(!regex.as_str().contains("(?!"), "{name}");
                assert!(!regex.as_str().contains("(?="), "{name}");
            }
            assert!(split(name, "").is_empty(), "{name}");
        }
    }

    #[test]
    fn an_unknown_rule_is_refused_by_name_with_the_known_ones() {
        let error = Pre::named("never-heard-of").unwrap_err().to_string();
        assert!(error.contains("`never-heard-of`"), "{error}");
        assert!(
            error.contains("smollm") && error.contains("llama-bpe"),
            "{error}"
        );
    }

    #[test]
    fn a_million_spaces_split_at_once() {
        let text = format!("{}x", " ".repeat(1_000_000));
        assert_eq!(split("llama-bpe", &text).len(), 2);
    }
}
