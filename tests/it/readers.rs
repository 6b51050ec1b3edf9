//! One journal through every reader: each host, task, status, failure sentence and figure of the
//! recap in it is found in the plain lines, beside the bars, in the JSON and on the screens.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::Value;
use windlass::event::{
    Envelope, Event, Level, RequestState, Scope, Status, Summary, WorkerEvent, WorkerState,
};
use windlass::figures::size;
use windlass::report::replay::JournalEvents;
use windlass::tui::model::{Message, Model};

use crate::playbook::desk::Desk;
use crate::support::json_lines;
use crate::tui::scene::{FULL, picture, press, text};
use crate::tui::terminal::Terminal;

const LONG_HOST: &str = "node-17.rack-4.cellar.example.internal";
const PLAYBOOK: &str = r#"
vars = { context = 4096 }
[[tasks]]
name = "facts"
facts = true
[[tasks]]
name = "as it should be"
assert = "vars.context == 4096"
[[tasks]]
name = "a task whose name says at some length what it is for"
command = "printf 'one \\033[2J\\033]0;title\\007 two\\n\\346\\274\\242\\345\\255\\227\\n'"
[[tasks]]
name = "only here"
when = "host.name == 'a'"
command = "true"
[[tasks]]
name = "at the third try"
hosts = "a"
retries = 2
delay = 0
command = "echo x >>tries; [ $(wc -l <tries) -ge 3 ] || { echo not yet, and this is why >&2; exit 1; }"
[[tasks]]
name = "told only when done"
command = { run = "true", changed_when = "result.rc == 1" }
[[tasks]]
name = "breaks"
command = '''
if [ {{ host.name }} = b ]; then
  printf 'the device /dev/nvme0n1 of this host has 3 blocks that cannot be read: \033[31mlook\033[0m into its log before anything else is tried, and replace it\n' >&2
  exit 3
fi
'''
[[tasks]]
name = "after it"
command = "true"
[[tasks]]
name = "never begun"
hosts = "b"
command = "true"
"#;

/// A real run of the playbook: four hosts that are this machine, and one that nobody listens on.
fn journal(desk: &Desk, more: &[&str]) -> Vec<Envelope> {
    desk.write(
        "inventory.toml",
        &format!(
            "[cluster]\nname = \"desk\"\n[hosts.\"{LONG_HOST}\"]\nconnection = \"local\"\n\
             [hosts.a]\nconnection = \"local\"\n[hosts.b]\nconnection = \"local\"\n\
             [hosts.c]\nconnection = \"local\"\n\
             [hosts.gone]\naddress = \"127.0.0.1\"\nssh = {{ port = 1 }}\n"
        ),
    );
    let ran = desk.run(more);
    let id = ran.summary["run"].as_str().unwrap();
    let path = desk.path(&format!("state/windlass/runs/{id}.ndjson"));
    JournalEvents::open(&path)
        .unwrap()
        .map(|event| event.unwrap())
        .collect()
}

/// The same with what only a deployment tells: bytes that move, and three ways to break.
fn with_a_deployment(mut journal: Vec<Envelope>) -> Vec<Envelope> {
    let end = journal.pop().unwrap();
    let mut add = |scope: Scope, event: Event| {
        journal.push(Envelope {
            scope,
            event,
            ..end.clone()
        });
    };
    let push = || Scope::host("a").in_task("push");
    add(push(), Event::TaskStarted { message: None });
    for done in [0, 24_000_000, 48_123_456] {
        let event = Event::Transfer {
            what: "pieces".into(),
            done,
            total: Some(48_123_456),
        };
        add(push(), event);
    }
    add(
        push(),
        Event::TaskFinished {
            status: Status::Changed,
            seconds: 0.4,
            message: Some("17 pieces".into()),
        },
    );
    add(
        Scope::worker("c", 1),
        Event::Worker(Box::new(WorkerEvent {
            message: Some("it was ended by signal 9".into()),
            ..WorkerEvent::new(WorkerState::Lost)
        })),
    );
    add(
        Scope::worker("c", 1),
        Event::StageLost {
            reason: "the connection was closed by c".into(),
            ended_after_us: 900,
            requests: 2,
        },
    );
    add(
        Scope::request("r1"),
        Event::Request {
            state: RequestState::Failed,
            message: Some("the model lost a stage".into()),
            prompt: None,
        },
    );
    let mut end = end;
    if let Event::Summary(summary) = &mut end.event {
        let counters = summary.hosts.get_mut("a").unwrap();
        counters.changed += 1;
        counters.bytes_sent = 48_123_456;
    }
    journal.push(end);
    journal
}

/// How a task ended on a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    task: String,
    host: String,
    word: &'static str,
    /// Time of day, UTC.
    time: String,
}

/// What stands in a journal.
struct Told {
    hosts: BTreeSet<String>,
    tasks: BTreeSet<String>,
    ends: BTreeSet<End>,
    sentences: BTreeSet<String>,
    summary: Summary,
}

impl Told {
    fn of(journal: &[Envelope]) -> Self {
        let Some(Event::Summary(summary)) = journal.last().map(|last| last.event.clone()) else {
            panic!("no summary");
        };
        let mut told = Self {
            hosts: summary.hosts.keys().cloned().collect(),
            tasks: BTreeSet::new(),
            ends: BTreeSet::new(),
            sentences: BTreeSet::new(),
            summary: *summary,
        };
        for envelope in journal {
            told.take(envelope);
        }
        let error = told.summary.error.clone();
        told.sentences.extend(error.map(|error| error.message));
        let failures = told
            .summary
            .fields
            .get("failures")
            .and_then(Value::as_array);
        for failure in failures.into_iter().flatten() {
            let host = failure["host"].as_str().unwrap();
            let message = failure["message"].as_str().unwrap();
            // Readers tell it beside the host.
            let message = message
                .strip_prefix(&format!("{host}: "))
                .unwrap_or(message);
            told.sentences.insert(message.to_owned());
        }
        told
    }

    fn take(&mut self, envelope: &Envelope) {
        let scope = &envelope.scope;
        self.hosts.extend(scope.host.clone());
        self.tasks.extend(scope.task.clone());
        let mut say = |message: &Option<String>| self.sentences.extend(message.clone());
        match &envelope.event {
            Event::RunStarted { hosts, tasks, .. } => {
                self.hosts.extend(hosts.iter().cloned());
                self.tasks.extend(tasks.iter().cloned());
            }
            Event::HostState { message, .. } => say(message),
            Event::TaskFinished {
                status, message, ..
            } => {
                say(message);
                if let (Some(host), Some(task), None) = (&scope.host, &scope.task, &scope.step) {
                    self.ends.insert(End {
                        task: task.clone(),
                        host: host.clone(),
                        word: status.word(),
                        time: envelope.time[11..19].to_owned(),
                    });
                }
            }
            Event::Log { level, message } if *level >= Level::Warn => say(&Some(message.clone())),
            Event::Worker(worker)
                if matches!(worker.state, WorkerState::Failed | WorkerState::Lost) =>
            {
                say(&worker.message);
            }
            Event::StageLost { reason, .. } => say(&Some(reason.clone())),
            Event::Request {
                state: RequestState::Failed,
                message,
                ..
            } => say(message),
            _ => {}
        }
    }

    /// What lines and screens must have: a name for people, and texts that must each be in one
    /// place. How the end of a task on a host is written differs.
    fn claims(&self, end: impl Fn(&End) -> String) -> Vec<(String, Vec<String>)> {
        let mut claims = Vec::new();
        let mut claim = |what: String, wanted: Vec<String>| claims.push((what, wanted));
        for host in &self.hosts {
            claim(format!("host {host}"), vec![host.clone()]);
        }
        for task in &self.tasks {
            claim(format!("task {task}"), vec![task.clone()]);
        }
        for one in &self.ends {
            claim(format!("{one:?}"), vec![end(one)]);
        }
        for sentence in &self.sentences {
            // What a terminal would obey is written out, each reader in its way.
            let parts = sentence.split(char::is_control);
            let parts = parts.filter(|part| !part.trim().is_empty());
            claim(format!("{sentence:?}"), parts.map(str::to_owned).collect());
        }
        for host in self.summary.hosts.keys() {
            let line = format!("{host} {}", self.figures(host).join(" "));
            claim(format!("recap {line}"), vec![line]);
        }
        let exit = format!("exit {}", self.summary.exit);
        claim(exit.clone(), vec![exit]);
        if let Some(resume) = self.summary.fields.get("resume") {
            let resume = resume.as_str().unwrap().to_owned();
            claim(format!("how to go on: {resume}"), vec![resume]);
        }
        claims
    }

    /// The figures of a host's recap that are not zero, as people read them.
    fn figures(&self, host: &str) -> Vec<String> {
        let counters = serde_json::to_value(&self.summary.hosts[host]).unwrap();
        let names = [
            "ok",
            "changed",
            "would_change",
            "skipped",
            "failed",
            "unreachable",
            "unknown",
            "bytes_sent",
        ];
        assert_eq!(counters.as_object().unwrap().len(), names.len());
        let figures = names
            .iter()
            .map(|name| (*name, counters[name].as_u64().unwrap()));
        figures
            .filter(|(_, figure)| *figure > 0)
            .map(|(name, figure)| match name {
                "bytes_sent" => format!("{} sent", size(figure)),
                name => format!("{figure} {}", name.replace('_', " ")),
            })
            .collect()
    }
}

/// A text without blanks, frames of panes and letters' case: as it stands however it is laid out.
fn bare(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_whitespace() && !"│╭╮╰╯─".contains(*c))
        .flat_map(char::to_lowercase)
        .collect()
}

/// What is in none of the places, by reader.
fn missing(reader: &str, places: &[String], claims: &[(String, Vec<String>)]) -> Vec<String> {
    let places: Vec<String> = places.iter().map(|place| bare(place)).collect();
    let is_there = |wanted: &String| {
        let wanted = bare(wanted);
        places.iter().any(|place| place.contains(&wanted))
    };
    claims
        .iter()
        .filter(|(_, wanted)| !wanted.iter().all(is_there))
        .map(|(what, _)| format!("{reader}: {what}"))
        .collect()
}

/// Lines, each after a mark that stands for its beginning, without the time of day.
fn lines(shown: &str) -> Vec<String> {
    shown
        .lines()
        .map(|line| {
            let timed = line.as_bytes().get(2) == Some(&b':');
            let line = line.get(9..).filter(|_| timed).unwrap_or(line);
            format!("¶{line}")
        })
        .collect()
}

fn missing_in_lines(reader: &str, shown: &str, told: &Told) -> Vec<String> {
    let claims = told.claims(|end| format!("¶{} {} {}", end.task, end.host, end.word));
    missing(reader, &lines(shown), &claims)
}

/// Of the JSON what is asked is that values stand where scripts look for them.
fn missing_in_json(output: &[u8], told: &Told) -> Vec<String> {
    let events = json_lines(output);
    let mut missing = Vec::new();
    let mut need = |is_there: bool, what: String| {
        if !is_there {
            missing.push(format!("json: {what}"));
        }
    };
    let begun = &events[0];
    let listed = |field: &str, name: &str| {
        let names = begun[field].as_array().unwrap();
        names.iter().any(|one| one == name)
            || events
                .iter()
                .any(|event| event["scope"][&field[..4]] == name)
    };
    for host in &told.hosts {
        need(listed("hosts", host), format!("host {host}"));
    }
    for task in &told.tasks {
        need(listed("tasks", task), format!("task {task}"));
    }
    for end in &told.ends {
        let status = end.word.to_lowercase().replace(' ', "_");
        let is_there = events.iter().any(|event| {
            event["event"] == "task_finished"
                && event["scope"]["task"] == end.task.as_str()
                && event["scope"]["host"] == end.host.as_str()
                && event["status"] == status.as_str()
        });
        need(is_there, format!("{end:?}"));
    }
    for sentence in &told.sentences {
        let is_there = events.iter().any(|event| {
            let own = [
                &event["message"],
                &event["reason"],
                &event["error"]["message"],
            ];
            own.iter().any(|text| *text == sentence)
        });
        need(is_there, format!("{sentence:?}"));
    }
    let summary = events.last().unwrap();
    need(
        *summary.get("hosts").unwrap() == serde_json::to_value(&told.summary.hosts).unwrap(),
        "the recap".into(),
    );
    need(summary["exit"] == told.summary.exit, "exit".into());
    need(
        summary.get("resume") == told.summary.fields.get("resume"),
        "how to go on".into(),
    );
    missing
}

/// Pictures of what scrolls, from its beginning to its end.
fn scrolled(model: &mut Model, size: (u16, u16)) -> Vec<String> {
    let mut pictures: Vec<String> = Vec::new();
    // Where what is scrolled can be drawn, the model must know the size.
    picture(model, size.0, size.1, FULL);
    press(model, &["home"]);
    loop {
        let shown = text(&picture(model, size.0, size.1, FULL));
        if pictures.last() == Some(&shown) {
            return pictures;
        }
        pictures.push(shown);
        press(model, &["down"]);
    }
}

/// How tasks ended on hosts, as the pictures of a run's tasks tell it.
fn ends_in_tasks(pictures: &[String], told: &Told) -> BTreeSet<(String, String, String)> {
    let mut found = BTreeSet::new();
    for shown in pictures {
        let mut task = None;
        for line in shown.lines() {
            let line = line.trim_matches('│').trim_end();
            let own = line.trim_start();
            let after_mark = own.split_once(' ').map_or("", |(_, name)| name);
            if line.starts_with(' ') && !line.starts_with("  ") {
                let named = told
                    .tasks
                    .iter()
                    .filter(|name| after_mark.starts_with(*name));
                task = named.max_by_key(|name| name.len());
            } else if let Some(task) = task
                && let Some((host, rest)) = own.split_once(' ')
            {
                let rest = rest.trim_start();
                let mut word = told.ends.iter().map(|end| end.word);
                if let Some(word) = word.find(|word| rest.starts_with(word)) {
                    found.insert((task.clone(), host.to_owned(), word.to_owned()));
                }
            }
        }
    }
    found
}

fn missing_on_screens(journal: &[Envelope], told: &Told, size: (u16, u16)) -> Vec<String> {
    let mut model = Model::new(0);
    for envelope in journal {
        model.take(Message::Event(Arc::new(envelope.clone())));
    }
    let mut pictures = scrolled(&mut model, size);
    press(&mut model, &["4"]);
    pictures.extend(scrolled(&mut model, size));
    press(&mut model, &["z"]);
    pictures.extend(scrolled(&mut model, size));
    press(&mut model, &["z"]);
    let tasks = scrolled(&mut model, size);
    let in_tasks = ends_in_tasks(&tasks, told);
    pictures.extend(tasks);
    let reader = format!("screens {}x{}", size.0, size.1);
    let claims = told.claims(|end| format!("{} {} {} {}", end.time, end.host, end.task, end.word));
    let mut all = missing(&reader, &pictures, &claims);
    // Output is forgotten in time, tasks are not: they tell it too.
    for end in &told.ends {
        let key = (end.task.clone(), end.host.clone(), end.word.to_owned());
        if !in_tasks.contains(&key) {
            all.push(format!("{reader}, tasks: {end:?}"));
        }
    }
    all
}

/// What some reader leaves out of a journal. `windlass` is the program with arguments.
pub fn left_out(path: &Path, windlass: impl Fn(&[&str]) -> Command) -> Vec<String> {
    let events = JournalEvents::open(path).unwrap();
    let journal: Vec<Envelope> = events.map(|event| event.unwrap()).collect();
    let told = Told::of(&journal);
    let path = path.to_str().unwrap();

    let plain = windlass(&["replay", path]).output().unwrap();
    assert!(plain.status.success(), "{plain:?}");
    let shown = [&plain.stderr[..], &plain.stdout].concat();
    let shown = String::from_utf8(shown).unwrap();
    let obeyed = shown.chars().any(|c| c.is_control() && c != '\n');
    assert!(!obeyed, "{}", shown.escape_debug());
    let mut all = missing_in_lines("plain", &shown, &told);

    let json = windlass(&["replay", path, "--json"]).output().unwrap();
    assert!(json.status.success(), "{json:?}");
    all.extend(missing_in_json(&json.stdout, &told));

    for columns in [80, 120] {
        let mut terminal = Terminal::start(windlass(&["replay", path]), columns, 600);
        terminal.shows("recap");
        let (status, shown) = terminal.ended_sane();
        assert!(status.success(), "{shown}");
        let reader = format!("bars, {columns} columns");
        all.extend(missing_in_lines(&reader, &shown, &told));
    }
    for size in [(120, 40), (80, 24)] {
        all.extend(missing_on_screens(&journal, &told, size));
    }
    all
}

fn check(name: &str, desk: &Desk, journal: &[Envelope], statuses: &[Status]) {
    let told = Told::of(journal);
    for status in statuses {
        assert!(
            told.ends.iter().any(|end| end.word == status.word()),
            "the run has nothing that is {}",
            status.word()
        );
    }
    let lines = journal
        .iter()
        .map(|event| serde_json::to_string(event).unwrap() + "\n");
    desk.write(name, &lines.collect::<String>());
    let missing = left_out(&desk.path(name), |arguments| desk.command(arguments));
    assert!(
        missing.is_empty(),
        "{} things of the journal are shown by some reader nowhere:\n{}",
        missing.len(),
        missing.join("\n")
    );
}

#[test]
fn no_reader_leaves_out_anything_of_a_run_in_which_hosts_fail() {
    let desk = Desk::new(PLAYBOOK);
    let journal = with_a_deployment(journal(&desk, &[]));
    let statuses = [
        Status::Ok,
        Status::Changed,
        Status::Skipped,
        Status::Failed,
        Status::Unreachable,
    ];
    check("run.ndjson", &desk, &journal, &statuses);
}

#[test]
fn no_reader_leaves_out_anything_of_a_check() {
    let desk = Desk::new(PLAYBOOK);
    let journal = journal(&desk, &["--check", "--diff"]);
    let statuses = [
        Status::Ok,
        Status::WouldChange,
        Status::Skipped,
        Status::Unknown,
        Status::Unreachable,
    ];
    check("check.ndjson", &desk, &journal, &statuses);
}
