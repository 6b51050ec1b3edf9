//! What keeps a worker running on a host: the unit's text, and the scripts that install, start,
//! stop and look at it. Pure: texts in, texts out.

use crate::ssh::quote;

use super::base::{Base, Keeper, USER};

/// Name of the unit that runs a cluster's worker.
pub fn unit_name(cluster: &str) -> String {
    format!("windlass-{cluster}.service")
}

/// A path as a unit file takes it: `%` starts a specifier there, and a space ends a word.
fn in_unit(path: &str) -> String {
    let escaped = path
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('%', "%%")
        .replace('$', "$$");
    format!("\"{escaped}\"")
}

/// The unit's text. Systemd starts the worker again whenever it ends, and at every boot.
pub fn unit_text(base: &Base, worker_sha256: &str, cluster: &str) -> String {
    let program = in_unit(&base.program(worker_sha256));
    let folder = in_unit(&base.deployment(cluster));
    let (user, wanted) = match base.keeper {
        Keeper::UserUnit => ("", "default.target"),
        _ => (
            "User=windlass\nGroup=windlass\nNoNewPrivileges=yes\nProtectHome=yes\nPrivateTmp=yes\n",
            "multi-user.target",
        ),
    };
    let network = match base.keeper {
        Keeper::UserUnit => "",
        _ => "Wants=network-online.target\nAfter=network-online.target\n",
    };
    format!(
        "[Unit]\n\
         Description=windlass worker of cluster {cluster}\n\
         {network}\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         ExecStart={program} serve {folder}\n\
         Restart=always\n\
         RestartSec=500ms\n\
         TimeoutStopSec=15\n\
         LimitMEMLOCK=infinity\n\
         {user}\
         \n\
         [Install]\n\
         WantedBy={wanted}\n"
    )
}

/// The systemctl command line for a base's units.
fn systemctl(base: &Base) -> &'static str {
    match base.keeper {
        Keeper::UserUnit => {
            // A login without a session bus variable still has its manager's socket.
            "XDG_RUNTIME_DIR=${XDG_RUNTIME_DIR:-/run/user/$(id -u)} systemctl --user"
        }
        _ => "systemctl",
    }
}

/// Where the unit's file goes, as a shell word.
fn unit_path(base: &Base, cluster: &str) -> String {
    let name = unit_name(cluster);
    match base.keeper {
        Keeper::UserUnit => {
            format!(
                "\"${{XDG_CONFIG_HOME:-$HOME/.config}}\"/systemd/user/{}",
                quote(&name)
            )
        }
        _ => quote(&format!("/etc/systemd/system/{name}")),
    }
}

/// Installs what keeps the worker and starts it. The files of the deployment are there already.
pub fn start(base: &Base, worker_sha256: &str, model_sha256: &str, cluster: &str) -> String {
    let ctl = systemctl(base);
    let name = quote(&unit_name(cluster));
    let mut script = String::from("set -eu\numask 077\n");
    match base.keeper {
        Keeper::SystemUnit | Keeper::UserUnit => {
            if base.keeper == Keeper::SystemUnit {
                script.push_str(&own(base, worker_sha256, model_sha256, cluster));
            }
            let path = unit_path(base, cluster);
            let text = quote(&unit_text(base, worker_sha256, cluster));
            script.push_str(&format!("unit={path}\n"));
            script.push_str("mkdir -p \"$(dirname \"$unit\")\"\n");
            script.push_str(&format!("printf %s {text} > \"$unit.new\"\n"));
            script.push_str("chmod 644 \"$unit.new\"\nmv -f \"$unit.new\" \"$unit\"\n");
            if base.keeper == Keeper::UserUnit {
                script.push_str("loginctl enable-linger >/dev/null 2>&1 || loginctl enable-linger \"$(id -un)\"\n");
            }
            script.push_str(&format!(
                "{ctl} daemon-reload\n{ctl} enable --quiet {name}\n{ctl} restart {name}\n"
            ));
        }
        Keeper::Process => {
            let program = quote(&base.program(worker_sha256));
            let folder = quote(&base.deployment(cluster));
            script.push_str(&format!("{program} supervise {folder}\n"));
        }
    }
    script
}

/// Makes the user that system units run as, and gives it what it must read and write.
fn own(base: &Base, worker_sha256: &str, model_sha256: &str, cluster: &str) -> String {
    let folder = quote(&base.folder);
    let pieces = quote(&base.pieces(model_sha256));
    let deployment = quote(&base.deployment(cluster));
    let bin = quote(&base.program_folder(worker_sha256));
    format!(
        "if ! id {USER} >/dev/null 2>&1; then\n\
         \x20 nologin=$(command -v nologin || echo /bin/false)\n\
         \x20 useradd --system --user-group --no-create-home --home-dir {folder} --shell \"$nologin\" {USER}\n\
         fi\n\
         chown {USER}: {folder} {folder}/deployments {folder}/pieces\n\
         chown -R {USER}: {pieces} {deployment}\n\
         chmod 711 {folder}/bin && chmod 755 {bin}\n"
    )
}

/// Stops the worker and removes what kept it. Ends well when there was nothing.
pub fn stop(base: &Base, cluster: &str) -> String {
    // Another keeper may have been chosen when it was started: lingering was taken away since.
    let keeper = match base.keeper {
        Keeper::Process if !base.root => Keeper::UserUnit,
        keeper => keeper,
    };
    let process = stop_process(base, cluster);
    if keeper == Keeper::Process {
        return process;
    }
    let base = &Base {
        keeper,
        ..base.clone()
    };
    let ctl = systemctl(base);
    let name = quote(&unit_name(cluster));
    let path = unit_path(base, cluster);
    format!(
        "unit={path}\n\
         if [ -e \"$unit\" ]; then\n\
         \x20 {ctl} disable --quiet --now {name} || exit 1\n\
         \x20 rm -f \"$unit\" || exit 1\n\
         \x20 {ctl} daemon-reload\n\
         fi\n\
         {process}"
    )
}

/// Ends a supervised process: asked first, made to after fifteen seconds. The pid is taken for it
/// only when its command line says so: numbers are used again.
fn stop_process(base: &Base, cluster: &str) -> String {
    let folder = quote(&base.deployment(cluster));
    format!(
        "pidfile={folder}/supervisor.pid\n\
         if [ -r \"$pidfile\" ]; then\n\
         \x20 pid=$(cat \"$pidfile\")\n\
         \x20 ours() {{ tr '\\0' ' ' < \"/proc/$pid/cmdline\" 2>/dev/null | grep -q 'windlass-worker supervise'; }}\n\
         \x20 if ours; then\n\
         \x20   kill \"$pid\"; n=0\n\
         \x20   while ours && [ $n -lt 150 ]; do sleep 0.1; n=$((n+1)); done\n\
         \x20   if ours; then kill -9 \"$pid\"; fi\n\
         \x20 fi\n\
         \x20 rm -f \"$pidfile\"\n\
         fi\n"
    )
}

/// Says how the worker is: one line `STATE PID RESTARTS`, where state is systemd's word, or
/// `active`, `inactive` for a supervised process.
pub fn look(base: &Base, cluster: &str) -> String {
    let ctl = systemctl(base);
    let name = quote(&unit_name(cluster));
    match base.keeper {
        Keeper::SystemUnit | Keeper::UserUnit => format!(
            "{ctl} show {name} -p ActiveState -p MainPID -p NRestarts -p UnitFileState 2>/dev/null\n"
        ),
        Keeper::Process => {
            let folder = quote(&base.deployment(cluster));
            format!(
                "pid=$(cat {folder}/supervisor.pid 2>/dev/null || echo 0)\n\
                 if tr '\\0' ' ' < \"/proc/$pid/cmdline\" 2>/dev/null | grep -q 'windlass-worker supervise'; then\n\
                 \x20 echo ActiveState=active\n\
                 else\n\
                 \x20 echo ActiveState=inactive\n\
                 fi\n\
                 echo MainPID=$pid\n"
            )
        }
    }
}

/// Says which pieces a worker still has mapped although their files were replaced or removed since: a
/// line `Stale=FILE` for each. Says nothing where the system does not tell what a process has mapped.
pub fn stale(base: &Base, cluster: &str) -> String {
    format!(
        "(\n\
         pieces=$(cd {pieces} 2>/dev/null && pwd -P) || exit 0\n\
         mine=$(cd {folder} 2>/dev/null && pwd -P) || exit 0\n\
         cd /proc 2>/dev/null || exit 0\n\
         for line in $(grep -lF windlass-worker [0-9]*/cmdline 2>/dev/null); do\n\
         \x20 if tr '\\0' '\\n' < \"$line\" 2>/dev/null | grep -qxF -e {folder} -e \"$mine\"; then\n\
         \x20   grep -F \" $pieces/\" \"${{line%/*}}/maps\" 2>/dev/null\n\
         \x20 fi\n\
         done | sed -n 's|^.*/\\([^/]*\\) (deleted)$|Stale=\\1|p' | sort -u\n\
         )\n",
        pieces = quote(&format!("{}/pieces", base.folder)),
        folder = quote(&base.deployment(cluster)),
    )
}

/// Prints the unit's text as it is there; nothing where there is none.
pub fn show(base: &Base, cluster: &str) -> String {
    format!("cat {} 2>/dev/null || :\n", unit_path(base, cluster))
}

/// How a worker's keeper says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// systemd's word: `active`, `activating`, `inactive`, `failed`…
    pub state: String,
    /// Process id, when one runs.
    pub pid: Option<u32>,
    /// Times it was started again.
    pub restarts: Option<u32>,
    /// Whether it starts at boot.
    pub at_boot: bool,
    /// Files of pieces that it has mapped as they were before they were replaced or removed.
    pub stale: Vec<String>,
}

impl Look {
    /// Reads the lines of [`look`], and those of [`stale`] where they follow.
    pub fn parse(text: &str) -> Self {
        let mut look = Self::default();
        for line in text.lines() {
            match line.split_once('=') {
                Some(("ActiveState", state)) => state.clone_into(&mut look.state),
                Some(("MainPID", pid)) => look.pid = pid.parse().ok().filter(|pid| *pid > 0),
                Some(("NRestarts", times)) => look.restarts = times.parse().ok(),
                Some(("Stale", file)) => look.stale.push(file.to_owned()),
                Some(("UnitFileState", state)) => look.at_boot = state == "enabled",
                _ => {}
            }
        }
        look
    }
}

/// Prints the last lines of the worker's log; with `follow`, goes on.
pub fn logs(base: &Base, cluster: &str, lines: u32, follow: bool) -> String {
    let name = quote(&unit_name(cluster));
    let go_on = if follow { "-f" } else { "" };
    match base.keeper {
        Keeper::SystemUnit => {
            format!("exec journalctl --no-pager -q -o short-iso -n {lines} {go_on} -u {name}\n")
        }
        Keeper::UserUnit => {
            // Without a user journal, what the unit says is in the system's.
            format!(
                "exec journalctl --no-pager -q -o short-iso -n {lines} {go_on} _SYSTEMD_USER_UNIT={name}\n"
            )
        }
        Keeper::Process => {
            let log = quote(&format!("{}/worker.log", base.deployment(cluster)));
            let go_on = if follow { "-F" } else { "" };
            format!("exec tail -n {lines} {go_on} {log}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(keeper: Keeper) -> Base {
        Base {
            folder: "/srv/a b".into(),
            root: true,
            keeper,
        }
    }

    #[test]
    fn a_unit_restarts_forever_runs_as_its_user_and_starts_at_boot() {
        let text = unit_text(&base(Keeper::SystemUnit), &"0f".repeat(32), "halo");
        for wanted in [
            "ExecStart=\"/srv/a b/bin/0f0f0f0f0f0f0f0f/windlass-worker\" serve \"/srv/a b/deployments/halo\"\n",
            "Restart=always\n",
            "StartLimitIntervalSec=0\n",
            "User=windlass\n",
            "WantedBy=multi-user.target\n",
        ] {
            assert!(text.contains(wanted), "{wanted} in\n{text}");
        }
        let text = unit_text(&base(Keeper::UserUnit), &"0f".repeat(32), "halo");
        assert!(text.contains("WantedBy=default.target\n") && !text.contains("User="));
    }

    #[test]
    fn every_script_is_one_that_a_shell_can_read() {
        for keeper in [Keeper::SystemUnit, Keeper::UserUnit, Keeper::Process] {
            let base = base(keeper);
            let digest = "0f".repeat(32);
            for script in [
                start(&base, &digest, &digest, "halo"),
                stop(&base, "halo"),
                look(&base, "halo"),
                stale(&base, "halo"),
                show(&base, "halo"),
                logs(&base, "halo", 50, true),
            ] {
                let ended = std::process::Command::new("/bin/sh")
                    .args(["-n", "-c", &script])
                    .output()
                    .unwrap();
                assert!(ended.status.success(), "{keeper:?}\n{script}\n{ended:?}");
            }
        }
    }

    #[test]
    fn what_systemd_says_of_a_unit_is_read_with_gaps() {
        let look =
            Look::parse("ActiveState=active\nMainPID=12\nNRestarts=3\nUnitFileState=enabled\n");
        assert_eq!(
            look,
            Look {
                state: "active".into(),
                pid: Some(12),
                restarts: Some(3),
                at_boot: true,
                stale: Vec::new(),
            }
        );
        let look = Look::parse("ActiveState=active\nStale=a.gguf\nStale=b.gguf\n");
        assert_eq!(look.stale, ["a.gguf", "b.gguf"]);
        let look = Look::parse("ActiveState=inactive\nMainPID=0\n");
        assert_eq!(
            look,
            Look {
                state: "inactive".into(),
                ..Look::default()
            }
        );
        assert_eq!(Look::parse("garbage"), Look::default());
    }

    #[test]
    fn a_percent_sign_in_a_path_is_no_specifier() {
        assert_eq!(in_unit("/a%h/b"), "\"/a%%h/b\"");
    }
}
