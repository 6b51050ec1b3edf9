//! Quoting for a remote shell: the one function through which text from anywhere else gets into a
//! script.

/// The text as one word of a POSIX shell, whatever it holds. A NUL cannot be in a word and is
/// dropped.
pub fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for c in text.chars() {
        match c {
            '\'' => quoted.push_str("'\\''"),
            '\0' => {}
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn the_shell_reads_back_what_was_quoted(text in "[^\0]{0,40}") {
            let script = format!("printf %s {}", quote(&text));
            let output = std::process::Command::new("/bin/sh").arg("-c").arg(&script).output().unwrap();
            prop_assert_eq!(String::from_utf8(output.stdout).unwrap(), text);
        }
    }
}
