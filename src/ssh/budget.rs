//! Time that a host may use up, however many waits it is spread over. Must not know what is waited
//! for.

use std::time::{Duration, Instant};

/// What is left of a limit. Only waits for the host count, not those for a person.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    limit: Duration,
    left: Duration,
}

impl Budget {
    /// All of it.
    pub fn new(limit: Duration) -> Self {
        Self { limit, left: limit }
    }

    /// Waits while some is left; `None` when it is used up.
    pub async fn spend<F: Future>(&mut self, wait: F) -> Option<F::Output> {
        let begin = Instant::now();
        let result = tokio::time::timeout(self.left, wait).await.ok();
        self.left = self.left.saturating_sub(begin.elapsed());
        result
    }

    /// What is left.
    pub fn left(&self) -> Duration {
        self.left
    }

    /// The whole, for messages: `10 s`.
    pub fn figure(&self) -> String {
        format!("{} s", self.limit.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn several_waits_share_one_limit() {
        let mut budget = Budget::new(Duration::from_millis(50));
        assert_eq!(budget.spend(async { 7 }).await, Some(7));
        assert_eq!(budget.spend(std::future::pending::<()>()).await, None);
        assert_eq!(budget.left(), Duration::ZERO);
        assert_eq!(budget.spend(std::future::pending::<()>()).await, None);
        assert_eq!(budget.figure(), "0.05 s");
    }
}
