//! Stop strings in text that comes in pieces: what may go out, and when the answer ends.

/// Watches one answer.
#[derive(Clone, Debug)]
pub struct Stops {
    stops: Vec<String>,
    held: String,
    hit: bool,
}

impl Stops {
    /// Ends the answer before the first of these; empty ones count for nothing.
    pub fn new(mut stops: Vec<String>) -> Self {
        stops.retain(|stop| !stop.is_empty());
        Self {
            stops,
            held: String::new(),
            hit: false,
        }
    }

    /// Whether a stop string was found; then no more text goes out.
    pub fn hit(&self) -> bool {
        self.hit
    }

    /// Takes more text; gives what can be no part of a stop string.
    pub fn push(&mut self, text: &str) -> String {
        if self.hit {
            return String::new();
        }
        self.held.push_str(text);
        let found = self.stops.iter().filter_map(|s| self.held.find(s)).min();
        if let Some(at) = found {
            self.hit = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let keep = self
            .held
            .char_indices()
            .map(|(at, _)| at)
            .find(|&at| {
                self.held
                    .get(at..)
                    .is_some_and(|tail| self.stops.iter().any(|stop| stop.starts_with(tail)))
            })
            .unwrap_or(self.held.len());
        let rest = self.held.split_off(keep);
        std::mem::replace(&mut self.held, rest)
    }

    /// The answer ended by itself: gives what was held.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool, String) {
        let mut matcher = Stops::new(stops.iter().map(|s| (*s).to_owned()).collect());
        let out = pieces.iter().map(|p| matcher.push(p)).collect();
        (out, matcher.hit(), matcher.finish())
    }

    #[test]
    fn a_stop_string_over_several_pieces_never_shows() {
        let (out, hit, rest) = run(&["END"], &["a E", "N", "D b"]);
        assert_eq!(out, ["a ", "", ""]);
        assert!(hit);
        assert_eq!(rest, "");
    }

    #[test]
    fn text_that_only_began_like_a_stop_string_is_given_back() {
        let (out, hit, rest) = run(&["aab"], &["aa", "a", "c", "a"]);
        assert_eq!(out, ["", "a", "aac", ""]);
        assert!(!hit);
        assert_eq!(rest, "a");
    }

    #[test]
    fn the_earliest_of_several_stop_strings_ends_the_text() {
        let (out, hit, _) = run(&["yy", "x"], &["1y", "xyy"]);
        assert_eq!(out, ["1", "y"]);
        assert!(hit);
    }

    #[test]
    fn multi_byte_characters_are_not_cut() {
        let (out, hit, _) = run(&["é!"], &["né", "e é", "!"]);
        assert_eq!(out, ["n", "ée ", ""]);
        assert!(hit);
    }

    #[test]
    fn without_stop_strings_everything_goes_out_at_once() {
        let (out, hit, rest) = run(&[""], &["a", "b"]);
        assert_eq!(out, ["a", "b"]);
        assert!(!hit && rest.is_empty());
    }
}
