//! Hosts on which something of a deployment stays although it ended elsewhere: which they are, and what
//! to type. Pure.

use serde::{Deserialize, Serialize};

use super::record::Record;
use super::unit::unit_name;
use crate::inventory::Inventory;

/// A host on which a worker, and the unit that keeps it, may stay.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// Its name, as it was in the inventory.
    pub host: String,
    /// Where it was reached then, or else its data address.
    pub address: Option<String>,
    /// Whether the inventory has it: `--limit` leaves it out then.
    #[serde(default)]
    pub listed: bool,
}

/// Hosts that a record names and that were not among those reached or tried: `tried` are names and
/// addresses. A host that has another name now, and the same address, is none of them.
pub fn behind(record: &Record, tried: &[(&str, &str)], inventory: &Inventory) -> Vec<Behind> {
    let address = |stage: &super::record::StageRecord| {
        let data = || {
            let address: std::net::SocketAddr = stage.data.parse().ok()?;
            Some(address.ip().to_string())
        };
        stage.address.clone().or_else(data)
    };
    let here = record.stages.iter().map(|stage| Behind {
        host: stage.host.clone(),
        address: address(stage),
        listed: false,
    });
    let mut all: Vec<Behind> = Vec::new();
    for mut one in here.chain(record.left_behind.iter().cloned()) {
        let known = |(name, place): &(&str, &str)| {
            *name == one.host || Some(*place) == one.address.as_deref()
        };
        if tried.iter().any(known) || all.iter().any(|other| other.host == one.host) {
            continue;
        }
        one.listed = inventory.host(&one.host).is_some();
        all.push(one);
    }
    all
}

impl Behind {
    /// One sentence: what stays where, and what to type.
    pub fn sentence(&self, cluster: &str) -> String {
        let (host, unit) = (&self.host, unit_name(cluster));
        if self.listed {
            return format!(
                "{host} keeps its worker and the enabled {unit}, for --limit leaves it out: `windlass down --limit {host}` ends both"
            );
        }
        let (place, address) = match &self.address {
            Some(address) => (format!(" ({address})"), address.as_str()),
            None => (String::new(), "ADDRESS"),
        };
        format!(
            "{host}{place} is not in the inventory any more and keeps its worker and the enabled {unit}: run `windlass inventory add {host} address={address}` and `windlass down --limit {host}`, or on that host `systemctl disable --now {unit}`"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{record, stage_of};
    use super::*;

    fn inventory(hosts: &[&str]) -> Inventory {
        let mut text = "[cluster]\nname = \"halo\"\n".to_owned();
        for host in hosts {
            text.push_str(&format!("[hosts.{host}]\n"));
        }
        Inventory::parse(std::path::Path::new("i"), &text).unwrap()
    }

    #[test]
    fn who_is_in_the_record_and_was_not_tried_is_left_behind_with_what_to_type() {
        let mut old = record();
        old.stages[0].address = Some("10.0.0.1".into());
        old.stages.push(stage_of("halo2"));
        old.stages[1].data = "10.10.0.2:47600".into();
        old.left_behind.push(Behind {
            host: "halo9".into(),
            ..Behind::default()
        });
        let names = |tried: &[(&str, &str)], listed: &[&str]| -> Vec<(String, bool)> {
            behind(&old, tried, &inventory(listed))
                .into_iter()
                .map(|one| (one.host, one.listed))
                .collect()
        };
        let own = |name: &str, listed| (name.to_owned(), listed);
        let all = [("halo1", "a"), ("halo2", "b"), ("halo9", "c")];
        assert_eq!(names(&all, &["halo1"]), []);
        assert_eq!(
            names(&[("halo1", "a")], &["halo1", "halo2"]),
            [own("halo2", true), own("halo9", false)]
        );
        // Another name for the same machine.
        assert_eq!(
            names(&[("head", "10.0.0.1"), ("halo9", "c")], &["head"]),
            [own("halo2", false)]
        );
        let gone = &behind(&old, &[("halo1", "a")], &inventory(&["halo1"]))[0];
        assert_eq!(gone.address.as_deref(), Some("10.10.0.2"));
        let said = gone.sentence("halo");
        for wanted in [
            "halo2 (10.10.0.2)",
            "windlass-halo.service",
            "windlass inventory add halo2 address=10.10.0.2",
            "windlass down --limit halo2",
            "systemctl disable --now",
        ] {
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
        let limited = &behind(&old, &[("halo1", "a")], &inventory(&["halo1", "halo2"]))[0];
        let said = limited.sentence("halo");
        assert!(
            said.contains("--limit leaves it out") && !said.contains("add"),
            "{said}"
        );
    }
}
