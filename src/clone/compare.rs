//! What differs between a tree and its copy, from the digests of both. Pure. Must not know how they are
//! read.

use std::collections::{BTreeMap, BTreeSet};

/// By path: a digest, and whether what it is of changed since the copying began.
pub type Digests = BTreeMap<String, (String, bool)>;

/// What comparing folder by folder came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Folders in which something changed on the source meanwhile.
    pub moved: Vec<String>,
    /// Places that differ though nothing changed there.
    pub bad: Vec<String>,
}

fn above(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

/// Folders of the source against those of the copy; `live` is whether the source may change at all.
pub fn folders(mut ours: Digests, copy: &Digests, live: bool) -> Verdict {
    let (mut moved, mut bad) = (BTreeSet::new(), Vec::new());
    for (path, (sha256, _)) in copy {
        match ours.remove(path) {
            Some((own, _)) if own == *sha256 => {}
            Some((_, true)) => {
                moved.insert(path.clone());
            }
            // Gone on the source since.
            None if live => {
                moved.insert(path.clone());
            }
            Some((_, false)) | None => bad.push(path.clone()),
        }
    }
    // Made on the source since; or moved there, with all in it.
    for (path, (_, changed)) in ours {
        let with = !path.is_empty() && moved.contains(above(&path));
        match (changed || with) && live {
            true => {
                moved.insert(path);
            }
            false => bad.push(path),
        }
    }
    Verdict {
        moved: moved.into_iter().collect(),
        bad,
    }
}

/// What lies in folders in which something changed, one by one: all that did not change must be the same.
/// `known` are the folders that the copy has.
pub fn files(mut ours: Digests, copy: Digests, known: &Digests) -> Vec<String> {
    let mut bad = Vec::new();
    for (path, (sha256, _)) in copy {
        // What the copy has alone is gone on the source since.
        if let Some((own, false)) = ours.remove(&path)
            && own != sha256
        {
            bad.push(path);
        }
    }
    // A folder that the copy has not was moved there, and what lies in it did not change by that.
    let missing = ours
        .into_iter()
        .filter(|(path, (_, changed))| !changed && known.contains_key(above(path)));
    bad.extend(missing.map(|(path, _)| path));
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(all: &[(&str, &str, bool)]) -> Digests {
        all.iter()
            .map(|(path, sha256, changed)| ((*path).to_owned(), ((*sha256).to_owned(), *changed)))
            .collect()
    }

    #[test]
    fn folders_that_differ_are_bad_unless_something_changed_there() {
        let ours = digests(&[
            ("", "1", false),
            ("etc", "2", true),
            ("etc/moved-here", "3", false),
            ("usr", "4", false),
            ("opt", "5", false),
        ]);
        let copy = digests(&[
            ("", "1", false),
            ("etc", "old", false),
            ("usr", "damaged", false),
            ("gone-since", "6", false),
        ]);
        let verdict = folders(ours.clone(), &copy, true);
        assert_eq!(verdict.moved, ["etc", "etc/moved-here", "gone-since"]);
        assert_eq!(verdict.bad, ["usr", "opt"]);
        // A snapshot does not change.
        let still: Digests = ours
            .into_iter()
            .map(|(path, (sha256, _))| (path, (sha256, false)))
            .collect();
        let verdict = folders(still, &copy, false);
        assert!(verdict.moved.is_empty(), "{verdict:?}");
        assert_eq!(
            verdict.bad,
            ["etc", "gone-since", "usr", "etc/moved-here", "opt"]
        );
    }

    #[test]
    fn a_file_that_the_copy_lacks_is_found_also_where_another_changed() {
        let ours = digests(&[
            ("etc/same", "1", false),
            ("etc/rewritten", "2", true),
            ("etc/new", "3", true),
            ("etc/lost", "4", false),
            ("etc/damaged", "5", false),
            ("etc/moved-here/old", "6", false),
        ]);
        let copy = digests(&[
            ("etc/same", "1", false),
            ("etc/rewritten", "before", false),
            ("etc/damaged", "other", false),
            ("etc/removed-since", "7", false),
        ]);
        let known = digests(&[("", "", false), ("etc", "", false)]);
        assert_eq!(files(ours, copy, &known), ["etc/damaged", "etc/lost"]);
    }
}
