//! Becoming root by sudo in a started shell, and what sudo's refusals mean. Must not know how the
//! shell was started, nor where a password comes from.

use tokio::io::AsyncWriteExt;

use super::error::SshError;
use super::fence::{Fence, find};
use super::process::{Process, Said};
use super::refusal::{self, Refusal};
use super::session::Ending;
use super::shell::What;

/// Why there is no root.
#[derive(Debug)]
pub(super) enum NoRoot {
    /// sudo wants a password and none was given.
    Password,
    /// The password is not the user's.
    Wrong,
    /// Anything else; asking again does not help.
    Other(SshError),
}

/// Replaces the shell by one of root. With a password, it is said once, and only to sudo's own
/// prompt: a marker that nobody else can print.
pub(super) async fn become_root(
    what: What<'_>,
    process: Process,
    password: Option<&str>,
) -> Result<Process, NoRoot> {
    let markers = what.markers().map_err(NoRoot::Other)?;
    let (begin, prompt, ready) = (
        markers.named("sudo"),
        markers.named("prompt"),
        markers.named("root"),
    );
    let how = match password {
        Some(_) => format!("-S -p {prompt}"),
        None => "-n".to_owned(),
    };
    // The messages are read: they must be in English.
    let line = format!(
        "printf '%s\\n' {begin}; printf '%s\\n' {begin} >&2; LC_ALL=C; export LC_ALL; \
         exec sudo {how} -- sh -c 'printf \"%s\\n\" {ready}; exec sh -s'\n"
    );
    let Process {
        mut input,
        mut output,
    } = process;
    let lost = |error: &dyn std::fmt::Display| NoRoot::Other(what.lost(&error.to_string()));
    let mut out = Fence::new(ready, None);
    let mut out_begin = Fence::new(begin.clone(), None);
    let mut err = Fence::new(begin, None);
    let (mut begun, mut nothing, mut said) = (Vec::new(), Vec::new(), Vec::new());
    let mut prompts = 0;
    // What a shell says before it is gone tells more than that it could not be written to.
    let written = async {
        input.write_all(line.as_bytes()).await?;
        input.flush().await
    }
    .await;
    loop {
        let ending = match output.next().await {
            Said::Out(bytes) => {
                out_begin.push(&bytes, &mut begun);
                out.push(&bytes, &mut nothing);
                if out.begun() {
                    return Ok(Process { input, output });
                }
                None
            }
            Said::Err(bytes) => {
                err.push(&bytes, &mut said);
                None
            }
            Said::Left(_) => None,
            Said::Ended(ending) => Some(ending),
            Said::Refused => Some(Ending::Unknown),
            Said::Lost(reason) => return Err(lost(&reason)),
        };
        let words = || String::from_utf8_lossy(&said).replace(&prompt, "");
        if let Some(ending) = ending {
            if !out_begin.begun() {
                let how = match written {
                    Ok(()) => "ended".to_owned(),
                    Err(error) => format!("took no input ({error})"),
                };
                return Err(NoRoot::Other(what.no_shell(
                    &out_begin.noise(),
                    &err.noise(),
                    &how,
                )));
            }
            return Err(no_root(what.host, &words(), &ending));
        }
        if count(&said, prompt.as_bytes()) > prompts {
            prompts += 1;
            match password {
                Some(password) if prompts == 1 => {
                    let mut line = zeroize::Zeroizing::new(Vec::with_capacity(password.len() + 1));
                    line.extend_from_slice(password.as_bytes());
                    line.push(b'\n');
                    input.write_all(&line).await.map_err(|error| lost(&error))?;
                    input.flush().await.map_err(|error| lost(&error))?;
                }
                _ => return Err(NoRoot::Wrong),
            }
        }
        if said.len() > super::fence::NOISE || out.too_noisy() {
            return Err(NoRoot::Other(SshError::Sudo {
                message: "sudo says more than 1 MiB instead of becoming root".into(),
            }));
        }
    }
}

fn count(text: &[u8], what: &[u8]) -> usize {
    let (mut rest, mut count) = (text, 0);
    while let Some(at) = find(rest, what) {
        count += 1;
        rest = rest.get(at + what.len()..).unwrap_or_default();
    }
    count
}

/// What sudo's last words mean.
fn no_root(host: &str, words: &str, ending: &Ending) -> NoRoot {
    let other = |message: String| NoRoot::Other(SshError::Sudo { message });
    match refusal::refusal(words) {
        Some(Refusal::Terminal) => {
            return other(format!(
                "sudo on {host} works only at a terminal (requiretty): put `Defaults:USER \
                 !requiretty` for this user into a file in /etc/sudoers.d there"
            ));
        }
        Some(Refusal::Wrong) => return NoRoot::Wrong,
        Some(Refusal::Password) => return NoRoot::Password,
        Some(Refusal::Forbidden) => {
            return other(format!(
                "the user on {host} may not become root by sudo: let it run `sh` as root in a file \
                 in /etc/sudoers.d there, or log in as root (`user = \"root\"`)"
            ));
        }
        Some(Refusal::Missing) => {
            return other(format!(
                "{host} has no sudo and the login user is not root: install sudo there, or log in \
                 as root (`user = \"root\"`)"
            ));
        }
        None => {}
    }
    let last = words
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty())
        .unwrap_or("nothing");
    other(format!(
        "sudo on {host} did not make root: it said {last:?}{}",
        match ending {
            Ending::Status(status) => format!(" and ended with status {status}"),
            Ending::Signal(signal) => format!(" and was ended by signal {signal}"),
            Ending::Unknown => String::new(),
        }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_sudo_is_named_with_its_remedy() {
        let status = Ending::Status(1);
        for (words, wanted) in [
            (
                "sudo: sorry, you must have a tty to run sudo\n",
                "!requiretty",
            ),
            ("ai is not in the sudoers file.\n", "/etc/sudoers.d"),
            (
                "ai is not in the sudoers file.  This incident will be reported.\n",
                "/etc/sudoers.d",
            ),
            (
                "Sorry, user ai may not run sudo on halo1.\n",
                "/etc/sudoers.d",
            ),
            (
                "Sorry, user ai is not allowed to execute '/usr/bin/sh -c x' as root on halo1.\n",
                "/etc/sudoers.d",
            ),
            ("sh: 1: exec: sudo: not found\n", "no sudo"),
            ("sh: line 1: exec: sudo: not found\n", "no sudo"),
            ("sh: exec: line 1: sudo: not found\n", "no sudo"),
            (
                "sudo: unable to open audit system\n",
                "unable to open audit system",
            ),
        ] {
            match no_root("halo1", words, &status) {
                NoRoot::Other(error) => {
                    let error = error.to_string();
                    assert!(error.contains(wanted), "{error}");
                    assert!(error.contains("halo1"), "{error}");
                }
                other => panic!("{words}: {other:?}"),
            }
        }
        for words in [
            "sudo: a password is required\n",
            "sudo: a terminal is required to read the password; either use the -S option\n",
            "sudo: no tty present and no askpass program specified\n",
            "sudo: interactive authentication is required\n",
        ] {
            assert!(
                matches!(no_root("h", words, &status), NoRoot::Password),
                "{words}"
            );
        }
        for words in [
            "Sorry, try again.\nsudo: no password was provided\n",
            "sudo: 1 incorrect password attempt\n",
        ] {
            assert!(
                matches!(no_root("h", words, &status), NoRoot::Wrong),
                "{words}"
            );
        }
    }
}
