//! What no two hosts may share: the installation's number and the keys of the SSH server. Hosts
//! that do are copies of one disk. Only public keys are read.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::script::Sections;
use crate::ssh::public_key::PublicKeyBlob;

/// Who the host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The installation's own number, as in the machine's facts.
    pub machine_id: Option<String>,
    /// The keys of its SSH server; `None` when the host does not show any.
    pub host_keys: Option<Vec<HostKey>>,
}

/// A key of the SSH server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostKey {
    /// E.g. `ssh-ed25519`.
    pub algorithm: String,
    /// `SHA256:…`, as ssh-keygen prints it.
    pub fingerprint: String,
}

/// Reads the section `identity`; the number comes with the machine's facts.
pub fn parse(sections: &Sections<'_>, machine_id: Option<&str>) -> Identity {
    let mut keys: Vec<HostKey> = sections
        .get("identity")
        .lines()
        .filter_map(|line| key(line.strip_prefix("host_key ")?))
        .collect();
    keys.sort();
    keys.dedup();
    Identity {
        machine_id: machine_id.map(str::to_owned),
        host_keys: (!keys.is_empty()).then_some(keys),
    }
}

/// `ssh-ed25519 AAAA… comment`.
fn key(line: &str) -> Option<HostKey> {
    let mut words = line.split_whitespace();
    let algorithm = words.next()?;
    let bytes = STANDARD.decode(words.next()?).ok()?;
    let blob = PublicKeyBlob::new(&bytes).filter(|blob| blob.algorithm == algorithm)?;
    Some(HostKey {
        algorithm: algorithm.to_owned(),
        fingerprint: blob.fingerprint(),
    })
}
