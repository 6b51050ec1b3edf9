//! What the kinds do on a host that is this machine.

use std::os::unix::fs::PermissionsExt;

use super::desk::Desk;

#[test]
fn files_templates_and_folders_are_made_so_once() {
    let desk = Desk::new(
        "vars = { port = 8080 }\n\
         [[tasks]]\nname = \"folder\"\nfile = { path = \"made/deep\", state = \"directory\", mode = \"0750\" }\n\
         [[tasks]]\nname = \"content\"\nfile = { path = \"made/it's.txt\", content = \"one\\n\", mode = \"0600\" }\n\
         [[tasks]]\nname = \"src\"\nfile = { path = \"made/copy\", src = \"bytes.bin\" }\n\
         [[tasks]]\nname = \"template\"\ntemplate = { src = \"conf.j2\", path = \"made/conf\" }\n\
         [[tasks]]\nname = \"gone\"\nfile = { path = \"old\", state = \"absent\" }\n",
    );
    desk.write("conf.j2", "port {{ vars.port }} on {{ host.name }}\n");
    desk.write("old", "x");
    std::fs::write(desk.path("bytes.bin"), [0, 255, 10, 13, 0]).unwrap();
    let all = ["folder", "content", "src", "template", "gone"];
    let ran = desk.run(&["--limit", "a", "--diff"]).ended(0);
    for task in all {
        assert_eq!(ran.status(task, "a"), "changed", "{task}");
    }
    let mode = |name: &str| {
        let meta = std::fs::metadata(desk.path(name)).unwrap();
        meta.permissions().mode() & 0o777
    };
    assert_eq!(desk.read("made/it's.txt"), "one\n");
    assert_eq!(
        (mode("made/deep"), mode("made/it's.txt"), mode("made/copy")),
        (0o750, 0o600, 0o644)
    );
    assert_eq!(
        std::fs::read(desk.path("made/copy")).unwrap(),
        [0, 255, 10, 13, 0]
    );
    assert_eq!(desk.read("made/conf"), "port 8080 on a\n");
    assert!(!desk.path("old").exists());
    let again = desk.run(&["--limit", "a"]).ended(0);
    for task in all {
        assert_eq!(
            again.status(task, "a"),
            "ok",
            "{task}: {}",
            again.message(task, "a")
        );
    }
    assert!(again.of_kind("change").is_empty());
    desk.write("made/it's.txt", "two\n");
    let third = desk.run(&["--limit", "a", "--diff"]).ended(0);
    assert_eq!(third.status("content", "a"), "changed");
    let diff = third.of_kind("change")[0]["diff"].as_str().unwrap();
    assert!(diff.contains("-two") && diff.contains("+one"), "{diff}");
    assert_eq!(mode("made/it's.txt"), 0o600, "the mode is kept");
    let left: Vec<_> = std::fs::read_dir(desk.path("made"))
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .starts_with('.')
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn commands_are_quoted_scripts_have_interpreters_and_arguments() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"words\"\nhosts = \"a\"\nregister = \"words\"\ncommand = { run = [\"printf\", \"%s|\", \"a b\", \"$HOME\", \"it's\"], chdir = \"sub dir\" }\n\
         [[tasks]]\nname = \"exact\"\nhosts = \"a\"\nassert = \"results.words.stdout == 'a b|$HOME|it\\\\'s|'\"\n\
         [[tasks]]\nname = \"script\"\nhosts = \"a\"\nregister = \"script\"\nscript = { src = \"go.sh\", args = [\"x y\"] }\n\
         [[tasks]]\nname = \"said\"\nhosts = \"a\"\nassert = { that = \"results.script.stdout == 'got x y'\", message = \"it said {{ results.script.stdout }}\" }\n\
         [[tasks]]\nname = \"once\"\nhosts = \"a\"\ncommand = { run = \"touch here\", creates = \"here\" }\n\
         [[tasks]]\nname = \"again\"\nhosts = \"a\"\ncommand = { run = \"exit 9\", creates = \"here\" }\n\
         [[tasks]]\nname = \"wait\"\nhosts = \"a\"\nwait_for = { file = \"here\" }\n\
         [[tasks]]\nname = \"never\"\nhosts = \"a\"\nwait_for = { file = \"nowhere\", patience = \"100ms\" }\n",
    );
    std::fs::create_dir(desk.path("sub dir")).unwrap();
    desk.write("go.sh", "#!/bin/sh\necho \"got $1\"\n");
    let ran = desk.run(&[]).ended(1);
    for (task, status) in [
        ("exact", "ok"),
        ("script", "changed"),
        ("said", "ok"),
        ("once", "changed"),
        ("again", "ok"),
        ("wait", "ok"),
        ("never", "failed"),
    ] {
        assert_eq!(
            ran.status(task, "a"),
            status,
            "{task}: {}",
            ran.message(task, "a")
        );
    }
    let output = ran.of_kind("output");
    assert!(output.iter().any(|event| event["text"] == "got x y\n"));
}

#[test]
fn hosts_that_differ_from_the_reference_are_named_and_unknown_is_no_match() {
    let desk = Desk::new(
        "[[tasks]]\nname = \"same\"\nverify = { equal = [\"os\", \"kernel\", \"arch\"] }\n",
    );
    let ran = desk.run(&[]).ended(0);
    for host in ["a", "b", "c"] {
        assert_eq!(ran.status("same", host), "ok");
    }
    let ran = {
        desk.write(
            "play.toml",
            "[[tasks]]\nname = \"same\"\nverify = { equal = \"os\", against = \"d\" }\n",
        );
        desk.run(&[]).ended(1)
    };
    assert!(ran.error().contains("reference d"), "{}", ran.error());
}

#[test]
fn a_teardown_of_nothing_is_well_and_a_benchmark_of_nothing_is_not() {
    let desk = Desk::new("");
    let ran = desk.json(&["playbook", "run", "teardown"]).ended(0);
    assert_eq!(ran.status("down", "a"), "ok");
    let ran = desk.json(&["playbook", "run", "benchmark"]).ended(1);
    assert!(
        ran.error().contains("nothing runs under the name desk"),
        "{}",
        ran.error()
    );
}
