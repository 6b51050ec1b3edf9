//! Where a secret is to be had from, and fetching it when it is used. Must not know what it is for.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

/// Longest secret read, in bytes.
const LONGEST: usize = 64 << 10;

/// Where a secret is to be had from. Never the secret itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Secret {
    /// An environment variable of this process.
    Env(String),
    /// A file; a line end at its end does not count.
    File(PathBuf),
    /// A program and its arguments, whose standard output it is; a line end at its end does not
    /// count. No shell is involved.
    Command(Vec<String>),
}

/// Why a secret could not be had. Never holds any part of one.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The variable.
    #[error(
        "the environment variable {0} is not set: set it, or change where the secret comes from"
    )]
    Unset(String),
    /// The variable's value.
    #[error("the environment variable {0} does not hold text")]
    NotText(String),
    /// The file.
    #[error("the file {path} with the secret cannot be read: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The program.
    #[error("the command {program} that gives the secret failed: {reason}")]
    Command {
        /// Its first word only: arguments may say more than should be shown.
        program: String,
        /// Why.
        reason: String,
    },
    /// Its size.
    #[error("the secret from {0} is longer than 64 KiB")]
    Long(String),
    /// Nothing there.
    #[error("the secret from {0} is empty")]
    Empty(String),
}

impl Secret {
    /// Where it comes from, for people.
    pub fn origin(&self) -> String {
        match self {
            Self::Env(name) => format!("the environment variable {name}"),
            Self::File(path) => format!("the file {}", path.display()),
            Self::Command(words) => {
                format!("the command {}", words.first().map_or("", String::as_str))
            }
        }
    }

    /// Fetches it. A command is given no input; what it says on stderr is shown to no one, for it
    /// may be the secret.
    ///
    /// # Errors
    /// When there is none.
    pub async fn fetch(&self) -> Result<Zeroizing<String>, SecretError> {
        let bytes = match self {
            Self::Env(name) => {
                let value =
                    std::env::var_os(name).ok_or_else(|| SecretError::Unset(name.clone()))?;
                value
                    .into_string()
                    .map_err(|_| SecretError::NotText(name.clone()))?
                    .into_bytes()
            }
            Self::File(path) => {
                tokio::fs::read(path)
                    .await
                    .map_err(|source| SecretError::File {
                        path: path.clone(),
                        source,
                    })?
            }
            Self::Command(words) => run(words).await?,
        };
        if bytes.len() > LONGEST {
            return Err(SecretError::Long(self.origin()));
        }
        let text = Zeroizing::new(
            String::from_utf8(bytes).map_err(|_| SecretError::NotText(self.origin()))?,
        );
        let trimmed = text.trim_end_matches(['\r', '\n']);
        if trimmed.is_empty() {
            return Err(SecretError::Empty(self.origin()));
        }
        Ok(Zeroizing::new(trimmed.to_owned()))
    }
}

async fn run(words: &[String]) -> Result<Vec<u8>, SecretError> {
    let failed = |reason: String| SecretError::Command {
        program: words.first().cloned().unwrap_or_default(),
        reason,
    };
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| failed("it has no words".into()))?;
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_secret_comes_from_a_file_or_a_command_without_its_line_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        std::fs::write(&path, "p w\r\n").unwrap();
        assert_eq!(*Secret::File(path).fetch().await.unwrap(), "p w");
        let echo = Secret::Command(vec!["printf".into(), "a\\n".into()]);
        assert_eq!(*echo.fetch().await.unwrap(), "a");
    }

    #[tokio::test]
    async fn a_missing_secret_is_named_by_where_it_should_be() {
        let cases = [
            (
                Secret::Env("WINDLASS_NO_SUCH_VARIABLE".into()),
                "WINDLASS_NO_SUCH_VARIABLE",
            ),
            (Secret::File("/nowhere/s".into()), "/nowhere/s"),
            (Secret::Command(vec!["false".into()]), "false"),
            (Secret::Command(vec![]), "no words"),
            (Secret::Command(vec!["true".into()]), "empty"),
        ];
        for (secret, wanted) in cases {
            let error = secret.fetch().await.unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
