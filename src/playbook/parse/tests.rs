//! Files that are wrong, each with line, column, what, and the nearest valid name.

use super::*;

/// Text, place of the fault, a part of its sentence, the nearest valid name.
type Bad = (
    &'static str,
    &'static str,
    &'static str,
    Option<&'static str>,
);

const BAD: [Bad; 34] = [
    (
        "nmae = \"a\"\n[[tasks]]\nfacts = true\n",
        "1:1",
        "unknown key \"nmae\" of a playbook",
        Some("name"),
    ),
    (
        "[[task]]\nfacts = true\n",
        "1:3",
        "unknown key \"task\"",
        Some("tasks"),
    ),
    ("name = \"a\"\n", "1:1", "no tasks", None),
    (
        "name = 5\n[[tasks]]\nfacts = true\n",
        "1:8",
        "it must be text",
        None,
    ),
    (
        "vars = 5\n[[tasks]]\nfacts = true\n",
        "1:8",
        "it must be a table",
        None,
    ),
    (
        "vars = { a = \"{{ vars.b }}\" }\n[[tasks]]\nfacts = true\n",
        "1:14",
        "values are plain",
        None,
    ),
    ("tasks = 5\n", "1:9", "[[tasks]]", None),
    ("tasks = [5]\n", "1:10", "must be a table", None),
    ("[[tasks]]\nfacts = \n", "2:9", "this is not TOML", None),
    ("[[tasks]]\nname = \"x\"\n", "1:1", "does nothing", None),
    (
        "[[tasks]]\ncomand = \"true\"\n",
        "2:1",
        "unknown key \"comand\" of a task",
        Some("command"),
    ),
    (
        "[[tasks]]\nfacts = true\nregster = \"a\"\n",
        "3:1",
        "unknown key \"regster\"",
        Some("register"),
    ),
    (
        "[[tasks]]\nfacts = true\nassert = \"true\"\n",
        "3:1",
        "a task does one thing",
        None,
    ),
    (
        "[[tasks]]\nup = { model = \"m\", contxt = 5 }\n",
        "2:21",
        "unknown key \"contxt\" of up",
        Some("context"),
    ),
    (
        "[[tasks]]\nup = { context = 5 }\n",
        "2:1",
        "up needs \"model\"",
        None,
    ),
    (
        "[[tasks]]\nup = { model = \"m\", context = \"many\" }\n",
        "2:31",
        "must be a whole number",
        None,
    ),
    (
        "[[tasks]]\nverify = { equal = [\"os\", \"kernal\"] }\n",
        "2:20",
        "must be one of",
        Some("kernel"),
    ),
    (
        "[[tasks]]\nservice = { name = \"x\", state = \"runing\" }\n",
        "2:33",
        "must be one of started",
        Some("started"),
    ),
    (
        "[[tasks]]\nservice = { name = \"x\" }\n",
        "2:1",
        "state or enabled",
        None,
    ),
    (
        "[[tasks]]\nfile = { path = \"/a\", content = \"x\", src = \"y\" }\n",
        "2:1",
        "cannot both",
        None,
    ),
    (
        "[[tasks]]\nwait_for = { port = 99999 }\n",
        "2:21",
        "from 1 to 65535",
        None,
    ),
    (
        "[[tasks]]\nwait_for = { status = 200 }\n",
        "2:1",
        "one of port, file, url",
        None,
    ),
    (
        "vars = { model = \"m\" }\n[[tasks]]\nmodel = \"{{ vars.modle }}\"\n",
        "3:13",
        "there is no vars.modle",
        Some("model"),
    ),
    (
        "[[tasks]]\nassert = \"fact.os.name == 'x'\"\n",
        "2:11",
        "there is no \"fact\"",
        Some("facts"),
    ),
    (
        "[[tasks]]\nassert = \"facts.kernal.release == 'x'\"\n",
        "2:11",
        "there is no facts.kernal",
        Some("kernel"),
    ),
    (
        "[[tasks]]\nassert = \"host.adress == 'x'\"\n",
        "2:11",
        "there is no host.adress",
        Some("address"),
    ),
    (
        "[[tasks]]\nregister = \"made\"\ncommand = \"true\"\n[[tasks]]\nwhen = \"results.mode.changed\"\nfacts = true\n",
        "5:9",
        "there is no results.mode",
        Some("made"),
    ),
    (
        "[[tasks]]\nassert = \"1 <\"\n",
        "2:10",
        "an expression",
        None,
    ),
    (
        "[[tasks]]\nassert = \"{{ true }}\"\n",
        "2:10",
        "without {{ }}",
        None,
    ),
    (
        "[[tasks]]\ncommand = \"echo {{ host.name \"\n",
        "2:11",
        "`echo",
        None,
    ),
    (
        "[[tasks]]\nhosts = \"halo[1-\"\nfacts = true\n",
        "2:9",
        "no selector",
        None,
    ),
    (
        "[[tasks]]\ntimeout = \"5 days\"\nfacts = true\n",
        "2:11",
        "must be a time",
        None,
    ),
    (
        "[[tasks]]\nserial = 1\nup = { model = \"m\" }\n",
        "2:1",
        "serial has no meaning for up",
        None,
    ),
    (
        "[[tasks]]\nname = \"a\"\nfacts = true\n[[tasks]]\nname = \"a\"\nfacts = true\n",
        "5:8",
        "named \"a\" already",
        None,
    ),
];

#[test]
fn every_bad_file_is_told_with_line_column_what_and_the_nearest_valid_name() {
    for (text, place, what, nearest) in BAD {
        let faults = parse(text).map(|_| ()).unwrap_err();
        let shown: Vec<String> = faults.iter().map(ToString::to_string).collect();
        let fault = &faults[0];
        assert_eq!(
            format!("{}:{}", fault.line, fault.column),
            place,
            "{text}\n{shown:#?}"
        );
        assert!(fault.message.contains(what), "{text}\n{shown:#?}");
        assert_eq!(fault.nearest.as_deref(), nearest, "{text}\n{shown:#?}");
        assert_eq!(faults.len(), 1, "{text}\n{shown:#?}");
    }
}

#[test]
fn all_faults_of_a_file_are_told_at_once_in_its_order() {
    let text = "abuot = \"x\"\n[[tasks]]\ncomand = 1\n[[tasks]]\nup = { modl = \"m\" }\n[[tasks]]\nassert = \"vars.x\"\n";
    let places: Vec<(usize, usize)> = parse(text)
        .map(|_| ())
        .unwrap_err()
        .iter()
        .map(|fault| (fault.line, fault.column))
        .collect();
    assert_eq!(places, [(1, 1), (3, 1), (5, 1), (5, 8), (7, 11)]);
}

#[test]
fn a_task_takes_its_short_form_and_its_defaults() {
    let parsed = parse(
        "vars = { n = 2 }\n[[tasks]]\ncommand = \"make\"\n[[tasks]]\ncommand = { run = [\"a\", \"b c\"] }\n\
         retries = 3\ndelay = \"500ms\"\ntimeout = 5\nserial = 2\nmax_fail = 0\nno_log = true\n\
         tags = \"x\"\nhosts = \"{{ vars.n }}\"\n",
    )
    .unwrap();
    let tasks: Vec<&Task> = parsed
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Task(task) => Some(task.as_ref()),
            Item::Include(_) => None,
        })
        .collect();
    assert_eq!(tasks[0].name, "command");
    assert_eq!(tasks[0].hosts, all_hosts());
    assert_eq!(tasks[0].arguments[0].0, "run");
    let second = tasks[1];
    assert_eq!(second.name, "command 2");
    assert_eq!(
        (second.retries, second.serial, second.max_fail),
        (3, Some(2), Some(0))
    );
    assert_eq!(second.delay.as_millis(), 500);
    assert_eq!(second.timeout.map(|time| time.as_secs()), Some(5));
    assert!(second.no_log);
    assert_eq!(second.tags, ["x"]);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(
        text in "(\\[\\[tasks\\]\\]|\n|=| |\"|\\{\\{|\\}\\}|vars|when|command|up|\\{|\\}|\\[|\\]|\\.|a|1|,|name|\u{e9}){0,40}",
    ) {
        let _ = parse(&text);
    }
}
