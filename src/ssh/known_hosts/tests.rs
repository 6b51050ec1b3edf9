//! A table of files and keys, with the verdict each must get. Where OpenSSH's `ssh-keygen -F` is
//! there, it is asked which lines name the host, and must say the same.

use std::fs;
use std::process::Command;

use super::*;
use crate::ssh::public_key::decode;

// Keys made for these tests by ssh-keygen; their fingerprints are what `ssh-keygen -l` says.
const A: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEcvT3uQ1DsDZQurj6grc9tTS3mLB/LKIZ3uFrcF2jxj";
const B: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOuh/cPYTW8tWOPmC+egxppZlB5rh48d9j1E51yh+Dm4";
const C: &str = "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBApCZDgZ/8k2Is0DYbUu31ajeeq2ZpWlY/zaMyUfYJgppf2wwFsvaSkqVVvekzKSHxyEulwKFO76QM0fdQUUUDg=";
const D: &str = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC2e2AL+l6BQtQgR2XfBp2Gd6spZiCo5MlDDpJDqEhqnh2JSakJylK2j4HtDc17jmscS7obOisyCPfPpbaT2C5evetkcB1jYYOz1hwiQFG32LGG/Pvpn2ri1sMoklFUF7fBI+JpwBszcu2dvR4q4GzfTA2w9i/nAAwcf9a5NeWGTw==";

const FINGERPRINTS: [(&str, &str); 4] = [
    (A, "SHA256:aszx/WfkNTa7+Aa39zq/jCRZqig0405Z5r8MB1yI/rY"),
    (B, "SHA256:/mWxOlQx2ofc6ZL8ozTgKtv1YFzjzPxndTubBVbmJqE"),
    (C, "SHA256:j7i8ACoBC3+jPo7dwTdWm1WCH6ZKI1Jk4y829D0j1Pk"),
    (D, "SHA256:5PlVDSsguPUm6rVfGppkbaH0TPMFcvzHTENcrbGVjuA"),
];

// Names hashed by `ssh-keygen -H`: db.lan, [db.lan]:2222, fe80::1.
const DB: &str = "|1|r55e52Ehtm4CW8lXJ4MOMGHH4OE=|r1EYtGVJVcVkwvkOyYvgvzawizo=";
const DB_2222: &str = "|1|lLXs8iEOWK3nvWE83RzZqDtaZUA=|uQ5ctJLdc/y8Dd+/Ir2zbYfPRqc=";
const FE80: &str = "|1|21HuxpoevpewMcmMDyjogQ1nT4o=|rjMFe3vO0q5BI90WhO5o/tzcOPM=";

/// A verdict in short: the line, where there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Short {
    Match(usize),
    Changed(usize),
    New(Vec<(&'static str, usize)>),
    Unknown,
    Revoked(usize),
    Unreadable(usize),
}
use Short::*;

fn agrees(verdict: &Verdict, wanted: &Short) -> bool {
    match (verdict, wanted) {
        (Verdict::Match { line }, Match(number))
        | (Verdict::Changed { line, .. }, Changed(number))
        | (Verdict::Revoked { line }, Revoked(number))
        | (Verdict::Unreadable { line, .. }, Unreadable(number)) => line.line == *number,
        (Verdict::NewAlgorithm { known }, New(wanted)) => known
            .iter()
            .map(|(algorithm, place)| (algorithm.as_str(), place.line))
            .eq(wanted.iter().copied()),
        (Verdict::Unknown, Unknown) => true,
        _ => false,
    }
}

fn bytes(key: &str) -> Vec<u8> {
    decode(key.split(' ').nth(1).unwrap()).unwrap()
}

struct Case {
    what: &'static str,
    file: String,
    host: &'static str,
    port: u16,
    key: &'static str,
    wanted: Short,
}

#[rustfmt::skip]
fn table() -> Vec<Case> {
    let case = |what, file: String, host, port, key, wanted| Case { what, file, host, port, key, wanted };
    let damaged = A.replace("AAAAC3", "AAAA*3");
    let cut = A.rsplit_once("tTS3").unwrap().0;
    vec![
        case("an empty file", String::new(), "db.lan", 22, A, Unknown),
        case("the plain line", format!("db.lan {A}\n"), "db.lan", 22, A, Match(1)),
        case("another host's line", format!("web.lan {A}\n"), "db.lan", 22, A, Unknown),
        case("another key of the algorithm", format!("db.lan {B}\n"), "db.lan", 22, A, Changed(1)),
        case("a key of another algorithm only", format!("db.lan {C}\n"), "db.lan", 22, A, New(vec![("ecdsa-sha2-nistp256", 1)])),
        case("keys of two other algorithms", format!("db.lan {D}\ndb.lan {C}\n"), "db.lan", 22, A, New(vec![("ssh-rsa", 1), ("ecdsa-sha2-nistp256", 2)])),
        case("the key among others", format!("db.lan {C}\ndb.lan {D}\ndb.lan {A}\n"), "db.lan", 22, A, Match(3)),
        case("a stale line before the valid one", format!("db.lan {B}\ndb.lan {A}\n"), "db.lan", 22, A, Match(2)),
        case("a stale line after the valid one", format!("db.lan {A}\ndb.lan {B}\n"), "db.lan", 22, A, Match(1)),
        case("changed, though another algorithm is known too", format!("db.lan {C}\ndb.lan {B}\n"), "db.lan", 22, A, Changed(2)),
        case("no line end at the end", format!("db.lan {A}"), "db.lan", 22, A, Match(1)),
        case("lines of another system", format!("web.lan {B}\r\ndb.lan {A}\r\n"), "db.lan", 22, A, Match(2)),
        case("tabs between the fields", format!("db.lan\t{}\n", A.replace(' ', "\t")), "db.lan", 22, A, Match(1)),
        case("several blanks between the fields", format!("db.lan   {}\n", A.replace(' ', "  ")), "db.lan", 22, A, Match(1)),
        case("blanks before the name", format!("  \tdb.lan {A}\n"), "db.lan", 22, A, Match(1)),
        case("a comment after the key", format!("db.lan {A} root@db, since spring # yes\n"), "db.lan", 22, A, Match(1)),
        case("comments and empty lines are counted", format!("# known\n\n   # more\ndb.lan {A}\n"), "db.lan", 22, A, Match(4)),
        case("a line that is commented out", format!("#db.lan {A}\n"), "db.lan", 22, A, Unknown),
        case("upper case in the file", format!("DB.Lan {A}\n"), "db.lan", 22, A, Match(1)),
        case("upper case from the user", format!("db.lan {A}\n"), "DB.LAN", 22, A, Match(1)),
        case("a list of names", format!("db,db.lan,10.0.0.4 {A}\n"), "10.0.0.4", 22, A, Match(1)),
        case("a part of a name", format!("db.lan.org,adb.lan {A}\n"), "db.lan", 22, A, Unknown),
        case("a star", format!("*.lan {A}\n"), "db.lan", 22, A, Match(1)),
        case("a star does not reach a name without its part", format!("*.lan {A}\n"), "db.org", 22, A, Unknown),
        case("a question mark", format!("10.0.0.? {A}\n"), "10.0.0.4", 22, A, Match(1)),
        case("a question mark is one character", format!("10.0.0.? {A}\n"), "10.0.0.41", 22, A, Unknown),
        case("a negated name", format!("*.lan,!db.lan {A}\n"), "db.lan", 22, A, Unknown),
        case("a negated name before the star", format!("!db.lan,*.lan {A}\n"), "db.lan", 22, A, Unknown),
        case("a negated name does not change a key", format!("*.lan,!db.lan {B}\n"), "db.lan", 22, A, Unknown),
        case("beside a negated name", format!("*.lan,!web.lan {A}\n"), "db.lan", 22, A, Match(1)),
        case("only a negated name", format!("!web.lan {A}\n"), "db.lan", 22, A, Unknown),
        case("a port", format!("[db.lan]:2222 {A}\n"), "db.lan", 2222, A, Match(1)),
        case("another port", format!("[db.lan]:2223 {A}\n"), "db.lan", 2222, A, Unknown),
        case("a port's line is not for port 22", format!("[db.lan]:2222 {A}\n"), "db.lan", 22, A, Unknown),
        case("brackets with port 22 name nobody", format!("[db.lan]:22 {A}\n"), "db.lan", 22, A, Unknown),
        case("a changed key on a port", format!("[db.lan]:2222 {B}\n"), "db.lan", 2222, A, Changed(1)),
        case("a star over names and ports", format!("* {A}\n"), "db.lan", 2222, A, Match(1)),
        case("a star within brackets", format!("[*.lan]:2222 {A}\n"), "db.lan", 2222, A, Match(1)),
        case("an address of IPv6", format!("fe80::1 {A}\n"), "fe80::1", 22, A, Match(1)),
        case("an address of IPv6, upper case", format!("fe80::a {A}\n"), "FE80::A", 22, A, Match(1)),
        case("an address of IPv6 with a scope", format!("fe80::1%eth0 {A}\n"), "fe80::1%eth0", 22, A, Match(1)),
        case("an address of IPv6 with a port", format!("[::1]:2222 {A}\n"), "::1", 2222, A, Match(1)),
        case("a hashed name", format!("{DB} {A}\n"), "db.lan", 22, A, Match(1)),
        case("a hashed name, asked in upper case", format!("{DB} {A}\n"), "DB.lan", 22, A, Match(1)),
        case("a hashed name of another host", format!("{DB} {A}\n"), "web.lan", 22, A, Unknown),
        case("a hashed name with a changed key", format!("{DB} {B}\n"), "db.lan", 22, A, Changed(1)),
        case("a hashed name with a port", format!("{DB_2222} {A}\n"), "db.lan", 2222, A, Match(1)),
        case("a hashed address", format!("{FE80} {A}\n"), "fe80::1", 22, A, Match(1)),
        case("a hashed name that cannot be one", format!("|1|c2FsdA==|aGFzaA== {A}\n"), "db.lan", 22, A, Unknown),
        case("a hashed name of an unknown kind", format!("{} {A}\n", DB.replace("|1|", "|2|")), "db.lan", 22, A, Unknown),
        case("a revoked key", format!("@revoked db.lan {A}\n"), "db.lan", 22, A, Revoked(1)),
        case("a revoked key, known before", format!("db.lan {A}\n@revoked db.lan {A}\n"), "db.lan", 22, A, Revoked(2)),
        case("a revoked key for all", format!("db.lan {A}\n@revoked * {A}\n"), "db.lan", 22, A, Revoked(2)),
        case("another key is revoked", format!("@revoked db.lan {B}\ndb.lan {A}\n"), "db.lan", 22, A, Match(2)),
        case("a revoked key does not make one changed", format!("@revoked db.lan {B}\n"), "db.lan", 22, A, Unknown),
        case("revoked with tabs", format!("@revoked\t*\t{A}\n"), "db.lan", 22, A, Revoked(1)),
        case("revoked by a hashed name", format!("@revoked {DB} {A}\n"), "db.lan", 22, A, Revoked(1)),
        case("an authority's key is not a host's", format!("@cert-authority *.lan {A}\n"), "db.lan", 22, A, Unknown),
        case("an authority does not make a key changed", format!("@cert-authority *.lan {B}\ndb.lan {A}\n"), "db.lan", 22, A, Match(2)),
        case("an authority alone leaves a host unknown", format!("@cert-authority * {B}\n"), "db.lan", 22, A, Unknown),
        case("a word cut off", "db.lan\n".into(), "db.lan", 22, A, Unreadable(1)),
        case("a key that is not base 64", format!("db.lan {damaged}\n"), "db.lan", 22, A, Unreadable(1)),
        case("a key cut off within its name", "db.lan ssh-ed25519 AAAAC3Nz\n".into(), "db.lan", 22, A, Unreadable(1)),
        case("a key cut off is not another key", format!("db.lan {cut}AA\n"), "db.lan", 22, A, Unreadable(1)),
        case("a line that belies its key", format!("db.lan {}\n", A.replace("ssh-ed25519", "ssh-rsa")), "db.lan", 22, A, Unreadable(1)),
        case("a damaged line beside the valid one", format!("db.lan {damaged}\ndb.lan {A}\n"), "db.lan", 22, A, Match(2)),
        case("another host's damaged line", format!("web.lan {damaged}\n"), "db.lan", 22, A, Unknown),
        case("a damaged revocation may be of this key", format!("@revoked db.lan {damaged}\ndb.lan {A}\n"), "db.lan", 22, A, Unreadable(1)),
        case("a key of SSH 1", "db.lan 1024 35 1234567890\n".into(), "db.lan", 22, A, Unknown),
        case("the RSA key for any of its signatures", format!("db.lan {D}\n"), "db.lan", 22, D, Match(1)),
    ]
}

#[test]
fn each_file_gets_the_verdict_of_the_table() {
    let table = table();
    assert!(table.len() >= 30);
    for case in &table {
        let known = KnownHosts::parse("known_hosts", case.file.as_bytes());
        let key = bytes(case.key);
        let key = PublicKeyBlob::new(&key).unwrap();
        let verdict = known.lookup(case.host, case.port, &key);
        assert!(
            agrees(&verdict, &case.wanted),
            "{}: {verdict:?}, not {:?}",
            case.what,
            case.wanted
        );
    }
}

/// `None` where there is no ssh-keygen.
fn keygen(arguments: &[&str]) -> Option<String> {
    let output = Command::new("ssh-keygen").args(arguments).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn openssh_finds_a_host_on_the_same_lines() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("known_hosts");
    for case in table() {
        fs::write(&path, &case.file).unwrap();
        let name = name(case.host, case.port);
        let Some(said) = keygen(&["-F", &name, "-f", path.to_str().unwrap()]) else {
            eprintln!("skipped: no ssh-keygen here");
            return;
        };
        let theirs: Vec<(usize, bool)> = said
            .lines()
            .filter_map(|line| line.strip_prefix('#')?.split_once(" found: line "))
            .map(|(_, line)| line.trim())
            .filter(|line| !line.ends_with("CA"))
            .map(|line| {
                let number = line.split(' ').next().unwrap().parse().unwrap();
                (number, line.ends_with("REVOKED"))
            })
            .collect();
        let ours: Vec<(usize, bool)> = KnownHosts::parse(&path, case.file.as_bytes())
            .naming(&name)
            // It leaves out lines without a key, and knows no more of others than we.
            .filter(|(_, line)| line.key != Err("the line has no key".into()))
            .map(|(place, line)| (place.line, line.marker == Marker::Revoked))
            .collect();
        // It lists keys of SSH 1, and overlooks a revocation with a tab: both told apart on purpose.
        if !["a key of SSH 1", "revoked with tabs"].contains(&case.what) {
            assert_eq!(ours, theirs, "{}: {said}", case.what);
        }
    }
}

#[test]
fn fingerprints_and_signatures_are_those_of_openssh() {
    for (key, wanted) in FINGERPRINTS {
        assert_eq!(fingerprint(&bytes(key)), wanted);
    }
    let key = bytes(D);
    let signed = PublicKeyBlob {
        algorithm: "rsa-sha2-512",
        bytes: &key,
    };
    let known = KnownHosts::parse("f", format!("db.lan {D}\nweb.lan {D}x\n").as_bytes());
    assert!(agrees(&known.lookup("db.lan", 22, &signed), &Match(1)));
    // Another RSA key is a changed one, whatever it signs with.
    let mut other = bytes(D);
    *other.last_mut().unwrap() ^= 1;
    let signed = PublicKeyBlob {
        algorithm: "rsa-sha2-256",
        bytes: &other,
    };
    assert!(agrees(&known.lookup("db.lan", 22, &signed), &Changed(1)));
    assert_eq!(
        crate::ssh::public_key::signatures("ssh-rsa"),
        ["rsa-sha2-512", "rsa-sha2-256"]
    );
}

#[test]
fn a_host_on_a_port_is_known_by_its_very_key_without_the_port_and_never_changed_by_it() {
    let key = bytes(A);
    let key = PublicKeyBlob::new(&key).unwrap();
    let verdict = |file: &str| KnownHosts::parse("f", file.as_bytes()).lookup("db.lan", 2222, &key);
    assert!(agrees(&verdict(&format!("db.lan {A}")), &Match(1)));
    assert!(agrees(&verdict(&format!("db.lan {B}")), &Unknown));
    assert!(agrees(&verdict(&format!("db.lan {C}")), &Unknown));
    assert!(agrees(
        &verdict(&format!("@revoked db.lan {A}\n[db.lan]:2222 {A}")),
        &Revoked(1)
    ));
}

#[test]
fn files_are_read_together_and_each_line_says_its_file() {
    let user = KnownHosts::parse("user", format!("db.lan {B}\n").as_bytes());
    let machine = KnownHosts::parse(
        "machine",
        format!("#\ndb.lan {A}\n@revoked * {C}").as_bytes(),
    );
    let both = user.and(machine);
    let look = |key: &str| {
        let key = bytes(key);
        both.lookup("db.lan", 22, &PublicKeyBlob::new(&key).unwrap())
    };
    let Verdict::Match { line } = look(A) else {
        panic!("no match");
    };
    assert_eq!(line.to_string(), "machine:2");
    assert!(agrees(&look(C), &Revoked(3)));
    assert!(agrees(
        &look(D),
        &New(vec![("ssh-ed25519", 1), ("ssh-ed25519", 2)])
    ));
}

#[test]
fn a_file_that_cannot_be_read_leaves_no_host_unknown() {
    let unreadable = || KnownHosts::unreadable("locked", "permission denied");
    let key = bytes(A);
    let key = PublicKeyBlob::new(&key).unwrap();
    let verdict = unreadable().lookup("db.lan", 22, &key);
    let Verdict::Unreadable { line, reason } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(
        (line.to_string().as_str(), reason.as_str()),
        ("locked", "permission denied")
    );
    let with = |file: String| {
        unreadable()
            .and(KnownHosts::parse("f", file.as_bytes()))
            .lookup("db.lan", 22, &key)
    };
    assert!(agrees(&with(format!("db.lan {A}")), &Match(1)));
    assert!(agrees(&with(format!("db.lan {B}")), &Changed(1)));
    assert!(agrees(&with(format!("db.lan {C}")), &Unreadable(0)));
    assert!(agrees(&with(format!("@revoked * {A}")), &Revoked(1)));

    // A folder in place of the file: what opens and cannot be read, for root too.
    let folder = tempfile::tempdir().unwrap();
    let verdict = file::read([folder.path()]).lookup("db.lan", 22, &key);
    assert!(agrees(&verdict, &Unreadable(0)), "{verdict:?}");
    let missing = folder.path().join("none");
    assert!(agrees(
        &file::read([&missing]).lookup("db.lan", 22, &key),
        &Unknown
    ));
}

#[test]
fn known_algorithms_come_in_the_files_order_each_once() {
    let text = format!(
        "db.lan {D}\n@revoked db.lan {C}\n@cert-authority * {C}\ndb.lan {A}\n*.lan {B}\nweb.lan {C}\n"
    );
    let known = KnownHosts::parse("f", text.as_bytes());
    assert_eq!(known.algorithms("db.lan", 22), ["ssh-rsa", "ssh-ed25519"]);
    assert_eq!(known.algorithms("db.lan", 2222), ["ssh-rsa", "ssh-ed25519"]);
    assert!(known.algorithms("db.org", 22).is_empty());
}

#[test]
fn a_line_added_is_found_again_by_us_and_by_openssh() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/known_hosts");
    let key = bytes(A);
    let key = PublicKeyBlob::new(&key).unwrap();
    for (host, port) in [("db.lan", 22), ("DB.lan", 2222), ("fe80::1%eth0", 22)] {
        for hashed in [false, true] {
            let line = append_line(host, port, &key, hashed).unwrap();
            assert_eq!(hashed, !line.to_lowercase().contains(&host.to_lowercase()));
            // What stood there had no line end.
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, format!("web.lan {B}")).unwrap();
            file::append(&path, &line).unwrap();
            let verdict = file::read([&path]).lookup(host, port, &key);
            assert!(agrees(&verdict, &Match(2)), "{line}: {verdict:?}");
            if let Some(said) = keygen(&["-F", &name(host, port), "-f", path.to_str().unwrap()]) {
                assert!(said.contains("found: line 2"), "{said}");
            }
        }
    }
    for host in ["", "*", "a,b", "a b", "a\nb", "!a", "|1|", "#a", "@revoked"] {
        assert!(append_line(host, 22, &key, false).is_err(), "{host:?}");
    }
}

#[test]
fn a_new_file_is_for_its_owner_only_and_a_link_is_not_followed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("known_hosts");
    file::append(&path, "a b c").unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    file::append(&path, "d e f").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "a b c\nd e f\n");

    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = file::append(&link, "g h i").unwrap_err().to_string();
    assert!(error.contains("g h i"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a b c\nd e f\n");
}

#[test]
fn a_pinned_key_is_a_fingerprint_or_a_whole_key_and_nothing_else() {
    let key = bytes(A);
    let key = PublicKeyBlob::new(&key).unwrap();
    assert_eq!(key.is(FINGERPRINTS[0].1), Ok(true));
    assert_eq!(key.is(FINGERPRINTS[1].1), Ok(false));
    assert_eq!(key.is(&format!("{A} someone@here")), Ok(true));
    assert_eq!(key.is(B), Ok(false));
    for pin in ["", "ssh-ed25519", "MD5:aa:bb", "ssh-rsa AAAA", "yes"] {
        assert!(key.is(pin).unwrap_err().contains("SHA256:"), "{pin}");
    }
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
        let known = KnownHosts::parse("f", &bytes);
        let key = self::bytes(A);
        known.lookup("db.lan", 2222, &PublicKeyBlob::new(&key).unwrap());
        let _ = PublicKeyBlob::new(&bytes);
    }
}
