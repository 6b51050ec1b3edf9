//! Private keys: the files, the agent, and the order in which they are tried. Must not know
//! connections.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::{Algorithm, HashAlg, PrivateKey, PublicKey, ssh_key};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::event::{Asker, Scope};

/// Names of key files in `~/.ssh` that are tried when none is named, as OpenSSH has them.
const DEFAULT_NAMES: [&str; 3] = ["id_ed25519", "id_ecdsa", "id_rsa"];

/// Largest key file, bytes.
const LARGEST: u64 = 256 << 10;

/// How long the agent may take to list its keys.
const AGENT: Duration = Duration::from_secs(2);

/// How often a passphrase may be mistyped.
const TRIES: usize = 3;

/// A key that can be tried.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a handful, made once a login")]
pub(super) enum Candidate {
    /// The agent has it.
    Agent(AgentIdentity),
    /// A file has it.
    File(KeyFile),
}

impl Candidate {
    /// For people.
    pub fn name(&self) -> String {
        match self {
            Self::Agent(identity) => {
                format!("{} of the agent", fingerprint(&identity.public_key()))
            }
            Self::File(file) => file.path.display().to_string(),
        }
    }
}

/// A key file that was read.
#[derive(Clone, Debug)]
pub(super) struct KeyFile {
    /// Where.
    pub path: PathBuf,
    /// Its public half, as far as it is known without a passphrase.
    pub public: Option<PublicKey>,
    /// Its text.
    text: Zeroizing<String>,
    /// The key itself, when it is not encrypted.
    pub private: Option<Arc<PrivateKey>>,
}

/// `ED25519 SHA256:…`.
pub(super) fn fingerprint(key: &PublicKey) -> String {
    let algorithm = key.algorithm();
    format!(
        "{} {}",
        super::trust::kind(algorithm.as_str()),
        key.fingerprint(HashAlg::Sha256)
    )
}

/// Reads a key file.
///
/// # Errors
/// Why it is of no use, in a sentence with its name.
pub(super) fn read(path: &Path) -> Result<KeyFile, ReadError> {
    let unusable = |reason: String| ReadError::Unusable(format!("{}: {reason}", path.display()));
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ReadError::Missing),
        Err(error) => return Err(unusable(error.to_string())),
    };
    if meta.len() > LARGEST {
        return Err(unusable("it is too large for a key".into()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
    let text = Zeroizing::new(text);
    let half = || russh::keys::load_public_key(beside(path)).ok();
    if let Ok(key) = PrivateKey::from_openssh(text.as_str()) {
        let public = Some(key.public_key().clone());
        let private = (!key.is_encrypted()).then(|| Arc::new(key));
        return Ok(KeyFile {
            path: path.to_owned(),
            public,
            text,
            private,
        });
    }
    match russh::keys::decode_secret_key(&text, None) {
        Ok(key) => Ok(KeyFile {
            path: path.to_owned(),
            public: Some(key.public_key().clone()),
            text,
            private: Some(Arc::new(key)),
        }),
        Err(russh::keys::Error::KeyIsEncrypted) => Ok(KeyFile {
            path: path.to_owned(),
            public: half(),
            text,
            private: None,
        }),
        Err(error) => Err(unusable(format!("it is no private key ({error})"))),
    }
}

/// Why a key file is not used.
#[derive(Debug)]
pub(super) enum ReadError {
    /// There is none.
    Missing,
    /// A sentence with its name.
    Unusable(String),
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// The files to try when none is named.
pub(super) fn defaults(home: &Path) -> Vec<PathBuf> {
    DEFAULT_NAMES
        .iter()
        .map(|name| home.join(".ssh").join(name))
        .collect()
}

/// The agent, and the keys it has.
pub(super) async fn agent(
    socket: &Path,
) -> Result<(AgentClient<UnixStream>, Vec<AgentIdentity>), String> {
    let talk = async {
        let mut client = AgentClient::connect_uds(socket).await?;
        let keys = client.request_identities().await?;
        Ok::<_, russh::keys::Error>((client, keys))
    };
    match tokio::time::timeout(AGENT, talk).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", AGENT.as_secs())),
    }
}

/// The order in which keys are tried, at most `most`: keys of the agent that a named file also has,
/// then the agent's others (unless only named ones may be used), then files. When there are too
/// many, the agent's others make room: a named file is what the user meant.
pub(super) fn order(
    agent: Vec<AgentIdentity>,
    files: Vec<KeyFile>,
    only_named: bool,
    most: usize,
) -> Vec<Candidate> {
    let public = |file: &KeyFile| file.public.as_ref().map(|key| key.key_data().clone());
    let named: Vec<_> = files.iter().filter_map(public).collect();
    let (first, others): (Vec<_>, Vec<_>) = agent
        .into_iter()
        .partition(|identity| named.contains(identity.public_key().key_data()));
    let held: Vec<_> = first
        .iter()
        .map(|identity| identity.public_key().key_data().clone())
        .collect();
    let files: Vec<_> = files
        .into_iter()
        .filter(|file| public(file).is_none_or(|key| !held.contains(&key)))
        .collect();
    let room = most.saturating_sub(first.len() + files.len());
    let others = others.into_iter().take(if only_named { 0 } else { room });
    let mut all: Vec<_> = first.into_iter().map(Candidate::Agent).collect();
    all.extend(others.map(Candidate::Agent));
    all.extend(files.into_iter().map(Candidate::File));
    all.truncate(most);
    all
}

/// Whether a key is an RSA one, for which a hash must be chosen.
pub(super) fn is_rsa(key: &PublicKey) -> bool {
    matches!(key.algorithm(), Algorithm::Rsa { .. })
}

/// Keys whose passphrase was given, so that it is asked for once however many hosts take the key.
#[derive(Debug, Default)]
pub(super) struct Opened(Mutex<HashMap<PathBuf, Result<Arc<PrivateKey>, String>>>);

impl Opened {
    /// The key of an encrypted file; a person is asked for the passphrase.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub async fn open(&self, file: &KeyFile, asker: &Asker) -> Result<Arc<PrivateKey>, String> {
        let mut opened = self.0.lock().await;
        if let Some(known) = opened.get(&file.path) {
            return known.clone();
        }
        let result = ask(file, asker).await;
        opened.insert(file.path.clone(), result.clone());
        result
    }
}

async fn ask(file: &KeyFile, asker: &Asker) -> Result<Arc<PrivateKey>, String> {
    let path = file.path.display();
    for left in (0..TRIES).rev() {
        let text = format!("passphrase of {path}");
        let Some(passphrase) = asker.ask(Scope::run(), text, &[], true).await else {
            return Err(format!(
                "{path} is encrypted and nobody can be asked for its passphrase: add it to the \
                 agent (`ssh-add {path}`), or run windlass at a terminal"
            ));
        };
        let passphrase = Zeroizing::new(passphrase);
        let text = file.text.clone();
        // Deriving the key from the passphrase is slow by design.
        let key = tokio::task::spawn_blocking(move || {
            russh::keys::decode_secret_key(&text, Some(&passphrase))
        })
        .await
        .map_err(|error| format!("{path}: {error}"))?;
        match key {
            Ok(key) => return Ok(Arc::new(key)),
            Err(russh::keys::Error::SshKey(ssh_key::Error::AlgorithmUnsupported { .. })) => {
                return Err(format!(
                    "{path} is encrypted in a way that is not supported"
                ));
            }
            Err(_) if left > 0 => {}
            Err(_) => {}
        }
    }
    Err(format!("the passphrase of {path} was wrong {TRIES} times"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> PrivateKey {
        let pair = ssh_key::private::Ed25519Keypair::from_seed(&[seed; 32]);
        PrivateKey::from(pair)
    }

    fn identity(seed: u8) -> AgentIdentity {
        key(seed).public_key().clone().into()
    }

    fn file(seed: u8) -> KeyFile {
        KeyFile {
            path: format!("/k/{seed}").into(),
            public: Some(key(seed).public_key().clone()),
            text: Zeroizing::default(),
            private: Some(Arc::new(key(seed))),
        }
    }

    /// `a3` is key 3 of the agent, `f3` of a file.
    fn names(all: &[Candidate]) -> Vec<String> {
        let number = |public: &PublicKey| {
            (0..9).find(|seed| key(*seed).public_key().key_data() == public.key_data())
        };
        all.iter()
            .map(|one| match one {
                Candidate::Agent(identity) => {
                    format!("a{}", number(&identity.public_key()).unwrap())
                }
                Candidate::File(file) => {
                    format!("f{}", number(file.public.as_ref().unwrap()).unwrap())
                }
            })
            .collect()
    }

    #[test]
    fn keys_are_tried_in_an_order_that_never_starves_a_named_file() {
        let agent = |seeds: &[u8]| seeds.iter().map(|seed| identity(*seed)).collect::<Vec<_>>();
        let files = |seeds: &[u8]| seeds.iter().map(|seed| file(*seed)).collect::<Vec<_>>();
        for (held, named, only, most, wanted) in [
            (&[][..], &[1][..], false, 5, "f1"),
            (&[2, 1], &[1], false, 5, "a1 a2"),
            (&[2, 1], &[1], true, 5, "a1"),
            (&[2, 3], &[1], true, 5, "f1"),
            (&[2, 3, 4, 5, 6, 7], &[1], false, 5, "a2 a3 a4 a5 f1"),
            (&[2, 3, 4, 5, 6, 7], &[], false, 5, "a2 a3 a4 a5 a6"),
            (&[2], &[1, 3, 4, 5, 6, 7], false, 5, "f1 f3 f4 f5 f6"),
            (&[], &[], false, 5, ""),
        ] {
            let all = order(agent(held), files(named), only, most);
            assert_eq!(names(&all).join(" "), wanted, "{held:?} {named:?}");
        }
    }
}
