//! A host that has other keys from now on: which one it shows, and how it is known by its new ones. Must
//! not know why its keys are others.

use std::path::PathBuf;

use super::budget::Budget;
use super::connect::{Connector, Shaken};
use super::error::SshError;
use super::hop;
use super::known_hosts::{PublicKeyBlob, Verdict};
use super::public_key::decode;
use super::target::Target;

impl Connector {
    /// The key that a host shows now, as it travels (RFC 4253, 6.6). Nobody logs in, and nothing is taken:
    /// it says what answers there, and proves nothing.
    ///
    /// # Errors
    /// When nothing answers as an SSH server.
    pub async fn shown_key(&self, target: &Target) -> Result<Vec<u8>, SshError> {
        let (mut hop, via) = self.way(target).await?;
        // Known by nobody: whatever it shows would be asked about.
        hop.trust.pin = None;
        hop.trust.files = Vec::new();
        hop.trust.asked = true;
        let mut budget = Budget::new(hop.limit);
        match self.shake(&hop, via, None, &mut budget).await? {
            Shaken::Ask(key) => Ok(key),
            Shaken::Taken(..) => Err(SshError::Broken {
                what: "asking for the host key".into(),
                reason: "a key was taken that nobody knows".into(),
            }),
        }
    }

    /// Has a host known by these keys (`ssh-ed25519 AAAA…`) too, in the file of known hosts that its key
    /// is looked up in; the file, when something was written. A host whose key the inventory names is
    /// known by no file, and nothing is written for it. Lines that are there stay.
    ///
    /// # Errors
    /// When the file cannot be written, or a key is revoked there.
    pub fn learn(&self, target: &Target, keys: &[String]) -> Result<Option<PathBuf>, SshError> {
        if target.local || target.host_key.is_some() {
            return Ok(None);
        }
        let (mut hops, _) = hop::hops(target, self.options())?;
        let Some(hop) = hops.pop() else {
            return Ok(None);
        };
        let (trust, mut file) = (hop.trust, None);
        for key in keys {
            let bytes = key.split_whitespace().nth(1).and_then(decode);
            let Some(blob) = bytes.as_deref().and_then(PublicKeyBlob::new) else {
                continue;
            };
            let verdict = trust.known().lookup(&trust.host, trust.port, &blob);
            match verdict {
                Verdict::Match { .. } => {}
                Verdict::Revoked { .. } | Verdict::Unreadable { .. } => {
                    return Err(SshError::Refused {
                        step: "host key",
                        message: trust.sentence(&verdict, &blob),
                    });
                }
                Verdict::Unknown | Verdict::Changed { .. } | Verdict::NewAlgorithm { .. } => {
                    file = Some(trust.write(&blob)?);
                }
            }
        }
        Ok(file)
    }
}
