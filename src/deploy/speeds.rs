//! From the states a head tells to rates: two readings give one, requests that ended lately give
//! their quantiles. Pure; its clock is the head's.

use std::collections::VecDeque;

use windlass_wire::telemetry::HeadStatus;

use crate::deploy::rates::rates;
use crate::event::{Quantiles, Telemetry};

/// Seconds for which a request counts.
const LATELY: f64 = 300.0;
/// Most requests that count.
const MOST: usize = 2_000;

/// Collects what a head tells.
#[derive(Debug)]
pub struct Speeds {
    every: f64,
    /// Where the next rates begin.
    base: Option<HeadStatus>,
    /// What the head said last, with its own time.
    last: Option<HeadStatus>,
    /// The head's clock, seconds, as far as it is known.
    now: f64,
    requests: VecDeque<Ended>,
}

/// A request that ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    at: f64,
    first_ms: f64,
    between_ms: Option<f64>,
}

impl Speeds {
    /// For rates this many seconds apart.
    pub fn new(every: f64) -> Self {
        Self {
            every,
            base: None,
            last: None,
            now: 0.0,
            requests: VecDeque::new(),
        }
    }

    /// A reading; gives rates when the last ones are old enough.
    pub fn status(&mut self, status: &HeadStatus) -> Option<Telemetry> {
        // A head that began anew counts from zero again.
        let is_anew = self.last.as_ref().is_some_and(|last| {
            status.uptime_s < last.uptime_s || status.deployment != last.deployment
        });
        if is_anew {
            self.base = None;
        }
        self.now = status.uptime_s;
        self.last = Some(status.clone());
        let Some(base) = &self.base else {
            self.base = Some(status.clone());
            return None;
        };
        if status.uptime_s - base.uptime_s < self.every {
            return None;
        }
        let rates = rates(base, status);
        self.base = Some(status.clone());
        rates.map(|rates| self.with_quantiles(rates))
    }

    /// The head has had nothing new to say for so many seconds: nothing was computed in them. What it
    /// said before and was too early for rates of its own is among these.
    pub fn nothing_new(&mut self, over: f64) -> Option<Telemetry> {
        let base = self.base.as_ref()?;
        let mut later = self.last.clone()?;
        // Its clock goes on while it is silent.
        later.uptime_s = later.uptime_s.max(base.uptime_s) + over;
        let rates = rates(base, &later)?;
        self.now = later.uptime_s;
        self.base = Some(later);
        Some(self.with_quantiles(rates))
    }

    /// A request ended.
    pub fn request(&mut self, outcome: &str, tokens: u32, ttft_ms: f64, decode_ms: f64) {
        if !matches!(outcome, "stop" | "length") || !ttft_ms.is_finite() || tokens == 0 {
            return;
        }
        let between = decode_ms / f64::from(tokens.saturating_sub(1).max(1));
        self.requests.push_back(Ended {
            at: self.now,
            first_ms: ttft_ms,
            between_ms: (tokens > 1 && between.is_finite()).then_some(between),
        });
        while self.requests.len() > MOST {
            self.requests.pop_front();
        }
    }

    fn with_quantiles(&mut self, mut rates: Telemetry) -> Telemetry {
        let now = self.now;
        self.requests
            .retain(|request| now - request.at <= LATELY && request.at <= now);
        rates.first_token_ms = quantiles(self.requests.iter().map(|r| r.first_ms).collect());
        rates.between_tokens_ms =
            quantiles(self.requests.iter().filter_map(|r| r.between_ms).collect());
        rates
    }
}

/// The nearest-rank quantiles of some measurements; `None` of none.
fn quantiles(mut all: Vec<f64>) -> Option<Quantiles> {
    all.sort_by(f64::total_cmp);
    let rank = |part: f64| {
        let rank = (part * all.len() as f64).ceil() as usize;
        all.get(rank.saturating_sub(1)).copied()
    };
    Some(Quantiles {
        p50: rank(0.5)?,
        p95: rank(0.95)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(uptime_s: f64, generated_tokens: u64) -> HeadStatus {
        HeadStatus {
            uptime_s,
            generated_tokens,
            ..HeadStatus::default()
        }
    }

    #[test]
    fn rates_come_no_more_often_than_asked_and_count_all_tokens_between() {
        let mut speeds = Speeds::new(0.5);
        assert!(speeds.status(&status(10.0, 100)).is_none());
        assert!(speeds.status(&status(10.25, 105)).is_none());
        let rates = speeds.status(&status(10.5, 120)).unwrap();
        assert_eq!(rates.tokens_per_second, 40.0);
        let quiet = speeds.nothing_new(1.5).unwrap();
        assert_eq!(quiet.tokens_per_second, 0.0);
    }

    #[test]
    fn a_last_word_that_came_too_early_for_rates_is_told_once_the_head_is_silent() {
        let mut speeds = Speeds::new(0.5);
        let running = |status: HeadStatus, running| HeadStatus { running, ..status };
        speeds.status(&running(status(10.0, 100), 1));
        let busy = speeds.status(&running(status(10.5, 120), 1)).unwrap();
        assert_eq!(busy.running, 1);
        assert!(speeds.status(&running(status(10.75, 130), 0)).is_none());
        let end = speeds.nothing_new(1.75).unwrap();
        assert_eq!((end.running, end.tokens_per_second), (0, 5.0));
        let quiet = speeds.nothing_new(1.5).unwrap();
        assert_eq!((quiet.running, quiet.tokens_per_second), (0, 0.0));
        // What is computed after a silence is not spread over the silence.
        let again = speeds.status(&running(status(15.0, 150), 1)).unwrap();
        assert_eq!(again.tokens_per_second, 20.0);
        // The head's clock may be behind what was thought of it; it did not begin anew for that.
        speeds.nothing_new(1.5);
        assert!(speeds.status(&status(16.25, 151)).is_none());
        let later = speeds.status(&status(17.0, 155)).unwrap();
        assert_eq!(later.tokens_per_second, 10.0);
    }

    #[test]
    fn a_head_that_began_anew_gives_no_negative_rates() {
        let mut speeds = Speeds::new(0.5);
        speeds.status(&status(100.0, 5_000));
        assert!(speeds.status(&status(1.0, 3)).is_none());
        let rates = speeds.status(&status(2.0, 13)).unwrap();
        assert_eq!(rates.tokens_per_second, 10.0);
    }

    #[test]
    fn quantiles_are_those_of_requests_that_ended_well_and_lately() {
        let mut speeds = Speeds::new(0.5);
        speeds.status(&status(1.0, 0));
        for n in 1..=100_u32 {
            speeds.request("stop", 11, f64::from(n), f64::from(n) * 10.0);
        }
        speeds.request("error", 11, 1e9, 1e9);
        speeds.request("stop", 0, 1e9, 1e9);
        let rates = speeds.status(&status(2.0, 10)).unwrap();
        let first = rates.first_token_ms.unwrap();
        assert_eq!((first.p50, first.p95), (50.0, 95.0));
        let between = rates.between_tokens_ms.unwrap();
        assert_eq!((between.p50, between.p95), (50.0, 95.0));
        let later = speeds.status(&status(400.0, 10)).unwrap();
        assert!(later.first_token_ms.is_none());
    }
}
