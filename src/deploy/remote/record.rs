//! The record of a deployment, as it lies on each of its hosts. Plain data: what a controller that
//! never saw the deployment needs to find, show and stop it. No secret is in it.

use serde::{Deserialize, Serialize};

use super::behind::Behind;
use crate::plan::Before;

/// Version of the record's form.
pub const FORM: u32 = 1;
/// File name, in the deployment's folder on the host.
pub const FILE: &str = "record.json";
/// Longest record read, in bytes.
pub const MOST_BYTES: usize = 1 << 20;

/// What runs under a cluster's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORM`].
    pub v: u32,
    /// Name of the cluster.
    pub cluster: String,
    /// Id of the deployment; certificates name it.
    pub deployment: String,
    /// Version of windlass that made it.
    pub version: String,
    /// Digest of the worker's program on the head, 64 hexadecimal digits.
    pub worker_sha256: String,
    /// Name the model is served under.
    pub model: String,
    /// Digest of the model file.
    pub model_sha256: String,
    /// Tokens of context a sequence may have.
    pub context: u32,
    /// Sequences at once with full context.
    pub concurrency: u32,
    /// KV blocks on each stage.
    pub kv_blocks: u32,
    /// Where the API listens on the head.
    pub api: String,
    /// SHA-256 of the API key, when one is asked for.
    pub api_key_sha256: Option<String>,
    /// Who brought it up: `user@machine`.
    pub by: String,
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// Its stages; the first is the head.
    pub stages: Vec<StageRecord>,
    /// Hosts that were there and got no stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Hosts of the deployment before, on which it could not be stopped when this one took its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_behind: Vec<Behind>,
}

/// One stage of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageRecord {
    /// Stage, from 0.
    pub stage: u32,
    /// Name of its host in the inventory.
    pub host: String,
    /// Where it listens for the other stages: `ip:port`.
    pub data: String,
    /// First layer.
    pub first_layer: u32,
    /// Number of layers.
    pub layers: u32,
    /// Bytes of its piece files.
    pub piece_bytes: u64,
    /// Threads it computes with.
    pub threads: u32,
    /// Digest of the worker's program on this host.
    pub program_sha256: String,
    /// Where the host was reached when it was brought up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

impl Record {
    /// Reads a record that came from a host.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Form {
            v: u32,
            version: Option<String>,
        }
        let torn = |error: serde_json::Error| {
            format!(
                "the deployment's record is not understood ({error}): `windlass down` stops what runs and removes it"
            )
        };
        let form: Form = serde_json::from_slice(bytes).map_err(torn)?;
        if form.v != FORM {
            let version: String = form
                .version
                .unwrap_or_else(|| "of an unknown version".into())
                .chars()
                .filter(|c| !c.is_control())
                .take(40)
                .collect();
            return Err(format!(
                "the deployment was made by windlass {version}, whose record has form {}, and this is windlass {} that knows form {FORM}: use that windlass, or end the deployment with `windlass down`",
                form.v,
                env!("CARGO_PKG_VERSION"),
            ));
        }
        let record: Self = serde_json::from_slice(bytes).map_err(torn)?;
        if record.stages.is_empty() || record.stages.len() > 64 {
            return Err(format!(
                "the deployment's record has {} stages: `windlass down` stops what runs and removes it",
                record.stages.len()
            ));
        }
        Ok(record)
    }

    /// What a new record does otherwise, in words; nothing when it would start the same processes
    /// with the same pieces.
    pub fn changes(&self, new: &Self) -> Vec<String> {
        let joined = new.hosts().filter(|host| self.stage_on(host).is_none());
        let joined: Vec<String> = joined.map(|host| format!("{host} is new")).collect();
        let left = self.hosts().filter(|host| new.stage_on(host).is_none());
        let left: Vec<String> = left
            .map(|host| format!("{host} has no part any more"))
            .collect();
        let moved = [joined, left].concat();
        // What is compared host by host is compared on those that take part in both.
        let differs = |part: fn(&StageRecord) -> (&str, u32, u32)| {
            let both = new.stages.iter();
            let mut both = both.filter_map(|stage| Some((self.stage_on(&stage.host)?, stage)));
            both.any(|(old, new)| part(old) != part(new))
        };
        let mut all = Vec::new();
        let mut add = |differs: bool, what: &str| {
            if differs {
                all.push(what.to_owned());
            }
        };
        add(
            (&self.model, &self.model_sha256) != (&new.model, &new.model_sha256),
            "the model",
        );
        add(
            differs(|stage| (&stage.program_sha256, 0, 0)),
            "the worker's program",
        );
        add(
            !moved.is_empty(),
            &format!("the hosts ({})", moved.join(", ")),
        );
        add(
            moved.is_empty()
                && (differs(|stage| ("", stage.first_layer, stage.layers))
                    || !self.hosts().eq(new.hosts())),
            "which host holds which layers",
        );
        add(
            (self.context, self.concurrency, self.kv_blocks)
                != (new.context, new.concurrency, new.kv_blocks),
            "the room for sequences",
        );
        add(
            (&self.api, &self.api_key_sha256) != (&new.api, &new.api_key_sha256),
            "the API's address or key",
        );
        add(differs(|stage| (&stage.data, 0, 0)), "the data addresses");
        add(differs(|stage| ("", stage.threads, 0)), "the threads");
        if all.is_empty() && !self.same_service(new) {
            all.push("the sizes of its pieces".to_owned());
        }
        all
    }

    /// Names of its hosts, in the order of the stages.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.stages.iter().map(|stage| stage.host.as_str())
    }

    /// Whether a new record would start the same processes with the same pieces: all but who, when,
    /// the deployment's id, and hosts that have no part in it.
    pub fn same_service(&self, other: &Self) -> bool {
        let plain = |record: &Self| Self {
            deployment: String::new(),
            by: String::new(),
            at: String::new(),
            version: String::new(),
            left_out: Vec::new(),
            left_behind: Vec::new(),
            worker_sha256: String::new(),
            stages: record
                .stages
                .iter()
                .map(|stage| StageRecord {
                    address: None,
                    ..stage.clone()
                })
                .collect(),
            ..record.clone()
        };
        plain(self) == plain(other)
    }

    /// Where its layers are.
    pub fn before(&self) -> Before {
        let run = |stage: &StageRecord| (stage.host.clone(), stage.first_layer, stage.layers);
        Before {
            runs: self.stages.iter().map(run).collect(),
            left_out: self.left_out.clone(),
        }
    }

    /// The stage on this host.
    pub fn stage_on(&self, host: &str) -> Option<&StageRecord> {
        self.stages.iter().find(|stage| stage.host == host)
    }

    /// The record that most hosts have; of several, the newest.
    pub fn leading<'r>(records: impl Iterator<Item = &'r Self> + Clone) -> Option<&'r Self> {
        records.clone().max_by_key(|record| {
            let votes = records
                .clone()
                .filter(|other| other.deployment == record.deployment)
                .count();
            (votes, record.at.clone())
        })
    }

    /// Name of the head.
    pub fn head(&self) -> &str {
        self.stages.first().map_or("", |stage| stage.host.as_str())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record() -> Record {
        Record {
            v: FORM,
            cluster: "halo".into(),
            deployment: "halo-1a".into(),
            version: "0.1.0".into(),
            worker_sha256: "ab".repeat(32),
            model: "smollm2".into(),
            model_sha256: "cd".repeat(32),
            context: 4096,
            concurrency: 8,
            kv_blocks: 1024,
            api: "127.0.0.1:8080".into(),
            api_key_sha256: None,
            by: "ann@desk".into(),
            at: "2026-01-02T03:04:05Z".into(),
            stages: vec![StageRecord {
                stage: 0,
                host: "halo1".into(),
                data: "10.0.0.1:47600".into(),
                first_layer: 0,
                layers: 30,
                piece_bytes: 5,
                threads: 2,
                program_sha256: "ab".repeat(32),
                address: None,
            }],
            left_out: Vec::new(),
            left_behind: Vec::new(),
        }
    }

    pub(crate) fn stage_of(host: &str) -> StageRecord {
        StageRecord {
            host: host.into(),
            stage: 1,
            ..record().stages.remove(0)
        }
    }

    #[test]
    fn where_a_host_was_reached_makes_no_other_service() {
        let mut other = record();
        other.stages[0].address = Some("10.0.0.9".into());
        other.left_behind.push(Behind::default());
        assert!(record().same_service(&other));
        // An older windlass wrote neither.
        let bytes = serde_json::to_vec(&record()).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        assert!(
            !text.contains("address\":") && !text.contains("left_behind"),
            "{text}"
        );
    }

    #[test]
    fn a_record_survives_the_way_to_a_host_and_back() {
        let record = record();
        let bytes = serde_json::to_vec(&record).unwrap();
        assert_eq!(Record::parse(&bytes).unwrap(), record);
    }

    #[test]
    fn a_record_of_another_form_or_a_torn_one_is_refused_in_a_sentence() {
        let mut other = record();
        other.v = 2;
        let error = Record::parse(&serde_json::to_vec(&other).unwrap()).unwrap_err();
        for part in ["form 2", "windlass 0.1.0", "windlass down"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        let strange = Record::parse(br#"{"v": 9, "else": []}"#).unwrap_err();
        assert!(strange.contains("form 9") && strange.contains("unknown version"));
        let bytes = serde_json::to_vec(&record()).unwrap();
        let half = bytes.get(..bytes.len() / 2).unwrap();
        assert!(Record::parse(half).unwrap_err().contains("not understood"));
        assert!(Record::parse(b"").is_err());
    }

    #[test]
    fn who_and_when_do_not_make_another_service_but_a_thread_does() {
        let mut other = record();
        other.by = "bob@lap".into();
        other.deployment = "halo-2b".into();
        other.at.clear();
        assert!(record().same_service(&other));
        assert!(record().changes(&other).is_empty());
        other.stages[0].threads = 3;
        assert!(!record().same_service(&other));
    }

    #[test]
    fn what_a_new_record_does_otherwise_is_named() {
        type Change = fn(&mut Record);
        let changed = |edit: Change| {
            let mut new = record();
            edit(&mut new);
            record().changes(&new)
        };
        let table: [(Change, &str); 10] = [
            (|r| r.model_sha256.clear(), "the model"),
            (
                |r| r.stages[0].program_sha256.clear(),
                "the worker's program",
            ),
            (|r| r.stages[0].layers = 3, "which host holds which layers"),
            (|r| r.context = 5, "the room for sequences"),
            (|r| r.api.clear(), "the API's address or key"),
            (|r| r.stages[0].threads = 9, "the threads"),
            (|r| r.stages[0].data.clear(), "the data addresses"),
            // Another host has another number of programs, and it is not the program that changed.
            (
                |r| r.stages.push(stage_of("halo2")),
                "the hosts (halo2 is new)",
            ),
            (
                |r| r.stages[0].host = "halo2".into(),
                "the hosts (halo2 is new, halo1 has no part any more)",
            ),
            (|r| r.stages[0].piece_bytes = 6, "the sizes of its pieces"),
        ];
        for (edit, wanted) in table {
            assert_eq!(changed(edit), [wanted]);
        }
    }
}
