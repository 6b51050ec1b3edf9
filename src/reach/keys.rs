//! Keys that a person puts in place: a host's key taken as known, a login key copied to a host.
//! Must not know commands or terminals.

use std::path::{Path, PathBuf};

use crate::event::Failure;
use crate::inventory::{Host, Inventory};
use crate::ssh::public_key::PublicKeyBlob;
use crate::ssh::{Caps, Connector, Session, SshError, Trusted, quote};

use super::target;

/// Fetches a host's key, asks whether it is the right one, and writes it down. Nobody logs in. With
/// `check`, nothing is asked and nothing is written.
///
/// # Errors
/// When the host is not reached, known by another key, or the answer is no or missing.
pub async fn trust(
    inventory: &Inventory,
    host: &Host,
    connector: &Connector,
    check: bool,
) -> Result<Trusted, Failure> {
    let result = connector.trust(&target(inventory, host), check).await;
    result.map_err(|error| error.failure(&host.name))
}

/// The public key to copy: that of a key file, else the first of the usual ones in the home folder.
///
/// # Errors
/// When there is none.
pub fn public_key(home: &Path, identity: Option<&Path>) -> Result<String, SshError> {
    let files: Vec<PathBuf> = match identity {
        Some(path) => vec![
            path.strip_prefix("~")
                .map_or_else(|_| path.to_owned(), |rest| home.join(rest)),
        ],
        None => ["id_ed25519", "id_ecdsa", "id_rsa"]
            .iter()
            .map(|name| home.join(".ssh").join(name))
            .collect(),
    };
    for file in &files {
        let mut name = file.as_os_str().to_owned();
        name.push(".pub");
        if let Ok(text) = std::fs::read_to_string(&name) {
            let line = text.lines().find(|line| !line.trim().is_empty());
            return line
                .map(|line| line.trim().to_owned())
                .filter(|line| blob(line).is_some())
                .ok_or_else(|| SshError::Config {
                    message: format!("{} is no public key", Path::new(&name).display()),
                });
        }
    }
    let names: Vec<_> = files
        .iter()
        .map(|file| format!("{}.pub", file.display()))
        .collect();
    Err(SshError::Config {
        message: format!(
            "there is no public key to copy ({}): make one with `ssh-keygen -t ed25519`",
            names.join(", ")
        ),
    })
}

/// The key's own word in a line of a `.pub` file.
fn blob(line: &str) -> Option<&str> {
    use base64::Engine as _;
    let mut words = line.split_whitespace();
    let (algorithm, text) = (words.next()?, words.next()?);
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .ok()?;
    (PublicKeyBlob::new(&bytes)?.algorithm == algorithm).then_some(text)
}

/// Lets a key in: adds it to the user's `~/.ssh/authorized_keys`, unless it is there. Whether it
/// was added.
///
/// # Errors
/// When it could not be.
pub async fn copy_key(session: &Session, key: &str) -> Result<bool, SshError> {
    let what = "copying the public key";
    let text = blob(key).ok_or_else(|| SshError::Config {
        message: "what is to be copied is no public key".into(),
    })?;
    let line = key.lines().next().unwrap_or_default();
    let script = format!(
        "set -e; umask 077; cd; mkdir -p .ssh; f=.ssh/authorized_keys\n\
         if grep -qF -e {text} \"$f\" 2>/dev/null; then echo known; exit 0; fi\n\
         if test -s \"$f\" && test -n \"$(tail -c 1 \"$f\")\"; then echo >>\"$f\"; fi\n\
         printf '%s\\n' {line} >>\"$f\"\n\
         if command -v restorecon >/dev/null 2>&1; then restorecon -R .ssh || :; fi\n\
         echo added",
        text = quote(text),
        line = quote(line),
    );
    let output = session.run(what, &script, Caps::default()).await?;
    match (output.ok(), output.text().trim()) {
        (true, "known") => Ok(false),
        (true, "added") => Ok(true),
        _ => Err(SshError::Broken {
            what: what.to_owned(),
            reason: format!("it did not work: {}", output.last_words()),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    #[test]
    fn only_a_public_key_is_taken_for_one() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".ssh")).unwrap();
        let file = home.path().join(".ssh/id_rsa.pub");
        let error = public_key(home.path(), None).unwrap_err().to_string();
        assert!(
            error.contains("id_ed25519.pub") && error.contains("ssh-keygen"),
            "{error}"
        );
        std::fs::write(&file, format!("\nssh-ed25519 {KEY} me@here\n")).unwrap();
        let wanted = format!("ssh-ed25519 {KEY} me@here");
        assert_eq!(public_key(home.path(), None).unwrap(), wanted);
        let named = public_key(home.path(), Some(Path::new("~/.ssh/id_rsa")));
        assert_eq!(named.unwrap(), wanted);
        for other in [format!("ssh-rsa {KEY}"), "-----BEGIN".into(), String::new()] {
            std::fs::write(&file, other).unwrap();
            assert!(public_key(home.path(), None).is_err());
        }
    }
}
