//! What OpenSSH's own programs say about a host's key when they do not go on, or go on without
//! passwords: commands on a host (git, rsync, scp) pass these words through. Pure.

/// What a program says about the key of the host it went to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// The kind of the key that the host showed, e.g. `ECDSA`.
    pub shown: Option<String>,
    /// The kind of the key it was known by.
    pub known: Option<String>,
    /// File and line of that key.
    pub place: Option<String>,
    /// Whether the key has changed: then nothing else that is said is the cause.
    pub changed: bool,
    /// Whether the program went on all the same, without passwords.
    pub went_on: bool,
    /// Whether the login was refused.
    pub denied: bool,
}

/// Reads the words of ssh, scp or sftp, in English, from any line on.
pub fn read(words: &str) -> Said {
    let mut said = Said::default();
    for line in words.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("The fingerprint for the ")
            && let Some((kind, _)) = rest.split_once(" key sent by the remote host")
        {
            said.shown = Some(kind.to_owned());
        } else if let Some(rest) = line.strip_prefix("Offending ")
            && let Some((kind, place)) = rest.split_once(" key in ")
        {
            said.known = Some(kind.to_owned());
            said.place = Some(place.to_owned());
            said.changed = true;
        } else if line.contains("REMOTE HOST IDENTIFICATION HAS CHANGED")
            || line.contains(" has changed and you have requested strict checking")
        {
            said.changed = true;
        } else if line.starts_with("Password authentication is disabled to avoid man-in-the-middle")
        {
            said.changed = true;
            said.went_on = true;
        } else if line.contains("Permission denied") {
            said.denied = true;
        }
    }
    said
}

impl Said {
    /// Why it did not work and what to do, when it is about the key.
    pub fn cause(&self) -> Option<String> {
        let kind = |kind: &Option<String>| kind.clone().unwrap_or_else(|| "unknown".into());
        self.changed.then(|| {
            format!(
                "the host key has changed: it is now of kind {}, known was one of kind {}{}; if the \
                 host was installed anew, remove that line",
                kind(&self.shown),
                kind(&self.known),
                self.place
                    .as_ref()
                    .map(|place| format!(" in {place}"))
                    .unwrap_or_default()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_key_is_the_cause_of_a_denied_login() {
        let said = read(
            "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n\
             The fingerprint for the ECDSA key sent by the remote host is\nSHA256:made.up.\n\
             Offending RSA key in /home/ai/.ssh/known_hosts:3\n\
             Password authentication is disabled to avoid man-in-the-middle attacks.\n\
             ai@halo1: Permission denied (publickey,password).\n",
        );
        assert!(said.changed && said.went_on && said.denied);
        let cause = said.cause().unwrap();
        for wanted in ["ECDSA", "RSA", "/home/ai/.ssh/known_hosts:3"] {
            assert!(cause.contains(wanted), "{cause}");
        }
        let plain = read("ai@halo1: Permission denied (publickey).\n");
        assert!(plain.denied && !plain.changed && plain.cause().is_none());
        assert_eq!(read("anything else"), Said::default());
    }
}
