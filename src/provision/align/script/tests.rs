//! The scripts run by `sh` on a folder that stands for a host's disk.

use super::*;

#[test]
fn each_package_manager_is_told_versions_and_removals_in_its_own_form() {
    let install = [("zstd".to_owned(), "1.5-2".to_owned())].into();
    let remove = ["odd one".to_owned()].into();
    for (installer, wanted) in [
        ("apt-get", "install zstd=1.5-2 'odd one-'\n"),
        ("dnf", "install zstd-1.5-2\ndnf -y remove 'odd one'\n"),
        ("zypper", "-- zstd=1.5-2 '-odd one'\n"),
    ] {
        let script = packages(installer, &install, &remove);
        assert!(script.ends_with(wanted), "{installer}: {script}");
    }
}

#[test]
fn a_package_of_another_architecture_is_named_as_each_manager_writes_it() {
    let install = [("glibc:i686".to_owned(), "2.42-4".to_owned())].into();
    let remove = ["zlib:i686".to_owned()].into();
    for (installer, wanted) in [
        ("apt-get", "install glibc:i686=2.42-4 zlib:i686-\n"),
        (
            "dnf",
            "install glibc-2.42-4.i686\ndnf -y remove zlib.i686\n",
        ),
        ("zypper", "-- glibc.i686=2.42-4 -zlib.i686\n"),
    ] {
        let script = packages(installer, &install, &remove);
        assert!(script.ends_with(wanted), "{installer}: {script}");
    }
}

#[test]
fn lines_are_taken_back_after_files_and_what_they_write_is_given_back_last() {
    let kept = Change::Kept {
        path: "/boot/x".into(),
    };
    let line = |name: &str| Change::Line {
        line: format!("do {name}"),
        undo: format!("undo {name}"),
    };
    let record = Record {
        v: VERSION,
        run: "r1".into(),
        changes: vec![kept, line("a"), line("b")],
        reboot: None,
    };
    assert!(begin(&record).unwrap().contains("p=$(real /boot/x)"));
    assert!(apply("r1", 1, &record.changes[1]).contains("(\ndo a\n)"));
    for (number, change) in record.changes.iter().enumerate() {
        assert_eq!(undo("r1", number, change), None);
    }
    let late = undo_late(&record);
    assert!(late[0].contains("undo b") && late[1].contains("undo a"));
    assert!(late[2].contains("files/0.at"), "{late:?}");
    let typed = by_hand(&record);
    let at = |part: &str| {
        typed
            .find(part)
            .unwrap_or_else(|| panic!("{part}: {typed}"))
    };
    assert!(at("/boot/x") < at("undo b") && at("undo a") < at("reboot"));
}

#[test]
fn a_record_of_another_form_is_refused_by_its_number() {
    let old = r#"{"v":1,"run":"r","changes":[{"change":"boot_loader","tool":"x"}],"before":{}}"#;
    let said = Record::parse(old).unwrap_err();
    assert!(said.contains("form 1"), "{said}");
    assert!(Record::parse("{").is_err());
}

fn ran(script: &str) -> std::process::Output {
    let mut sh = std::process::Command::new("sh");
    sh.args(["-c", script]).output().unwrap()
}

/// A folder that stands for a host's disk.
struct Host {
    home: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("etc")).unwrap();
        Self { home }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join("etc").join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(self.path(name), text).unwrap();
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path(name), mode).unwrap();
    }

    fn change(&self, name: &str, was: Option<&str>, text: Option<&str>) -> Change {
        Change::File {
            path: self.text(name),
            was: was.map(str::to_owned),
            text: text.map(str::to_owned),
        }
    }

    fn record(&self, changes: Vec<Change>) -> Record {
        Record {
            v: VERSION,
            run: "r1".into(),
            changes,
            reboot: Some("it's so".into()),
        }
    }

    fn script(&self, script: &str) -> String {
        let place = |name: &str| self.home.path().join(name).display().to_string();
        script
            .replace(FOLDER, &place("undo"))
            .replace(REBOOT, &place("reboot"))
    }

    /// What a script that ends well says.
    fn run(&self, script: &str) -> String {
        let script = self.script(script);
        let ran = ran(&script);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{script}\n{said}");
        String::from_utf8(ran.stdout).unwrap()
    }

    /// What a script that ends badly says.
    fn refused(&self, script: &str) -> String {
        let ran = ran(&self.script(script));
        assert!(!ran.status.success());
        String::from_utf8(ran.stderr).unwrap()
    }

    fn make(&self, record: &Record) {
        self.run(&begin(record).unwrap());
        for (number, change) in record.changes.iter().enumerate() {
            self.run(&apply("r1", number, change));
        }
        self.run(&remember(record));
    }

    fn back(&self, record: &Record) {
        for (number, change) in record.changes.iter().enumerate().rev() {
            self.run(&undo("r1", number, change).unwrap());
        }
    }

    /// Text, mode and times; where a link leads.
    fn seen(&self, name: &str) -> (String, u32, i64, i64) {
        use std::os::unix::fs::MetadataExt;
        let meta = std::fs::symlink_metadata(self.path(name)).unwrap();
        let text = match meta.is_symlink() {
            true => std::fs::read_link(self.path(name))
                .unwrap()
                .display()
                .to_string(),
            false => std::fs::read_to_string(self.path(name)).unwrap(),
        };
        (text, meta.mode(), meta.mtime(), meta.mtime_nsec())
    }
}

#[test]
fn files_are_kept_replaced_and_given_back_with_their_mode_and_time() {
    let host = Host::new();
    for name in ["it's.conf", "gone.conf", "left.conf"] {
        host.write(name, "old, no end", 0o640);
    }
    let before = host.seen("it's.conf");
    let record = host.record(vec![
        host.change("it's.conf", Some("old, no end"), Some("new 'quoted' $x\n")),
        host.change("gone.conf", Some("old, no end\n"), None),
        host.change("sub/made.conf", None, Some("x")),
        host.change("left.conf", None, Some("never\n")),
    ]);
    host.run(&begin(&record).unwrap());
    // The last one is not reached.
    for (number, change) in record.changes.iter().enumerate().take(3) {
        host.run(&apply("r1", number, change));
        host.run(&apply("r1", number, change));
    }
    let new = host.seen("it's.conf");
    assert_eq!((new.0.as_str(), new.1), ("new 'quoted' $x\n", before.1));
    assert!(!host.path("gone.conf").exists());
    assert_eq!(host.seen("sub/made.conf").0, "x");
    assert_eq!(host.run(&changed_since(&record)), "");

    for _ in 0..2 {
        host.back(&record);
        assert_eq!(host.run(&changed_since(&record)), "");
        assert_eq!(host.seen("it's.conf"), before);
        assert_eq!(host.seen("gone.conf").0, "old, no end");
        assert!(!host.path("sub/made.conf").exists());
        assert_eq!(host.seen("left.conf").0, "old, no end");
    }
    let left = std::fs::read_dir(host.home.path().join("etc")).unwrap();
    assert_eq!(left.count(), 4);
}

#[test]
fn what_someone_else_wrote_or_let_others_read_since_is_seen() {
    let host = Host::new();
    for name in ["a.conf", "b.conf", "c.conf", "same.conf"] {
        host.write(name, "old\n", 0o640);
    }
    let record = host.record(vec![
        host.change("a.conf", None, Some("new\n")),
        host.change("b.conf", None, None),
        host.change("c.conf", None, Some("new\n")),
        host.change("same.conf", None, Some("new\n")),
        host.change("made.conf", None, Some("new\n")),
    ]);
    host.make(&record);
    assert_eq!(host.run(&changed_since(&record)), "");
    host.write("a.conf", "new\n# mine\n", 0o640);
    host.write("b.conf", "mine\n", 0o640);
    host.write("c.conf", "new\n", 0o644);
    host.write("made.conf", "mine\n", 0o644);
    let said = host.run(&changed_since(&record));
    assert_eq!(said, "file 0\nfile 1\nfile 2\nfile 4\n");
    // Gone by another hand is changed too.
    std::fs::remove_file(host.path("a.conf")).unwrap();
    assert!(host.run(&changed_since(&record)).contains("file 0\n"));
}

#[test]
fn a_link_of_the_owner_stays_one_and_a_mask_is_not_written_through() {
    use std::os::unix::fs::symlink;
    let host = Host::new();
    host.write("real", "old\n", 0o600);
    symlink("real", host.path("grub")).unwrap();
    symlink("/dev/null", host.path("masked.conf")).unwrap();
    symlink("real", host.path("gone.conf")).unwrap();
    let names = ["grub", "masked.conf", "gone.conf", "real"];
    let before = names.map(|name| host.seen(name));
    let record = host.record(vec![
        host.change("grub", Some("old\n"), Some("new\n")),
        host.change("masked.conf", None, Some("new\n")),
        host.change("gone.conf", None, None),
    ]);
    host.make(&record);
    assert_eq!(host.seen("grub"), before[0]);
    assert_eq!(host.seen("real").0, "new\n");
    assert_eq!(host.seen("masked.conf").0, "new\n");
    assert!(!host.path("gone.conf").exists());
    assert_eq!(host.run(&changed_since(&record)), "");
    host.back(&record);
    assert_eq!(names.map(|name| host.seen(name)), before);
    assert_eq!(host.run(&changed_since(&record)), "");
    // Another link is another hand's.
    std::fs::remove_file(host.path("grub")).unwrap();
    symlink("other", host.path("grub")).unwrap();
    assert_eq!(host.run(&changed_since(&record)), "file 0\n");
}

#[test]
fn what_changed_since_it_was_looked_at_and_what_is_recorded_already_are_refused() {
    let host = Host::new();
    host.write("a.conf", "old\nmine", 0o644);
    let of = |was: &str| host.record(vec![host.change("a.conf", Some(was), Some("new\n"))]);
    let said = host.refused(&begin(&of("old\n")).unwrap());
    assert!(said.contains("since it was looked at"), "{said}");
    assert!(!host.home.path().join("undo").exists());
    let record = of("old\r\nmine\n");
    host.make(&record);
    // The first record holds how things were.
    let said = host.refused(&begin(&of("new\n")).unwrap());
    assert!(said.contains("already"), "{said}");
}

#[test]
fn what_a_line_wrote_is_given_back_and_a_run_that_was_cut_off_in_it_too() {
    let host = Host::new();
    host.write("entry", "ro\n", 0o644);
    let path = host.text("entry");
    let line = |word: &str| format!("echo {word} >>{path}");
    let record = host.record(vec![
        Change::Kept { path: path.clone() },
        Change::Line {
            line: line("set"),
            undo: line("unset"),
        },
    ]);
    host.run(&begin(&record).unwrap());
    host.run(&apply("r1", 1, &record.changes[1]));
    // Cut off: nobody knows who wrote it.
    assert_eq!(host.run(&changed_since(&record)), "");
    host.run(&remember(&record));
    assert_eq!(host.run(&changed_since(&record)), "");
    host.write("entry", "ro\nset\nmine\n", 0o644);
    assert_eq!(host.run(&changed_since(&record)), "file 0\n");
    host.write("entry", "ro\nset\n", 0o644);
    host.run(&undoing("r1"));
    let late = undo_late(&record);
    host.run(&late[0]);
    assert_eq!(host.seen("entry").0, "ro\nset\nunset\n");
    // Cut off here, it goes on.
    assert_eq!(host.run(&changed_since(&record)), "");
    late.iter().for_each(|script| {
        host.run(script);
    });
    assert_eq!(host.seen("entry").0, "ro\n");
}

#[test]
fn a_reboot_is_waited_for_until_the_next_start_or_the_way_back() {
    let host = Host::new();
    let record = host.record(Vec::new());
    assert_eq!(host.run(&pending()), "");
    host.run(&begin(&record).unwrap());
    assert_eq!(host.run(&pending()), "it's so\n");
    assert_eq!(host.run(&ended(&record)), "");
    assert_eq!(host.run(&pending()), "");
    // After a start there is another to wait for.
    host.run("mv /var/lib/windlass/undo/r1/undone.json /var/lib/windlass/undo/r1/record.json");
    assert_eq!(host.run(&ended(&record)), "it's so\n");
    assert_eq!(host.run(&pending()), "it's so\n");
}

#[test]
fn tools_say_their_last_words_and_a_run_at_work_is_not_taken_back() {
    let host = Host::new();
    host.run(&begin(&host.record(Vec::new())).unwrap());
    let said = host.refused(&through("r1", "echo no room; exit 3\n", false));
    assert_eq!(said, "no room\n");
    host.run(&busy("r1"));
    let script = host.script(&through("r1", "sleep 3\n", false));
    let said = host.home.path().join("undo/r1/said");
    std::fs::remove_file(&said).unwrap();
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script])
        .spawn()
        .unwrap();
    while !said.exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(host.refused(&busy("r1")).contains("still at work"));
    child.wait().unwrap();
    host.run(&busy("r1"));
}
