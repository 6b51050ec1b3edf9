//! What the words of sudo mean, its own and those of its rewrite in Rust, in English. Pure. Must not
//! know why it was asked.

/// Why sudo did not do as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It works only at a terminal (`requiretty`).
    Terminal,
    /// The password is not the user's.
    Wrong,
    /// It wants a password.
    Password,
    /// The user may not.
    Forbidden,
    /// It is not there.
    Missing,
}

/// The refusal that is in these words. Lines may be broken anywhere between words: programs that
/// pass the words on wrap them.
pub fn refusal(words: &str) -> Option<Refusal> {
    let words = joined(words);
    let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    if says(&["must have a tty"]) {
        return Some(Refusal::Terminal);
    }
    if says(&[
        "incorrect password",
        "Sorry, try again",
        "no password was provided",
    ]) {
        return Some(Refusal::Wrong);
    }
    if wants_terminal(&words)
        || says(&[
            "a password is required",
            "interactive authentication is required",
            "[sudo] password for ",
            "[sudo: authenticate] Password",
        ])
    {
        return Some(Refusal::Password);
    }
    if says(&[
        "not in the sudoers file",
        "is not allowed to",
        "may not run sudo",
        "not allowed to execute",
        "I'm afraid I can't do that",
    ]) {
        return Some(Refusal::Forbidden);
    }
    says(&[
        "sudo: not found",
        "sudo: command not found",
        "sudo: No such file",
        "sudo: inaccessible or not found",
    ])
    .then_some(Refusal::Missing)
}

/// Whether sudo had no terminal to ask for a password at.
pub fn wants_terminal(words: &str) -> bool {
    let words = joined(words);
    words.contains("a terminal is required") || words.contains("no tty present")
}

/// Whom the last prompt asks for a password.
pub fn asked(words: &str) -> Option<&str> {
    let (_, rest) = words.rsplit_once("[sudo] password for ")?;
    Some(rest.split_once(':')?.0.trim()).filter(|user| !user.is_empty())
}

/// Whether these are the words that a user's first use brings.
pub fn lectures(words: &str) -> bool {
    joined(words).contains("the usual lecture from the local System Administrator")
}

fn joined(words: &str) -> String {
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_wherever_they_are_broken() {
        for (words, wanted) in [
            (
                "sudo: a terminal\nis required to read the password\nsudo: a password is\nrequired\n",
                Some(Refusal::Password),
            ),
            (
                "sudo: sorry, you must have\r\n a tty to run sudo",
                Some(Refusal::Terminal),
            ),
            (
                "I'm sorry ai. I'm afraid I can't do that",
                Some(Refusal::Forbidden),
            ),
            ("\n[sudo] password for ai:", Some(Refusal::Password)),
            ("bash: sudo: command not found", Some(Refusal::Missing)),
            ("root", None),
            ("", None),
        ] {
            assert_eq!(refusal(words), wanted, "{words}");
        }
        assert!(wants_terminal("sudo: no tty\npresent and no askpass"));
        assert!(!wants_terminal("sudo: a password is required"));
        assert_eq!(
            asked("[sudo] password for a: \n[sudo] password for ai:"),
            Some("ai")
        );
        assert_eq!(asked("[sudo] password for "), None);
        assert!(lectures(
            "We trust you have received the usual lecture from the local System\nAdministrator."
        ));
    }
}
