//! What the user types to name a model: a path, `org/name[@revision][:file-or-quant]`, or an alias.
//!
//! Pure: the only question to the outside, whether a file exists, is asked through a closure.
//! It must not know where models live or how they are fetched.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::nearest::nearest;

/// The longest reference that is looked at, in bytes.
const MAX_LEN: usize = 1024;

/// A model as the user named it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelRef {
    /// A GGUF file on this machine.
    Path(PathBuf),
    /// A repository on the hub.
    Hub {
        /// Which repository.
        repo: RepoId,
        /// Branch, tag or commit; `None` is the branch `main`.
        revision: Option<String>,
        /// A quantisation (`Q4_K_M`) or a file of the repository (`x-Q4_K_M.gguf`); `None` lets
        /// the only GGUF file of the repository be taken.
        selector: Option<String>,
    },
    /// A name that windlass itself knows.
    Alias(Alias),
}

/// Names that stand for one exact file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alias {
    /// SmolLM2-135M-Instruct, the small model of the demo and the tests.
    SmolLm2,
}

impl Alias {
    /// Every alias there is.
    pub const ALL: [Alias; 1] = [Alias::SmolLm2];

    /// The name as typed, and as the model is served.
    pub fn name(self) -> &'static str {
        match self {
            Alias::SmolLm2 => "smollm2",
        }
    }
}

/// `org/name` of a repository on the hub: safe as two segments of a URL and as a folder name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RepoId {
    owner: String,
    name: String,
}

impl RepoId {
    /// Checks and takes `org/name`.
    ///
    /// # Errors
    /// [`ReferenceError::Repo`] if the text is not two names joined by a slash.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let wrong = |why: &'static str| ReferenceError::Repo {
            text: text.to_owned(),
            why,
        };
        let (owner, name) = text
            .split_once('/')
            .ok_or(wrong("there is no slash in it"))?;
        for part in [owner, name] {
            if part.is_empty() {
                return Err(wrong("a name is empty"));
            }
            if part.len() > 96 {
                return Err(wrong("a name is longer than 96 letters"));
            }
            if !part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
            {
                return Err(wrong("names hold only letters, digits, '-', '_' and '.'"));
            }
            if part.starts_with(['-', '.'])
                || part.ends_with(['-', '.'])
                || part.contains("--")
                || part.contains("..")
            {
                return Err(wrong("'-' and '.' stand only single and inside a name"));
            }
        }
        Ok(Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
        })
    }

    /// The organisation or user.
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The repository's own name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The repository's folder in the Hugging Face cache.
    pub fn folder(&self) -> String {
        format!("models--{}--{}", self.owner, self.name)
    }
}

impl fmt::Display for RepoId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// Why a text names no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    /// Nothing, or far too much.
    #[error("a model reference has 1 to {MAX_LEN} bytes, this one has {0}")]
    Length(usize),
    /// A word without a slash that is no alias.
    #[error(
        "no model is called '{text}'; the nearest name is '{nearest}'. Else give a path to a GGUF \
         file, or org/name[@revision][:quant]"
    )]
    UnknownAlias {
        /// What was typed.
        text: String,
        /// The closest alias.
        nearest: &'static str,
    },
    /// An alias with something added.
    #[error(
        "'{alias}' names one exact file, so '{text}' cannot choose another; for that, write \
         org/name[@revision]:quant"
    )]
    AliasTakesNothing {
        /// What was typed.
        text: String,
        /// The alias in it.
        alias: &'static str,
    },
    /// It looks like a path, and nothing is there.
    #[error("there is no file '{0}'")]
    NoSuchFile(String),
    /// A whole URL.
    #[error("'{0}' is a URL; write the model as org/name[@revision][:quant]")]
    Url(String),
    /// The repository part is no repository name.
    #[error("'{text}' is no repository name of the form org/name: {why}")]
    Repo {
        /// The repository part.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The revision or the file part cannot be used.
    #[error("the {part} '{text}' of the model reference is not usable: {why}")]
    Part {
        /// `revision` or `file`.
        part: &'static str,
        /// The part as typed.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

impl ModelRef {
    /// Reads a reference; `exists` says whether a path is there.
    ///
    /// # Errors
    /// [`ReferenceError`], which says what would have been valid.
    pub fn parse_with(text: &str, exists: impl Fn(&Path) -> bool) -> Result<Self, ReferenceError> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_LEN {
            return Err(ReferenceError::Length(text.len()));
        }
        if text.contains("://") {
            return Err(ReferenceError::Url(text.to_owned()));
        }
        let path = Path::new(text);
        if path.is_absolute() || text.starts_with("./") || text.starts_with("../") {
            return if exists(path) {
                Ok(Self::Path(path.to_owned()))
            } else {
                Err(ReferenceError::NoSuchFile(text.to_owned()))
            };
        }
        if is_gguf(text) {
            if exists(path) {
                return Ok(Self::Path(path.to_owned()));
            }
            if !text.contains(':') {
                return Err(ReferenceError::NoSuchFile(text.to_owned()));
            }
        }
        if text.contains('/') {
            parse_hub(text)
        } else {
            parse_alias(text)
        }
    }
}

impl FromStr for ModelRef {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse_with(text, Path::is_file)
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Alias(alias) => f.write_str(alias.name()),
            Self::Hub {
                repo,
                revision,
                selector,
            } => {
                write!(f, "{repo}")?;
                if let Some(revision) = revision {
                    write!(f, "@{revision}")?;
                }
                if let Some(selector) = selector {
                    write!(f, ":{selector}")?;
                }
                Ok(())
            }
        }
    }
}

/// Whether a name ends in `.gguf`, in any case.
pub(crate) fn is_gguf(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with(".gguf")
}

/// Why a relative path with slashes is not safe below a folder of ours; `None` if it is.
pub(crate) fn unsafe_path(text: &str) -> Option<&'static str> {
    if text.is_empty() || text.len() > 512 {
        return Some("it is empty or longer than 512 bytes");
    }
    if text
        .split('/')
        .any(|part| part.is_empty() || part == "." || part == "..")
    {
        return Some("a step of it is empty, '.' or '..'");
    }
    if text.chars().any(|c| c.is_control() || c == '\\') {
        return Some("it holds a control character or a backslash");
    }
    None
}

fn parse_hub(text: &str) -> Result<ModelRef, ReferenceError> {
    let (left, selector) = match text.split_once(':') {
        Some((left, selector)) => (left, Some(selector)),
        None => (text, None),
    };
    let (repo, revision) = match left.split_once('@') {
        Some((repo, revision)) => (repo, Some(revision)),
        None => (left, None),
    };
    let check = |part: &'static str, text: Option<&str>| match text.map(|t| (t, unsafe_path(t))) {
        Some((text, Some(why))) => Err(ReferenceError::Part {
            part,
            text: text.to_owned(),
            why,
        }),
        Some((text, None)) => Ok(Some(text.to_owned())),
        None => Ok(None),
    };
    Ok(ModelRef::Hub {
        repo: RepoId::parse(repo)?,
        revision: check("revision", revision)?,
        selector: check("file", selector)?,
    })
}

fn parse_alias(text: &str) -> Result<ModelRef, ReferenceError> {
    let name = text.split([':', '@']).next().unwrap_or(text);
    match Alias::ALL
        .into_iter()
        .find(|alias| alias.name().eq_ignore_ascii_case(name))
    {
        Some(alias) if name.len() == text.len() => Ok(ModelRef::Alias(alias)),
        Some(alias) => Err(ReferenceError::AliasTakesNothing {
            text: text.to_owned(),
            alias: alias.name(),
        }),
        None => Err(ReferenceError::UnknownAlias {
            text: text.to_owned(),
            nearest: nearest(text, Alias::ALL.map(Alias::name)).unwrap_or_default(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ModelRef, ReferenceError> {
        ModelRef::parse_with(text, |path| path.ends_with("there.gguf"))
    }

    fn hub(repo: &str, revision: Option<&str>, selector: Option<&str>) -> ModelRef {
        ModelRef::Hub {
            repo: RepoId::parse(repo).unwrap(),
            revision: revision.map(str::to_owned),
            selector: selector.map(str::to_owned),
        }
    }

    #[test]
    fn valid_references_parse_to_what_they_name() {
        let path = |p: &str| ModelRef::Path(PathBuf::from(p));
        for (text, expected) in [
            ("./there.gguf", path("./there.gguf")),
            ("../a/there.gguf", path("../a/there.gguf")),
            ("/there.gguf", path("/there.gguf")),
            ("there.gguf", path("there.gguf")),
            ("sub/there.gguf", path("sub/there.gguf")),
            ("smollm2", ModelRef::Alias(Alias::SmolLm2)),
            (" SmolLM2\n", ModelRef::Alias(Alias::SmolLm2)),
            ("org/name", hub("org/name", None, None)),
            ("org/name:Q4_K_M", hub("org/name", None, Some("Q4_K_M"))),
            ("org/name@v1.0", hub("org/name", Some("v1.0"), None)),
            (
                "a/b@refs/pr/3:q8_0",
                hub("a/b", Some("refs/pr/3"), Some("q8_0")),
            ),
            (
                "a/b:sub/x-Q4_0.gguf",
                hub("a/b", None, Some("sub/x-Q4_0.gguf")),
            ),
            ("Qwen/Qwen2.5-0.5B", hub("Qwen/Qwen2.5-0.5B", None, None)),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_reference_prints_as_it_is_typed() {
        for text in [
            "smollm2",
            "org/name",
            "org/name@v1:Q4_0",
            "org/name:Q4_0",
            "./there.gguf",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_names_no_model_says_what_would() {
        for (text, part) in [
            ("", "1 to 1024 bytes"),
            ("smolm2", "nearest name is 'smollm2'"),
            ("llama", "org/name[@revision][:quant]"),
            ("smollm2:Q8_0", "names one exact file"),
            ("smollm2@main", "names one exact file"),
            ("gone.gguf", "no file 'gone.gguf'"),
            ("./gone.bin", "no file './gone.bin'"),
            ("sub/gone.gguf", "no file 'sub/gone.gguf'"),
            ("https://host/org/name", "is a URL"),
            ("org/", "a name is empty"),
            ("/name/x", "no file"),
            ("a/b/c", "only letters, digits"),
            ("a/b c", "only letters, digits"),
            ("a/..", "only single and inside"),
            ("a--x/b", "only single and inside"),
            ("a/b@../../x", "revision '../../x'"),
            ("a/b@", "revision ''"),
            ("a/b:", "file ''"),
            ("a/b:/etc/passwd", "file '/etc/passwd'"),
            ("a/b:x\\y", "backslash"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(parse(&"x".repeat(2000)).is_err());
    }
}
