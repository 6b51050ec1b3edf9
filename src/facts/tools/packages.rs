//! Packages with their versions, as dpkg, rpm and pacman list them.

use std::collections::BTreeMap;

/// Reads lines of `dpkg -l`, `rpm -qa`, `pacman -Q`, or `installed NAME VERSION`; others are passed
/// over. Of what is installed twice, the last line counts.
pub fn parse(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines();
    let pairs = lines.filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["ii" | "hi", name, version, ..] => Some((named(name), *version)),
            ["installed", name, version] => Some((named(name), *version)),
            [name, version] if !name.ends_with(':') && release(version) => Some((*name, *version)),
            [whole] => rpm(whole),
            _ => None,
        }
    });
    pairs
        .map(|(name, version)| (name.to_owned(), version.to_owned()))
        .collect()
}

/// A name of Debian's without the architecture.
fn named(name: &str) -> &str {
    name.split_once(':').map_or(name, |(name, _)| name)
}

/// A version of pacman's ends in a hyphen and the package's own number.
fn release(version: &str) -> bool {
    let number = version.rsplit_once('-').map(|(_, number)| number);
    number.is_some_and(|number| number.parse::<f32>().is_ok())
}

/// `name-version-release.arch`, where a name may hold hyphens and neither of the others does.
fn rpm(whole: &str) -> Option<(&str, &str)> {
    let (rest, arch) = whole.rsplit_once('.')?;
    if !["noarch", "x86_64", "aarch64", "i686", "ppc64le"].contains(&arch) {
        return None;
    }
    let (front, _) = rest.rsplit_once('-')?;
    let (name, _) = front.rsplit_once('-')?;
    Some((name, rest.get(name.len() + 1..)?))
}
