//! Which losses of stages are news. A head's stream begins with what happened lately, whenever that
//! was; what is true now stands in its state. Pure.

use std::collections::BTreeMap;

use windlass_wire::telemetry::{HeadEvent, StageTelemetry};

/// Losses of one stream.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Whether the stream has come to what happens now.
    is_now: bool,
    /// The last loss of each stage that may be long past.
    held: BTreeMap<u32, HeadEvent>,
}

impl Losses {
    /// A loss of this stage was told; it is given back when it is news.
    pub fn lost(&mut self, stage: u32, event: HeadEvent) -> Option<HeadEvent> {
        if self.is_now {
            return Some(event);
        }
        self.held.insert(stage, event);
        None
    }

    /// The stream told a state, or was silent since this one: what it tells from here on is news.
    /// Gives the losses that the state bears out.
    pub fn settle(&mut self, stages: &[StageTelemetry]) -> Vec<HeadEvent> {
        self.is_now = true;
        let is_lost = |stage: u32| stages.iter().any(|own| own.stage == stage && !own.alive);
        std::mem::take(&mut self.held)
            .into_iter()
            .filter_map(|(stage, event)| is_lost(stage).then_some(event))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(reason: &str) -> HeadEvent {
        HeadEvent::StageLost {
            stage: 1,
            host: "halo2".into(),
            reason: reason.into(),
            ended_after_us: 1,
            requests: 0,
        }
    }

    fn state(alive: bool) -> [StageTelemetry; 1] {
        [StageTelemetry {
            stage: 1,
            alive,
            ..StageTelemetry::default()
        }]
    }

    #[test]
    fn a_loss_from_before_is_no_news_of_a_stage_that_serves_again() {
        let mut losses = Losses::default();
        assert_eq!(losses.lost(1, lost("yesterday")), None);
        assert_eq!(losses.settle(&state(true)), []);
        assert_eq!(losses.lost(1, lost("now")), Some(lost("now")));
    }

    #[test]
    fn of_a_stage_that_is_lost_the_last_loss_is_told() {
        let mut losses = Losses::default();
        assert_eq!(losses.lost(1, lost("yesterday")), None);
        assert_eq!(losses.lost(1, lost("just now")), None);
        assert_eq!(losses.settle(&state(false)), [lost("just now")]);
        assert_eq!(losses.settle(&state(false)), []);
    }
}
