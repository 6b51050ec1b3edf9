//! Recognises a host that runs Windows by what its SSH server and its shell say. Pure.

/// What to do about it, for people.
pub const WAYS_ON: &str = "it runs Windows, and windlass needs Linux or macOS there: give WSL2 an \
    sshd of its own (a port of its own, `networkingMode=mirrored`) and set that port as `ssh.port`, \
    or boot Linux on the machine from another disk or a USB stick";

/// Whether an SSH server's version line is one of Windows.
pub fn by_version(version: &str) -> bool {
    let software = version.strip_prefix("SSH-2.0-").unwrap_or(version);
    ["OpenSSH_for_Windows", "WeOnlyDo", "Bitvise", "FreSSH"]
        .iter()
        .any(|name| software.contains(name))
        || software.to_ascii_lowercase().contains("windows")
}

/// Whether the answer to `exec sh -s` is one of cmd.exe or PowerShell.
pub fn by_answer(stdout: &str, stderr: &str) -> bool {
    let said = format!("{stdout}\n{stderr}");
    let names_exec =
        said.contains("'exec'") || said.contains("\"exec\"") || said.contains("exec :");
    let cmd = names_exec
        && (said.contains("operable program or batch file")
            || said.contains("is not recognized as an internal or external command")
            // The German one.
            || said.contains("ist entweder falsch geschrieben"));
    let powershell = said.contains("CommandNotFoundException")
        || said.contains("is not recognized as the name of a cmdlet")
        || said.contains("is not recognized as a name of a cmdlet");
    cmd || powershell || said.contains("Microsoft Windows [Version")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_is_known_by_the_version_of_its_server() {
        for (version, windows) in [
            ("SSH-2.0-OpenSSH_for_Windows_8.1", true),
            ("SSH-2.0-OpenSSH_for_Windows_9.5", true),
            (
                "SSH-2.0-9.29 FlowSsh: Bitvise SSH Server (WinSSHD) 9.29",
                true,
            ),
            ("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.5", false),
            ("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u10", false),
            ("SSH-2.0-OpenSSH_10.0", false),
            ("SSH-2.0-dropbear_2022.83", false),
        ] {
            assert_eq!(by_version(version), windows, "{version}");
        }
    }

    #[test]
    fn windows_is_known_by_the_answer_of_its_shells() {
        let cmd = "'exec' is not recognized as an internal or external command,\r\noperable program \
                   or batch file.\r\n";
        let german = "Der Befehl \"exec\" ist entweder falsch geschrieben oder\r\nkonnte nicht \
                      gefunden werden.\r\n";
        let powershell = "exec : The term 'exec' is not recognized as the name of a cmdlet, \
                          function, script file, or operable program.\r\nAt line:1 char:1\r\n+ exec \
                          sh -s\r\n    + CategoryInfo          : ObjectNotFound: (exec:String) [], \
                          CommandNotFoundException\r\n";
        let seven = "\x1b[31;1mexec: \x1b[31;1mThe term 'exec' is not recognized as a name of a \
                     cmdlet, function, script file, or executable program.\x1b[0m\r\n";
        for answer in [cmd, german, powershell, seven] {
            assert!(by_answer("", answer), "{answer}");
            assert!(by_answer(answer, ""), "{answer}");
        }
        for other in [
            "rbash: line 1: exec: restricted",
            "This account is currently not available.",
            "fish: Unknown command: sh",
            "sh: 1: exec: sh: not found",
            "",
        ] {
            assert!(!by_answer("", other), "{other}");
        }
    }
}
