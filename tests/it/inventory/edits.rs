//! Edits show only their own lines in a diff, whatever else stands in the file.

use std::path::Path;

use windlass::inventory::diff::unified;
use windlass::inventory::edit::{Edit, EditError, Whom, edited};

use super::{SIXTY, parsed};

fn made(text: &str, edit: &Edit) -> Result<String, EditError> {
    edited(Path::new("inventory.toml"), text, edit)
}

/// `set X A B`, `add X A`, `remove X`, words parted by blanks.
fn edit(line: &str) -> Edit {
    let mut words = line.split(' ');
    let verb = words.next().unwrap();
    let whom = Whom::parse(words.next().unwrap());
    let values: Vec<String> = words.map(|word| word.replace('~', " ")).collect();
    match verb {
        "add" => Edit::Add(whom, values),
        "set" => Edit::Set(whom, values),
        "remove" => Edit::Remove(whom),
        other => panic!("{other}"),
    }
}

/// The lines of a diff that begin with a sign, heads left out.
fn signed(old: &str, new: &str) -> Vec<String> {
    unified("x", old, new)
        .lines()
        .skip(2)
        .filter(|line| line.starts_with(['-', '+']))
        .map(str::to_owned)
        .collect()
}

/// Edits of the sixty lines, and all lines that differ afterwards.
const EDITS: [(&str, &[&str]); 26] = [
    (
        "set halo1 address=192.168.1.21",
        &["-address = \"192.168.1.11\"", "+address = \"192.168.1.21\""],
    ),
    (
        "set halo1 data=10.10.0.21",
        &[
            "-data = \"10.10.0.1\"        # USB4",
            "+data = \"10.10.0.21\"        # USB4",
        ],
    ),
    (
        "set halo2 data=10.10.0.22",
        &["-data    = '10.10.0.2'", "+data    = \"10.10.0.22\""],
    ),
    ("set halo2 user=bob", &["+user = \"bob\""]),
    ("set halo2 ssh.port=2200", &["+ssh = { port = 2200 }"]),
    (
        "set @all user=root",
        &["-user = \"ai\"", "+user = \"root\""],
    ),
    (
        "set @all ssh.port=2022",
        &[
            "-ssh  = { port = 22, identity = \"~/.ssh/id_ed25519\" }   # the blue key",
            "+ssh  = { port = 2022, identity = \"~/.ssh/id_ed25519\" }   # the blue key",
        ],
    ),
    (
        "set @all ssh.known_hosts=known",
        &[
            "-ssh  = { port = 22, identity = \"~/.ssh/id_ed25519\" }   # the blue key",
            "+ssh  = { port = 22, identity = \"~/.ssh/id_ed25519\", known_hosts = \"known\" }   # the blue key",
        ],
    ),
    ("set @all device=cpu", &["+\tdevice = \"cpu\""]),
    (
        "set @halos memory_limit=100GiB",
        &[
            "-memory_limit = \"110GiB\"                 # firmware keeps the rest",
            "+memory_limit = \"100GiB\"                 # firmware keeps the rest",
        ],
    ),
    (
        "set @macs vars.rack=3",
        &[
            "-vars = { rack = 2, note = \"mind the fan\" }",
            "+vars = { rack = 3, note = \"mind the fan\" }",
        ],
    ),
    (
        "set mac[1-5] ssh.jump=gate2.example.org",
        &["-jump = \"gate\"", "+jump = \"gate2.example.org\""],
    ),
    ("set mac[1-5] ssh.port=2222", &["+port = 2222"]),
    (
        "set mac3 user=eve ssh.port=23",
        &[
            "+[hosts.mac3]",
            "+user = \"eve\"",
            "+ssh = { port = 23 }",
            "+",
        ],
    ),
    (
        "set gate ssh.host_key=ssh-ed25519~AAAA",
        &["+ssh.host_key = \"ssh-ed25519 AAAA\""],
    ),
    (
        "set gate sudo.password=env:GATE",
        &[
            "-sudo = { password = { command = [\"pass\", \"show\", \"gate\"] } }",
            "+sudo = { password = { env = \"GATE\" } }",
        ],
    ),
    ("set attic vars.floor=", &["-vars.floor = 3"]),
    (
        "set attic groups=macs",
        &["-groups = []", "+groups = [\"macs\"]"],
    ),
    (
        "set @all ssh.port=",
        &[
            "-ssh  = { port = 22, identity = \"~/.ssh/id_ed25519\" }   # the blue key",
            "+ssh  = { identity = \"~/.ssh/id_ed25519\" }   # the blue key",
        ],
    ),
    (
        "set gate sudo.password=",
        &["-sudo = { password = { command = [\"pass\", \"show\", \"gate\"] } }"],
    ),
    (
        "add halo3 address=192.168.1.13 ssh.port=22",
        &[
            "+",
            "+[hosts.halo3]",
            "+address = \"192.168.1.13\"",
            "+ssh = { port = 22 }",
        ],
    ),
    (
        "add @gates hosts=gate,halo[1-2]",
        &["+[groups.gates]", "+hosts = [\"gate\", \"halo[1-2]\"]", "+"],
    ),
    (
        "remove attic",
        &[
            "-[hosts.attic]",
            "-address = \"[2001:db8::7]\"",
            "-groups = []",
            "-memory_limit = 64000000000",
            "-vars.floor = 3",
            "-",
        ],
    ),
    (
        "remove halo2",
        &[
            "-hosts = [\"halo[1-2]\"]",
            "+hosts = [\"halo[1]\"]",
            "-[hosts.halo2]",
            "-address = '192.168.1.12'",
            "-data    = '10.10.0.2'",
            "-# data_port = 47700",
            "-",
        ],
    ),
    (
        "remove mac3",
        &[
            "-  \"mac[1-5]\",   # top to bottom",
            "+  \"mac[1-2,4-5]\",   # top to bottom",
            "-[hosts.\"mac[1-5]\"]",
            "-address = \"10.0.0.2[1-5]\"",
            "-data = \"10.1.0.2[1-5]\"",
            "-[hosts.\"mac[1-5]\".ssh]",
            "+[hosts.\"mac[1-2,4-5]\"]",
            "+address = \"10.0.0.2[1-2,4-5]\"",
            "+data = \"10.1.0.2[1-2,4-5]\"",
            "+[hosts.\"mac[1-2,4-5]\".ssh]",
        ],
    ),
    (
        "remove @halos",
        &[
            "-[groups.halos]",
            "-hosts = [\"halo[1-2]\"]",
            "-memory_limit = \"110GiB\"                 # firmware keeps the rest",
            "-",
        ],
    ),
];

#[test]
fn each_edit_of_the_sixty_lines_differs_in_its_own_lines_only() {
    assert_eq!(SIXTY.lines().count(), 60);
    let windows = SIXTY.replace('\n', "\r\n");
    let open = SIXTY.trim_end();
    for (line, wanted) in EDITS {
        let new = made(SIXTY, &edit(line)).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(
            signed(SIXTY, &new),
            wanted,
            "{line}\n{}",
            unified("x", SIXTY, &new)
        );
        // The same bytes come out of a file with the other line ends.
        assert_eq!(
            made(&windows, &edit(line)).unwrap(),
            new.replace('\n', "\r\n"),
            "{line}"
        );
        // A file without a line end at its end goes on without one.
        assert_eq!(made(open, &edit(line)).unwrap(), new.trim_end(), "{line}");
    }
}

#[test]
fn what_is_already_so_changes_no_byte() {
    for line in [
        "set halo1 address=192.168.1.11",
        "set halo2 data=10.10.0.2",
        "set attic memory_limit=64000000000",
        "set attic user=",
        "set @all threads=16",
        "set @macs hosts=mac[1-5],spare",
    ] {
        assert_eq!(made(SIXTY, &edit(line)).unwrap(), SIXTY, "{line}");
    }
}

#[test]
fn an_edit_that_would_make_it_invalid_or_hits_nothing_is_refused() {
    for (line, exit, part) in [
        ("set halo1 adress=x", 2, "did you mean \"address\"?"),
        ("set halo1 address", 2, "write KEY=VALUE"),
        ("set halo1 address=10.0.0.256", 2, "no IPv4 address"),
        ("set halo1 ssh.port=x", 2, "takes a number"),
        ("set halo1 ssh.port=0", 2, "goes from 1 to 65535"),
        ("set halo1 ssh.password=hunter2", 2, "ssh.password=env:NAME"),
        ("set halo1 ssh={}", 2, "set one of its keys"),
        ("set halo1 vars=x", 2, "vars.rack=3"),
        ("set halo1 groups=halo", 2, "did you mean \"halos\"?"),
        ("set @halos groups=macs", 2, "a group is in no group"),
        ("set @halos data=10.0.0.[1-2]", 2, "range"),
        ("set mac[1-5] address=10.0.0.[1-4]", 2, "4 addresses"),
        ("set hallo1 user=x", 3, "did you mean \"halo1\"?"),
        ("set mac[4-6] user=x", 3, "no host \"mac6\""),
        ("set @halo user=x", 3, "did you mean \"halos\"?"),
        ("add halo1", 2, "already there"),
        ("add mac[5-6]", 2, "the host mac5 is already there"),
        ("add @halos", 2, "already there"),
        ("add @all", 2, "inventory set @all"),
        ("add bad/name", 2, "names no host"),
        ("remove gate2", 3, "did you mean \"gate\"?"),
        ("remove @halo", 3, "did you mean \"halos\"?"),
        ("remove halo1", 2, "head is \"halo1\", which is no host"),
        ("remove @all", 2, "cannot be removed"),
    ] {
        let error = made(SIXTY, &edit(line)).expect_err(line);
        let failure = error.failure();
        assert_eq!(failure.kind.exit().code(), exit, "{line}: {failure}");
        assert!(failure.message.contains(part), "{line}: {failure}");
        assert!(!failure.message.contains("hunter2"), "{line}: {failure}");
    }
}

#[test]
fn a_fault_that_was_there_before_is_not_blamed_on_the_edit() {
    let text = "[cluster]\nname = \"c\"\n[hosts.a]\nusr = \"x\"\n";
    let error = made(text, &edit("set a threads=1")).unwrap_err();
    assert!(matches!(error, EditError::Before(_)), "{error}");
    // An edit may also be what mends it.
    let text = "[cluster]\nname = \"c\"\n[hosts.a]\nuser = 1\n";
    let new = made(text, &edit("set a user=x")).unwrap();
    assert_eq!(new, text.replace("= 1", "= \"x\""));
}

/// Other ways to write tables, an edit, and the whole text wanted.
const FORMS: [(&str, &str, &str); 19] = [
    (
        "[hosts]\n  a.ssh.port = 1 # c\nb.user = \"y\"\n",
        "set a ssh.port=",
        "[hosts]\n  a = {} # c\nb.user = \"y\"\n",
    ),
    (
        "hosts = { a.user = \"x\", b.user = \"y\" }\n",
        "set b user=",
        "hosts = { a.user = \"x\", b = {} }\n",
    ),
    ("[hosts.a]\nuser = \"x\"\n", "set a user=", "[hosts.a]\n"),
    (
        "[hosts]\na = { address = \"x\" }",
        "set a user=u",
        "[hosts]\na = { address = \"x\", user = \"u\" }",
    ),
    (
        "[hosts]\na = {}\n",
        "set a ssh.port=1",
        "[hosts]\na = { ssh = { port = 1 } }\n",
    ),
    (
        "[hosts]\na = { ssh.port = 1 } # c\n",
        "set a ssh.jump=x",
        "[hosts]\na = { ssh.port = 1, ssh.jump = \"x\" } # c\n",
    ),
    (
        "[hosts]\na = { user = \"u\", threads = 1, }\n",
        "set a user=",
        "[hosts]\na = { threads = 1, }\n",
    ),
    (
        "[hosts]\na.address = \"x\"\nb.user = \"y\"\n",
        "set a user=u",
        "[hosts]\na.address = \"x\"\na.user = \"u\"\nb.user = \"y\"\n",
    ),
    (
        "[hosts]\na.address = \"x\"\nb.user = \"y\"\n",
        "remove a",
        "[hosts]\nb.user = \"y\"\n",
    ),
    (
        "[hosts]\na = { user = \"x\" }\nb = { user = \"y\" }\n",
        "remove b",
        "[hosts]\na = { user = \"x\" }\n",
    ),
    (
        "hosts = { a = { user = \"x\" } }\n",
        "add b threads=1",
        "hosts = { a = { user = \"x\" }, b = { threads = 1 } }\n",
    ),
    (
        "[hosts.a.ssh]\nport = 1\n",
        "set a user=u",
        "[hosts.a.ssh]\nport = 1\n\n[hosts.a]\nuser = \"u\"\n",
    ),
    (
        "[hosts.a.ssh]\nport = 1\n",
        "set a ssh.jump=x",
        "[hosts.a.ssh]\nport = 1\njump = \"x\"\n",
    ),
    (
        "[hosts.a]\n",
        "set @all user=u",
        "[hosts.a]\n\n[defaults]\nuser = \"u\"\n",
    ),
    (
        "[hosts.a] # one\n[hosts.b]\n",
        "set a vars.note=two~words",
        "[hosts.a] # one\nvars = { note = \"two words\" }\n[hosts.b]\n",
    ),
    (
        "[hosts.'n[01-03]']\naddress = '10.0.0.[1-3]'\n",
        "remove n01",
        "[hosts.'n[02-03]']\naddress = '10.0.0.[2-3]'\n",
    ),
    (
        "[hosts.\"n[1-2]\"]\ndata = \"10.0.0.[1-2]\"\n[hosts.n1]\nuser = \"x\"\n",
        "remove n1",
        "[hosts.\"n[2]\"]\ndata = \"10.0.0.[2]\"\n",
    ),
    (
        "[groups.g]\nhosts = [\n  \"a\", # first\n  \"b\",\n]\n[hosts.a]\n[hosts.b]\n",
        "remove b",
        "[groups.g]\nhosts = [\n  \"a\",\n]\n[hosts.a]\n",
    ),
    (
        "[groups.g]\n[groups.h]\n[hosts.a]\ngroups = [\"g\", \"h\"]\n",
        "remove @g",
        "[groups.h]\n[hosts.a]\ngroups = [\"h\"]\n",
    ),
];

#[test]
fn tables_in_every_form_are_edited_in_their_form() {
    for (text, line, wanted) in FORMS {
        let root = text.starts_with("hosts");
        // Keys at the top come before the first table.
        let whole = |text: &str| {
            if root {
                format!("{text}[cluster]\nname = \"c\"\n")
            } else {
                format!("[cluster]\nname = \"c\"\n{text}")
            }
        };
        let wanted = if line == "set @all user=u" {
            "[cluster]\nname = \"c\"\n\n[defaults]\nuser = \"u\"\n\n[hosts.a]\n".to_owned()
        } else {
            whole(wanted)
        };
        let new = made(&whole(text), &edit(line)).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(new, wanted, "{line}");
    }
}

#[test]
fn a_host_that_cannot_leave_its_range_is_left_in_it() {
    let text = "[cluster]\nname = \"c\"\n[hosts.\"r[1-2]n[1-2]\"]\n";
    let error = made(text, &edit("remove r1n2")).unwrap_err();
    assert!(error.to_string().contains("by hand"), "{error}");
    assert_eq!(error.failure().kind.exit().code(), 2);
}

#[test]
fn the_first_host_makes_the_cluster_too() {
    let new = made("", &edit("add halo1 address=10.0.0.1")).unwrap();
    assert_eq!(
        new,
        "[cluster]\nname = \"home\"\n\n[hosts.halo1]\naddress = \"10.0.0.1\"\n"
    );
    assert_eq!(parsed(&new).host("halo1").unwrap().address, "10.0.0.1");
}
