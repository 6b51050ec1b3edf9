//! The log of a worker as it grows. Must not know where its lines are shown.

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};

use super::site::Site;
use super::unit;
use crate::ssh::SshError;

/// Longest line that is given as one, in bytes.
const MOST_LINE: u64 = 16 << 10;

/// Gives the last lines of a worker's log and every later one, each with its end; a line that is very
/// long comes in pieces. Control characters are still in them. When the log can be followed no
/// longer, the last thing its program said on stderr, which may be nothing.
///
/// # Errors
/// When no channel can be opened.
pub async fn follow(
    site: &Site,
    cluster: &str,
    lines: u32,
    mut each: impl FnMut(String),
) -> Result<String, SshError> {
    // What writes the lines ends with the connection, also when it has nothing to write.
    let script = format!(
        "(\n{}) &\nwriter=$!\ncat >/dev/null\nkill \"$writer\" 2>/dev/null\n",
        unit::logs(site.base(), cluster, lines, true)
    );
    let stream = site
        .session()
        .open("follow the worker's log", &script, site.base().root)
        .await?;
    // Its end is the end of what writes there.
    let _input = stream.stdin;
    let mut reader = BufReader::new(stream.stdout);
    while let Some(piece) = next_piece(&mut reader).await {
        each(piece);
    }
    let said = match stream.ended.await {
        Ok((_, words)) => String::from_utf8_lossy(&words).into_owned(),
        Err(_) => String::new(),
    };
    Ok(said.trim().lines().last().unwrap_or_default().to_owned())
}

/// The next line with its end, or as much of a long one as is shown at once; `None` at the end.
async fn next_piece(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let mut limited = reader.take(MOST_LINE);
    match limited.read_until(b'\n', &mut line).await {
        Ok(count) if count > 0 => Some(String::from_utf8_lossy(&line).into_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_without_end_is_told_in_pieces_of_bounded_length() {
        let long = "a".repeat(40_000);
        let text = format!("one\n{long}\nlast");
        let mut reader = BufReader::new(text.as_bytes());
        let mut all = Vec::new();
        while let Some(piece) = next_piece(&mut reader).await {
            assert!(piece.len() <= 16 << 10);
            all.push(piece);
        }
        assert_eq!(all.concat(), text);
        assert_eq!(all.first().unwrap(), "one\n");
        assert_eq!(all.last().unwrap(), "last");
    }
}
