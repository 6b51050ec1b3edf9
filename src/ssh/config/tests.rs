//! Configurations and what they say of a host. Where OpenSSH's `ssh -G` is there, it must say the
//! same.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

use super::*;

/// Files by path.
#[derive(Default)]
struct Table(BTreeMap<PathBuf, String>);

impl Table {
    fn new(files: &[(&str, &str)]) -> Self {
        let entry = |(path, text): &(&str, &str)| (PathBuf::from(path), (*text).to_owned());
        Self(files.iter().map(entry).collect())
    }
}

impl Source for Table {
    fn read(&self, path: &Path, _own: bool) -> io::Result<Option<String>> {
        match self.0.get(path) {
            Some(text) if text == "LOCKED" => Err(io::ErrorKind::PermissionDenied.into()),
            found => Ok(found.cloned()),
        }
    }

    fn names(&self, folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = self
            .0
            .keys()
            .filter_map(|path| path.strip_prefix(folder).ok()?.iter().next())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.dedup();
        names
    }
}

fn local() -> Local {
    Local {
        user: "me".into(),
        uid: 1000,
        home: "/home/me".into(),
        variable: |name| (name == "KEYS").then(|| "/keys".into()),
    }
}

const MINE: &str = "/home/me/.ssh/config";
const SYSTEM: &str = "/etc/ssh/ssh_config";

fn asked(host: &str) -> Asked<'_> {
    Asked {
        host,
        ..Asked::default()
    }
}

fn of(files: &[(&str, &str)], host: &str) -> Result<Resolved, Refusal> {
    resolve(
        &Table::new(files),
        &super::files(&local()),
        &local(),
        asked(host),
    )
}

fn mine(text: &str, host: &str) -> Resolved {
    of(&[(MINE, text)], host).unwrap()
}

fn refused(text: &str, host: &str) -> String {
    of(&[(MINE, text)], host).unwrap_err().to_string()
}

fn paths(paths: &[&str]) -> Vec<PathBuf> {
    paths.iter().map(PathBuf::from).collect()
}

#[test]
fn a_host_without_configuration_has_openssh_defaults() {
    let host = of(&[], "db").unwrap();
    assert_eq!(
        (host.host_name.as_str(), host.user.as_str(), host.port),
        ("db", "me", 22)
    );
    assert_eq!(host.identity_files.len(), 3);
    assert!(!host.identities_given && !host.identities_only && !host.hash_known_hosts);
    assert_eq!((host.strict, host.agent), (Strict::Ask, Agent::Environment));
    assert_eq!(
        host.user_known_hosts,
        paths(&["/home/me/.ssh/known_hosts", "/home/me/.ssh/known_hosts2"])
    );
    assert!(host.jumps.is_empty() && host.notices.is_empty());
}

#[test]
fn the_first_value_counts_and_key_files_add_up_over_both_files() {
    let host = of(
        &[
            (MINE, "Port 2200\nHost db\n HostName 10.0.0.4\n User a\n Port 1\n IdentityFile ~/one\nHost *\n User b\n IdentityFile %d/two-%r@%h:%p-%u-%n-%i%%\n IdentityFile ~/one\n"),
            (SYSTEM, "Host d?\n HostName other\n IdentityFile ${KEYS}/three\n"),
        ],
        "db",
    )
    .unwrap();
    assert_eq!(
        (host.host_name.as_str(), host.user.as_str(), host.port),
        ("10.0.0.4", "a", 2200)
    );
    assert_eq!(
        host.identity_files,
        paths(&[
            "/home/me/one",
            "/home/me/two-a@10.0.0.4:2200-me-db-1000%",
            "/keys/three"
        ])
    );
}

#[test]
fn what_is_asked_for_stands_above_the_files() {
    let asked = Asked {
        host: "db",
        user: Some("root"),
        port: Some(2),
    };
    let table = Table::new(&[(MINE, "User a\nPort 3\nIdentityFile /k/%r-%p\n")]);
    let host = resolve(&table, &files(&local()), &local(), asked).unwrap();
    assert_eq!((host.user.as_str(), host.port), ("root", 2));
    assert_eq!(host.identity_files, paths(&["/k/root-2"]));
}

#[test]
fn negated_patterns_and_names_are_taken_as_they_stand() {
    let text = "Host *.lan !db.lan\n User a\nHost DB.lan\n User b\nHost 10.0.?.*\n User c\n";
    for (host, wanted) in [
        ("web.lan", "a"),
        ("db.lan", "me"),
        ("DB.lan", "a"),
        ("10.0.3.77", "c"),
    ] {
        assert_eq!(mine(text, host).user, wanted, "{host}");
    }
}

#[test]
fn includes_are_relative_to_the_ssh_folder_and_hold_within_their_block() {
    let host = |name: &str| {
        of(
            &[
                (
                    MINE,
                    "Include conf.d/*.conf ~/more\nHost db\n Include only\nHost *\n User last\n",
                ),
                ("/home/me/.ssh/conf.d/b.conf", "Host web\n Port 2\n"),
                ("/home/me/.ssh/conf.d/a.conf", "Host web\n Port 1\n"),
                ("/home/me/.ssh/conf.d/.hidden.conf", "Port 9\n"),
                ("/home/me/.ssh/conf.d/c.txt", "Port 8\n"),
                ("/home/me/more", "Host x\n Port 7\n"),
                ("/home/me/.ssh/only", "User only\nHost web\n User never\n"),
                (SYSTEM, "Include /etc/ssh/ssh_config.d/*.conf deep/*\n"),
                ("/etc/ssh/ssh_config.d/x.conf", "ConnectTimeout 1m\n"),
                ("/etc/ssh/deep/y", "IdentitiesOnly yes\n"),
            ],
            name,
        )
        .unwrap()
    };
    assert_eq!((host("web").port, host("web").user.as_str()), (1, "last"));
    assert_eq!((host("x").port, host("db").user.as_str()), (7, "only"));
    assert_eq!(host("db").connect_timeout, Some(Duration::from_secs(60)));
    assert!(host("db").identities_only);
}

#[test]
fn circles_and_depth_end_with_a_sentence() {
    let error = of(
        &[
            (MINE, "Include a\n"),
            ("/home/me/.ssh/a", "\nInclude ~/.ssh/config\n"),
        ],
        "db",
    )
    .unwrap_err();
    assert_eq!(error.place.to_string(), "/home/me/.ssh/a:2");
    assert!(error.reason.contains("includes itself"), "{error}");
    let mut files: Vec<(String, String)> = (0..30)
        .map(|n| (format!("/home/me/.ssh/{n}"), format!("Include {}\n", n + 1)))
        .collect();
    files.push((MINE.into(), "Include 0\n".into()));
    let files: Vec<(&str, &str)> = files
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    let error = of(&files, "db").unwrap_err().to_string();
    assert!(error.contains("16 deep"), "{error}");
    // Below another host's name nothing is included.
    of(&[(MINE, "Host other\n Include config\n")], "db").unwrap();
}

#[test]
fn a_file_that_cannot_be_read_refuses_and_a_missing_one_does_not() {
    let error = of(
        &[(MINE, "Include a b\n"), ("/home/me/.ssh/b", "LOCKED")],
        "db",
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/home/me/.ssh/b: it cannot be read"),
        "{error}"
    );
}

#[test]
fn what_leads_elsewhere_is_refused_for_its_hosts_only_with_file_and_line() {
    let table = [
        ("ProxyCommand nc %h %p", "ProxyCommand"),
        ("KnownHostsCommand /bin/keys %H", "KnownHostsCommand"),
        ("HostKeyAlias db", "HostKeyAlias"),
        ("CanonicalizeHostname yes", "CanonicalizeHostname"),
        ("CanonicalizeHostname always", "CanonicalizeHostname"),
        ("BindAddress 10.0.0.1", "BindAddress"),
        ("BindInterface eth0", "BindInterface"),
        ("RevokedHostKeys /k", "RevokedHostKeys"),
        ("Port 0", "Port is \"0\""),
        ("Port ssh", "Port is \"ssh\""),
        ("Port 70000", "Port"),
        ("Port 22 23", "more than one value"),
        ("User", "no value"),
        ("IdentitiesOnly maybe", "yes or no"),
        ("StrictHostKeyChecking perhaps", "accept-new"),
        ("ConnectTimeout soon", "a time"),
        ("AddressFamily ipv4", "inet6"),
        ("HostName %n", "%n is not supported"),
        ("IdentityFile %C", "%C is not supported"),
        ("IdentityFile ~other/k", "another user's"),
        ("IdentityFile ${NOPE}/k", "no variable NOPE"),
        ("IdentityFile \"k", "a quote is not closed"),
        ("ProxyJump a,,b", "[user@]host[:port]"),
        ("ProxyJump a:0", "[user@]host[:port]"),
        ("ProxyJump -oProxyCommand=x", "[user@]host[:port]"),
    ];
    for (line, wanted) in table {
        let text = format!("Host web\n {line}\n");
        let said = refused(&text, "web");
        assert!(said.contains(wanted), "{line}: {said}");
        assert!(said.starts_with("/home/me/.ssh/config:2: "), "{said}");
        mine(&text, "db");
    }
    for line in [
        "ProxyCommand none",
        "KnownHostsCommand none",
        "CanonicalizeHostname no",
        "RevokedHostKeys none",
        "ProxyJump none",
    ] {
        mine(line, "web");
    }
}

#[test]
fn of_proxy_command_and_jump_the_first_counts() {
    assert_eq!(mine("ProxyJump a\nProxyCommand nc\n", "db").jumps.len(), 1);
    assert!(
        mine("ProxyJump none\nProxyCommand nc\n", "db")
            .jumps
            .is_empty()
    );
    assert!(
        mine("ProxyCommand none\nProxyJump a\nProxyCommand nc\n", "db")
            .jumps
            .is_empty()
    );
    refused("ProxyCommand nc\nProxyJump a\n", "db");
}

#[test]
fn a_match_refuses_hosts_it_may_be_for_when_it_sets_something() {
    for (line, may) in [
        ("Match all", true),
        ("Match final all", true),
        ("Match exec \"test -e x\"", true),
        ("Match host db.lan", true),
        ("Match host *.org", false),
        ("Match !host db.lan", false),
        ("Match originalhost web,db", true),
        ("Match originalhost=web", false),
        ("Match user me exec x", true),
        ("Match user you exec x", false),
        ("Match localuser you", false),
        ("Match localnetwork 10.0.0.0/8", true),
    ] {
        let text = format!("Host db\n HostName db.lan\n\n{line}\n User x\n");
        let found = of(&[(MINE, &text)], "db");
        assert_eq!(found.is_err(), may, "{line}");
        if let Err(error) = found {
            assert!(
                error
                    .to_string()
                    .starts_with("/home/me/.ssh/config:4: Match"),
                "{error}"
            );
        }
        // The first value counts, so what comes after one has no effect.
        mine(&format!("User y\n{text}"), "db");
    }
    // As it stands on some distributions.
    let host = of(
        &[
            (SYSTEM, "Include /etc/ssh/ssh_config.d/*.conf\n"),
            ("/etc/ssh/ssh_config.d/50.conf", "Match final all\n Include /etc/crypto/ssh.config\n GSSAPIAuthentication yes\n ForwardX11Trusted yes\n"),
            ("/etc/crypto/ssh.config", "Ciphers aes256-gcm@openssh.com\n"),
        ],
        "db",
    )
    .unwrap();
    let kinds: Vec<_> = host.notices.iter().map(|notice| notice.kind).collect();
    assert_eq!(
        kinds,
        [
            NoticeKind::NotFollowed,
            NoticeKind::NotFollowed,
            NoticeKind::Cosmetic
        ]
    );
    assert!(refused("Match all\n ProxyCommand nc\n", "db").contains("ProxyCommand"));
}

#[test]
fn notices_come_once_each() {
    let host = mine(
        "IgnoreUnknown Mac*\nSendEnv A\nsendenv B\nMacThing x\nNewThing y\nCiphers +x\nStrictHostKeyChecking no\nHost *\n StrictHostKeyChecking off\n",
        "db",
    );
    assert_eq!(host.strict, Strict::AcceptNew);
    let said = sentences(&host.notices);
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(
        said[0].1.contains("SendEnv (/home/me/.ssh/config:2)"),
        "{said:?}"
    );
    assert!(said[1].1.contains("NewThing") && !said[1].1.contains("MacThing"));
    assert!(
        said[3].1.contains("config:7) acts as accept-new"),
        "{said:?}"
    );
}

#[test]
fn jumps_agents_and_lists_of_files_are_read() {
    let host = mine(
        "ProxyJump me@a:2200,[fe80::1]:22,ssh://b@c:1/,%r-%h\nIdentityAgent $KEYS\nUserKnownHostsFile ~/k %d/%h\nGlobalKnownHostsFile none\nAddressFamily inet6\n",
        "db",
    );
    let hop = |host: &str, user: Option<&str>, port| Jump {
        host: host.into(),
        user: user.map(Into::into),
        port,
    };
    assert_eq!(
        host.jumps,
        [
            hop("a", Some("me"), Some(2200)),
            hop("fe80::1", None, Some(22)),
            hop("c", Some("b"), Some(1)),
            hop("me-db", None, None),
        ]
    );
    assert_eq!(host.agent, Agent::Socket("/keys".into()));
    assert_eq!(host.user_known_hosts, paths(&["/home/me/k", "/home/me/db"]));
    assert!(host.global_known_hosts.is_empty());
    assert_eq!(host.family, Family::V6);
    for (text, wanted) in [
        ("none", Agent::None),
        ("SSH_AUTH_SOCK", Agent::Environment),
        ("~/agent.sock", Agent::Socket("/home/me/agent.sock".into())),
        ("$NOPE", Agent::None),
    ] {
        assert_eq!(mine(&format!("IdentityAgent {text}"), "db").agent, wanted);
    }
    let host = mine("IdentityFile none\n", "db");
    assert!(host.identities_given && host.identity_files.is_empty());
    assert_eq!(mine("HostName %h.lan", "db").host_name, "db.lan");
}

#[test]
fn the_way_over_jumps_follows_the_first_ones_own_jumps() {
    let way = |text: &str| {
        let table = Table::new(&[(MINE, text)]);
        route(&table, &files(&local()), &local(), asked("db"))
            .map(|hosts| {
                hosts
                    .iter()
                    .map(|host| host.host.clone())
                    .collect::<Vec<_>>()
            })
            .map_err(|error| error.to_string())
    };
    assert_eq!(way("").unwrap(), ["db"]);
    assert_eq!(
        way("Host db\n ProxyJump a,b\nHost a\n ProxyJump c\nHost b\n ProxyJump never\n").unwrap(),
        ["c", "a", "b", "db"]
    );
    assert!(way("Host *\n ProxyJump a\n").unwrap_err().contains("twice"));
    assert!(
        way("Host db\n ProxyJump a\nHost a\n ProxyJump db\n")
            .unwrap_err()
            .contains("twice")
    );
    let long: String = (0..12)
        .map(|n| format!("Host h{n}\n ProxyJump h{}\n", n + 1))
        .collect();
    assert!(
        way(&format!("Host db\n ProxyJump h0\n{long}"))
            .unwrap_err()
            .contains("8 hosts")
    );
}

#[test]
fn openssh_says_the_same() {
    // Absolute paths only: it takes the home folder from the system, not from us.
    let folder = tempfile::tempdir().unwrap();
    let included = folder.path().join("more.conf");
    let config = folder.path().join("config");
    std::fs::write(
        &included,
        "Host web\n Port 77\n User inc\nHost *\n IdentityFile /k/inc\n",
    )
    .unwrap();
    let texts = [
        "",
        "Host db\n HostName 10.0.0.4\n User=a\n Port = 2200\nHost *\n User b\n Port 3\n",
        "host WEB db\n hostname %h.lan\n IDENTITYFILE \"/k/a b\"\n IdentityFile /k/two # three\n",
        "Host *b !db\n User no\nHost d* w?b\n User yes\n IdentitiesOnly yes\n",
        "Host *.lan,db\n User comma\nHost db.lan\n User dot\n",
        "ProxyJump a@b:1,c\nProxyCommand nc\nConnectTimeout 1m30\nStrictHostKeyChecking accept-new\n",
        "ProxyJump none\nUserKnownHostsFile /k/one /k/two\nGlobalKnownHostsFile \"/k/g h\"\nStrictHostKeyChecking no\n",
        "Include INCLUDED\nUser after\nPort 5\n",
        "Host web\n Include INCLUDED\nUser after\nHost db\n User db\n",
        "Host other\n Include INCLUDED\nHost *\n IdentityFile /k/own\n",
        "HashKnownHosts yes\nAddressFamily inet\nIdentityAgent none\nIdentityFile /k/%%x\nIdentityFile /k/%%x\n",
        "Host db\n\tUser\t\"quo ted\"\n Port 1\n\n# Port 2\nHost 10.0.0.?\n User q\n",
    ];
    for text in texts {
        let text = text.replace("INCLUDED", included.to_str().unwrap());
        std::fs::write(&config, &text).unwrap();
        for host in ["db", "web", "db.lan", "WEB", "10.0.0.4"] {
            let arguments = ["-F", config.to_str().unwrap(), "-G", host];
            let Ok(output) = Command::new("ssh").args(arguments).output() else {
                eprintln!("skipped: no ssh here");
                return;
            };
            assert!(output.status.success(), "{text}: {output:?}");
            let said = String::from_utf8(output.stdout).unwrap();
            let all = |keyword: &str| -> Vec<String> {
                said.lines()
                    .filter_map(|line| line.strip_prefix(keyword)?.strip_prefix(' '))
                    .map(str::to_owned)
                    .collect()
            };
            let one = |keyword: &str| all(keyword).pop();
            let file = File {
                path: config.clone(),
                own: false,
            };
            let ours = resolve(&Disk, &[file], &local(), asked(host)).unwrap();
            let about = format!("{host}: {text}");
            // It lowers the case of a name it connects to; so do the names in known_hosts.
            assert_eq!(
                one("hostname"),
                Some(ours.host_name.to_lowercase()),
                "{about}"
            );
            assert_eq!(one("port"), Some(ours.port.to_string()), "{about}");
            if text.contains("User") && ours.user != "me" {
                assert_eq!(one("user"), Some(ours.user.clone()), "{about}");
            }
            if ours.identities_given {
                let files: Vec<String> = ours
                    .identity_files
                    .iter()
                    .map(|file| file.display().to_string())
                    .collect();
                let theirs: Vec<String> = all("identityfile")
                    .iter()
                    .map(|file| file.replace("%%", "%"))
                    .collect();
                assert_eq!(theirs, files, "{about}");
            }
            let yes = |yes: bool| Some(if yes { "yes" } else { "no" }.to_owned());
            assert_eq!(one("identitiesonly"), yes(ours.identities_only), "{about}");
            assert_eq!(one("hashknownhosts"), yes(ours.hash_known_hosts), "{about}");
            let jumps: Vec<String> = ours
                .jumps
                .iter()
                .map(|jump| {
                    let user = jump.user.as_ref().map(|user| format!("{user}@"));
                    let port = jump.port.map(|port| format!(":{port}"));
                    format!(
                        "{}{}{}",
                        user.unwrap_or_default(),
                        jump.host,
                        port.unwrap_or_default()
                    )
                })
                .collect();
            assert_eq!(
                one("proxyjump").unwrap_or_default(),
                jumps.join(","),
                "{about}"
            );
            let strict = match one("stricthostkeychecking").unwrap().as_str() {
                "true" => Strict::Yes,
                "ask" => Strict::Ask,
                _ => Strict::AcceptNew,
            };
            assert_eq!(strict, ours.strict, "{about}");
            let timeout = one("connecttimeout").unwrap();
            let ours_timeout = ours.connect_timeout.map(|time| time.as_secs().to_string());
            assert_eq!(timeout, ours_timeout.unwrap_or("none".into()), "{about}");
            let family = match ours.family {
                Family::Any => "any",
                Family::V4 => "inet",
                Family::V6 => "inet6",
            };
            assert_eq!(one("addressfamily").as_deref(), Some(family), "{about}");
            if text.contains("KnownHostsFile") {
                let join = |paths: &[PathBuf]| {
                    let texts: Vec<String> = paths
                        .iter()
                        .map(|path| path.display().to_string())
                        .collect();
                    texts.join(" ")
                };
                assert_eq!(
                    one("userknownhostsfile"),
                    Some(join(&ours.user_known_hosts)),
                    "{about}"
                );
                assert_eq!(
                    one("globalknownhostsfile"),
                    Some(join(&ours.global_known_hosts)),
                    "{about}"
                );
            }
        }
    }
}

#[test]
fn a_file_that_others_may_write_to_is_not_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, "Port 5\n").unwrap();
    let set = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set(0o620);
    let error = Disk.read(&path, true).unwrap_err().to_string();
    assert!(error.contains("chmod go-w"), "{error}");
    assert!(Disk.read(&path, false).is_ok());
    set(0o600);
    assert_eq!(Disk.read(&path, true).unwrap().as_deref(), Some("Port 5\n"));
    assert_eq!(Disk.read(&folder.path().join("none"), true).unwrap(), None);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(([A-Za-z]{1,9}|Host|Match|Include|ProxyJump|Port|IdentityFile)[ =]{0,2}[ -~]{0,30}\n){0,8}") {
        let _ = of(&[(MINE, &text)], "db");
    }
}
