//! A public host key as bytes, and its fingerprint. Must not know which library speaks SSH.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256};

/// A public key as it travels: an SSH string with its algorithm, then what the algorithm asks for
/// (RFC 4253, 6.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKeyBlob<'a> {
    /// The key's algorithm as its own bytes name it: `ssh-ed25519`, `ssh-rsa`. A key of the
    /// algorithm `ssh-rsa` also makes `rsa-sha2-256` and `rsa-sha2-512` signatures.
    pub algorithm: &'a str,
    /// The whole key, its algorithm included.
    pub bytes: &'a [u8],
}

impl<'a> PublicKeyBlob<'a> {
    /// Reads the algorithm from the key's own bytes; `None` when they do not begin with one.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (name, rest) = rest.split_at_checked(length)?;
        let algorithm = std::str::from_utf8(name).ok()?;
        // A key that is nothing but its algorithm's name says nothing.
        let named = !algorithm.is_empty() && algorithm.bytes().all(|byte| byte.is_ascii_graphic());
        (named && !rest.is_empty()).then_some(Self { algorithm, bytes })
    }

    /// The key as `SHA256:…`, as OpenSSH prints it.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.bytes)
    }

    /// The key as it stands in a file: `ssh-ed25519 AAAA…`.
    pub fn text(&self) -> String {
        format!("{} {}", self.algorithm, STANDARD.encode(self.bytes))
    }

    /// Whether this key is the one that `pin` names: a fingerprint (`SHA256:…`) or a whole key
    /// (`ssh-ed25519 AAAA…`, what follows is ignored).
    ///
    /// # Errors
    /// When the text is neither; the sentence says what it may be.
    pub fn is(&self, pin: &str) -> Result<bool, String> {
        let pin = pin.trim();
        if pin.starts_with("SHA256:") {
            return Ok(pin.trim_end_matches('=') == self.fingerprint());
        }
        let mut words = pin.split_whitespace();
        if let (Some(algorithm), Some(text)) = (words.next(), words.next())
            && let Some(bytes) = decode(text)
            && PublicKeyBlob::new(&bytes).is_some_and(|key| key.algorithm == algorithm)
        {
            return Ok(bytes == self.bytes);
        }
        Err(format!(
            "host_key {pin:?} is neither a fingerprint (SHA256:…) nor a public key \
             (ssh-ed25519 AAAA…); `ssh-keyscan HOST` prints the keys of a host"
        ))
    }
}

/// `SHA256:` and the digest in base 64 without padding.
pub fn fingerprint(blob: &[u8]) -> String {
    format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(blob)))
}

/// The bytes of a key in base 64.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The algorithm of the key that makes signatures of this kind: `rsa-sha2-512` is made by a key of
/// `ssh-rsa`; all others bear the key's name.
pub fn key_algorithm(signature: &str) -> &str {
    match signature {
        "rsa-sha2-256" | "rsa-sha2-512" => "ssh-rsa",
        other => other,
    }
}

/// The signatures that a key of this algorithm makes, best first. SHA-1 ones are left out.
pub fn signatures(algorithm: &str) -> Vec<&str> {
    match algorithm {
        "ssh-rsa" => vec!["rsa-sha2-512", "rsa-sha2-256"],
        other => vec![other],
    }
}
