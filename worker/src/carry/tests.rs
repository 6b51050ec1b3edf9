//! Both ends in one process, with real programs between them.

use std::fs;
use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use windlass_wire::carry::{End, Giving, Read, Reading, Taking};
use windlass_wire::host::{Listening, read_line};

use super::{give, read, take};
use crate::net::test_keys::Authority;

const NAME: &str = "clone-test";

fn end(authority: &Authority, stage: u32, program: &[&str], folder: &Path) -> End {
    End {
        deployment: NAME.to_owned(),
        identity: authority.stage(NAME, stage),
        address: "127.0.0.1".to_owned(),
        port: 0,
        patience: 2,
        program: program.iter().map(|word| (*word).to_owned()).collect(),
        folder: folder.display().to_string(),
        leave: vec!["left".to_owned()],
        again: false,
    }
}

fn packs(folder: &Path) -> Vec<String> {
    let words = "tar -C FOLDER --create --no-recursion --null --verbatim-files-from --files-from=- --sparse --numeric-owner --xattrs --xattrs-include=* --file=-";
    let at = folder.display().to_string();
    words
        .split(' ')
        .map(|word| word.replace("FOLDER", &at))
        .collect()
}

fn unpacks(folder: &Path) -> Vec<String> {
    let words = "tar -C FOLDER --extract --preserve-permissions --numeric-owner --delay-directory-restore --xattrs --xattrs-include=* --file=-";
    let at = folder.display().to_string();
    words
        .split(' ')
        .map(|word| word.replace("FOLDER", &at))
        .collect()
}

/// Starts the end that takes; its port, and what it says at the end.
fn taking(order: End) -> (u16, JoinHandle<Vec<Taking>>) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    std::thread::spawn(move || take::run(&order, &mut ours));
    let mut said = BufReader::new(theirs);
    let Some(Listening::Bound { address }) = read_line(&mut said).unwrap() else {
        panic!("it does not listen");
    };
    let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
    let last = std::thread::spawn(move || {
        let mut all = Vec::new();
        if let Ok(Some(one)) = read_line(&mut said) {
            all.push(one);
        }
        // What is said later is read, or the other end would end this process.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        all
    });
    (port, last)
}

fn given(order: &End) -> Giving {
    let mut output = Vec::new();
    give::run(order, &mut output);
    let text = String::from_utf8(output).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn digests(folder: &Path) -> Vec<(String, String)> {
    let order = Read {
        folder: folder.display().to_string(),
        leave: vec!["left".to_owned()],
        since: None,
        plain: false,
        each: Vec::new(),
    };
    let mut output = Vec::new();
    assert!(read::run(&order, &mut output));
    let text = String::from_utf8(output).unwrap();
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    all.filter_map(|one| match one {
        Reading::Folder { path, sha256, .. } => Some((path, sha256)),
        _ => None,
    })
    .collect()
}

fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir_all(at.join("etc/deep")).unwrap();
    fs::create_dir(at.join("left")).unwrap();
    fs::write(at.join("left/x"), "stays").unwrap();
    fs::write(at.join("etc/hosts"), "127.0.0.1 a\n").unwrap();
    fs::write(at.join("etc/-C"), "a name like an option").unwrap();
    fs::write(at.join("etc/new\nline"), "x").unwrap();
    fs::hard_link(at.join("etc/hosts"), at.join("etc/deep/same")).unwrap();
    symlink("../hosts", at.join("etc/deep/link")).unwrap();
    fs::set_permissions(at.join("etc/deep"), fs::Permissions::from_mode(0o751)).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    let mut noise = vec![0u8; 6 << 20];
    getrandom::fill(&mut noise).unwrap();
    fs::write(at.join("noise"), &noise).unwrap();
    fs::write(at.join("text"), "the same line\n".repeat(100_000)).unwrap();
    folder
}

/// Carries `from` to an empty folder through `port_of`, which may put something between.
fn carried(from: &Path, to: &Path, port_of: impl FnOnce(u16) -> u16) -> (Giving, Vec<Taking>) {
    let authority = Authority::new();
    let mut taker = end(&authority, 1, &[], to);
    taker.program = unpacks(to);
    let (port, last) = taking(taker);
    let mut giver = end(&authority, 0, &[], from);
    giver.program = packs(from);
    giver.port = port_of(port);
    (given(&giver), last.join().unwrap())
}

#[test]
fn a_tree_arrives_with_links_holes_and_strange_names_and_its_digests_are_equal() {
    let (from, to) = (tree(), tempfile::tempdir().unwrap());
    let (said, heard) = carried(from.path(), to.path(), |port| port);
    let Giving::Done { sum, sent, .. } = said else {
        panic!("{said:?} {heard:?}");
    };
    assert_eq!(heard, [Taking::Done { sum: sum.clone() }]);
    // 6 MiB of noise, 1.4 MB of text; 64 MiB of hole.
    assert!((6 << 20..9 << 20).contains(&sum.bytes), "{}", sum.bytes);
    assert!(sent < sum.bytes + (1 << 20));
    assert!(!to.path().join("left").exists());
    assert_eq!(digests(from.path()), digests(to.path()));
    fs::write(to.path().join("etc/hosts"), "127.0.0.1 b\n").unwrap();
    assert_ne!(digests(from.path()), digests(to.path()));
}

/// Passes bytes on, and breaks the first connection after so many.
fn breaking(port: u16, after: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut left = Some(after);
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let pass = |from: &TcpStream, to: &TcpStream, most: Option<u64>| {
                let (from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let mut some = (&from).take(most.unwrap_or(u64::MAX));
                    let _ = std::io::copy(&mut some, &mut to);
                    let _ = to.flush();
                    let _ = to.shutdown(std::net::Shutdown::Both);
                    let _ = from.shutdown(std::net::Shutdown::Both);
                })
            };
            pass(&far, &near, None);
            pass(&near, &far, left.take());
        }
    });
    own
}

#[test]
fn a_connection_that_breaks_is_made_anew_and_the_stream_goes_on_where_it_was() {
    let (from, to) = (tree(), tempfile::tempdir().unwrap());
    let (said, heard) = carried(from.path(), to.path(), |port| breaking(port, 3 << 20));
    assert!(matches!(said, Giving::Done { .. }), "{said:?} {heard:?}");
    assert_eq!(digests(from.path()), digests(to.path()));
}

#[test]
fn an_end_that_cannot_go_on_is_told_in_the_words_of_its_program() {
    let authority = Authority::new();
    let (from, to) = (tree(), tempfile::tempdir().unwrap());
    let full = [
        "sh",
        "-c",
        "head -c 100000 >/dev/null; echo 'tar: x: No space left' >&2; exit 2",
    ];
    let (port, last) = taking(end(&authority, 1, &full, to.path()));
    let mut giver = end(&authority, 0, &[], from.path());
    (giver.program, giver.port) = (packs(from.path()), port);
    let said = given(&giver);
    let reason = |reason: &str| reason.contains("No space left");
    assert!(
        matches!(&said, Giving::Failed { reason: r } if reason(r)),
        "{said:?}"
    );
    let heard = last.join().unwrap();
    assert!(
        matches!(&heard[..], [Taking::Failed { reason: r }] if reason(r)),
        "{heard:?}"
    );

    let bad = [
        "sh",
        "-c",
        "cat >/dev/null; echo 'tar: x: Read error' >&2; exit 2",
    ];
    let (port, last) = taking(end(&authority, 1, &["cat"], to.path()));
    let mut giver = end(&authority, 0, &bad, from.path());
    giver.port = port;
    let said = given(&giver);
    assert!(
        matches!(&said, Giving::Failed { reason } if reason.contains("Read error")),
        "{said:?}"
    );
    let heard = last.join().unwrap();
    assert!(
        matches!(&heard[..], [Taking::Failed { reason }] if reason.contains("gave up") && reason.contains("Read error")),
        "{heard:?}"
    );
}

#[test]
fn what_lies_in_a_folder_is_told_one_by_one_with_what_changed() {
    let from = tree();
    let now = std::time::SystemTime::now();
    let since = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    std::thread::sleep(std::time::Duration::from_millis(50));
    fs::write(from.path().join("etc/-C"), "another").unwrap();
    let order = Read {
        folder: from.path().display().to_string(),
        leave: vec![],
        since: u64::try_from(since).ok(),
        plain: false,
        each: vec!["etc".to_owned(), "text".to_owned(), "gone".to_owned()],
    };
    let mut output = Vec::new();
    assert!(read::run(&order, &mut output));
    let text = String::from_utf8(output).unwrap();
    let all: Vec<(String, bool)> = text
        .lines()
        .filter_map(|line| match serde_json::from_str(line).unwrap() {
            Reading::File { path, changed, .. } => Some((path, changed)),
            _ => None,
        })
        .collect();
    let said = |path: &str, changed| (path.to_owned(), changed);
    assert_eq!(
        all,
        [
            said("etc/-C", true),
            said("etc/deep", false),
            said("etc/hosts", false),
            said("etc/new\nline", false),
        ]
    );
}

#[test]
fn files_that_vanish_while_they_are_sent_do_not_end_it_and_sockets_are_not_of_the_tree() {
    let (from, to) = (tree(), tempfile::tempdir().unwrap());
    let _socket = std::os::unix::net::UnixListener::bind(from.path().join("socket")).unwrap();
    let authority = Authority::new();
    let mut taker = end(&authority, 1, &[], to.path());
    taker.program = unpacks(to.path());
    let (port, last) = taking(taker);
    let mut giver = end(&authority, 0, &[], from.path());
    // Removed once it is named and before the program reads it.
    let text = "rm noise; exec \"$@\"";
    let script = format!("cd {}; sleep 0.5; {text}", from.path().display());
    giver.program = ["sh", "-c", &script, "sh"]
        .map(str::to_owned)
        .into_iter()
        .chain(packs(from.path()))
        .collect();
    giver.port = port;
    let said = given(&giver);
    assert!(matches!(said, Giving::Done { .. }), "{said:?}");
    assert!(matches!(last.join().unwrap()[..], [Taking::Done { .. }]));
    assert!(!to.path().join("noise").exists() && !to.path().join("socket").exists());
    assert_eq!(digests(from.path()), digests(to.path()));
}

#[test]
fn nobody_without_the_keys_of_this_stream_gives_a_byte() {
    let (own, other) = (Authority::new(), Authority::new());
    let to = tempfile::tempdir().unwrap();
    let (port, last) = taking(end(&own, 1, &["cat"], to.path()));
    let mut giver = end(&other, 0, &["echo", "x"], to.path());
    (giver.port, giver.patience) = (port, 1);
    let said = given(&giver);
    assert!(matches!(&said, Giving::Failed { .. }), "{said:?}");
    let heard = last.join().unwrap();
    assert!(
        matches!(&heard[..], [Taking::Failed { reason }] if reason.contains("did not come back")),
        "{heard:?}"
    );
}

#[test]
fn what_the_other_end_has_already_is_not_sent_again() {
    let (from, to) = (tree(), tempfile::tempdir().unwrap());
    carried(from.path(), to.path(), |port| port);
    fs::write(from.path().join("text"), "changed").unwrap();
    let authority = Authority::new();
    let mut taker = end(&authority, 1, &[], to.path());
    (taker.program, taker.again) = (unpacks(to.path()), true);
    let (port, _last) = taking(taker);
    let mut giver = end(&authority, 0, &[], from.path());
    (giver.program, giver.port, giver.again) = (packs(from.path()), port, true);
    let said = given(&giver);
    let Giving::Done { sum, kept, .. } = said else {
        panic!("{said:?}");
    };
    assert!(sum.bytes < 1 << 20, "{}", sum.bytes);
    assert!(kept >= 3, "{kept}");
    assert_eq!(digests(from.path()), digests(to.path()));
}
