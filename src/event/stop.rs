//! A wish that a run come to its end once what is being done now is done. Must not know who wishes.

use std::sync::Arc;

use tokio::sync::watch;

/// The wish, shared by whoever may utter it and whoever must heed it. It is never taken back.
#[derive(Clone, Debug)]
pub struct Stop {
    asked: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            asked: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl Stop {
    /// Wishes it; whether this was the first time.
    pub fn ask(&self) -> bool {
        !self.asked.send_replace(true)
    }

    /// Whether it was wished.
    pub fn asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// Waits until it is wished.
    pub async fn wait(&self) {
        // The sender lives as long as this does.
        let _ = self.asked.subscribe().wait_for(|asked| *asked).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wish_uttered_before_or_during_the_wait_is_heeded_and_counts_once() {
        let stop = Stop::default();
        assert!(!stop.asked());
        let other = stop.clone();
        let waiting = tokio::spawn(async move { other.wait().await });
        assert!(stop.ask());
        waiting.await.unwrap();
        assert!(stop.asked() && !stop.ask());
        stop.wait().await;
    }
}
