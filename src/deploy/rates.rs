//! Turns two readings of a deployment's counters into rates. Pure. What takes more than two readings,
//! as times of requests, is added by [`super::speeds`].

use windlass_wire::telemetry::HeadStatus;

use crate::event::{StageRate, Telemetry};

/// Rates between two readings; `None` when no time lies between them. A counter that went back
/// (a stage began anew) gives 0.
pub fn rates(before: &HeadStatus, now: &HeadStatus) -> Option<Telemetry> {
    let over = now.uptime_s - before.uptime_s;
    if over <= 0.0 {
        return None;
    }
    let per_second = |before: u64, now: u64| now.saturating_sub(before) as f64 / over;
    let stages = now
        .stages
        .iter()
        .map(|stage| {
            let none = windlass_wire::telemetry::StageTelemetry::default();
            let old = before
                .stages
                .iter()
                .find(|old| old.stage == stage.stage)
                .unwrap_or(&none);
            StageRate {
                stage: stage.stage,
                host: stage.host.clone(),
                busy: (per_second(old.compute_ns, stage.compute_ns) / 1e9).min(1.0),
                rows_per_second: per_second(old.rows, stage.rows),
                sent_per_second: per_second(old.bytes_sent, stage.bytes_sent),
                kv_used: stage.kv_used,
                kv_total: stage.kv_total,
                anonymous_bytes: stage.anonymous_bytes,
            }
        })
        .collect();
    Some(Telemetry {
        tokens_per_second: per_second(before.generated_tokens, now.generated_tokens),
        prompt_tokens_per_second: per_second(before.prompt_tokens, now.prompt_tokens),
        first_token_ms: None,
        between_tokens_ms: None,
        over,
        running: now.running,
        waiting: now.waiting,
        stages,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_wire::telemetry::StageTelemetry;

    fn status(uptime_s: f64, tokens: u64, compute_ns: u64, rows: u64) -> HeadStatus {
        HeadStatus {
            uptime_s,
            generated_tokens: tokens,
            stages: vec![StageTelemetry {
                stage: 1,
                host: "local-2".into(),
                compute_ns,
                rows,
                ..StageTelemetry::default()
            }],
            ..HeadStatus::default()
        }
    }

    #[test]
    fn rates_are_differences_over_the_heads_own_time() {
        let rates = rates(&status(1.0, 10, 0, 20), &status(3.0, 30, 1_000_000_000, 60)).unwrap();
        assert_eq!(rates.tokens_per_second, 10.0);
        assert_eq!(rates.stages[0].busy, 0.5);
        assert_eq!(rates.stages[0].rows_per_second, 20.0);
        assert_eq!(rates.stages[0].host, "local-2");
    }

    #[test]
    fn no_time_gives_no_rates_and_a_restart_gives_zero() {
        assert!(rates(&status(1.0, 0, 0, 0), &status(1.0, 5, 0, 0)).is_none());
        let rates = rates(&status(1.0, 9, 9, 9), &status(2.0, 1, 1, 1)).unwrap();
        assert_eq!(rates.tokens_per_second, 0.0);
        assert_eq!(rates.stages[0].rows_per_second, 0.0);
    }
}
