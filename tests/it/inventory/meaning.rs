//! What a valid inventory means.

use std::path::Path;

use windlass::inventory::{Connection, Level};
use windlass::secret::Secret;

use super::{SIXTY, parsed};

fn names(inventory: &windlass::inventory::Inventory) -> Vec<&str> {
    inventory.hosts.iter().map(|h| h.name.as_str()).collect()
}

#[test]
fn ranges_groups_and_defaults_of_the_sixty_lines_come_together() {
    let inventory = parsed(SIXTY);
    assert_eq!(
        names(&inventory),
        [
            "halo1", "halo2", "mac1", "mac2", "mac3", "mac4", "mac5", "spare", "gate", "attic",
            "here"
        ]
    );
    assert_eq!(inventory.cluster.name, "cellar");
    assert_eq!(inventory.cluster.head, "halo1");
    assert_eq!(inventory.cluster.api.listen, "0.0.0.0:8080");
    assert_eq!(
        inventory.cluster.api.key,
        Some(Secret::Env("CELLAR_KEY".into()))
    );
    let mac4 = inventory.host("mac4").unwrap();
    assert_eq!(mac4.address, "10.0.0.24");
    assert_eq!(mac4.data, "10.1.0.24");
    assert_eq!(mac4.user.as_deref(), Some("ai"));
    assert_eq!(mac4.ssh.jump.as_deref(), Some("gate"));
    assert_eq!(mac4.ssh.port, Some(22));
    assert_eq!(mac4.groups, ["macs"]);
    assert_eq!(mac4.vars["rack"], 2);
    let halo2 = inventory.host("halo2").unwrap();
    assert_eq!(halo2.memory_limit, Some(110 << 30));
    assert_eq!(halo2.data_port, 47600);
    let gate = inventory.host("gate").unwrap();
    assert_eq!(gate.user.as_deref(), Some("root"));
    assert_eq!((gate.ssh.port, gate.threads), (Some(2222), Some(16)));
    assert_eq!(gate.ssh.identity.as_deref(), Some(Path::new("keys/gate")));
    assert_eq!(gate.data, "gate.example.org");
    assert_eq!(
        gate.sudo_password,
        Some(Secret::Command(
            ["pass", "show", "gate"].map(str::to_owned).to_vec()
        ))
    );
    let attic = inventory.host("attic").unwrap();
    assert_eq!(attic.address, "2001:db8::7");
    assert_eq!(attic.vars["floor"], 3);
    assert_eq!(inventory.host("spare").unwrap().address, "fe80::1%eth0");
    let here = inventory.host("here").unwrap();
    assert_eq!(here.connection, Connection::Local);
    assert_eq!(
        (here.address.as_str(), here.data.as_str()),
        ("127.0.0.1", "10.10.0.9")
    );
    assert_eq!(inventory.warnings, []);
}

#[test]
fn every_value_tells_the_line_and_table_it_comes_from() {
    let inventory = parsed(SIXTY);
    let origin = |host: &str, key: &str| {
        let origin = &inventory.origins[host][key];
        (origin.from, origin.line, origin.place.clone())
    };
    let line = |part: &str| Some(SIXTY.lines().position(|line| line.contains(part)).unwrap() + 1);
    for (host, key, from, at, place) in [
        (
            "halo1",
            "address",
            Level::Host,
            line("192.168.1.11"),
            "[hosts.halo1]",
        ),
        (
            "halo1",
            "memory_limit",
            Level::Group,
            line("110GiB"),
            "[groups.halos]",
        ),
        (
            "halo1",
            "user",
            Level::Defaults,
            line("user = \"ai\""),
            "[defaults]",
        ),
        ("halo1", "data_port", Level::BuiltIn, None, "built-in"),
        (
            "mac2",
            "address",
            Level::Range,
            line("10.0.0.2"),
            "[hosts.\"mac[1-5]\"]",
        ),
        (
            "mac2",
            "ssh.jump",
            Level::Range,
            line("jump"),
            "[hosts.\"mac[1-5]\"]",
        ),
        (
            "mac2",
            "ssh.identity",
            Level::Defaults,
            line("id_ed25519"),
            "[defaults]",
        ),
        (
            "mac2",
            "vars.rack",
            Level::Group,
            line("rack = 2"),
            "[groups.macs]",
        ),
        ("gate", "data", Level::BuiltIn, None, "its address"),
        (
            "gate",
            "user",
            Level::Host,
            line("user = \"root\""),
            "[hosts.gate]",
        ),
        ("here", "address", Level::BuiltIn, None, "this machine"),
    ] {
        assert_eq!(
            origin(host, key),
            (from, at, place.to_owned()),
            "{host} {key}"
        );
    }
}

#[test]
fn the_sample_has_one_active_host_and_its_comments_are_a_valid_cluster() {
    let sample = include_str!("../../../inventory.toml");
    let inventory = parsed(sample);
    assert_eq!(names(&inventory), ["here"]);
    assert_eq!(
        inventory.host("here").unwrap().connection,
        Connection::Local
    );
    // A commented line that is TOML, uncommented.
    let open: String = sample
        .lines()
        .map(|line| {
            let bare = line.strip_prefix("# ").unwrap_or(line);
            let is_toml = bare.starts_with('[') || bare.split('#').next().unwrap().contains(" = ");
            format!("{}\n", if is_toml { bare } else { line })
        })
        .collect();
    let inventory = parsed(&open);
    assert_eq!(inventory.hosts.len(), 8, "{open}");
    assert_eq!(inventory.host("mac5").unwrap().address, "10.0.0.25");
    assert_eq!(
        inventory.host("halo1").unwrap().memory_limit,
        Some(110 << 30)
    );
}

#[test]
fn a_host_of_a_range_with_a_table_of_its_own_keeps_what_that_does_not_say() {
    let inventory = parsed(
        "[cluster]\nname = \"c\"\n[hosts.mac2]\ndata = \"10.9.9.9\"\nssh.port = 2\n\
         [hosts.\"mac[1-3]\"]\naddress = \"10.0.0.[1-3]\"\nssh = { port = 1, jump = \"gate.org\" }\n",
    );
    assert_eq!(names(&inventory), ["mac2", "mac1", "mac3"]);
    let mac2 = inventory.host("mac2").unwrap();
    assert_eq!(
        (mac2.address.as_str(), mac2.data.as_str()),
        ("10.0.0.2", "10.9.9.9")
    );
    assert_eq!(mac2.ssh.port, Some(2));
    assert_eq!(mac2.ssh.jump.as_deref(), Some("gate.org"));
}

#[test]
fn groups_that_agree_or_are_overruled_are_no_conflict() {
    let inventory = parsed(
        "[cluster]\nname = \"c\"\n[groups.a]\nhosts = [\"x\", \"y\"]\nuser = \"u\"\nthreads = 4\n\
         [groups.b]\nhosts = [\"*\"]\nuser = \"u\"\nthreads = 8\n\
         [hosts.x]\nthreads = 1\n[hosts.y]\nthreads = 2\n[hosts.z]\ngroups = [\"all\"]\n",
    );
    let threads: Vec<_> = inventory.hosts.iter().map(|h| h.threads).collect();
    assert_eq!(threads, [Some(1), Some(2), Some(8)]);
    assert_eq!(inventory.host("y").unwrap().groups, ["a", "b"]);
    assert_eq!(inventory.host("z").unwrap().groups, ["b"]);
}

#[test]
fn the_gate_that_all_jump_over_is_reached_without_itself() {
    let inventory = parsed(
        "[cluster]\nname = \"c\"\n[defaults]\nssh.jump = \"gate\"\n[hosts.gate]\n[hosts.a]\n\
         [hosts.b]\nssh.jump = \"none\"\n",
    );
    let jump = |host: &str| inventory.host(host).unwrap().ssh.jump.clone();
    assert_eq!(jump("gate"), None);
    assert_eq!(jump("a").as_deref(), Some("gate"));
    assert_eq!(jump("b"), None);
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let inventory = parsed(
        "[cluster]\nname = \"c\"\n[groups.empty]\n[groups.g]\nhosts = [\"n*\", \"a\"]\n\
         [hosts.a]\naddress = \"10.0.0.1\"\n[hosts.b]\naddress = \"10.0.0.1\"\n\
         [hosts.c]\naddress = \"10.0.0.1\"\nssh.port = 23\n[hosts.here]\nconnection = \"local\"\n",
    );
    let all: Vec<String> = inventory.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(all.len(), 4, "{all:#?}");
    assert!(
        all[0].starts_with("3:9: the group empty has no host"),
        "{all:#?}"
    );
    assert!(
        all[1].starts_with("5:10: \"n*\" matches no host"),
        "{all:#?}"
    );
    assert!(
        all[2].starts_with("8:8: a and b have the same address"),
        "{all:#?}"
    );
    assert!(
        all[3].starts_with("13:8: the other hosts cannot reach here"),
        "{all:#?}"
    );
}

#[test]
fn files_are_taken_from_the_inventorys_folder_or_the_home_folder() {
    let text = "[cluster]\nname = \"c\"\napi_key = { file = \"k\" }\n[hosts.a]\n\
                ssh = { identity = \"~/.ssh/x\", known_hosts = \"/etc/k\" }\nsudo.password = { file = \"s\" }\n";
    let inventory =
        windlass::inventory::Inventory::parse(Path::new("/etc/w/inventory.toml"), text).unwrap();
    let a = inventory.host("a").unwrap();
    let identity = a.ssh.identity.as_ref().unwrap();
    assert!(
        identity.is_absolute() && identity.ends_with(".ssh/x"),
        "{identity:?}"
    );
    assert_eq!(a.ssh.known_hosts.as_deref(), Some(Path::new("/etc/k")));
    assert_eq!(a.sudo_password, Some(Secret::File("/etc/w/s".into())));
    assert_eq!(
        inventory.cluster.api.key,
        Some(Secret::File("/etc/w/k".into()))
    );
}
