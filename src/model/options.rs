//! What steers a fetch: hub, token, offline switch, folders. Read from the environment in one
//! place, so that everything else takes it as values. Must not touch the network.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;

/// The hub asked when `HF_ENDPOINT` is not set.
const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// The longest token file that is read, in bytes.
const MAX_TOKEN: usize = 4096;

/// A secret for the hub. It prints as a word, never as itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token, without white space around it; `None` if nothing is left, or if it could
    /// not stand in a header line.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        let fits = !text.is_empty()
            && text.len() <= MAX_TOKEN
            && text.bytes().all(|b| b.is_ascii_graphic());
        fits.then(|| Self(text.to_owned()))
    }

    /// The secret itself, for the header line only.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(set)")
    }
}

/// Where model files live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// The Hugging Face cache: `models--org--name/{blobs,refs,snapshots}`.
    pub hub: PathBuf,
    /// Windlass's own cache: `models/SHA256/NAME.gguf` and the records of verified files.
    pub own: PathBuf,
}

impl Folders {
    /// Both folders below one, for tests and for a cache of one's own.
    pub fn below(root: &Path) -> Self {
        Self {
            hub: root.join("hub"),
            own: root.join("windlass"),
        }
    }

    /// `HF_HUB_CACHE`, `HF_HOME` and `XDG_CACHE_HOME` decide, else the home folder.
    pub fn from_env() -> Self {
        let own = etcetera::choose_base_strategy()
            .map(|strategy| strategy.cache_dir())
            .unwrap_or_else(|_| env::temp_dir())
            .join("windlass");
        Self {
            hub: hf_hub::resolve_cache_dir(),
            own,
        }
    }
}

/// What steers a fetch.
#[derive(Debug, Clone)]
pub struct FetchOptions {
    /// Use only what is on this disk.
    pub offline: bool,
    /// The hub's base URL, without a slash at the end.
    pub endpoint: String,
    /// The token sent to the hub, if any.
    pub token: Option<Token>,
    /// Where model files live.
    pub folders: Folders,
    /// The Python that runs pip for the package way.
    pub python: PathBuf,
    /// The longest wait for a connection to the hub.
    pub connect_timeout: Duration,
    /// The pause before a broken download goes on; it doubles each time without progress.
    pub retry_delay: Duration,
}

impl FetchOptions {
    /// The defaults, with what `HF_ENDPOINT`, `HF_TOKEN`, `HF_TOKEN_PATH`,
    /// `HF_HUB_DISABLE_IMPLICIT_TOKEN`, `HF_HUB_OFFLINE`, `HF_HOME`, `HF_HUB_CACHE` and
    /// `XDG_CACHE_HOME` say.
    pub fn from_env() -> Self {
        let endpoint = var("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        Self {
            offline: var("HF_HUB_OFFLINE").is_some_and(|value| is_on(&value)),
            token: token_from_env(),
            ..Self::with(&endpoint, Folders::from_env())
        }
    }

    /// The defaults for a given hub and folders, without a token; reads no environment.
    pub fn with(endpoint: &str, folders: Folders) -> Self {
        Self {
            offline: false,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            token: None,
            folders,
            python: PathBuf::from("python3"),
            connect_timeout: Duration::from_secs(10),
            retry_delay: Duration::from_millis(500),
        }
    }
}

fn var(name: &str) -> Option<String> {
    env::var(name)
        .ok()
        .map(|value| value.trim().to_owned())
        .filter(|value| !value.is_empty())
}

/// The values that the Hugging Face tools take as "on".
fn is_on(value: &str) -> bool {
    ["1", "on", "yes", "true"]
        .iter()
        .any(|on| value.eq_ignore_ascii_case(on))
}

/// The token by the hub tools' own order: variable, named file, file of the login.
fn token_from_env() -> Option<Token> {
    if var("HF_HUB_DISABLE_IMPLICIT_TOKEN").is_some() {
        return None;
    }
    if let Some(token) = var("HF_TOKEN").as_deref().and_then(Token::new) {
        return Some(token);
    }
    let named = var("HF_TOKEN_PATH").map(PathBuf::from);
    let login = hf_hub::hf_home().join("token");
    named.into_iter().chain([login]).find_map(|path| {
        let small = std::fs::metadata(&path).is_ok_and(|meta| meta.len() <= MAX_TOKEN as u64);
        let text = if small {
            std::fs::read_to_string(&path).ok()
        } else {
            None
        };
        text.as_deref().and_then(Token::new)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_shows_in_debug_output() {
        let mut options = FetchOptions::with("http://h/", Folders::below(Path::new("/c")));
        options.token = Token::new(" hf_secret\n");
        assert!(options.token.is_some());
        assert!(!format!("{options:?}").contains("hf_secret"));
        assert_eq!(options.endpoint, "http://h");
    }

    #[test]
    fn a_token_that_could_break_a_header_line_is_no_token() {
        for text in ["", "  ", "a b", "a\r\nX: y", "é", &"x".repeat(5000)] {
            assert_eq!(Token::new(text), None);
        }
    }

    #[test]
    fn offline_is_on_for_the_values_the_hub_tools_take() {
        for (value, on) in [
            ("1", true),
            ("ON", true),
            ("yes", true),
            ("True", true),
            ("0", false),
            ("no", false),
        ] {
            assert_eq!(is_on(value), on, "{value}");
        }
    }
}
