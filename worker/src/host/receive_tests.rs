use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use windlass_wire::host::line;

use super::*;

fn sha(bytes: &[u8]) -> String {
    let mut hasher = Sha256::new();
    hasher.update(bytes);
    hex(hasher)
}

fn bytes(seed: u8, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| seed.wrapping_add((i * 31 % 251) as u8))
        .collect()
}

/// A controller that says everything at once.
#[derive(Default)]
struct Script(Vec<u8>);

impl Script {
    fn want(files: &[(&str, usize, Option<&str>)]) -> Self {
        let files = files
            .iter()
            .map(|(file, bytes, sha256)| WantedFile {
                file: (*file).into(),
                bytes: *bytes as u64,
                sha256: sha256.map(str::to_owned),
            })
            .collect();
        Self(line(&ToReceiver::Want { files }))
    }

    fn file(mut self, name: &str, offset: usize, all: &[u8]) -> Self {
        self.0.extend(line(&ToReceiver::File {
            file: name.into(),
            offset: offset as u64,
            bytes: all.len() as u64,
        }));
        self.0.extend(&all[offset..]);
        self.digest(&sha(all))
    }

    fn digest(mut self, sha256: &str) -> Self {
        self.0.extend(line(&ToReceiver::Digest {
            sha256: sha256.into(),
        }));
        self
    }

    fn end(mut self) -> Self {
        self.0.extend(line(&ToReceiver::End));
        self
    }

    fn cut(mut self, bytes: usize) -> Self {
        self.0.truncate(self.0.len() - bytes);
        self
    }

    fn run(self, folder: &Path) -> (Result<()>, Vec<FromReceiver>) {
        self.run_with(folder, false)
    }

    fn run_with(self, folder: &Path, verify: bool) -> (Result<()>, Vec<FromReceiver>) {
        let mut out = Vec::new();
        let result = run(folder, verify, self.0.as_slice(), &mut out);
        let mut said = Vec::new();
        let mut out = out.as_slice();
        while let Some(one) = read_line(&mut out).unwrap() {
            said.push(one);
        }
        (result, said)
    }
}

fn have(said: &[FromReceiver], name: &str) -> (u64, bool) {
    said.iter()
        .find_map(|one| match one {
            FromReceiver::Have {
                file,
                offset,
                complete,
                ..
            } if file == name => Some((*offset, *complete)),
            _ => None,
        })
        .unwrap()
}

fn done(said: &[FromReceiver]) -> u64 {
    match said.last() {
        Some(FromReceiver::Done { received }) => *received,
        other => panic!("{other:?}"),
    }
}

fn folder_with(name: &str, all: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (result, _) = Script::want(&[(name, all.len(), None)])
        .file(name, 0, all)
        .end()
        .run(folder.path());
    result.unwrap();
    folder
}

#[test]
fn files_arrive_private_and_a_second_transfer_moves_nothing() {
    let (a, b) = (bytes(1, 3_000_000), bytes(2, 0));
    let top = tempfile::tempdir().unwrap();
    let folder = top.path().join("new/folder");
    let want = || Script::want(&[("a", a.len(), None), ("b", 0, None)]);
    let (result, said) = want()
        .file("a", 0, &a)
        .file("b", 0, &b)
        .file("manifest.json", 0, b"{}")
        .end()
        .run(&folder);
    result.unwrap();
    assert_eq!(done(&said), 3_000_002);
    assert_eq!(fs::read(folder.join("a")).unwrap(), a);
    for (path, mode) in [(&folder, 0o700), (&folder.join("a"), 0o600)] {
        let meta = fs::metadata(path).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, mode);
    }
    let (result, said) = want().file("manifest.json", 0, b"{}").end().run(&folder);
    result.unwrap();
    assert_eq!(have(&said, "a"), (3_000_000, true));
    assert_eq!(have(&said, "b"), (0, true));
    assert_eq!(done(&said), 2);
}

#[test]
fn a_transfer_that_broke_off_goes_on_where_it_stopped_wherever_that_was() {
    let all = bytes(7, 2_500_001);
    let tail = line(&ToReceiver::Digest { sha256: sha(&all) }).len();
    for lost in [
        tail + 1,
        tail + 1_200_000,
        tail + all.len() - 1,
        tail + all.len(),
        tail,
        1,
    ] {
        let folder = tempfile::tempdir().unwrap();
        let want = || Script::want(&[("a", all.len(), None)]);
        let (result, _) = want().file("a", 0, &all).cut(lost).run(folder.path());
        assert!(matches!(
            result,
            Err(ReceiveError::Inside { .. } | ReceiveError::Channel(_))
        ));
        assert!(!folder.path().join("a").exists());
        let (_, said) = want().run(folder.path());
        let (offset, complete) = have(&said, "a");
        let kept = all.len().min((all.len() + tail) - lost);
        assert_eq!((offset, complete), (kept as u64, false), "{lost}");
        let (result, said) = want()
            .file("a", offset as usize, &all)
            .end()
            .run(folder.path());
        result.unwrap();
        assert_eq!(done(&said), all.len() as u64 - offset, "{lost}");
        assert_eq!(fs::read(folder.path().join("a")).unwrap(), all);
        assert!(!folder.path().join("a.part").exists());
    }
}

#[test]
fn a_byte_that_flips_on_its_way_is_found_and_the_rest_goes_on() {
    let (a, b) = (bytes(1, 1_000_000), bytes(2, 10));
    let folder = tempfile::tempdir().unwrap();
    let mut script = Script::want(&[("a", a.len(), None), ("b", b.len(), None)]).file("a", 0, &a);
    let at = script.0.len() - 500_000;
    script.0[at] ^= 1;
    let (result, said) = script.file("b", 0, &b).end().run(folder.path());
    result.unwrap();
    assert!(
        said.iter()
            .any(|one| matches!(one, FromReceiver::Bad { file, .. } if file == "a"))
    );
    assert!(
        said.iter()
            .any(|one| matches!(one, FromReceiver::Stored { file, .. } if file == "b"))
    );
    assert!(!folder.path().join("a").exists() && !folder.path().join("a.part").exists());
}

#[test]
fn a_file_whose_stamp_changed_is_read_and_replaced_only_when_it_differs() {
    let all = bytes(3, 100_000);
    let folder = folder_with("a", &all);
    let path = folder.path().join("a");
    let want = || Script::want(&[("a", all.len(), None)]);
    // The same bytes, written again: another stamp.
    fs::write(&path, &all).unwrap();
    let (_, said) = want().run(folder.path());
    assert_eq!(have(&said, "a"), (100_000, true));
    let record = read_record(folder.path());
    assert_eq!(
        record["a"],
        Seen::of(&path, &sha(&all)).unwrap(),
        "stamped again"
    );
    // A flipped byte.
    let mut bad = all.clone();
    bad[5] ^= 1;
    fs::write(&path, &bad).unwrap();
    let (_, said) = want().run(folder.path());
    assert_eq!(have(&said, "a"), (0, false));
    assert_eq!(fs::read(&path).unwrap(), bad, "asking changes nothing");
    // Repaired, though the first try breaks off.
    let (result, _) = want().file("a", 0, &all).cut(50_000).run(folder.path());
    assert!(result.is_err());
    let (_, said) = want().run(folder.path());
    let (offset, complete) = have(&said, "a");
    assert!(offset > 0 && !complete);
    let (result, _) = want()
        .file("a", offset as usize, &all)
        .end()
        .run(folder.path());
    result.unwrap();
    assert_eq!(fs::read(&path).unwrap(), all);
}

#[test]
fn verify_finds_what_a_stamp_hides() {
    let all = bytes(3, 100_000);
    let folder = folder_with("a", &all);
    let path = folder.path().join("a");
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let mut file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&[all[0] ^ 1]).unwrap();
    file.set_modified(before).unwrap();
    drop(file);
    let want = || Script::want(&[("a", all.len(), None)]);
    let (_, said) = want().run(folder.path());
    assert_eq!(have(&said, "a"), (100_000, true));
    let (_, said) = want().run_with(folder.path(), true);
    assert_eq!(have(&said, "a"), (0, false));
}

#[test]
fn a_whole_file_without_a_record_is_checked_where_it_lies() {
    let all = bytes(3, 100_000);
    for flip in [false, true] {
        let folder = folder_with("a", &all);
        fs::remove_file(folder.path().join("checked.json")).unwrap();
        if flip {
            fs::write(folder.path().join("a"), bytes(4, 100_000)).unwrap();
        }
        let want = || Script::want(&[("a", all.len(), None)]);
        let (result, said) = want().file("a", all.len(), &all).end().run(folder.path());
        result.unwrap();
        assert_eq!(have(&said, "a"), (100_000, false));
        assert_eq!(done(&said), 0);
        let (_, said) = want().run(folder.path());
        assert_eq!(
            have(&said, "a"),
            if flip { (0, false) } else { (100_000, true) }
        );
    }
}

#[test]
fn a_digest_known_beforehand_counts_over_the_record() {
    let all = bytes(3, 1000);
    let folder = folder_with("a", &all);
    let other = sha(b"other");
    let (_, said) = Script::want(&[("a", 1000, Some(&other))]).run(folder.path());
    assert_eq!(have(&said, "a"), (0, false));
    fs::remove_file(folder.path().join("checked.json")).unwrap();
    let (_, said) = Script::want(&[("a", 1000, Some(&sha(&all)))]).run(folder.path());
    assert_eq!(have(&said, "a"), (1000, true));
}

#[test]
fn what_does_not_fit_is_refused_with_path_needed_and_free_before_a_byte_comes() {
    let folder = tempfile::tempdir().unwrap();
    let (result, said) = Script::want(&[("a", 1 << 43, None)]).run(folder.path());
    let Some(FromReceiver::Refused {
        reason,
        needed,
        free,
        path,
    }) = said.last()
    else {
        panic!("{said:?}");
    };
    assert!(result.is_err() && *needed == 1 << 43 && *free > 0);
    assert_eq!(path, &folder.path().display().to_string());
    assert!(
        reason.contains(path) && reason.contains("8192.0 GiB"),
        "{reason}"
    );
}

#[test]
fn what_others_left_in_the_folder_is_neither_followed_nor_touched() {
    let all = bytes(3, 1000);
    let folder = tempfile::tempdir().unwrap();
    let victim = folder.path().join("victim");
    fs::write(&victim, &all).unwrap();
    for name in ["a", "a.part"] {
        std::os::unix::fs::symlink(&victim, folder.path().join(name)).unwrap();
    }
    let want = || Script::want(&[("a", all.len(), Some(&sha(b"x")))]);
    let (result, said) = want().file("a", 0, &all).end().run(folder.path());
    result.unwrap();
    assert_eq!(have(&said, "a"), (0, false));
    assert_eq!(fs::read(&victim).unwrap(), all);
    assert!(
        fs::symlink_metadata(folder.path().join("a"))
            .unwrap()
            .is_file()
    );
}

#[test]
fn a_controller_that_breaks_the_protocol_ends_the_transfer() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, offset, bytes| {
        let file = name.into();
        line(&ToReceiver::File {
            file,
            offset,
            bytes,
        })
    };
    let want = || Script::want(&[("a", 10, None)]).0;
    let cases = [
        line(&ToReceiver::End),
        Script::want(&[("../a", 1, None)]).0,
        Script::want(&[("lock", 1, None)]).0,
        Script::want(&[("a", 1, None), ("a", 1, None)]).0,
        Script::want(&[("a", 1, Some("xyz"))]).0,
        Script::want(&vec![("a", 1, None); MAX_FILES + 1]).0,
        [want(), want()].concat(),
        [want(), file("../../b", 0, 1)].concat(),
        [want(), file("a", 3, 10)].concat(),
        [want(), file("a", 0, 11)].concat(),
        [want(), file("b", 0, MAX_EXTRA + 1)].concat(),
        [
            want(),
            file("a", 0, 10),
            vec![0; 10],
            line(&ToReceiver::End),
        ]
        .concat(),
        b"{}\n".to_vec(),
        vec![b' '; 2 << 20],
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (result, _) = Script(case).run(folder.path());
        assert!(
            matches!(
                result,
                Err(ReceiveError::Protocol(_) | ReceiveError::Channel(_))
            ),
            "{number}: {result:?}"
        );
    }
    assert!(!folder.path().join("a").exists());
}
