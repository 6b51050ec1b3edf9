//! Marks on hosts by which a command is applied once, however often its run is killed and resumed: a
//! command that was finished, and whose end this machine did not hear of, is not begun again. Texts
//! only; pure.

use crate::ssh::quote;

/// Folder of the marks, below the login user's state folder.
const FOLDER: &str = "${XDG_STATE_HOME:-${HOME:-/nonexistent}/.local/state}/windlass/marks";

/// A script that runs `body` unless its mark says that it was finished; then it says again what was
/// said. One that still runs is waited for. Without a place for marks it is run as it is.
///
/// Of two that begin at the same time (one asked for by a controller that is gone by then) one makes the
/// file of its process id, and the other waits. A file of a process that is gone is taken away after
/// three looks: one that was just made may be empty still.
///
/// `mark` is `RUN/TASK@HOST`: several hosts of an inventory may be one machine. With `quiet`, what it says is kept nowhere.
pub fn script(mark: &str, body: &str, quiet: bool) -> String {
    let mark = quote(mark);
    // Written to files first: a program whose reader is gone would be ended by its own output.
    let (apply, say) = if quiet {
        ("windlass_body", ":")
    } else {
        (
            "windlass_body >\"$windlass_mark.out\" 2>\"$windlass_mark.err\"",
            "windlass_say",
        )
    };
    format!(
        r#"windlass_body() {{ (
{body}
) </dev/null
}}
windlass_start() {{ sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }}
windlass_say() {{ cat "$windlass_mark.out"; cat "$windlass_mark.err" >&2; }}
windlass_mark="{FOLDER}/"{mark}
windlass_claim() {{ (umask 077; set -C; echo "$$ $(windlass_start $$)" >"$windlass_mark.pid") 2>/dev/null; }}
windlass_runs() {{
  [ -f "$windlass_mark.pid" ] && [ ! -f "$windlass_mark.end" ] || return 1
  read -r windlass_pid windlass_began <"$windlass_mark.pid" || return 1
  kill -0 "$windlass_pid" 2>/dev/null && [ "$windlass_began" = "$(windlass_start "$windlass_pid")" ]
}}
if (umask 077 && mkdir -p "${{windlass_mark%/*}}" && : >"$windlass_mark.try") 2>/dev/null; then
  windlass_gone=0
  until windlass_claim; do
    if [ -f "$windlass_mark.end" ]; then break; fi
    if windlass_runs; then windlass_gone=0; else windlass_gone=$((windlass_gone+1)); fi
    if [ "$windlass_gone" -ge 3 ]; then rm -f "$windlass_mark.pid"; fi
    sleep 0.2 2>/dev/null || sleep 1
  done
  if [ -f "$windlass_mark.end" ]; then rm -f "$windlass_mark.pid"; {say}; exit 0; fi
  (umask 077; : >"$windlass_mark.out"; : >"$windlass_mark.err")
  {apply}
  windlass_status=$?
  if [ "$windlass_status" -eq 0 ]; then mv -f "$windlass_mark.pid" "$windlass_mark.end"
  else rm -f "$windlass_mark.pid"; fi
  {say}
  exit "$windlass_status"
fi
windlass_body
"#
    )
}

/// A script that says in which boot the host was when this task began there, and writes it down when it
/// begins now. Without a place for marks it says nothing.
pub fn boot_mark(mark: &str, boot: &str) -> String {
    let (mark, boot) = (quote(&format!("{mark}.boot")), quote(boot));
    format!(
        "m=\"{FOLDER}/\"{mark}\numask 077\n\
         [ -s \"$m\" ] || {{ mkdir -p \"${{m%/*}}\" && printf '%s\\n' {boot} >\"$m.new\" && mv \"$m.new\" \"$m\" && sync; }} 2>/dev/null\n\
         cat \"$m\" 2>/dev/null\n:\n"
    )
}

/// A script that takes all marks of a run away.
pub fn forget(run: &str) -> String {
    let run = quote(run);
    format!("d=\"{FOLDER}\"\nrm -rf \"$d/\"{run}\nrmdir \"$d\" \"${{d%/*}}\" 2>/dev/null\n:\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::{Command, Output, Stdio};

    fn sh(state: &Path, script: &str) -> Output {
        Command::new("/bin/sh")
            .arg("-c")
            .arg(script)
            .env("XDG_STATE_HOME", state)
            .output()
            .unwrap()
    }

    #[test]
    fn the_boot_that_a_task_began_in_is_kept_until_the_run_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let said = |boot: &str| sh(folder.path(), &boot_mark("r1/3@it's", boot)).stdout;
        for boot in ["b1", "b2"] {
            assert_eq!(said(boot), b"b1\n");
        }
        assert!(sh(folder.path(), &forget("r1")).status.success());
        assert_eq!(said("b3"), b"b3\n");
    }

    #[test]
    fn what_was_finished_is_not_begun_again_and_says_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines");
        let body = format!("echo x >>{0}\necho said; echo err >&2", file.display());
        for _ in 0..3 {
            let output = sh(folder.path(), &script("r1/0", &body, false));
            assert!(output.status.success(), "{output:?}");
            assert_eq!(output.stdout, b"said\n");
            assert_eq!(output.stderr, b"err\n");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
        sh(folder.path(), &script("r2/0", &body, true));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\nx\n");
        for run in ["r1", "r2"] {
            assert!(sh(folder.path(), &forget(run)).status.success());
        }
        assert!(!folder.path().join("windlass").exists());
    }

    #[test]
    fn what_failed_or_was_cut_off_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines");
        let body = format!(
            "echo x >>{0}\n[ \"$(wc -l <{0})\" -ge 3 ] || exit 7",
            file.display()
        );
        let text = script("r1/0", &body, false);
        assert_eq!(sh(folder.path(), &text).status.code(), Some(7));
        assert_eq!(sh(folder.path(), &text).status.code(), Some(7));
        // A process that is gone left its mark.
        let mark = folder.path().join("windlass/marks/r1/0.pid");
        std::fs::write(mark, "999999999 5\n").unwrap();
        assert!(sh(folder.path(), &text).status.success());
        assert!(sh(folder.path(), &text).status.success());
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 3);
    }

    #[test]
    fn one_that_still_runs_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (file, go) = (folder.path().join("lines"), folder.path().join("go"));
        let body = format!(
            "echo x >>{}\nwhile [ ! -e {} ]; do sleep 0.05; done",
            file.display(),
            go.display()
        );
        let text = script("r1/0", &body, false);
        let begin = || {
            Command::new("/bin/sh")
                .arg("-c")
                .arg(&text)
                .env("XDG_STATE_HOME", folder.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut first = begin();
        while !file.exists() {
            std::thread::yield_now();
        }
        let mut second = begin();
        std::fs::write(&go, "").unwrap();
        assert!(first.wait().unwrap().success() && second.wait().unwrap().success());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
    }

    #[test]
    fn of_many_that_begin_at_once_one_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lines");
        let text = script(
            "r1/0",
            &format!("echo x >>{}; echo said", file.display()),
            false,
        );
        let begin = || {
            Command::new("/bin/sh")
                .arg("-c")
                .arg(&text)
                .env("XDG_STATE_HOME", folder.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let all: Vec<_> = (0..12).map(|_| begin()).collect();
        for one in all {
            let output = one.wait_with_output().unwrap();
            assert!(output.status.success());
            assert_eq!(output.stdout, b"said\n");
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
    }

    #[test]
    fn where_no_mark_can_be_kept_it_is_run_as_it_is() {
        let output = sh(Path::new("/proc/none"), &script("r1/0", "echo a", false));
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(0), b"a\n".as_slice())
        );
    }
}
