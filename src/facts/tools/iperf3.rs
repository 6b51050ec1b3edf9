//! What iperf3 measured, from its text or its JSON. The receiver's figure counts: a sender counts
//! what it gave to its own system. Where nothing was received, or nothing is said of it, the speed
//! is unknown and never zero.

use serde_json::Value;

/// The shortest run whose figure means something, seconds.
const LEAST_SECONDS: f64 = 1.0;

/// One direction's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Bits a second.
    pub bits_per_second: f64,
    /// Over how many seconds.
    pub seconds: f64,
}

/// What a run measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// What the receiver got.
    pub received: Option<Sum>,
    /// What the sender gave; only a hint.
    pub sent: Option<Sum>,
    /// Segments sent again.
    pub retransmits: Option<u64>,
    /// Streams side by side, where they can be counted.
    pub streams: Option<usize>,
    /// Why it failed, in iperf3's own words.
    pub failure: Option<String>,
    /// What it warned of.
    pub warnings: Vec<String>,
}

impl Run {
    /// What the link carried, bits a second; `None` of a run that failed, was too short, or does
    /// not say what was received.
    pub fn bits_per_second(&self) -> Option<f64> {
        let received = self.received.filter(|_| self.failure.is_none())?;
        (received.seconds >= LEAST_SECONDS && received.bits_per_second > 0.0)
            .then_some(received.bits_per_second)
    }
}

/// Reads what iperf3 printed, both streams together or stdout alone.
pub fn parse(text: &str) -> Run {
    let mut run = Run::default();
    for line in text.lines().map(str::trim) {
        let lower = line.to_lowercase();
        let fatal = ["segmentation fault", "core dumped", "aborted", "killed"];
        if lower.starts_with("warning:") {
            run.warnings.push(behind(line).to_owned());
        } else if let Some(reason) = line.strip_prefix("iperf3: error - ") {
            run.failure = Some(reason.to_owned());
        } else if fatal.iter().any(|word| lower.starts_with(word))
            || lower.starts_with("iperf3: interrupt")
        {
            run.failure.get_or_insert_with(|| line.to_owned());
        }
    }
    match objects(text) {
        objects if objects.is_empty() => lines(text, &mut run),
        objects => {
            for object in &objects {
                take(object, &mut run);
            }
        }
    }
    run
}

fn behind(line: &str) -> &str {
    line.split_once(':').map_or(line, |(_, rest)| rest.trim())
}

/// The JSON objects that begin a line: one, or with `--json-stream` one on each line.
fn objects(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if rest.starts_with('{') {
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            if let Some(Ok(value)) = stream.next() {
                let end = stream.byte_offset();
                found.push(value);
                rest = rest.get(end..).unwrap_or_default().trim_start();
                continue;
            }
        }
        rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
    }
    found
}

fn take(object: &Value, run: &mut Run) {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // One event of several.
    let (event, data) = (object.get("event"), object.get("data"));
    let (end, error) = match (event.and_then(Value::as_str), data) {
        (Some("end"), Some(data)) => (Some(data), None),
        (Some("error"), Some(data)) => (None, Some(data)),
        (Some(_), _) => return,
        _ => (object.get("end"), object.get("error")),
    };
    if let Some(error) = error.and_then(text) {
        run.failure = Some(error);
    }
    let Some(end) = end else { return };
    let sum = |name: &str| {
        let sum = end.get(name)?;
        Some(Sum {
            bits_per_second: figure(sum, "bits_per_second")?,
            seconds: figure(sum, "seconds")?,
        })
    };
    run.received = run.received.or_else(|| sum("sum_received"));
    run.sent = run.sent.or_else(|| sum("sum_sent"));
    run.retransmits = run.retransmits.or_else(|| {
        end.get("sum_sent")
            .and_then(|sum| sum.get("retransmits")?.as_u64())
    });
    run.streams = run.streams.or_else(|| {
        let streams = end.get("streams")?.as_array()?;
        Some(streams.len()).filter(|count| *count > 0)
    });
}

fn figure(value: &Value, name: &str) -> Option<f64> {
    value
        .get(name)?
        .as_f64()
        .filter(|number| number.is_finite() && *number >= 0.0)
}

/// A line of the text that sums up.
struct Line {
    id: String,
    sum: Sum,
    retransmits: Option<u64>,
    receiver: bool,
}

fn lines(text: &str, run: &mut Run) {
    let results: Vec<Line> = text.lines().filter_map(result).collect();
    let of = |receiver: bool| -> Vec<&Line> {
        results
            .iter()
            .filter(|result| result.receiver == receiver)
            .collect()
    };
    let (received, sent) = (of(true), of(false));
    run.received = total(&received);
    // A server that only received prints a sender of zero.
    run.sent = total(&sent).filter(|sum| sum.bits_per_second > 0.0);
    run.retransmits = of_sum(&sent).and_then(|result| result.retransmits);
    let each = |list: &[&Line]| list.iter().filter(|result| result.id != "SUM").count();
    run.streams = Some(each(&received).max(each(&sent))).filter(|count| *count > 0);
}

/// The line of the sum, or the only one.
fn of_sum<'a>(results: &[&'a Line]) -> Option<&'a Line> {
    match results {
        [only] => Some(only),
        all => all.iter().find(|result| result.id == "SUM").copied(),
    }
}

fn total(results: &[&Line]) -> Option<Sum> {
    of_sum(results).map(|result| result.sum)
}

/// `[SUM]   0.00-30.00  sec   123 GBytes  35.2 Gbits/sec    0             sender`.
fn result(line: &str) -> Option<Line> {
    let (id, rest) = line.trim().strip_prefix('[')?.split_once(']')?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let receiver = match *words.last()? {
        "receiver" => true,
        "sender" => false,
        _ => return None,
    };
    // With both directions at once the second is marked: it is another link's worth.
    let mut words = words.as_slice();
    if let [tag, rest @ ..] = words
        && let Some(tag) = tag.strip_prefix('[')
    {
        if tag.starts_with("RX") {
            return None;
        }
        words = rest;
    }
    let at = words
        .iter()
        .position(|word| word.ends_with("bits/sec") || word.ends_with("Bytes/sec"))?;
    let (from, to) = words.first()?.split_once('-')?;
    let seconds = to.parse::<f64>().ok()? - from.parse::<f64>().ok()?;
    let bits_per_second =
        words.get(at.checked_sub(1)?)?.parse::<f64>().ok()? * unit(words.get(at)?)?;
    let valid = |number: f64| number.is_finite() && number >= 0.0;
    (valid(seconds) && valid(bits_per_second)).then(|| Line {
        id: id.trim().to_owned(),
        sum: Sum {
            bits_per_second,
            seconds,
        },
        retransmits: words.get(at + 1).and_then(|word| word.parse().ok()),
        receiver,
    })
}

/// Bits in `Gbits/sec`; bytes count in powers of 1024 (iperf3's units.c).
fn unit(word: &str) -> Option<f64> {
    Some(match word {
        "bits/sec" => 1.0,
        "Kbits/sec" => 1e3,
        "Mbits/sec" => 1e6,
        "Gbits/sec" => 1e9,
        "Tbits/sec" => 1e12,
        "Bytes/sec" => 8.0,
        "KBytes/sec" => 8.0 * 1024.0,
        "MBytes/sec" => 8.0 * 1024.0 * 1024.0,
        "GBytes/sec" => 8.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}
