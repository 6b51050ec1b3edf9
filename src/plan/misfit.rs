//! A model that does not fit, in figures and in one sentence. Decides nothing.

use serde::{Deserialize, Serialize};

use super::Need;
use crate::figures::memory;

/// What one host would need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNeed {
    /// The host.
    pub host: String,
    /// First layer and number of layers; `None`: nothing could be put here.
    pub layers: Option<(u32, u32)>,
    /// Bytes it would need for these.
    pub need: Need,
    /// Bytes it needs to hold any stage at all.
    pub least_bytes: u64,
    /// Bytes it may take.
    pub usable_bytes: u64,
}

impl HostNeed {
    /// Bytes it is short of.
    pub fn short_bytes(&self) -> u64 {
        self.need.total().saturating_sub(self.usable_bytes)
    }
}

/// A model that does not fit. The layers are shared so that the fewest bytes are short in all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoesNotFit {
    /// Name of the model.
    pub model: String,
    /// Tokens of context a sequence may have.
    pub context: u32,
    /// Sequences of full context for which there should be room.
    pub concurrency: u32,
    /// Every host, the head first.
    pub hosts: Vec<HostNeed>,
    /// The largest context that fits at this concurrency; `None` when none does.
    pub largest_context: Option<u32>,
}

impl DoesNotFit {
    /// Bytes that the hosts used would need.
    pub fn need_bytes(&self) -> u64 {
        self.used().map(|host| host.need.total()).fold(0, add)
    }

    /// Bytes that they may take.
    pub fn usable_bytes(&self) -> u64 {
        self.used().map(|host| host.usable_bytes).fold(0, add)
    }

    /// Bytes that are short, the least there can be.
    pub fn short_bytes(&self) -> u64 {
        self.used().map(HostNeed::short_bytes).fold(0, add)
    }

    fn used(&self) -> impl Iterator<Item = &HostNeed> {
        self.hosts.iter().filter(|host| host.layers.is_some())
    }
}

fn add(a: u64, b: u64) -> u64 {
    a.saturating_add(b)
}

impl std::fmt::Display for DoesNotFit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.used().count();
        write!(
            f,
            "{} needs {} over {count} host{} with context {} and concurrency {}; ",
            self.model,
            memory(self.need_bytes()),
            if count == 1 { "" } else { "s" },
            self.context,
            self.concurrency
        )?;
        let verb = if count == 1 { "it has" } else { "they have" };
        let short = memory(self.short_bytes());
        write!(f, "{verb} {} usable", memory(self.usable_bytes()))?;
        if self.need_bytes().saturating_sub(self.usable_bytes()) == self.short_bytes() {
            write!(f, ": {short} short. ")?;
        } else {
            // Room on one host is no help where a whole layer must go elsewhere.
            let worst = self.used().max_by_key(|host| host.short_bytes());
            let worst = worst.map_or("", |host| &host.host);
            write!(
                f,
                ", but however the layers are shared {short} are short, most of it on {worst}. "
            )?;
        }
        match self.largest_context {
            Some(most) => write!(f, "A context of {most} would fit. ")?,
            None if self.concurrency > 1 => {
                f.write_str("No context fits at this concurrency. ")?;
            }
            None => f.write_str("No context fits. ")?,
        }
        f.write_str("Lower --context or --concurrency, raise memory_limit, or add a host.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, need: u64, usable: u64) -> HostNeed {
        HostNeed {
            host: name.into(),
            layers: Some((0, 1)),
            need: Need {
                pieces: need,
                kv: 0,
                working: 0,
            },
            least_bytes: 0,
            usable_bytes: usable,
        }
    }

    fn text(hosts: Vec<HostNeed>, largest_context: Option<u32>) -> String {
        DoesNotFit {
            model: "smollm2".into(),
            context: 4096,
            concurrency: 8,
            hosts,
            largest_context,
        }
        .to_string()
    }

    #[test]
    fn the_sentence_has_need_room_lack_and_what_to_do() {
        let gib = 1 << 30;
        let three = vec![
            host("a", gib, gib * 3 / 4),
            host("b", gib, gib / 2),
            host("c", gib, gib / 4),
        ];
        assert_eq!(
            text(three, Some(1024)),
            "smollm2 needs 3.0 GiB over 3 hosts with context 4096 and concurrency 8; they have \
             1.5 GiB usable: 1.5 GiB short. A context of 1024 would fit. Lower --context or \
             --concurrency, raise memory_limit, or add a host."
        );
        assert_eq!(
            text(vec![host("a", gib, 0)], None),
            "smollm2 needs 1.0 GiB over 1 host with context 4096 and concurrency 8; it has 0 B \
             usable: 1.0 GiB short. No context fits at this concurrency. Lower --context or \
             --concurrency, raise memory_limit, or add a host."
        );
    }

    #[test]
    fn room_in_the_wrong_place_is_not_counted_against_the_lack() {
        let mib = 1 << 20;
        let said = text(
            vec![host("a", 2 * mib, 9 * mib), host("b", 3 * mib, mib)],
            None,
        );
        assert!(
            said.contains("they have 10.0 MiB usable, but however the layers are shared 2.0 MiB are short, most of it on b."),
            "{said}"
        );
    }
}
