//! Stop strings in text that comes in pieces: what may go out, and where the answer ends.
//!
//! The answer ends at the first character that completes a stop string; if it completes several,
//! the longest counts. That depends on the characters alone and not on how they were cut, so a
//! stream ends where the whole would.

/// What came of a piece of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopping {
    /// The answer goes on; this text can be no part of a stop string. May be empty.
    Emit(String),
    /// A stop string was completed; this is the text before it that was not given yet. All text
    /// from here on is ignored.
    Stopped {
        /// Text before the stop string.
        before: String,
        /// Position of the stop string among those given.
        stop: usize,
    },
}

/// Watches one answer.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Vec<String>,
    held: String,
    hit: Option<usize>,
}

impl StopMatcher {
    /// Watches for these; empty ones count for nothing.
    pub fn new(stops: Vec<String>) -> StopMatcher {
        StopMatcher {
            stops,
            held: String::new(),
            hit: None,
        }
    }

    /// Takes more text.
    pub fn push(&mut self, text: &str) -> Stopping {
        if let Some(stop) = self.hit {
            return Stopping::Stopped {
                before: String::new(),
                stop,
            };
        }
        self.held.push_str(text);
        if let Some((start, stop)) = self.first_hit() {
            self.hit = Some(stop);
            let mut before = std::mem::take(&mut self.held);
            before.truncate(start);
            return Stopping::Stopped { before, stop };
        }
        let rest = self.held.split_off(self.held.len() - self.doubtful());
        Stopping::Emit(std::mem::replace(&mut self.held, rest))
    }

    /// The answer ended by itself: the text that was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Start and number of the stop string whose end comes first, the longest of several.
    fn first_hit(&self) -> Option<(usize, usize)> {
        self.stops
            .iter()
            .enumerate()
            .filter(|(_, s)| !s.is_empty())
            .filter_map(|(n, s)| {
                let start = self.held.find(s)?;
                Some((start + s.len(), start, n))
            })
            .min()
            .map(|(_, start, n)| (start, n))
    }

    /// Bytes at the end that may begin a stop string.
    fn doubtful(&self) -> usize {
        self.stops
            .iter()
            .filter_map(|stop| {
                (1..stop.len())
                    .rev()
                    .filter(|n| stop.is_char_boundary(*n))
                    .find(|n| stop.get(..*n).is_some_and(|p| self.held.ends_with(p)))
            })
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The whole answer, cut into the given pieces.
    fn run(stops: &[String], pieces: &[&str]) -> (String, Option<usize>, usize) {
        let mut matcher = StopMatcher::new(stops.to_vec());
        let mut text = String::new();
        let mut most_held = 0;
        for piece in pieces {
            match matcher.push(piece) {
                Stopping::Emit(t) => text.push_str(&t),
                Stopping::Stopped { before, stop } => {
                    return (text + &before, Some(stop), most_held);
                }
            }
            most_held = most_held.max(matcher.held.len());
        }
        (text + &matcher.finish(), None, most_held)
    }

    /// Character by character: where a stop string is first complete.
    fn naive(stops: &[String], text: &str) -> (String, Option<usize>) {
        for (at, c) in text.char_indices() {
            let so_far = &text[..at + c.len_utf8()];
            let hit = (0..stops.len())
                .filter(|n| !stops[*n].is_empty() && so_far.ends_with(&stops[*n]))
                .max_by_key(|n| (stops[*n].len(), std::cmp::Reverse(*n)));
            if let Some(n) = hit {
                return (so_far[..so_far.len() - stops[n].len()].into(), Some(n));
            }
        }
        (text.into(), None)
    }

    #[test]
    fn a_stop_string_over_several_pieces_is_not_given_out() {
        let stops = vec!["STOP".to_string()];
        let (text, hit, _) = run(&stops, &["one S", "TO", "P two"]);
        assert_eq!((text.as_str(), hit), ("one ", Some(0)));
    }

    #[test]
    fn the_beginning_of_a_stop_string_is_given_out_when_it_turns_out_to_be_none() {
        let mut matcher = StopMatcher::new(vec!["\n\nUser".into()]);
        assert_eq!(matcher.push("a\n\nUs"), Stopping::Emit("a".into()));
        assert_eq!(
            matcher.push("ually\n"),
            Stopping::Emit("\n\nUsually".into())
        );
        assert_eq!(matcher.finish(), "\n");
    }

    #[test]
    fn the_stop_string_that_is_complete_first_counts_however_the_text_is_cut() {
        let stops = vec!["abc".to_string(), "b".to_string()];
        for pieces in [&["abc"][..], &["ab", "c"], &["a", "b", "c"]] {
            let (text, hit, _) = run(&stops, pieces);
            assert_eq!((text.as_str(), hit), ("a", Some(1)));
        }
    }

    #[test]
    fn text_after_a_stop_string_is_ignored() {
        let mut matcher = StopMatcher::new(vec!["x".into(), String::new()]);
        assert!(matches!(
            matcher.push("ax"),
            Stopping::Stopped { stop: 0, .. }
        ));
        assert!(
            matches!(matcher.push("bc"), Stopping::Stopped { ref before, .. } if before.is_empty())
        );
        assert_eq!(matcher.finish(), "");
    }

    proptest! {
        #[test]
        fn any_cut_of_any_text_ends_where_the_whole_does(
            stops in prop::collection::vec("[abé\n]{0,4}", 0..4),
            pieces in prop::collection::vec("[abé\n]{0,5}", 0..12),
        ) {
            let refs: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (text, hit, most_held) = run(&stops, &refs);
            prop_assert_eq!((text, hit), naive(&stops, &pieces.concat()));
            let longest = stops.iter().map(String::len).max().unwrap_or(0);
            prop_assert!(most_held <= longest.saturating_sub(1));
        }
    }
}
