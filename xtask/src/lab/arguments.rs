//! Reads the command lines of the lab.

use windlass_lab::{Disk, Kind, Wanted};

/// Takes `--name LAB` out of the arguments that come before a command's own.
pub fn lab_name(arguments: &[String]) -> Result<(String, Vec<String>), String> {
    match arguments {
        [flag, name, rest @ ..] if flag == "--name" => Ok((name.clone(), rest.to_vec())),
        [verb, flag, name, rest @ ..] if flag == "--name" => {
            let mut others = vec![verb.clone()];
            others.extend_from_slice(rest);
            Ok((name.clone(), others))
        }
        [.., flag] if flag == "--name" => Err("--name needs the name of a lab".into()),
        _ => Ok(("hand".into(), arguments.to_vec())),
    }
}

/// What `lab up` shall make.
pub fn wanted(words: &[&str]) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    let mut count: Option<usize> = None;
    let mut all_kinds = false;
    let mut kinds: Vec<(String, Kind)> = Vec::new();
    let mut rest = words.iter().copied();
    while let Some(word) = rest.next() {
        let mut value = |what: &str| rest.next().ok_or_else(|| format!("{word} needs {what}"));
        match word {
            "--all-kinds" => all_kinds = true,
            "--kind" => {
                let (name, kind) = pair(value("NAME=KIND")?)?;
                let kind = Kind::parse(kind).map_err(|error| error.to_string())?;
                kinds.push((name.to_owned(), kind));
            }
            "--disk" => {
                let (host, bytes) = pair(value("NAME=SIZE")?)?;
                wanted.disks.push(Disk {
                    host: host.to_owned(),
                    bytes: size(bytes)?,
                });
            }
            "--delay" => {
                let (host, delay) = pair(value("NAME=MICROS")?)?;
                wanted.delays.push((host.to_owned(), micros(delay)?));
            }
            "--rate" => wanted.rate = Some(value("a rate, e.g. 1gbit")?.to_owned()),
            number => {
                let number: usize = number
                    .parse()
                    .map_err(|_| format!("lab up does not know {word}"))?;
                if count.replace(number).is_some() {
                    return Err("lab up takes one number of hosts".into());
                }
            }
        }
    }
    let count = count.unwrap_or(if all_kinds || !kinds.is_empty() { 0 } else { 3 });
    for number in 1..=count {
        wanted.hosts.push((format!("h{number}"), Kind::Root));
    }
    for (name, kind) in kinds {
        match wanted.hosts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = kind,
            None => wanted.hosts.push((name, kind)),
        }
    }
    if all_kinds {
        for kind in Kind::ALL {
            wanted.hosts.push((kind.traits().name.to_owned(), *kind));
        }
    }
    Ok(wanted)
}

fn pair(word: &str) -> Result<(&str, &str), String> {
    word.split_once('=')
        .ok_or_else(|| format!("{word} is not of the form NAME=VALUE"))
}

/// Microseconds.
pub fn micros(word: &str) -> Result<u64, String> {
    word.parse()
        .map_err(|_| format!("{word} is no number of microseconds"))
}

/// Bytes, with K, M or G for powers of 1024.
pub fn size(word: &str) -> Result<u64, String> {
    let (digits, unit) = match word.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, word.get(digits.len()..)),
        None => (word, None),
    };
    let factor: u64 = match unit {
        Some("K") => 1 << 10,
        Some("M") => 1 << 20,
        Some("G") => 1 << 30,
        _ => 1,
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| format!("{word} is no size; 64M is one"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_changes_a_host_or_adds_one() {
        let wanted = wanted(&["2", "--kind", "h2=fish", "--kind", "x=csh"]).unwrap();
        assert_eq!(
            wanted.hosts,
            [
                ("h1".to_owned(), Kind::Root),
                ("h2".to_owned(), Kind::Fish),
                ("x".to_owned(), Kind::Csh)
            ]
        );
    }

    #[test]
    fn nothing_given_means_three_hosts_and_nonsense_is_refused() {
        assert_eq!(wanted(&[]).unwrap().hosts.len(), 3);
        for bad in [
            &["two"][..],
            &["1", "2"],
            &["--kind", "h1"],
            &["--kind", "h1=none"],
            &["--disk", "h1=big"],
            &["--delay"],
        ] {
            assert!(wanted(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(size("64M").unwrap(), 64 << 20);
        assert_eq!(size("7").unwrap(), 7);
        assert!(size("M").is_err());
        assert!(size("99999999999999999G").is_err());
    }

    #[test]
    fn the_name_stands_before_or_after_the_verb_and_is_not_taken_from_a_command() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        for text in ["--name x down", "down --name x"] {
            let (name, rest) = lab_name(&words(text)).unwrap();
            assert_eq!((name.as_str(), rest), ("x", words("down")));
        }
        let (name, rest) = lab_name(&words("sh h1 tool --name x")).unwrap();
        assert_eq!((name.as_str(), rest.len()), ("hand", 5));
    }
}
