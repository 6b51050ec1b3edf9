//! Markers around what a script says, so that banners, login noise and prompts never count as its
//! output. Pure: scripts in, scripts out; bytes in, bytes out. Must not know how they travel.

use super::quote::quote;

/// Most bytes of noise that are kept for messages.
const NOISE_KEPT: usize = 2 << 10;

/// Most bytes of noise before the first marker.
pub(super) const NOISE: usize = 1 << 20;

/// The markers of one script; nobody can guess them.
#[derive(Clone, Debug)]
pub(super) struct Markers {
    nonce: String,
}

impl Markers {
    /// New ones.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0u8; 16];
        getrandom::fill(&mut bytes)?;
        let nonce = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { nonce })
    }

    /// A marker of this name.
    pub fn named(&self, name: &str) -> String {
        format!("windlass-{}-{name}", self.nonce)
    }

    /// The script between markers on stdout and stderr, as one command: a shell has read all of it
    /// before it does any of it. The script runs in a subshell with no input, so it can neither
    /// end the shell nor read on behind itself, also when it is no valid script.
    pub fn around(&self, script: &str) -> String {
        let (begin, end) = (self.named("begin"), self.named("end"));
        format!(
            "printf '%s\\n' {begin}; printf '%s\\n' {begin} >&2; ( eval {} ) </dev/null; \
             windlass_status=$?; printf %s {end}; printf %s {end} >&2; exit $windlass_status\n",
            quoted(script)
        )
    }

    /// The script behind markers, as one command; its input is what follows.
    pub fn before(&self, script: &str) -> String {
        let begin = self.named("begin");
        format!(
            "printf '%s\\n' {begin}; printf '%s\\n' {begin} >&2; eval {}\n",
            quoted(script)
        )
    }

    /// What reads one stream of [`Markers::around`].
    pub fn both(&self) -> Fence {
        Fence::new(self.named("begin"), Some(self.named("end")))
    }

    /// What reads one stream of [`Markers::before`].
    pub fn begin(&self) -> Fence {
        Fence::new(self.named("begin"), None)
    }
}

/// One word for `eval`, which takes no word that begins with a dash for itself.
fn quoted(script: &str) -> String {
    quote(&format!("\n{script}"))
}

/// Reads one stream and keeps what is between the markers.
#[derive(Debug)]
pub struct Fence {
    begin: Vec<u8>,
    end: Option<Vec<u8>>,
    place: Place,
    /// Bytes that may be the beginning of a marker.
    held: Vec<u8>,
    noise: Vec<u8>,
    noise_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Before,
    Inside,
    After,
}

impl Fence {
    /// Between this line and, if there is one, that marker.
    pub fn new(begin: String, end: Option<String>) -> Self {
        let mut begin = begin.into_bytes();
        begin.push(b'\n');
        Self {
            begin,
            end: end.map(String::into_bytes),
            place: Place::Before,
            held: Vec::new(),
            noise: Vec::new(),
            noise_bytes: 0,
        }
    }

    /// Whether the first marker came.
    pub fn begun(&self) -> bool {
        self.place != Place::Before
    }

    /// Whether the last marker came.
    pub fn ended(&self) -> bool {
        self.place == Place::After
    }

    /// The first of what came before the marker, for messages.
    pub fn noise(&self) -> String {
        let mut noise = self.noise.clone();
        if !self.begun() {
            noise.extend_from_slice(&self.held);
        }
        String::from_utf8_lossy(&noise).trim().to_owned()
    }

    /// Whether more noise came than can be.
    pub fn too_noisy(&self) -> bool {
        self.noise_bytes > NOISE
    }

    /// Takes bytes of the stream; adds what is inside to `into`.
    pub fn push(&mut self, bytes: &[u8], into: &mut Vec<u8>) {
        self.held.extend_from_slice(bytes);
        if self.place == Place::Before {
            if let Some(at) = find(&self.held, &self.begin) {
                let noise: Vec<u8> = self.held.drain(..at + self.begin.len()).take(at).collect();
                self.hear(&noise);
                self.place = Place::Inside;
            } else {
                let keep = self.begin.len().saturating_sub(1);
                let past = self.held.len().saturating_sub(keep);
                let noise: Vec<u8> = self.held.drain(..past).collect();
                self.hear(&noise);
            }
        }
        if self.place == Place::Inside {
            match &self.end {
                None => into.append(&mut self.held),
                Some(end) => {
                    if let Some(at) = find(&self.held, end) {
                        into.extend(self.held.drain(..at));
                        self.place = Place::After;
                    } else {
                        let past = self.held.len() - tail(&self.held, end);
                        into.extend(self.held.drain(..past));
                    }
                }
            }
        }
        if self.place == Place::After {
            self.held.clear();
        }
    }

    fn hear(&mut self, noise: &[u8]) {
        self.noise_bytes = self.noise_bytes.saturating_add(noise.len());
        let room = NOISE_KEPT.saturating_sub(self.noise.len());
        self.noise.extend(noise.iter().take(room));
    }
}

/// Where a text begins in another.
pub(super) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|window| window == what)
}

/// Length of the longest end of the text that `what` begins with, shorter than `what`.
fn tail(text: &[u8], what: &[u8]) -> usize {
    let most = text.len().min(what.len().saturating_sub(1));
    (1..=most)
        .rev()
        .find(|length| {
            what.get(..*length)
                .is_some_and(|begin| text.ends_with(begin))
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shell(script: &str) -> (std::process::Output, Markers) {
        use std::io::Write;
        let markers = Markers::new().unwrap();
        let mut child = std::process::Command::new("/bin/sh")
            .arg("-s")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(markers.around(script).as_bytes()).unwrap();
        drop(stdin);
        (child.wait_with_output().unwrap(), markers)
    }

    fn inside(markers: &Markers, bytes: &[u8]) -> (String, bool) {
        let (mut fence, mut into) = (markers.both(), Vec::new());
        fence.push(bytes, &mut into);
        (String::from_utf8_lossy(&into).into_owned(), fence.ended())
    }

    #[test]
    fn no_script_can_end_the_shell_or_read_what_follows() {
        for (script, status, out) in [
            ("echo a; exit 3", 3, "a\n"),
            ("cat; echo after", 0, "after\n"),
            ("exec printf x", 0, "x"),
            ("echo 'unclosed", 2, ""),
            (")", 2, ""),
            ("cat <<E\nhello", 0, "hello"),
            ("-v", 127, ""),
            ("trap 'echo bye' EXIT; set -e; false; echo no", 1, "bye\n"),
            ("printf 'ä%s' \"'\"", 0, "ä'"),
        ] {
            let (output, markers) = shell(script);
            let (said, ended) = inside(&markers, &output.stdout);
            assert_eq!(output.status.code(), Some(status), "{script}: {output:?}");
            assert_eq!(
                said.trim_end_matches('\n'),
                out.trim_end_matches('\n'),
                "{script}"
            );
            assert!(ended, "{script}");
            assert!(inside(&markers, &output.stderr).1, "{script}");
        }
    }

    proptest! {
        #[test]
        fn what_is_inside_comes_out_however_it_is_cut(
            noise in "[a-z\n-]{0,40}", said in proptest::collection::vec(any::<u8>(), 0..80),
            cuts in proptest::collection::vec(1usize..9, 1..60),
        ) {
            let markers = Markers::new().unwrap();
            let mut bytes = noise.clone().into_bytes();
            bytes.extend(markers.named("begin").bytes());
            bytes.push(b'\n');
            bytes.extend(&said);
            bytes.extend(markers.named("end").bytes());
            bytes.extend(b"late noise");
            let (mut fence, mut into) = (markers.both(), Vec::new());
            let (mut rest, mut cut) = (&bytes[..], cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, later) = rest.split_at((*cut.next().unwrap()).min(rest.len()));
                fence.push(now, &mut into);
                rest = later;
            }
            prop_assert_eq!(into, said);
            prop_assert!(fence.ended());
            prop_assert_eq!(fence.noise(), noise.trim());
        }
    }
}
