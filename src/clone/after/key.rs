//! Whose SSH host key a machine shows after it was rebooted into its copy. Pure.

use crate::facts::HostKey;
use crate::ssh::public_key::PublicKeyBlob;

/// Whose key it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The copy's: its system runs.
    Copy,
    /// One of those that the machine had before: the medium's, or another disk's.
    Before,
    /// Of neither.
    Other,
}

/// Whose key was shown, as it travels. `copy`: the public key that the copy was given; `before`: those of
/// the system that ran before.
pub fn whose(shown: &[u8], copy: &str, before: &[HostKey]) -> Whose {
    let Some(shown) = PublicKeyBlob::new(shown) else {
        return Whose::Other;
    };
    if shown.is(copy) == Ok(true) {
        return Whose::Copy;
    }
    let print = shown.fingerprint();
    match before.iter().any(|key| key.fingerprint == print) {
        true => Whose::Before,
        false => Whose::Other,
    }
}

/// What is said when a system runs that is known, and is not the copy.
pub fn not_the_copy(host: &str, whose: Whose, disk: &str) -> String {
    match whose {
        Whose::Before => format!(
            "{host}: it started from the medium again: remove it or choose {disk} in its setup"
        ),
        _ => format!(
            "{host}: it started another system that is known for it, and not the copy: choose {disk} in \
             its setup"
        ),
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    /// A key of Ed25519 (RFC 8709, 4): the name and 32 bytes, each behind its length.
    fn blob(byte: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 11];
        bytes.extend(b"ssh-ed25519");
        bytes.extend([0, 0, 0, 32]);
        bytes.extend([byte; 32]);
        bytes
    }

    fn known(byte: u8) -> HostKey {
        let bytes = blob(byte);
        HostKey {
            algorithm: "ssh-ed25519".into(),
            fingerprint: PublicKeyBlob::new(&bytes).unwrap().fingerprint(),
        }
    }

    #[test]
    fn the_copy_is_known_by_the_key_it_was_given_and_by_no_other() {
        let copy = format!("ssh-ed25519 {}", STANDARD.encode(blob(1)));
        let before = [known(2), known(3)];
        let table = [
            (blob(1), Whose::Copy),
            (blob(2), Whose::Before),
            (blob(3), Whose::Before),
            (blob(4), Whose::Other),
            (Vec::new(), Whose::Other),
            (blob(1)[..20].to_vec(), Whose::Other),
        ];
        for (shown, wanted) in table {
            assert_eq!(whose(&shown, &copy, &before), wanted, "{shown:?}");
        }
        // A text that is no key is nobody's.
        assert_eq!(whose(&blob(1), "", &[]), Whose::Other);
        // A machine that kept its key would be told as the copy: the copy's is asked for first.
        assert_eq!(whose(&blob(1), &copy, &[known(1)]), Whose::Copy);
    }

    #[test]
    fn a_medium_that_started_again_is_told_with_what_to_do() {
        let said = not_the_copy("halo2", Whose::Before, "/dev/sda");
        assert_eq!(
            said,
            "halo2: it started from the medium again: remove it or choose /dev/sda in its setup"
        );
        let said = not_the_copy("halo2", Whose::Other, "/dev/sda");
        assert!(
            !said.contains("medium") && said.contains("/dev/sda"),
            "{said}"
        );
    }
}
