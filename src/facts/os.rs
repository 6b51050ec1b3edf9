//! The distribution, from os-release(5) and what NVIDIA writes beside it.

use serde::{Deserialize, Serialize};

use super::script::{Sections, some};

/// The distribution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Os {
    /// The distribution's short name: `debian`, `fedora`, `ubuntu`.
    pub id: Option<String>,
    /// Those it is derived from, nearest first.
    pub id_like: Vec<String>,
    /// Its name and version for people.
    pub name: Option<String>,
    /// Version; rolling distributions have none.
    pub version: Option<String>,
    /// The version's code name.
    pub codename: Option<String>,
    /// Which edition, e.g. `silverblue`.
    pub variant: Option<String>,
    /// Which build, e.g. `rolling`; of an NVIDIA system its own version.
    pub build: Option<String>,
    /// The version to the last point, where the distribution keeps one beside `version`.
    pub full_version: Option<String>,
    /// Version of the image it was installed from; not what it is now.
    pub image_version: Option<String>,
    /// Version of the image it runs, of systems that are images (ostree).
    pub ostree: Option<String>,
    /// The machine that the system was made for, e.g. `DGX Spark`.
    pub made_for: Option<String>,
}

/// Reads the sections `os` and `dgx`.
pub fn parse(sections: &Sections<'_>) -> Os {
    let os = sections.get("os");
    let dgx = sections.get("dgx");
    // An image build that failed to fill it in leaves the template.
    let version = last(os, "VERSION_ID").filter(|version| !version.starts_with("TEMPLATE_"));
    Os {
        id: last(os, "ID"),
        id_like: last(os, "ID_LIKE")
            .map(|list| list.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_default(),
        name: last(os, "PRETTY_NAME").or_else(|| last(os, "NAME")),
        version,
        codename: last(os, "VERSION_CODENAME"),
        variant: last(os, "VARIANT_ID"),
        // What was installed last over the air is the version in use.
        build: last(dgx, "DGX_OTA_VERSION")
            .or_else(|| last(dgx, "DGX_SWBUILD_VERSION"))
            .or_else(|| last(os, "BUILD_ID")),
        full_version: last(os, "DEBIAN_VERSION_FULL"),
        image_version: last(os, "IMAGE_VERSION"),
        ostree: last(os, "OSTREE_VERSION"),
        made_for: last(dgx, "DGX_NAME"),
    }
}

/// The value of `NAME=value`; the last counts, as when a shell reads the file.
fn last(text: &str, name: &str) -> Option<String> {
    text.lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))
        .and_then(|value| some(&unquoted(value)))
}

/// A value as a shell would read it: in quotes of either kind, with backslashes.
fn unquoted(text: &str) -> String {
    let mut out = String::new();
    let mut quote = None;
    let mut rest = text.trim().chars();
    while let Some(c) = rest.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => out.extend(rest.next()),
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            (c, None) if c.is_whitespace() => break,
            (c, _) => out.push(c),
        }
    }
    out
}
