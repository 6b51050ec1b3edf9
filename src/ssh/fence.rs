//! Markers around what a script says, so that banners, login noise and prompts never count as its
//! output. Pure: scripts in, scripts out; bytes in, bytes out. Must not know how they travel.

use super::quote::quote;

/// Most bytes of noise that are kept for messages.
const NOISE_KEPT: usize = 2 << 10;

/// Most bytes of noise before the first marker.
pub(super) const NOISE: usize = 1 << 20;

/// The word that ends a script of [`Markers::bound`] at once.
pub(super) const END: &[u8] = b"end\n";

/// Ends a process group, `$1`: asked first, three seconds after the input's end or at the word; made to
/// five seconds later. `kill` is written as every shell takes it. Whoever started it keeps a stream open
/// to it (descriptor 4), so that the end of all streams is the end of the group.
const GUARD: &str = "windlass_nap() { sleep 0.1 2>/dev/null || { sleep 1; n=$((n-9)); }; n=$((n-1)); }; \
     n=30; while read -r word; do if [ \"$word\" = end ]; then n=0; break; fi; done; \
     while [ \"$n\" -gt 0 ] && kill -s 0 -- \"$1\"; do windlass_nap; done; kill -s TERM -- \"$1\"; \
     n=50; while [ \"$n\" -gt 0 ] && kill -s 0 -- \"$1\"; do windlass_nap; done; kill -s KILL -- \"$1\"; \
     n=20; while [ \"$n\" -gt 0 ] && kill -s 0 -- \"$1\"; do windlass_nap; done";

/// How long a script of [`Markers::bound`] may take to end when it is made to.
pub(super) const ENDING: std::time::Duration = std::time::Duration::from_secs(12);

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

    /// The same for a script that must not outlive whoever asked for it. It runs in a process group of
    /// its own, and what follows on the input is for a guard beside it: the word [`END`] ends the group
    /// at once; the end of the input, which is also what a lost connection leaves, after a moment in
    /// which what is nearly done may finish. Whatever the script left in the background when it ended
    /// by itself stays.
    pub fn bound(&self, script: &str) -> String {
        let (begin, end) = (self.named("begin"), self.named("end"));
        let script = quoted(script);
        // `( … )` for the script and `exec` before the guard's end, as in `around`.
        let inner = |group: &str, guard: &str| {
            quote(&format!(
                "{group}{guard} <&3 4>&2 >/dev/null 2>&1 & windlass_guard=$!; ( eval {script} ) </dev/null 3<&-; \
                 windlass_status=$?; exec 2>/dev/null; kill -s KILL \"$windlass_guard\"; \
                 exit \"$windlass_status\"\n"
            ))
        };
        let own = inner(
            "windlass_group=-$$; ",
            &format!("setsid sh -c {} sh \"$windlass_group\"", quote(GUARD)),
        );
        // Where there is no setsid, job control makes the group; the guard is then in it, and last.
        let shared = inner(
            "windlass_group() { ps -o pgid= -p \"$1\" | tr -d ' '; }; \
             windlass_group=$(windlass_group $$); \
             if [ \"$windlass_group\" = \"$(windlass_group $PPID)\" ]; then windlass_group=$$; \
             else windlass_group=-$windlass_group; fi; ",
            &format!("( trap '' HUP TERM; set -- \"$windlass_group\"; {GUARD} )"),
        );
        format!(
            "printf '%s\\n' {begin}; printf '%s\\n' {begin} >&2; exec 3<&0; \
             if command -v setsid >/dev/null 2>&1; then printf %s {own} | setsid sh -s; \
             else set -m 2>/dev/null; printf %s {shared} | sh -s; fi; \
             windlass_status=$?; printf %s {end}; printf %s {end} >&2; exit $windlass_status\n",
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

    /// A shell that reads a script; `path` is where it finds programs.
    fn begun(shell: &str, path: Option<&str>) -> std::process::Child {
        let mut command = std::process::Command::new(shell);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        command
            .arg("-s")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn shell(fenced: impl Fn(&Markers) -> String) -> (std::process::Output, Markers) {
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
        stdin.write_all(fenced(&markers).as_bytes()).unwrap();
        // Held to the end, as it is for a bound script.
        let mut said = (Vec::new(), Vec::new());
        use std::io::Read;
        child
            .stdout
            .take()
            .unwrap()
            .read_to_end(&mut said.0)
            .unwrap();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_end(&mut said.1)
            .unwrap();
        let output = std::process::Output {
            status: child.wait().unwrap(),
            stdout: said.0,
            stderr: said.1,
        };
        drop(stdin);
        (output, markers)
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
            for bound in [false, true] {
                let (output, markers) = shell(|markers| match bound {
                    true => markers.bound(script),
                    false => markers.around(script),
                });
                let (said, ended) = inside(&markers, &output.stdout);
                let case = format!("{script}, bound {bound}: {output:?}");
                assert_eq!(output.status.code(), Some(status), "{case}");
                assert_eq!(
                    said.trim_end_matches('\n'),
                    out.trim_end_matches('\n'),
                    "{case}"
                );
                assert!(ended, "{case}");
                assert!(inside(&markers, &output.stderr).1, "{case}");
            }
        }
    }

    /// Process ids of a script's children, told on its stdout, that still live.
    fn living(pids: &[String]) -> Vec<String> {
        let lives = |pid: &&String| {
            // One that nobody has waited for is gone too.
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
        };
        pids.iter().filter(lives).cloned().collect()
    }

    /// Programs without `setsid`, in a folder.
    fn without_setsid() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sh", "ps", "tr", "sleep"] {
            let found = ["/bin", "/usr/bin"]
                .map(|top| std::path::Path::new(top).join(name))
                .into_iter()
                .find(|path| path.exists());
            let bash = std::path::PathBuf::from("/bin/bash");
            let target = if name == "sh" { bash } else { found.unwrap() };
            std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        }
        folder
    }

    #[test]
    fn a_bound_script_and_all_it_started_end_at_the_word_and_at_the_input_s_end() {
        use std::io::{BufRead, Write};
        let bare = without_setsid();
        let bare = bare.path().to_str().unwrap();
        let plain = "sleep 600 & echo $!; sh -c 'echo $$; exec sleep 600'";
        let deaf = "trap '' TERM; sleep 600 & echo $!; sh -c 'echo $$; exec sleep 600'";
        for (program, path, script, word) in [
            ("/bin/sh", None, plain, true),
            ("/bin/sh", None, plain, false),
            ("/bin/bash", None, deaf, true),
            ("/bin/bash", Some(bare), plain, true),
        ] {
            if !std::path::Path::new(program).exists() {
                continue;
            }
            let markers = Markers::new().unwrap();
            let mut child = begun(program, path);
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(markers.bound(script).as_bytes()).unwrap();
            let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
            let mut line = || lines.next().unwrap().unwrap();
            assert_eq!(line(), markers.named("begin"));
            let pids = [line(), line()];
            assert_eq!(living(&pids).len(), 2);
            if word {
                stdin.write_all(END).unwrap();
            } else {
                drop(stdin);
            }
            let limit = std::time::Instant::now() + ENDING * 2;
            while !living(&pids).is_empty() {
                assert!(
                    std::time::Instant::now() < limit,
                    "{program} {path:?} {script}"
                );
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            child.wait().unwrap();
        }
    }

    #[test]
    fn what_a_bound_script_left_in_the_background_when_it_ended_stays() {
        let (output, markers) =
            shell(|markers| markers.bound("sleep 600 >/dev/null 2>&1 & echo $!"));
        let pid = inside(&markers, &output.stdout).0.trim().to_owned();
        // Longer than the guard would wait, were there one.
        std::thread::sleep(std::time::Duration::from_secs(4));
        assert_eq!(living(std::slice::from_ref(&pid)), [pid.as_str()]);
        std::process::Command::new("kill")
            .arg(&pid)
            .status()
            .unwrap();
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
