//! Splits a stream of bytes into lines, with a cap. Must not know what lines mean.

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest line kept; what is beyond it is dropped.
pub const LONGEST: usize = 1 << 20;

/// Collects bytes and gives lines.
#[derive(Debug, Default)]
pub struct Lines {
    waiting: Vec<u8>,
    /// The current line is over the cap; its rest is dropped.
    cut: bool,
}

impl Lines {
    /// Adds bytes; returns the lines that are complete now, without their ends. A line over the
    /// cap is cut there.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut lines = Vec::new();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|b| *b == b'\n') {
            let (line, after) = rest.split_at(at);
            self.add(line);
            lines.push(self.end());
            rest = after.get(1..).unwrap_or(&[]);
        }
        self.add(rest);
        lines
    }

    /// The last line when the stream ended without its end.
    pub fn finish(&mut self) -> Option<Vec<u8>> {
        (!self.waiting.is_empty()).then(|| self.end())
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.cut {
            return;
        }
        let room = LONGEST.saturating_sub(self.waiting.len());
        self.waiting
            .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.cut = bytes.len() > room;
    }

    fn end(&mut self) -> Vec<u8> {
        self.cut = false;
        let mut line = std::mem::take(&mut self.waiting);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        line
    }
}

/// Calls `each` with every line of a stream until it ends or fails.
pub async fn each_line(mut stream: impl AsyncRead + Unpin, mut each: impl FnMut(&[u8])) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; 16 << 10];
    // A stream that cannot be read has ended as far as anyone here can tell.
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        for line in lines.push(buffer.get(..count).unwrap_or(&[])) {
            each(&line);
        }
    }
    if let Some(line) = lines.finish() {
        each(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_the_bytes_are_cut() {
        let text = b"one\r\ntwo\n\nthree";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut seen = Vec::new();
            for chunk in text.chunks(size) {
                seen.extend(lines.push(chunk));
            }
            assert_eq!(seen, [b"one".to_vec(), b"two".to_vec(), b"".to_vec()]);
            assert_eq!(lines.finish(), Some(b"three".to_vec()));
            assert_eq!(lines.finish(), None);
        }
    }

    #[test]
    fn an_endless_line_takes_no_more_than_the_cap() {
        let mut lines = Lines::default();
        for _ in 0..20 {
            assert!(lines.push(&vec![b'x'; 100_000]).is_empty());
            assert!(lines.waiting.len() <= LONGEST);
        }
        let seen = lines.push(b"\nnext\n");
        assert_eq!(seen[0].len(), LONGEST);
        assert_eq!(seen[1], b"next");
    }
}
