//! Builds of engines that the login finds by name. All hosts of a deployment need the same.

use serde::{Deserialize, Serialize};

use super::script::{Sections, parts, says, value};
use super::tools::llama;

/// A build of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineBuild {
    /// The program: `llama-server`, `rpc-server`, `ggml-rpc-server`, `ollama`.
    pub name: String,
    /// Where it is.
    pub path: Option<String>,
    /// Its version; some programs of llama.cpp tell none.
    pub version: Option<String>,
    /// The commit it was made of.
    pub commit: Option<String>,
}

/// Reads the section `engines`; `None` when the host was not asked.
pub fn parse(sections: &Sections<'_>) -> Option<Vec<EngineBuild>> {
    let text = sections.get("engines");
    says(text, "asked").then(|| {
        parts(text, "engine")
            .into_iter()
            .map(|(name, text)| {
                let build = llama::build(text);
                EngineBuild {
                    name: name.to_owned(),
                    path: value(text, "path").map(str::to_owned),
                    version: build.version,
                    commit: build.commit,
                }
            })
            .collect()
    })
}
