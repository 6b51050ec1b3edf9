//! The figures of a measurement as text for people and as fields for scripts. Pure.

use serde_json::{Value, json};

use super::timing::{DEFINITIONS, Measured, Spread};

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Name of the model.
    pub model: String,
    /// The deployment.
    pub deployment: String,
    /// Host of the head.
    pub head: String,
    /// Hosts, in the order of the stages.
    pub hosts: Vec<String>,
    /// Tokens of each answer.
    pub tokens: u32,
    /// Tokens of the prompt, when the head said so.
    pub prompt_tokens: Option<u64>,
    /// By how many were at once.
    pub levels: Vec<Measured>,
}

impl Report {
    /// The best throughput, in one line.
    pub fn headline(&self) -> String {
        let best = self
            .levels
            .iter()
            .max_by(|a, b| a.tokens_per_second().total_cmp(&b.tokens_per_second()));
        match best {
            Some(best) => format!(
                "{:.1} tok/s at {} at once",
                best.tokens_per_second(),
                best.at_once
            ),
            None => "nothing was measured".to_owned(),
        }
    }

    /// A table with its definitions.
    pub fn text(&self) -> String {
        let prompt = self.prompt_tokens.map_or_else(
            || "a prompt".to_owned(),
            |tokens| format!("{tokens} tokens of prompt"),
        );
        let mut text = format!(
            "{} on {}: {prompt}, {} tokens of answer, times in ms\n",
            self.model,
            self.hosts.join(", "),
            self.tokens
        );
        text.push_str(&format!(
            "{:>7} {:>8} {:>8}  {:^25}  {:^25}  {:^25}\n",
            "AT ONCE", "REQUESTS", "TOK/S", "TTFT", "ITL", "TPOT"
        ));
        let names = format!("{:>7} {:>8} {:>8}", "p50", "p95", "p99");
        text.push_str(&format!("{:25}  {names}  {names}  {names}\n", ""));
        for level in &self.levels {
            let row = format!(
                "{:>7} {:>8} {:>8.1}  {}  {}  {}",
                level.at_once,
                level.requests,
                level.tokens_per_second(),
                cells(level.first),
                cells(level.between),
                cells(level.per_token)
            );
            text.push_str(row.trim_end());
            text.push('\n');
        }
        for (name, meaning) in DEFINITIONS {
            text.push_str(&format!("{name}: {meaning}\n"));
        }
        text
    }

    /// For scripts.
    pub fn value(&self) -> Value {
        let definitions: serde_json::Map<String, Value> = DEFINITIONS
            .iter()
            .map(|(name, meaning)| ((*name).to_owned(), (*meaning).into()))
            .collect();
        json!({
            "model": self.model,
            "deployment": self.deployment,
            "hosts": self.hosts,
            "tokens": self.tokens,
            "prompt_tokens": self.prompt_tokens,
            "levels": self.levels.iter().map(Measured::value).collect::<Vec<_>>(),
            "definitions": definitions,
        })
    }
}

fn cells(spread: Option<Spread>) -> String {
    match spread {
        Some(spread) => format!(
            "{:>7.1} {:>8.1} {:>8.1}",
            spread.p50, spread.p95, spread.p99
        ),
        None => format!("{:>7} {:>8} {:>8}", "–", "–", "–"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::timing::Timing;

    #[test]
    fn the_table_has_a_row_per_level_and_prints_what_its_words_mean() {
        let timing = Timing {
            chunks: vec![0.1, 0.2],
            end: 0.2,
            tokens: 2,
            prompt_tokens: Some(9),
        };
        let report = Report {
            model: "m".into(),
            hosts: vec!["a".into(), "b".into()],
            tokens: 2,
            prompt_tokens: Some(9),
            levels: vec![
                Measured::of(1, std::slice::from_ref(&timing), 0.5),
                Measured::of(2, &[timing.clone(), timing], 0.5),
            ],
            ..Report::default()
        };
        let text = report.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "m on a, b: 9 tokens of prompt, 2 tokens of answer, times in ms"
        );
        assert!(
            lines[3].starts_with("      1        1      4.0    100.0    100.0    100.0    100.0"),
            "{text}"
        );
        assert!(lines[4].contains(" 8.0 "), "{text}");
        for word in ["TTFT: ", "ITL: ", "TPOT: ", "tok/s: "] {
            assert!(text.contains(word), "{word}");
        }
        assert_eq!(report.headline(), "8.0 tok/s at 2 at once");
        assert_eq!(report.value()["levels"][1]["tokens_per_second"], 8.0);
        assert_eq!(report.value()["levels"][0]["ttft_ms"]["p50"], 100.0);
    }
}
