//! Which GGUF file of a repository a quantisation names.
//!
//! Pure decisions on file names; knows no hub and no disk. A name is a convention, so anything
//! doubtful is an error that lists the choices, never a guess.

use super::reference::is_gguf;
use crate::nearest::nearest;

/// The files that one selector stands for, by index into the list that was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// One whole file.
    One(usize),
    /// The parts of a split file in order: part 1 first.
    Split(Vec<usize>),
    /// A split file that lacks parts: how many are there, and how many there should be.
    Incomplete {
        /// Parts present.
        have: usize,
        /// Parts by the name.
        of: usize,
    },
    /// The repository has no GGUF model file at all.
    NoGguf,
    /// Nothing matches. The nearest quantisation and all that could be chosen.
    Nothing {
        /// The closest label.
        nearest: Option<String>,
        /// One label a model file, in the order of the list.
        choices: Vec<String>,
    },
    /// More than one file matches: all of these.
    Several(Vec<String>),
}

/// A model of the repository: one file, or the parts of one.
struct Group {
    /// The path without `-00001-of-000NN`.
    stem: String,
    /// (part from 1, index); a whole file is part 1.
    parts: Vec<(usize, usize)>,
    /// How many parts there should be.
    of: usize,
    /// The path of the first part seen, to show.
    shown: String,
}

/// Finds the file for `selector` (a quantisation, a path in the repository, or a file name)
/// among the paths of a repository.
pub fn choose(paths: &[&str], selector: Option<&str>) -> Choice {
    let groups = group(paths);
    if groups.is_empty() {
        return Choice::NoGguf;
    }
    let matching: Vec<&Group> = match selector {
        None => groups.iter().collect(),
        Some(name) if is_gguf(name) => {
            let by_path: Vec<&Group> = groups
                .iter()
                .filter(|g| g.has(paths, name, false))
                .collect();
            if by_path.is_empty() {
                groups.iter().filter(|g| g.has(paths, name, true)).collect()
            } else {
                by_path
            }
        }
        Some(quant) => groups
            .iter()
            .filter(|g| names_quant(&g.stem, quant))
            .collect(),
    };
    match matching.as_slice() {
        [] => {
            let choices: Vec<String> = groups.iter().map(Group::label).collect();
            let nearest = selector
                .and_then(|s| nearest(s, choices.iter().map(String::as_str)))
                .map(str::to_owned);
            Choice::Nothing { nearest, choices }
        }
        [group] => group.choice(),
        several => Choice::Several(several.iter().map(|g| g.shown.clone()).collect()),
    }
}

impl Group {
    fn has(&self, paths: &[&str], wanted: &str, name_only: bool) -> bool {
        self.parts
            .iter()
            .filter_map(|&(_, index)| paths.get(index))
            .any(|path| {
                let path = if name_only { file_name(path) } else { path };
                path.eq_ignore_ascii_case(wanted)
            })
    }

    fn label(&self) -> String {
        quant_label(&self.stem).unwrap_or_else(|| self.shown.clone())
    }

    fn choice(&self) -> Choice {
        let mut parts = self.parts.clone();
        parts.sort_unstable();
        let in_order = parts
            .iter()
            .enumerate()
            .all(|(at, &(part, _))| part == at + 1);
        match parts.as_slice() {
            _ if parts.len() != self.of || !in_order => Choice::Incomplete {
                have: parts.len(),
                of: self.of,
            },
            [(_, index)] => Choice::One(*index),
            _ => Choice::Split(parts.into_iter().map(|(_, index)| index).collect()),
        }
    }
}

/// The model files, split files put together; projectors, draft heads and importance matrices
/// are side files and left out.
fn group(paths: &[&str]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let name = file_name(path).to_ascii_lowercase();
        let Some(stem) = name.strip_suffix(".gguf") else {
            continue;
        };
        if name.contains("mmproj") || name.starts_with("mtp-") || stem.ends_with("imatrix") {
            continue;
        }
        // `.gguf` is five bytes of ASCII, so the cut is at a border.
        let whole = path.get(..path.len() - 5).unwrap_or(path);
        let (stem, part, of) = split_part(whole).unwrap_or((whole, 1, 1));
        match groups
            .iter_mut()
            .find(|g| g.stem == stem && g.of == of && of > 1)
        {
            Some(group) => group.parts.push((part, index)),
            None => groups.push(Group {
                stem: stem.to_owned(),
                parts: vec![(part, index)],
                of,
                shown: (*path).to_owned(),
            }),
        }
    }
    groups
}

/// `x-00002-of-00009` → (`x`, 2, 9).
fn split_part(stem: &str) -> Option<(&str, usize, usize)> {
    let (rest, of) = stem.rsplit_once("-of-")?;
    let (base, part) = rest.rsplit_once('-')?;
    let five = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
    if !five(part) || !five(of) {
        return None;
    }
    Some((base, part.parse().ok()?, of.parse().ok()?))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether the quantisation stands in the path as a whole word: `Q4_K` is not in `Q4_K_M`,
/// nor `Q4_XS` in `IQ4_XS`.
fn names_quant(stem: &str, quant: &str) -> bool {
    let stem = stem.to_ascii_lowercase();
    let quant = quant.to_ascii_lowercase();
    stem.match_indices(&quant).any(|(at, found)| {
        let before = stem.get(..at).and_then(|s| s.chars().next_back());
        let after = stem.get(at + found.len()..).and_then(|s| s.chars().next());
        !before.is_some_and(char::is_alphanumeric)
            && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// The quantisation that a file name claims (`Q4_K_M`, `IQ2_XXS`, `F16`, `MXFP4`), upper case:
/// the last word of the name that looks like one.
pub fn quant_label(path: &str) -> Option<String> {
    let name = file_name(path);
    let stem = if is_gguf(name) {
        name.get(..name.len() - 5)?
    } else {
        name
    };
    let stem = split_part(stem).map_or(stem, |(base, _, _)| base);
    let mut found = None;
    let mut before = None;
    for (at, c) in stem.char_indices() {
        let starts = before.is_none_or(|b: char| !b.is_alphanumeric());
        before = Some(c);
        let Some(rest) = stem.get(at..).filter(|_| starts) else {
            continue;
        };
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let word = rest
            .get(..end.unwrap_or(rest.len()))
            .unwrap_or(rest)
            .to_ascii_uppercase();
        if looks_like_quant(&word) {
            found = Some(word);
        }
    }
    found
}

fn looks_like_quant(word: &str) -> bool {
    if matches!(word, "F16" | "F32" | "BF16" | "F64") || word.starts_with("MXFP4") {
        return true;
    }
    let digits = ["IQ", "TQ", "Q"]
        .iter()
        .find_map(|kind| word.strip_prefix(kind));
    digits.is_some_and(|rest| {
        let mut rest = rest.chars();
        rest.next().is_some_and(|c| c.is_ascii_digit()) && matches!(rest.next(), Some('_'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPO: [&str; 12] = [
        "README.md",
        "Model-Q4_K_M.gguf",
        "Model-Q4_K_S.gguf",
        "Model-IQ4_XS.gguf",
        "Model.Q8_0.GGUF",
        "mmproj-Model-F16.gguf",
        "mtp-Model-Q8_0.gguf",
        "Model-imatrix.gguf",
        "big/Model-BF16-00002-of-00003.gguf",
        "big/Model-BF16-00001-of-00003.gguf",
        "big/Model-BF16-00003-of-00003.gguf",
        "Model-F16-00001-of-00002.gguf",
    ];

    #[test]
    fn a_quant_names_one_file_whatever_its_case() {
        for (selector, expected) in [
            ("Q4_K_M", Choice::One(1)),
            ("q4_k_s", Choice::One(2)),
            ("IQ4_XS", Choice::One(3)),
            ("Q8_0", Choice::One(4)),
            ("Model-Q4_K_M.gguf", Choice::One(1)),
            ("model-q4_k_m.GGUF", Choice::One(1)),
            ("BF16", Choice::Split(vec![9, 8, 10])),
            (
                "Model-BF16-00002-of-00003.gguf",
                Choice::Split(vec![9, 8, 10]),
            ),
            ("F16", Choice::Incomplete { have: 1, of: 2 }),
        ] {
            assert_eq!(choose(&REPO, Some(selector)), expected, "{selector}");
        }
    }

    #[test]
    fn a_part_of_a_quant_name_is_not_that_quant() {
        for selector in [
            "Q4_K",
            "Q4_XS",
            "Q8",
            "K",
            "absent.gguf",
            "mmproj-Model-F16.gguf",
        ] {
            let Choice::Nothing { choices, .. } = choose(&REPO, Some(selector)) else {
                panic!("{selector} matched")
            };
            assert_eq!(
                choices,
                ["Q4_K_M", "Q4_K_S", "IQ4_XS", "Q8_0", "BF16", "F16"]
            );
        }
        let Choice::Nothing { nearest, .. } = choose(&REPO, Some("Q4_KM")) else {
            panic!()
        };
        assert_eq!(nearest.as_deref(), Some("Q4_K_M"));
    }

    #[test]
    fn two_files_of_one_quant_are_listed_and_not_guessed() {
        let paths = ["m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"];
        assert_eq!(
            choose(&paths, Some("Q4_K_M")),
            Choice::Several(paths.map(str::to_owned).to_vec())
        );
        assert_eq!(choose(&paths, Some("UD-Q4_K_M")), Choice::One(1));
        assert_eq!(choose(&paths, Some("m-Q4_K_M.gguf")), Choice::One(0));
        let same_name = ["a/m-Q8_0.gguf", "b/m-Q8_0.gguf"];
        assert_eq!(choose(&same_name, Some("b/m-Q8_0.gguf")), Choice::One(1));
        assert!(matches!(
            choose(&same_name, Some("m-Q8_0.gguf")),
            Choice::Several(_)
        ));
    }

    #[test]
    fn without_a_selector_only_a_single_model_file_is_taken() {
        assert_eq!(
            choose(&["a.md", "m.gguf", "mmproj-m.gguf"], None),
            Choice::One(1)
        );
        assert!(matches!(choose(&REPO, None), Choice::Several(_)));
        assert_eq!(
            choose(&["model.safetensors", "mmproj-x.gguf"], None),
            Choice::NoGguf
        );
        assert_eq!(choose(&[], Some("Q4_0")), Choice::NoGguf);
    }

    #[test]
    fn a_split_file_with_a_repeated_or_zero_part_is_incomplete() {
        for paths in [
            ["m-00001-of-00002.gguf", "m-00001-of-00002.gguf"],
            ["m-00000-of-00002.gguf", "m-00001-of-00002.gguf"],
        ] {
            assert!(matches!(
                choose(&paths, None),
                Choice::Incomplete { have: 2, of: 2 }
            ));
        }
    }

    #[test]
    fn quant_labels_are_read_from_the_names_in_use() {
        for (path, label) in [
            ("SmolLM2-135M-Instruct.Q4_1.gguf", Some("Q4_1")),
            ("SmolLM-135M-Instruct_Q4_K.gguf", Some("Q4_K")),
            ("Qwen3-4B-UD-IQ2_XXS-00001-of-00002.gguf", Some("IQ2_XXS")),
            ("smollm3-3b-bf16.gguf", Some("BF16")),
            ("gpt-oss-20b-MXFP4.gguf", Some("MXFP4")),
            ("Q8_0/deep-Q4_0.gguf", Some("Q4_0")),
            ("Qwen2.5-model.gguf", None),
            ("ünï-Q4_0.gguf", Some("Q4_0")),
        ] {
            assert_eq!(quant_label(path).as_deref(), label, "{path}");
        }
    }
}
