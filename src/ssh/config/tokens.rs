//! `%h`, `~` and `${NAME}` in values. Must not know keywords.

use std::path::PathBuf;

use super::Local;

/// Replaces `%x` by what the table has for `x`; `%%` is a percent sign.
///
/// # Errors
/// For a token that is not in the table.
pub(super) fn percent(text: &str, table: &[(char, &str)]) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match rest.next() {
            Some('%') => out.push('%'),
            Some(token) => match table.iter().find(|(known, _)| *known == token) {
                Some((_, value)) => out.push_str(value),
                None => return Err(format!("%{token} is not supported here")),
            },
            None => return Err("a percent sign stands at the end; write %%".into()),
        }
    }
    Ok(out)
}

/// Replaces `${NAME}`.
///
/// # Errors
/// For a variable that is not set, or braces without an end.
pub(super) fn variables(text: &str, local: &Local) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, after)) = after.split_once('}') else {
            return Err("${ has no }".into());
        };
        let value = (local.variable)(name)
            .ok_or_else(|| format!("the environment has no variable {name}"))?;
        out.push_str(before);
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Replaces `~` at the beginning.
///
/// # Errors
/// For the home folder of another user.
pub(super) fn home(text: &str, local: &Local) -> Result<PathBuf, String> {
    match text.strip_prefix('~') {
        None => Ok(text.into()),
        Some("") => Ok(local.home.clone()),
        Some(rest) => match rest.strip_prefix('/') {
            Some(rest) => Ok(local.home.join(rest.trim_start_matches('/'))),
            None => Err(format!("{text} is another user's; write the whole path")),
        },
    }
}
