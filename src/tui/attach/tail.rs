//! A log that is followed again: which of its lines are new, and which are those of an earlier
//! deployment. Pure.

use std::collections::VecDeque;

use jiff::{Timestamp, ToSpan};

/// Lines of each log that are shown at once.
pub const LINES: u32 = 200;
/// How far a host's clock may be from the one by which a deployment's beginning is known, in seconds.
const CLOCKS: i64 = 1;

/// The log of one host's worker, as far as it was shown.
#[derive(Debug, Default)]
pub struct Tail {
    deployment: String,
    /// When that deployment began.
    since: Option<Timestamp>,
    /// The last lines that were shown.
    known: VecDeque<String>,
    /// Where in these the lines that come may be, of those that are shown again; the first is the
    /// longest such run.
    again: Vec<usize>,
    /// Whether a line has come since the log is followed.
    begun: bool,
    /// Whether the line before was of the deployment: a long line comes in pieces.
    is_own: bool,
}

impl Tail {
    /// The log of this deployment, which began then (RFC 3339), is followed from its last [`LINES`] on.
    pub fn begin(&mut self, deployment: &str, at: &str) {
        if self.deployment != deployment {
            *self = Self {
                deployment: deployment.to_owned(),
                since: at
                    .parse::<Timestamp>()
                    .ok()
                    .and_then(|at| at.checked_sub(CLOCKS.seconds()).ok()),
                ..Self::default()
            };
        }
        self.again.clear();
        self.begun = false;
        self.is_own = true;
    }

    /// Whether a line is to be shown: it is of the deployment and was not shown before.
    pub fn is_new(&mut self, line: &str) -> bool {
        if let (Some(since), Some(time)) = (self.since, time(line)) {
            self.is_own = time >= since;
        }
        if !self.is_own {
            return false;
        }
        if self.was_shown(line) {
            return false;
        }
        if self.known.len() >= LINES as usize {
            self.known.pop_front();
        }
        self.known.push_back(line.to_owned());
        true
    }

    /// Whether the line goes on with those that are shown again.
    fn was_shown(&mut self, line: &str) -> bool {
        if self.begun {
            self.again.retain_mut(|at| {
                *at += 1;
                self.known.get(*at).is_some_and(|known| known == line)
            });
        } else {
            self.begun = true;
            let known = self.known.iter().enumerate();
            self.again = known
                .filter_map(|(at, known)| (known == line).then_some(at))
                .collect();
        }
        !self.again.is_empty()
    }
}

/// The time a line begins with, as the journal and windlass's own keeper write it.
fn time(line: &str) -> Option<Timestamp> {
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new<'a>(tail: &mut Tail, lines: &[&'a str]) -> Vec<&'a str> {
        let mut all = lines.to_vec();
        all.retain(|line| tail.is_new(line));
        all
    }

    #[test]
    fn lines_that_were_shown_are_not_shown_again_when_the_log_is_followed_again() {
        let mut tail = Tail::default();
        tail.begin("halo-1", "");
        assert_eq!(new(&mut tail, &["a", "b", "c"]), ["a", "b", "c"]);
        tail.begin("halo-1", "");
        assert_eq!(new(&mut tail, &["a", "b", "c", "d"]), ["d"]);
        // The window of last lines has moved on.
        tail.begin("halo-1", "");
        assert_eq!(new(&mut tail, &["c", "d", "e", "a"]), ["e", "a"]);
        // Nothing of it is known any more.
        tail.begin("halo-1", "");
        assert_eq!(new(&mut tail, &["x", "y"]), ["x", "y"]);
    }

    #[test]
    fn equal_lines_are_told_apart_by_those_around_them() {
        let mut tail = Tail::default();
        tail.begin("halo-1", "");
        let starts = ["start", "ready", "start", "ready"];
        assert_eq!(new(&mut tail, &starts), starts);
        tail.begin("halo-1", "");
        let more = ["start", "ready", "start", "ready", "start"];
        assert_eq!(new(&mut tail, &more), ["start"]);
        tail.begin("halo-1", "");
        assert_eq!(new(&mut tail, &["ready", "start", "stop"]), ["stop"]);
    }

    #[test]
    fn lines_of_an_earlier_deployment_are_left_out_by_their_time() {
        let mut tail = Tail::default();
        tail.begin("halo-2", "2026-01-02T03:04:05Z");
        let lines = [
            "2026-01-02T03:04:00+0000 h1 systemd[1]: Stopped windlass-halo.service",
            "a further piece of that line",
            "2026-01-02T04:04:04+01:00 h1 windlass-worker[7]: within the slack of clocks",
            "a further piece of this one",
            "2026-01-02T03:04:06.123Z {\"event\":\"ready\"}",
        ];
        assert_eq!(new(&mut tail, &lines), lines[2..]);
    }

    #[test]
    fn another_deployment_s_log_is_new_however_like_it_is() {
        let mut tail = Tail::default();
        tail.begin("halo-1", "");
        new(&mut tail, &["ready"]);
        tail.begin("halo-2", "");
        assert_eq!(new(&mut tail, &["ready"]), ["ready"]);
    }
}
