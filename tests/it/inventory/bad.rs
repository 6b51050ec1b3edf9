//! Bad inventories: each fault with its line, its column, what is wrong and what would be right.

use std::path::Path;

use windlass::inventory::Inventory;

use crate::command_line::windlass;
use crate::support::json_lines;

/// A valid beginning of two lines.
const HEAD: &str = "[cluster]\nname = \"c\"\n";

/// Name, text, and the faults wanted: line, column, a part of the message, the nearest name.
type Bad = (
    &'static str,
    String,
    Vec<(usize, usize, &'static str, Option<&'static str>)>,
);

fn bad() -> Vec<Bad> {
    let one = |name, text: &str, line, column, part, nearest| -> Bad {
        (
            name,
            format!("{HEAD}{text}"),
            vec![(line, column, part, nearest)],
        )
    };
    vec![
        one(
            "a misspelt key",
            "[hosts.halo1]\nuser = \"ai\"\n    adress = \"10.0.0.1\"\n",
            5,
            5,
            "unknown key \"adress\" in [hosts.halo1]; did you mean \"address\"?",
            Some("address"),
        ),
        one(
            "a key without its table",
            "[hosts.halo1]\nport = 22\n",
            4,
            1,
            "did you mean \"ssh.port\"?",
            Some("ssh.port"),
        ),
        one(
            "a key nothing like any",
            "[defaults]\nrackmount = 3\n[hosts.a]\n",
            4,
            1,
            "free values go under \"vars\"",
            Some("data_port"),
        ),
        one(
            "a misspelt key of ssh",
            "[hosts.a]\nssh = { prot = 22 }\n",
            4,
            9,
            "unknown key \"prot\" in ssh of [hosts.a]; did you mean \"port\"?",
            Some("port"),
        ),
        one(
            "a misspelt table",
            "[host.a]\n[hosts.b]\n",
            3,
            2,
            "unknown key \"host\" at the top; did you mean \"hosts\"?",
            Some("hosts"),
        ),
        one(
            "a misspelt key of the cluster",
            "haed = \"a\"\n[hosts.a]\n",
            3,
            1,
            "unknown key \"haed\" in [cluster]; did you mean \"head\"?",
            Some("head"),
        ),
        one(
            "a head that is no host",
            "head = \"hallo1\"\n[hosts.halo1]\n",
            3,
            8,
            "head is \"hallo1\", which is no host; did you mean \"halo1\"?",
            Some("halo1"),
        ),
        one(
            "an API for others without a key",
            "api = { listen = \"0.0.0.0:8080\" }\n[hosts.a]\n",
            3,
            18,
            "api_key = { env = \"NAME\" }",
            None,
        ),
        one(
            "an API without a port",
            "api = { listen = \"127.0.0.1\" }\n[hosts.a]\n",
            3,
            18,
            "127.0.0.1:8080",
            None,
        ),
        one(
            "a password in the file",
            "[hosts.a]\nssh = { password = \"hunter2\" }\n",
            4,
            20,
            "write { env = \"NAME\" }, { file = \"PATH\" } or { command = ",
            None,
        ),
        one(
            "a secret from two places",
            "[hosts.a]\nsudo.password = { env = \"A\", file = \"b\" }\n",
            4,
            17,
            "exactly one place",
            None,
        ),
        one(
            "a secret from nowhere",
            "api_key = { envv = \"A\" }\n[hosts.a]\n",
            3,
            11,
            "unknown key \"envv\" in api_key; did you mean \"env\"?",
            None,
        ),
        one(
            "ranges of different lengths",
            "[hosts.\"mac[1-5]\"]\naddress = \"10.0.0.2[1-4]\"\n",
            4,
            11,
            "address stands for 4 addresses and [hosts.\"mac[1-5]\"] for 5 hosts",
            None,
        ),
        one(
            "a range in a group's address",
            "[groups.g]\ndata = \"10.0.0.[1-2]\"\n[hosts.a]\n",
            4,
            8,
            "only the table of a range of hosts",
            None,
        ),
        one(
            "a range that goes down",
            "[hosts.\"mac[5-1]\"]\n",
            3,
            8,
            "goes down",
            None,
        ),
        one(
            "too many hosts",
            "[hosts.\"n[0-9][0-9][0-9][0-9]\"]\n",
            3,
            8,
            "more than 4096",
            None,
        ),
        one(
            "an address with a port",
            "[hosts.a]\naddress = \"10.0.0.1:2222\"\n",
            4,
            11,
            "ssh = { port = 2222 }",
            None,
        ),
        one(
            "no such IPv4 address",
            "[hosts.a]\naddress = \"10.0.0.256\"\n",
            4,
            11,
            "no IPv4 address",
            None,
        ),
        one(
            "a port too high",
            "[hosts.a]\nssh.port = 70000\n",
            4,
            12,
            "ssh.port is 70000: it goes from 1 to 65535",
            None,
        ),
        one(
            "a number in quotes",
            "[hosts.a]\nthreads = \"8\"\n",
            4,
            11,
            "threads is text: write it as 8",
            None,
        ),
        one(
            "a size without its unit",
            "[hosts.a]\nmemory_limit = \"110G\"\n",
            4,
            16,
            "write 110GiB or 110GB",
            None,
        ),
        one(
            "a connection that is none",
            "[hosts.a]\nconnection = \"locl\"\n",
            4,
            14,
            "did you mean \"local\"?",
            None,
        ),
        one(
            "a group's host that is none",
            "[groups.g]\nhosts = [\"halo1\", \"hallo2\"]\n[hosts.\"halo[1-2]\"]\n",
            4,
            19,
            "there is no host \"hallo2\"; did you mean \"halo2\"?",
            Some("halo2"),
        ),
        one(
            "a host's group that is none",
            "[groups.halos]\n[hosts.a]\ngroups = [\"halo\"]\n",
            5,
            10,
            "there is no group \"halo\"; did you mean \"halos\"?",
            Some("halos"),
        ),
        one(
            "groups that disagree",
            "[groups.g]\nhosts = [\"*\"]\nuser = \"x\"\n[groups.h]\nhosts = [\"a\"]\nuser = \"y\"\n[hosts.a]\n[hosts.b]\n",
            8,
            8,
            "[groups.g] (line 5) and [groups.h] give a different values of user: set it in [hosts.a]",
            None,
        ),
        one(
            "jumps in a circle",
            "[hosts.a]\nssh.jump = \"b\"\n[hosts.b]\nssh.jump = \"a\"\n",
            4,
            12,
            "a over b over a",
            None,
        ),
        one(
            "a host named twice",
            "[hosts.a]\nuser = \"x\"\n[hosts.a]\nuser = \"y\"\n",
            5,
            8,
            "duplicate key \"a\"",
            None,
        ),
        one(
            "a text without its quotes",
            "[hosts.a]\naddress = halo1\n",
            4,
            11,
            "this is not TOML",
            None,
        ),
        one("a header without its end", "[hosts.a\naddress = \"x\"\n[hosts.b]\n", 3, 9, "this is not TOML", None),
        one("a name with a blank", "[hosts.\"a b\"]\n", 3, 8, "\"a b\" names no host", None),
        one("a group named all", "[groups.all]\n[hosts.a]\n", 3, 9, "write [defaults]", None),
        one("no host", "", 1, 1, "there is no host", None),
        (
            "no name of the cluster",
            "[cluster]\nhead = \"a\"\n[hosts.a]\n".into(),
            vec![(1, 2, "add name = \"home\"", None)],
        ),
        (
            "a name of the cluster that is none",
            "[cluster]\nname = \"a b\"\n[hosts.a]\n".into(),
            vec![(2, 8, "letters, digits and dashes", None)],
        ),
        (
            "several at once, columns in characters, line ends of either kind",
            "[cluster]\r\nname = 'ü'\r\n[hosts.a]\r\nvars = { ü = 1 }; x\r\nthread = 1\r\nuser = 1\n[hosts.\"ü\"]\n".into(),
            vec![
                (2, 8, "letters, digits and dashes", None),
                (4, 17, "this is not TOML", None),
                (5, 1, "did you mean \"threads\"?", Some("threads")),
                (6, 8, "user is a number", None),
                (7, 8, "\"ü\" names no host", None),
            ],
        ),
    ]
}

#[test]
fn every_fault_has_its_line_column_reason_and_nearest_name() {
    let all = bad();
    assert!(all.len() >= 25, "{}", all.len());
    for (name, text, wanted) in all {
        let faults = Inventory::parse(Path::new("inventory.toml"), &text)
            .err()
            .unwrap_or_else(|| panic!("{name}: valid\n{text}"));
        let shown: Vec<String> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), wanted.len(), "{name}: {shown:#?}");
        for (fault, (line, column, part, nearest)) in faults.iter().zip(wanted) {
            assert_eq!(
                (fault.line, fault.column),
                (line, column),
                "{name}: {shown:#?}"
            );
            assert!(fault.message.contains(part), "{name}: {shown:#?}");
            assert_eq!(fault.nearest.as_deref(), nearest, "{name}: {shown:#?}");
            assert!(!fault.message.contains("hunter2"), "{name}: {shown:#?}");
        }
    }
}

#[test]
fn a_bad_inventory_is_exit_2_with_all_its_faults() {
    let home = tempfile::tempdir().unwrap();
    for (name, text, wanted) in bad().into_iter().step_by(6).chain(bad().into_iter().last()) {
        let path = home.path().join("bad.toml");
        std::fs::write(&path, &text).unwrap();
        let path = path.to_str().unwrap();
        let plain = windlass(home.path(), &["inventory", "check", "-i", path])
            .output()
            .unwrap();
        assert_eq!(plain.status.code(), Some(2), "{name}");
        let said = String::from_utf8(plain.stdout).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), wanted.len(), "{name}: {said}");
        for (said, (line, column, part, _)) in lines.iter().zip(&wanted) {
            assert!(
                said.starts_with(&format!("{path}:{line}:{column}: ")),
                "{name}: {said}"
            );
            assert!(said.contains(part), "{name}: {said}");
        }
        for verb in ["check", "list", "show"] {
            let output = windlass(home.path(), &["inventory", verb, "-i", path, "--json"])
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(2), "{name}");
            let last = json_lines(&output.stdout).pop().unwrap();
            assert_eq!(last["error"]["kind"], "config", "{name}");
            assert_eq!(last["faults"].as_array().unwrap().len(), wanted.len());
            assert_eq!(last["faults"][0]["line"], wanted[0].0);
            assert_eq!(last["faults"][0]["column"], wanted[0].1);
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_named_by_their_line() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("i.toml");
    std::fs::write(&path, b"[cluster]\nname = \"\xff\"\n").unwrap();
    let output = windlass(
        home.path(),
        &["inventory", "check", "-i", path.to_str().unwrap()],
    )
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("i.toml:2:9: this is not UTF-8"), "{said}");
}
