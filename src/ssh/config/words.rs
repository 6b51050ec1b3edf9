//! A line of ssh_config(5) as keyword and words. Must not know what keywords mean.

/// A line that says something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The keyword, lower case.
    pub keyword: String,
    /// As it is written, for messages.
    pub written: String,
    /// What follows, unquoted; or why it cannot be read.
    pub arguments: Result<Vec<String>, &'static str>,
}

/// `None` for an empty line or a comment.
pub(super) fn split(line: &str) -> Option<Words> {
    let line = line.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0c');
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line
        .find(|c: char| c == '=' || c.is_ascii_whitespace())
        .unwrap_or(line.len());
    let (written, rest) = line.split_at(end);
    let rest = rest.trim_start();
    // One sign between keyword and value, with or without blanks.
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let written = written.trim_matches('"');
    Some(Words {
        keyword: written.to_ascii_lowercase(),
        written: written.to_owned(),
        arguments: arguments(rest),
    })
}

/// Words with quotes of both kinds, backslashes before quotes, blanks and themselves, and a comment
/// at the end.
fn arguments(text: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
        if matches!(rest.peek(), None | Some('#')) {
            return Ok(words);
        }
        let mut word = String::new();
        let mut quote = None;
        while let Some(c) = rest.next() {
            match c {
                '\\' => {
                    let escaped =
                        |c: &char| matches!(c, '\'' | '"' | '\\') || (quote.is_none() && *c == ' ');
                    word.push(rest.next_if(escaped).unwrap_or('\\'));
                }
                ' ' | '\t' if quote.is_none() => break,
                '"' | '\'' if quote.is_none() => quote = Some(c),
                c if quote == Some(c) => quote = None,
                c => word.push(c),
            }
        }
        if quote.is_some() {
            return Err("a quote is not closed");
        }
        words.push(word);
    }
}

/// A time: seconds, or numbers with `s`, `m`, `h`, `d`, `w` in a row. `None` when it is not one.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut number: Option<u64> = None;
    for c in text.chars() {
        if let Some(digit) = c.to_digit(10) {
            let so_far = number.unwrap_or(0);
            number = Some(so_far.checked_mul(10)?.checked_add(u64::from(digit))?);
            continue;
        }
        let unit = match c.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            'w' => 604_800,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    if text.is_empty() {
        return None;
    }
    total.checked_add(number.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_as_openssh_does() {
        type Wanted = Option<(&'static str, &'static [&'static str])>;
        let table: [(&str, Wanted); 14] = [
            ("", None),
            ("   # HostName x", None),
            ("HostName db.lan", Some(("hostname", &["db.lan"]))),
            ("\tHOSTNAME=db.lan\r", Some(("hostname", &["db.lan"]))),
            ("HostName = db.lan  ", Some(("hostname", &["db.lan"]))),
            ("HostName =db.lan # there", Some(("hostname", &["db.lan"]))),
            ("HostName db.lan#1", Some(("hostname", &["db.lan#1"]))),
            ("Host a  b\t!c", Some(("host", &["a", "b", "!c"]))),
            ("IdentityFile \"a b\"", Some(("identityfile", &["a b"]))),
            ("IdentityFile 'a \"b'", Some(("identityfile", &["a \"b"]))),
            ("IdentityFile a\\ b", Some(("identityfile", &["a b"]))),
            (
                "IdentityFile \"a\\\"b\"c",
                Some(("identityfile", &["a\"bc"])),
            ),
            ("IdentityFile \"\"", Some(("identityfile", &[""]))),
            ("Compression", Some(("compression", &[]))),
        ];
        for (line, wanted) in table {
            let found = split(line).map(|words| (words.keyword, words.arguments.unwrap()));
            let wanted = wanted.map(|(keyword, words)| {
                let words = words.iter().map(|word| (*word).to_owned()).collect();
                (keyword.to_owned(), words)
            });
            assert_eq!(found, wanted, "{line}");
        }
        assert!(split("HostName \"x").unwrap().arguments.is_err());
    }

    #[test]
    fn times_have_units() {
        let table = [
            ("10", Some(10)),
            ("0", Some(0)),
            ("1m", Some(60)),
            ("1h30M", Some(5_400)),
            ("1m5", Some(65)),
            ("", None),
            ("m", None),
            ("-1", None),
            ("1y", None),
            ("99999999999999999999", None),
        ];
        for (text, wanted) in table {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
