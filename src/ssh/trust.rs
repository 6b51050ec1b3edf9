//! Whether a host's key is taken: the files' verdict, and what follows from it. Must not know
//! connections.

use std::path::PathBuf;

use super::error::SshError;
use super::known_hosts::{self, KnownHosts, PublicKeyBlob, Verdict};

/// What becomes of the key of an unknown host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// A person is asked.
    Ask,
    /// It is written down and taken.
    Accept,
    /// It is refused.
    Refuse,
}

/// How the key of one host is judged.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    /// Name of the host in the inventory, for messages.
    pub label: String,
    /// Its name in the files.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The files; the first gets new lines.
    pub files: Vec<PathBuf>,
    /// The only key to take.
    pub pin: Option<String>,
    /// What becomes of the key of an unknown host.
    pub unknown: Unknown,
    /// Whether a person is to be asked about every key that is not known and not refused outright,
    /// a new kind of key of a known host among them.
    pub asked: bool,
    /// Whether names are hidden in new lines.
    pub hashed: bool,
}

/// What becomes of a key.
#[derive(Debug)]
pub(super) enum Judgement {
    /// It is taken.
    Good,
    /// It is taken and was not known; the file it was written to.
    Written(PathBuf),
    /// A person has to say.
    Ask,
    /// It is refused.
    Bad(SshError),
}

impl Trust {
    /// What the files say, as they are now.
    pub fn known(&self) -> KnownHosts {
        known_hosts::file::read(&self.files)
    }

    /// Judges a key. `confirmed` is one that a person has just confirmed.
    pub fn judge(&self, known: &KnownHosts, key: &[u8], confirmed: Option<&[u8]>) -> Judgement {
        let Some(key) = PublicKeyBlob::new(key) else {
            return self.bad("it shows a host key that is none".into());
        };
        if let Some(pin) = &self.pin {
            return match key.is(pin) {
                Ok(true) => Judgement::Good,
                Ok(false) => self.bad(format!(
                    "{} shows the host key {}, and `ssh.host_key` allows only another: someone may \
                     be in between, or the host was installed anew",
                    self.name(),
                    shown(&key)
                )),
                Err(reason) => Judgement::Bad(SshError::Config { message: reason }),
            };
        }
        let verdict = known.lookup(&self.host, self.port, &key);
        match (&verdict, confirmed) {
            (Verdict::Match { .. }, _) => Judgement::Good,
            (Verdict::Unknown | Verdict::NewAlgorithm { .. }, _) if self.asked => Judgement::Ask,
            (Verdict::Unknown, Some(confirmed)) if confirmed == key.bytes => Judgement::Good,
            (Verdict::Unknown, None) => match self.unknown {
                Unknown::Accept => match self.write(&key) {
                    Ok(file) => Judgement::Written(file),
                    Err(error) => Judgement::Bad(error),
                },
                Unknown::Ask => Judgement::Ask,
                Unknown::Refuse => self.bad(self.sentence(&verdict, &key)),
            },
            _ => self.bad(self.sentence(&verdict, &key)),
        }
    }

    /// Writes the key of a host that is known by none; nothing for any other, as one that changed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_unknown(&self, key: &[u8]) -> Result<Option<PathBuf>, SshError> {
        let Some(key) = PublicKeyBlob::new(key) else {
            return Ok(None);
        };
        match self.known().lookup(&self.host, self.port, &key) {
            Verdict::Unknown => self.write(&key).map(Some),
            _ => Ok(None),
        }
    }

    /// Writes a key down; gives the file.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn write(&self, key: &PublicKeyBlob<'_>) -> Result<PathBuf, SshError> {
        let refused = |reason: String| SshError::Refused {
            step: "host key",
            message: format!(
                "the host key of {} ({}) cannot be written down: {reason}",
                self.name(),
                shown(key)
            ),
        };
        let file = self
            .files
            .first()
            .ok_or_else(|| refused("no file of known hosts is set".into()))?;
        let line =
            known_hosts::append_line(&self.host, self.port, key, self.hashed).map_err(refused)?;
        known_hosts::file::append(file, &line)
            .map_err(|error| refused(format!("{}: {error}", file.display())))?;
        Ok(file.clone())
    }

    /// Its name in the files.
    pub fn name(&self) -> String {
        known_hosts::name(&self.host, self.port)
    }

    /// The refusal of a key that nobody could be asked about.
    pub fn untaken(&self, known: &KnownHosts, key: &PublicKeyBlob<'_>) -> SshError {
        let verdict = known.lookup(&self.host, self.port, key);
        SshError::Refused {
            step: "host key",
            message: self.sentence(&verdict, key),
        }
    }

    fn bad(&self, message: String) -> Judgement {
        Judgement::Bad(SshError::Refused {
            step: "host key",
            message,
        })
    }

    /// Why a key is refused, and what to do.
    pub fn sentence(&self, verdict: &Verdict, key: &PublicKeyBlob<'_>) -> String {
        let (name, shown, label) = (self.name(), shown(key), &self.label);
        let trust = format!("`windlass inventory trust {label}`");
        // Whoever ran that command already needs a terminal to answer at, or the flag.
        let then = match (self.asked, verdict) {
            (false, _) => format!("run {trust}"),
            (true, Verdict::Unknown) => format!(
                "run this at a terminal and answer its question, or with --accept-new-host-keys: {trust}"
            ),
            (true, _) => format!("run this at a terminal and answer its question: {trust}"),
        };
        match verdict {
            Verdict::Match { line } => format!("{name} is known by its key {shown} ({line})"),
            Verdict::Unknown => format!(
                "{name} is not known; it shows the host key {shown}: compare it with the one that \
                 `ssh-keygen -lf /etc/ssh/ssh_host_{}_key.pub` prints on the host, then {then}",
                kind(key.algorithm).to_lowercase()
            ),
            Verdict::Changed { line, known } => format!(
                "THE HOST KEY OF {name} HAS CHANGED: it shows {shown}, and {line} has {known}; \
                 someone may be in between. If the host was installed anew, remove that line \
                 (`ssh-keygen -R '{name}' -f {}`), then run {trust}",
                line.file.display()
            ),
            Verdict::NewAlgorithm { known } => format!(
                "{name} is known, and shows a kind of key that is not: {shown}; known are {}. Hosts \
                 get new kinds of keys with new systems; compare it on the host, then {then}",
                known
                    .iter()
                    .map(|(algorithm, place)| format!("{} ({place})", kind(algorithm)))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
            Verdict::Revoked { line } => format!(
                "{name} shows the host key {shown}, which {line} marks as revoked: give the host a \
                 new key"
            ),
            Verdict::Unreadable { line, reason } => format!(
                "whether the host key of {name} is known cannot be told: {line}: {reason}; repair \
                 or remove it"
            ),
        }
    }
}

/// A key for people: `ED25519 SHA256:…`.
pub(super) fn shown(key: &PublicKeyBlob<'_>) -> String {
    format!("{} {}", kind(key.algorithm), key.fingerprint())
}

/// The kind of a key, as OpenSSH's tools name it.
pub(super) fn kind(algorithm: &str) -> &str {
    match algorithm {
        "ssh-ed25519" => "ED25519",
        "ssh-rsa" => "RSA",
        "ssh-dss" => "DSA",
        other if other.starts_with("ecdsa-") => "ECDSA",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_to_the_command_that_asks_says_how_it_can_be_answered() {
        let trust = |asked| Trust {
            label: "h1".into(),
            host: "10.0.0.1".into(),
            port: 22,
            files: Vec::new(),
            pin: None,
            unknown: Unknown::Ask,
            asked,
            hashed: false,
        };
        let mut bytes = Vec::new();
        for part in [b"ssh-ed25519".as_slice(), &[7; 32]] {
            bytes.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
            bytes.extend(part);
        }
        let key = PublicKeyBlob::new(&bytes).unwrap();
        let said = |asked, verdict: &Verdict| trust(asked).sentence(verdict, &key);
        let other = Verdict::NewAlgorithm { known: Vec::new() };
        let plain = said(false, &Verdict::Unknown);
        assert!(
            plain.ends_with("then run `windlass inventory trust h1`"),
            "{plain}"
        );
        let asked = said(true, &Verdict::Unknown);
        assert!(
            asked.contains("at a terminal") && asked.contains("--accept-new-host-keys"),
            "{asked}"
        );
        // The flag takes keys of unknown hosts only.
        let asked = said(true, &other);
        assert!(
            asked.contains("at a terminal") && !asked.contains("--accept"),
            "{asked}"
        );
    }
}
