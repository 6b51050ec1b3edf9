//! What of a hub's description of a repository is used, each part checked: the answer is a
//! peer's, so paths, digests and texts in it are not trusted. Pure; knows no connection.

use hf_hub::repository::ModelInfo;

use super::error::readable;
use super::hub::{RemoteFile, Repository};
use super::reference::{RepoId, unsafe_path};

/// What of the hub's description is used, each part checked.
pub(crate) fn repository(repo: &RepoId, info: ModelInfo) -> Result<Repository, String> {
    let commit = info.sha.ok_or("it names no commit")?;
    if !is_hex(&commit, 40) {
        return Err("its commit is not 40 hexadecimal digits".to_owned());
    }
    let text = |value: &serde_json::Value| value.as_str().map(|s| readable(s, None));
    let card = info.card_data.as_ref();
    let field = |name: &str| card.and_then(|c| c.get(name)).and_then(text);
    let from_tag = || {
        let tags = info.tags.as_ref()?;
        tags.iter()
            .find_map(|t| t.strip_prefix("license:"))
            .map(|s| readable(s, None))
    };
    let license = match (field("license"), field("license_name")) {
        (Some(kind), Some(name)) if kind == "other" => Some(name),
        (Some(kind), _) => Some(kind),
        (None, _) => from_tag(),
    };
    let files = info
        .siblings
        .unwrap_or_default()
        .into_iter()
        .filter(|file| unsafe_path(&file.rfilename).is_none())
        .map(|file| {
            let (size, sha256) = file.lfs.map_or((None, None), |lfs| (lfs.size, lfs.sha256));
            RemoteFile {
                repo: repo.clone(),
                commit: commit.clone(),
                path: file.rfilename,
                bytes: file.size.or(size),
                sha256: sha256
                    .map(|s| s.to_ascii_lowercase())
                    .filter(|s| is_hex(s, 64)),
            }
        })
        .collect();
    let gated = info.gated.as_ref().and_then(text);
    Ok(Repository {
        repo: repo.clone(),
        commit,
        files,
        license,
        gated,
    })
}

/// Whether the text is exactly `len` hexadecimal digits.
pub(crate) fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A revision as one segment of a URL, slashes encoded too, as the hub expects it.
pub(crate) fn encode_segment(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(json: serde_json::Value) -> ModelInfo {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_listing_with_unsafe_paths_or_digests_keeps_only_what_is_safe() {
        let repo = RepoId::parse("o/n").unwrap();
        let commit = "a".repeat(40);
        let sha = "B".repeat(64);
        let found = repository(
            &repo,
            info(serde_json::json!({
                "id": "o/n", "sha": commit, "gated": "manual",
                "cardData": {"license": "other", "license_name": "our-own"},
                "siblings": [
                    {"rfilename": "../../x.gguf"},
                    {"rfilename": "/etc/passwd"},
                    {"rfilename": "a.gguf", "size": 5, "lfs": {"size": 5, "sha256": sha, "pointerSize": 1}},
                    {"rfilename": "b.gguf", "size": 5, "lfs": {"size": 5, "sha256": "../../b"}},
                ]
            })),
        )
        .unwrap();
        let names: Vec<&str> = found.files.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(names, ["a.gguf", "b.gguf"]);
        assert_eq!(found.files[0].sha256, Some("b".repeat(64)));
        assert_eq!(found.files[1].sha256, None);
        assert_eq!(found.license.as_deref(), Some("our-own"));
        assert_eq!(found.gated.as_deref(), Some("manual"));
    }

    #[test]
    fn a_listing_without_a_sound_commit_is_refused() {
        let repo = RepoId::parse("o/n").unwrap();
        for sha in [
            serde_json::json!(null),
            serde_json::json!("main"),
            serde_json::json!("../x"),
        ] {
            assert!(repository(&repo, info(serde_json::json!({"id": "o/n", "sha": sha}))).is_err());
        }
    }

    #[test]
    fn a_licence_tag_serves_when_the_card_names_none() {
        let repo = RepoId::parse("o/n").unwrap();
        let listing = serde_json::json!({
            "id": "o/n", "sha": "0".repeat(40), "tags": ["gguf", "license:apache-2.0"], "gated": false
        });
        let found = repository(&repo, info(listing)).unwrap();
        assert_eq!(found.license.as_deref(), Some("apache-2.0"));
        assert_eq!(found.gated, None);
    }

    #[test]
    fn revisions_become_one_url_segment() {
        assert_eq!(encode_segment("refs/pr/1"), "refs%2Fpr%2F1");
        assert_eq!(encode_segment("v1.0-a_b~"), "v1.0-a_b~");
    }
}
