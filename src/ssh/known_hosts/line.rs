//! One line of a file of known hosts, as sshd(8) describes it. Must not know files or verdicts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha1::Sha1;

use crate::ssh::pattern;
use crate::ssh::public_key::{PublicKeyBlob, decode};

/// Bytes of salt and of digest in a hashed name.
pub(super) const SALT: usize = 20;

/// What a line says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    /// It is the host's.
    None,
    /// It is never to be accepted.
    Revoked,
}

/// A key in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub algorithm: String,
    pub bytes: Vec<u8>,
}

/// A line's key and what it says of it.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub marker: Marker,
    /// Or why it cannot be read.
    pub key: Result<Key, String>,
}

/// A line that bears on someone.
#[derive(Clone, Debug)]
pub(super) struct Line {
    hosts: Hosts,
    named: Named,
}

#[derive(Clone, Debug)]
enum Hosts {
    Patterns(Vec<String>),
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

impl Line {
    /// `None` for a line that names nobody: empty, a comment, an authority for certificates, an
    /// unknown marker, a hashed name that cannot be one, a key of SSH 1.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_matches(blank);
        if text.is_empty() || text.starts_with('#') {
            return None;
        }
        let (marker, text) = match text.strip_prefix('@') {
            None => (Marker::None, text),
            Some(marked) => match marked.split_once(blank)? {
                ("revoked", rest) => (Marker::Revoked, rest.trim_start_matches(blank)),
                _ => return None,
            },
        };
        let (hosts, key) = text.split_once(blank).unwrap_or((text, ""));
        let mut words = key.split(blank).filter(|word| !word.is_empty());
        let (algorithm, data) = (words.next(), words.next());
        // SSH 1 wrote bits, exponent and modulus in digits.
        if algorithm.is_some_and(|word| word.bytes().all(|byte| byte.is_ascii_digit())) {
            return None;
        }
        Some(Self {
            hosts: Hosts::parse(hosts)?,
            named: Named {
                marker,
                key: key_of(algorithm, data),
            },
        })
    }

    /// What it says, if it names this host.
    pub fn naming(&self, name: &str) -> Option<&Named> {
        self.hosts.name(name).then_some(&self.named)
    }
}

impl Hosts {
    fn parse(text: &str) -> Option<Self> {
        if !text.starts_with('|') {
            return Some(Self::Patterns(
                text.split(',').map(str::to_lowercase).collect(),
            ));
        }
        let (salt, hash) = text.strip_prefix("|1|")?.split_once('|')?;
        let (salt, hash) = (decode(salt)?, decode(hash)?);
        (salt.len() == SALT && hash.len() == SALT).then_some(Self::Hashed { salt, hash })
    }

    fn name(&self, name: &str) -> bool {
        match self {
            Self::Patterns(patterns) => pattern::any(patterns.iter().map(String::as_str), name),
            Self::Hashed { salt, hash } => digest(salt, name).is_some_and(|own| own == *hash),
        }
    }
}

fn key_of(algorithm: Option<&str>, data: Option<&str>) -> Result<Key, String> {
    let (Some(algorithm), Some(data)) = (algorithm, data) else {
        return Err("the line has no key".into());
    };
    let bytes = decode(data).ok_or_else(|| format!("the {algorithm} key is not base 64"))?;
    match PublicKeyBlob::new(&bytes).map(|key| key.algorithm.to_owned()) {
        Some(own) if own == algorithm && whole(&bytes) => Ok(Key {
            algorithm: own,
            bytes,
        }),
        Some(own) if own == algorithm => Err(format!("the {algorithm} key is cut off")),
        Some(own) => Err(format!("the line says {algorithm}, its key says {own}")),
        None => Err(format!("the {algorithm} key is cut off or is no key")),
    }
}

/// Whether a key ends where its last part ends: all kinds of keys are strings with their lengths,
/// one after the other.
fn whole(mut bytes: &[u8]) -> bool {
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let Ok(length) = usize::try_from(u32::from_be_bytes(*length)) else {
            return false;
        };
        match rest.get(length..) {
            Some(rest) => bytes = rest,
            None => return false,
        }
    }
    bytes.is_empty()
}

/// HMAC with SHA-1 of a name.
fn digest(salt: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut mac = Hmac::<Sha1>::new_from_slice(salt).ok()?;
    mac.update(name.as_bytes());
    Some(mac.finalize().into_bytes().to_vec())
}

/// A name as `|1|salt|digest`.
pub(super) fn hashed(name: &str, salt: &[u8; SALT]) -> String {
    let digest = digest(salt, name).unwrap_or_default();
    format!("|1|{}|{}", STANDARD.encode(salt), STANDARD.encode(digest))
}

/// What stands between words; a carriage return is what editors on other systems leave.
fn blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r')
}
