//! `file`: a file's content, a folder, or nothing, with mode and owner.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use windlass_gguf::hex;

use super::argument::{Argument, Form};
use super::work::{Acted, Done, Reached, Work};
use super::{Kind, remote};
use crate::event::{Failure, Status};
use crate::inventory::diff::unified;
use crate::playbook::expression::Template;
use crate::ssh::quote;

/// Longest text that is compared line by line, in bytes.
const LONGEST_DIFF: usize = 256 << 10;
/// Mode of a new file.
const MODE: &str = "644";

/// The kind.
#[derive(Debug)]
pub struct File;

impl Kind for File {
    fn name(&self) -> &'static str {
        "file"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[
            Argument::must("path", Form::Text),
            Argument::may("content", Form::Content),
            Argument::may("src", Form::Text),
            Argument::may("state", Form::Word(&["file", "directory", "absent"])),
            Argument::may("mode", Form::Text),
            Argument::may("owner", Form::Text),
            Argument::may("group", Form::Text),
            Argument::may("root", Form::Flag),
        ];
        ALL
    }

    fn check(&self, arguments: &[(String, Template)]) -> Option<String> {
        let has = |name: &str| arguments.iter().any(|(given, _)| given == name);
        let state = arguments
            .iter()
            .find(|(name, _)| name == "state")
            .and_then(|(_, state)| state.literal());
        let state = state.as_ref().and_then(|state| state.as_str());
        if has("content") && has("src") {
            return Some("content and src cannot both be given".to_owned());
        }
        if state.is_some_and(|state| state != "file") && (has("content") || has("src")) {
            return Some("content and src are for state = \"file\"".to_owned());
        }
        wrong_mode(arguments)
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let host = work.host()?;
            let content = match (work.given.text("content"), work.given.text("src")) {
                (Some(content), _) => Some(content.as_bytes().to_vec()),
                (None, Some(src)) => Some(remote::local(work, src).await?),
                (None, None) => None,
            };
            let done = match work.given.text("state").unwrap_or("file") {
                "absent" => absent(work, host).await?,
                "directory" => directory(work, host).await?,
                _ => content_is(work, host, content.as_deref()).await?,
            };
            Ok(work.one(done))
        }
        .boxed()
    }
}

/// A mode that is none.
pub(super) fn wrong_mode(arguments: &[(String, Template)]) -> Option<String> {
    let (_, mode) = arguments.iter().find(|(name, _)| name == "mode")?;
    let mode = mode.literal()?;
    let text = mode
        .as_str()
        .map_or_else(|| mode.to_string(), str::to_owned);
    (!is_mode(&text))
        .then(|| format!("mode is {text}: it must be octal digits in quotes, as \"0644\""))
}

fn is_mode(text: &str) -> bool {
    (3..=4).contains(&text.len()) && text.chars().all(|c| ('0'..='7').contains(&c))
}

/// What lies at a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct There {
    /// `absent`, `file`, `directory` or `other`.
    kind: String,
    /// Octal digits.
    mode: String,
    owner: String,
    group: String,
    /// Of a file.
    sha256: String,
}

impl There {
    fn parse(text: &str) -> Self {
        let mut lines = text.lines();
        let kind = lines.next().unwrap_or_default().trim().to_owned();
        let stat = lines.next().unwrap_or_default();
        let mut words = stat.split_whitespace();
        let mut word = || words.next().unwrap_or_default().to_owned();
        Self {
            kind,
            mode: word(),
            owner: word(),
            group: word(),
            sha256: lines
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .next()
                .unwrap_or_default()
                .to_owned(),
        }
    }
}

async fn look(work: &Work<'_>, host: &Reached, path: &str) -> Result<There, Failure> {
    let script = format!(
        r#"p={path}
if [ -d "$p" ]; then echo directory
elif [ -f "$p" ]; then echo file
elif [ -e "$p" ] || [ -L "$p" ]; then echo other
else echo absent; exit 0; fi
stat -L -c '%a %U %G' -- "$p" 2>/dev/null || stat -L -f '%Lp %Su %Sg' -- "$p" 2>/dev/null || echo '? ? ?'
if [ -f "$p" ]; then
  if command -v sha256sum >/dev/null 2>&1; then sha256sum <"$p"; else shasum -a 256 <"$p"; fi
fi
"#,
        path = quote(path)
    );
    let root = work.given.flag("root");
    let text = remote::must(work, host, root, &script, &format!("looking at {path}")).await?;
    Ok(There::parse(&text))
}

/// The path as given; one that cannot be meant is refused.
fn path<'w>(work: &'w Work<'_>, host: &Reached) -> Result<&'w str, Failure> {
    let path = work.given.must("path");
    if path.starts_with('~') {
        return Err(work.failed(
            host.name(),
            format!("{path}: write it from / on, or relative to the login user's home"),
        ));
    }
    Ok(path)
}

async fn absent(work: &Work<'_>, host: &Reached) -> Result<Done, Failure> {
    let path = path(work, host)?;
    // A slip here would take a whole machine along.
    if path.trim_end_matches(['/', '.']).is_empty() || path.split('/').any(|part| part == "..") {
        return Err(work.failed(
            host.name(),
            format!("{path} is not removed: name it plainly"),
        ));
    }
    let there = look(work, host, path).await?;
    if there.kind == "absent" {
        return Ok(Done::new(Status::Ok, format!("{path} is not there")));
    }
    work.change(host.name(), path, String::new);
    if !work.context.check {
        let script = format!("rm -rf -- {}\n", quote(path));
        let root = work.given.flag("root");
        remote::must(work, host, root, &script, &format!("removing {path}")).await?;
    }
    Ok(Done::change(work.context.check, format!("{path} removed")))
}

/// What is to be changed of mode and owner, as a script on `$p`.
fn dress(work: &Work<'_>, there: &There) -> String {
    let mut script = String::new();
    if let Some(mode) = work.given.text("mode")
        && mode.trim_start_matches('0') != there.mode.trim_start_matches('0')
    {
        script.push_str(&format!("chmod {} \"$p\" &&\n", quote(mode)));
    }
    if let Some(owner) = work.given.text("owner")
        && owner != there.owner
    {
        script.push_str(&format!("chown {} \"$p\" &&\n", quote(owner)));
    }
    if let Some(group) = work.given.text("group")
        && group != there.group
    {
        script.push_str(&format!("chgrp {} \"$p\" &&\n", quote(group)));
    }
    script
}

fn mode_fits(work: &Work<'_>, host: &Reached) -> Result<(), Failure> {
    match work.given.text("mode") {
        Some(mode) if !is_mode(mode) => Err(work.failed(
            host.name(),
            format!("mode is {mode}: it must be octal digits, as \"0644\""),
        )),
        _ => Ok(()),
    }
}

async fn directory(work: &Work<'_>, host: &Reached) -> Result<Done, Failure> {
    let path = path(work, host)?;
    mode_fits(work, host)?;
    let there = look(work, host, path).await?;
    if !["absent", "directory"].contains(&there.kind.as_str()) {
        return Err(work.failed(
            host.name(),
            format!("{path} is there and is no folder: move it away first"),
        ));
    }
    let dress = dress(work, &there);
    if there.kind == "directory" && dress.is_empty() {
        return Ok(Done::new(Status::Ok, format!("{path} is as wanted")));
    }
    work.change(host.name(), path, String::new);
    if !work.context.check {
        let script = format!("p={}\nmkdir -p -- \"$p\" &&\n{dress}:\n", quote(path));
        let root = work.given.flag("root");
        remote::must(work, host, root, &script, &format!("making {path}")).await?;
    }
    Ok(Done::change(work.context.check, format!("{path} made so")))
}

/// Makes a file's content so; also a template's. Without content, only mode and owner of a file
/// that must be there.
pub(super) async fn content_is(
    work: &Work<'_>,
    host: &Reached,
    content: Option<&[u8]>,
) -> Result<Done, Failure> {
    let path = path(work, host)?;
    mode_fits(work, host)?;
    let there = look(work, host, path).await?;
    if !["absent", "file"].contains(&there.kind.as_str()) {
        return Err(work.failed(
            host.name(),
            format!("{path} is there and is no plain file: move it away first"),
        ));
    }
    let dress = dress(work, &there);
    let Some(content) = content else {
        if there.kind == "absent" {
            return Err(work.failed(
                host.name(),
                format!("{path} is not there: give content or src to make it"),
            ));
        }
        return dressed(work, host, path, &dress).await;
    };
    let wanted = hex(&Sha256::digest(content));
    if there.sha256 == wanted {
        return dressed(work, host, path, &dress).await;
    }
    let old = if work.diff && !work.no_log && there.kind == "file" {
        let script = format!("head -c {} <{}\n", LONGEST_DIFF + 1, quote(path));
        let root = work.given.flag("root");
        Some(remote::must(work, host, root, &script, "reading it").await?)
    } else {
        None
    };
    work.change(host.name(), path, || {
        let old = old.as_deref().unwrap_or_default();
        match std::str::from_utf8(content) {
            Ok(new) if new.len().max(old.len()) <= LONGEST_DIFF => unified(path, old, new),
            _ => format!("{path}: too long, or no text, to be compared\n"),
        }
    });
    let made = if there.kind == "absent" {
        "made"
    } else {
        "replaced"
    };
    if !work.context.check {
        replace(work, host, path, content, &there, &dress).await?;
    }
    Ok(Done::change(work.context.check, format!("{path} {made}")))
}

async fn dressed(
    work: &Work<'_>,
    host: &Reached,
    path: &str,
    dress: &str,
) -> Result<Done, Failure> {
    if dress.is_empty() {
        return Ok(Done::new(Status::Ok, format!("{path} is as wanted")));
    }
    work.change(host.name(), path, String::new);
    if !work.context.check {
        let script = format!("p={}\n{dress}:\n", quote(path));
        let root = work.given.flag("root");
        remote::must(work, host, root, &script, &format!("changing {path}")).await?;
    }
    Ok(Done::change(
        work.context.check,
        format!("mode or owner of {path}"),
    ))
}

/// Writes beside the file and renames: who reads it sees the old or the new, never a part.
async fn replace(
    work: &Work<'_>,
    host: &Reached,
    path: &str,
    content: &[u8],
    there: &There,
    dress: &str,
) -> Result<(), Failure> {
    let root = work.given.flag("root");
    let make = format!(
        "p={}\ncase \"$p\" in */*) d=${{p%/*}}/;; *) d=;; esac\numask 077\nmktemp \"$d.windlass.XXXXXX\"\n",
        quote(path)
    );
    let partial = remote::must(work, host, root, &make, &format!("making {path}"))
        .await?
        .trim()
        .to_owned();
    let finish = async {
        let script = format!("exec cat >{}", quote(&partial));
        remote::send(work, host, root, &script, content).await?;
        // A new file's owner is who makes it; a replaced one keeps mode and owner.
        let keep = if there.kind == "absent" {
            format!("chmod {MODE} \"$p\" &&\n")
        } else {
            format!(
                "chmod {} \"$p\" &&\n{{ chown {} \"$p\" 2>/dev/null || :; }} &&\n",
                quote(&there.mode),
                quote(&format!("{}:{}", there.owner, there.group))
            )
        };
        let script = format!(
            "p={}\n[ \"$(wc -c <\"$p\")\" -eq {} ] || {{ echo 'it did not arrive whole' >&2; exit 1; }}\n{keep}{dress}mv -f -- \"$p\" {}\n",
            quote(&partial),
            content.len(),
            quote(path)
        );
        remote::must(work, host, root, &script, &format!("replacing {path}")).await
    }
    .await;
    if let Err(failure) = finish {
        remote::remove(work, host, root, &partial).await;
        return Err(failure);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_there_is_read_from_either_stat() {
        let there = There::parse("file\n644 ai users\n0f0f  -\n");
        assert_eq!((there.kind.as_str(), there.mode.as_str()), ("file", "644"));
        assert_eq!(
            (there.owner.as_str(), there.sha256.as_str()),
            ("ai", "0f0f")
        );
        assert_eq!(There::parse("absent\n").kind, "absent");
    }

    #[test]
    fn arguments_that_contradict_each_other_are_refused() {
        let text = |name: &str, value: &str| (name.to_owned(), Template::Value(value.into()));
        let wrong = |arguments: &[(String, Template)]| File.check(arguments).is_some();
        assert!(wrong(&[text("content", "a"), text("src", "b")]));
        assert!(wrong(&[text("content", "a"), text("state", "absent")]));
        assert!(wrong(&[text("mode", "rw")]));
        assert!(wrong(&[text("mode", "99")]));
        assert!(!wrong(&[text("content", "a"), text("mode", "0644")]));
    }
}
