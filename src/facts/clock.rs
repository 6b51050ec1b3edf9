//! How far a host's clock is from ours: the measurement, and the estimate from it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use crate::ssh::{Session, SshError};

/// Questions asked for one measurement.
const QUESTIONS: usize = 8;
/// Time for all of them.
const TIME: Duration = Duration::from_secs(15);
/// The most an answer may hold, bytes.
const ANSWER: u64 = 64;

/// A host's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// When it was read, nanoseconds since 1970.
    pub unix_ns: Option<u64>,
    /// How fine that is, nanoseconds.
    pub grain_ns: Option<u64>,
    /// How far it is from ours. With the other facts it comes as sure as one round trip allows;
    /// [`measure`] is surer.
    pub skew: Option<Skew>,
}

impl Clock {
    /// Compares the reading with ours before and after, nanoseconds since 1970.
    pub fn compare(&mut self, sent_ns: u64, received_ns: u64) {
        let sample = self
            .unix_ns
            .zip(self.grain_ns)
            .map(|(remote_ns, grain_ns)| Sample {
                sent_ns,
                remote_ns,
                received_ns,
                grain_ns,
            });
        self.skew = sample.and_then(|sample| skew(&[sample]));
    }

    /// Seconds that it is ahead of ours, when known, and by how many that may be off.
    pub fn skew_seconds(&self) -> (Option<f64>, f64) {
        match self.skew {
            Some(skew) => (
                Some(skew.ahead_ns as f64 / 1e9),
                skew.uncertain_ns as f64 / 1e9,
            ),
            None => (None, 0.0),
        }
    }
}

/// The host's answer to one question, nanoseconds since 1970 by each one's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Ours when we asked.
    pub sent_ns: u64,
    /// The host's.
    pub remote_ns: u64,
    /// Ours when the answer was here.
    pub received_ns: u64,
    /// How fine the host's answer is, nanoseconds: 1, or a whole second.
    pub grain_ns: u64,
}

/// How far a host's clock is ahead of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skew {
    /// Ahead; negative when it is behind. Nanoseconds.
    pub ahead_ns: i64,
    /// How far that may be off at most, nanoseconds.
    pub uncertain_ns: u64,
}

impl Skew {
    /// Whether the clocks are surely further apart than this.
    pub fn exceeds(&self, limit: Duration) -> bool {
        let apart = self
            .ahead_ns
            .unsigned_abs()
            .saturating_sub(self.uncertain_ns);
        u128::from(apart) > limit.as_nanos()
    }

    /// For people, e.g. `1.2 s ahead`.
    pub fn text(&self) -> String {
        let seconds = self.ahead_ns.unsigned_abs() as f64 / 1e9;
        // Never better than it is: rounded up.
        let uncertain = self.uncertain_ns.div_ceil(1_000_000) as f64 / 1e3;
        match self.ahead_ns {
            _ if self.ahead_ns.unsigned_abs() <= self.uncertain_ns => {
                format!("within {uncertain:.3} s of ours")
            }
            ahead if ahead > 0 => format!("{seconds:.3} s ahead of ours"),
            _ => format!("{seconds:.3} s behind ours"),
        }
    }
}

/// The estimate: the host read its clock somewhere between question and answer, so half-way is off
/// by half of that time at most. Each sample gives such a range; the truth is in all of them, unless
/// a clock was set in between, and then the quickest sample counts alone.
pub fn skew(samples: &[Sample]) -> Option<Skew> {
    let ranges: Vec<(i128, i128)> = samples
        .iter()
        .filter(|sample| sample.received_ns >= sample.sent_ns)
        .map(|sample| {
            let remote = i128::from(sample.remote_ns);
            (
                remote - i128::from(sample.received_ns),
                remote + i128::from(sample.grain_ns.saturating_sub(1)) - i128::from(sample.sent_ns),
            )
        })
        .collect();
    let least = ranges.iter().map(|(least, _)| *least).max()?;
    let most = ranges.iter().map(|(_, most)| *most).min()?;
    let (least, most) = match least <= most {
        true => (least, most),
        false => *ranges.iter().min_by_key(|(least, most)| most - least)?,
    };
    Some(Skew {
        ahead_ns: i64::try_from(least + (most - least) / 2).ok()?,
        uncertain_ns: u64::try_from((most - least).div_euclid(2) + (most - least).rem_euclid(2))
            .ok()?,
    })
}

/// Nanoseconds in `SECONDS.NANOSECONDS`, and how fine they are; a `date` that has no fractions
/// leaves the letters of the format.
pub fn reading(text: &str) -> Option<(u64, u64)> {
    let text = text.trim();
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: u64 = seconds.parse().ok()?;
    let whole = seconds.checked_mul(1_000_000_000)?;
    if fraction.len() == 9 && fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some((whole.checked_add(fraction.parse().ok()?)?, 1));
    }
    Some((whole, 1_000_000_000))
}

/// Reads the section `clock`.
pub fn parse(text: &str) -> Clock {
    let found = reading(text);
    Clock {
        unix_ns: found.map(|(nanoseconds, _)| nanoseconds),
        grain_ns: found.map(|(_, grain)| grain),
        skew: None,
    }
}

/// Measures how far a host's clock is from ours, by asking it several times over one channel.
///
/// # Errors
/// When the host cannot be asked, or says nothing that is a time.
pub async fn measure(session: &Session) -> Result<Skew, SshError> {
    let what = "reading the clock";
    let broken = |reason: String| SshError::Broken {
        what: what.to_owned(),
        reason,
    };
    let work = async {
        // A line in, a time out; the end of the input ends it.
        let script =
            "exec sh -c 'LC_ALL=C; export LC_ALL; while read -r line; do date +%s.%N; done'";
        let mut stream = session.open(what, script, false).await?;
        let mut answers = BufReader::new(&mut stream.stdout);
        let mut samples = Vec::new();
        for _ in 0..QUESTIONS {
            // Our own clock may be set meanwhile: one reading, and the time that passed since.
            let (sent, began) = (now_ns(), Instant::now());
            let asked = async {
                stream.stdin.write_all(b"\n").await?;
                stream.stdin.flush().await?;
                let mut line = String::new();
                (&mut answers).take(ANSWER).read_line(&mut line).await?;
                Ok::<_, std::io::Error>(line)
            };
            let line = asked.await.map_err(|error| broken(error.to_string()))?;
            let passed = nanoseconds(began.elapsed());
            let (remote_ns, grain_ns) =
                reading(&line).ok_or_else(|| broken(format!("`date` said {:?}", line.trim())))?;
            samples.push(Sample {
                sent_ns: sent,
                remote_ns,
                received_ns: sent.saturating_add(passed),
                grain_ns,
            });
        }
        let _ = stream.stdin.shutdown().await;
        skew(&samples).ok_or_else(|| broken("its clock is too far away to tell".into()))
    };
    tokio::time::timeout(TIME, work)
        .await
        .map_err(|_| SshError::TooLong {
            what: what.to_owned(),
            time: TIME,
        })?
}

/// A time in nanoseconds.
pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Our clock, nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|time| u64::try_from(time.as_nanos()).ok())
        .unwrap_or_default()
}
