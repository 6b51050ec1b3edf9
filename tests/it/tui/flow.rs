//! What keys do, without a terminal: from keys to what is asked of the work in the background.

use windlass::event::{Event, Scope};
use windlass::event::{Failure, FailureKind, Status, WorkerEvent, WorkerState};
use windlass::inventory::edit::{Edit, Whom};
use windlass::tui::command::Screen;
use windlass::tui::input::Input;
use windlass::tui::model::{Effect, Job, Leave, Message, Model, Play, Preview, Source, Standing};

use super::scene::{
    FULL, envelope, listed, picture, press, ran, record, run_end, serving, talking, tell, text,
};

#[test]
fn a_host_is_added_by_keys_alone_and_written_only_after_yes() {
    let mut model = serving();
    let keys = ["2", "a", "\"halo4\"", "tab", "\"10.0.0.4\"", "enter"];
    let effects = press(&mut model, &keys);
    let edit = Edit::Add(Whom::Host("halo4".into()), vec!["address=10.0.0.4".into()]);
    assert_eq!(effects, [Effect::Preview(edit)]);
    let preview = Preview {
        path: "inventory.toml".into(),
        old: None,
        new: "x".into(),
        diff: "+x\n".into(),
    };
    model.take(Message::Preview(Ok(preview.clone())));
    assert_eq!(press(&mut model, &["n"]), []);
    assert!(model.ui.form.is_some(), "what was typed is kept");
    model.take(Message::Preview(Ok(preview.clone())));
    assert_eq!(press(&mut model, &["y"]), [Effect::Write(preview)]);
    model.take(Message::Written(Ok("inventory.toml was changed".into())));
    assert!(model.ui.form.is_none());
}

#[test]
fn a_refused_edit_is_told_in_the_form() {
    let mut model = serving();
    press(&mut model, &["2", "a", "\"halo1\"", "enter"]);
    model.take(Message::Preview(Err(
        "the host halo1 is already there".into()
    )));
    let shown = text(&picture(&mut model, 80, 24, FULL));
    assert!(shown.contains("already there"), "{shown}");
}

#[test]
fn removing_shows_the_difference_of_the_chosen_host() {
    let mut model = serving();
    let effects = press(&mut model, &["2", "down", "down", "x"]);
    assert_eq!(
        effects,
        [Effect::Preview(Edit::Remove(Whom::Host("halo3".into())))]
    );
}

#[test]
fn a_secret_is_answered_and_never_drawn() {
    let mut model = serving();
    tell(
        &mut model,
        5,
        Scope::host("halo3"),
        Event::Question {
            id: "q7".into(),
            text: "password of ai@halo3".into(),
            choices: vec![],
            secret: true,
        },
    );
    press(&mut model, &["\"hunter22\""]);
    let shown = text(&picture(&mut model, 80, 24, FULL));
    assert!(!shown.contains("hunter"), "{shown}");
    assert!(shown.contains("••••••••"), "{shown}");
    let answer = Effect::Answer {
        run: "w1".into(),
        id: "q7".into(),
        answer: "hunter22".into(),
    };
    assert_eq!(press(&mut model, &["enter"]), [answer]);
    assert!(model.question().is_none());
}

#[test]
fn a_choice_is_answered_by_its_letter_and_esc_says_no() {
    let ask = |id: &str| Event::Question {
        id: id.into(),
        text: "Trust it?".into(),
        choices: vec!["y".into(), "n".into()],
        secret: false,
    };
    let mut model = serving();
    let answer = |id: &str, answer: &str| Effect::Answer {
        run: "w1".into(),
        id: id.into(),
        answer: answer.into(),
    };
    tell(&mut model, 5, Scope::run(), ask("a"));
    assert_eq!(press(&mut model, &["q", "y"]), [answer("a", "y")]);
    tell(&mut model, 6, Scope::run(), ask("b"));
    assert_eq!(press(&mut model, &["esc"]), [answer("b", "n")]);
}

#[test]
fn chat_sends_what_was_said_before_and_keeps_a_draft() {
    let mut model = talking();
    press(&mut model, &["5", "\"And then?\"", "esc", "1", "5"]);
    let effects = press(&mut model, &["enter"]);
    let [Effect::Ask { prompt, before }] = &effects[..] else {
        panic!("{effects:?}");
    };
    assert_eq!(prompt, "And then?");
    assert_eq!(before.len(), 1);
    assert_eq!(before[0].prompt, "What is a windlass?");
}

#[test]
fn pasted_lines_stay_lines_in_the_chat_and_are_shown_with_a_mark() {
    // Terminals send line ends in any of these ways.
    for pasted in ["one\ntwo\u{1b}[31m\n", "one\rtwo[31m", "one\r\ntwo[31m\r\n"] {
        let mut model = talking();
        press(&mut model, &["5"]);
        model.input(Input::Paste(pasted.into()));
        press(&mut model, &["\"!\""]);
        let shown = text(&picture(&mut model, 80, 24, FULL));
        assert!(shown.contains(" you: one↵two[31m!"), "{shown}");
        // The draft is shown in one line too.
        press(&mut model, &["esc"]);
        let shown = text(&picture(&mut model, 80, 24, FULL));
        assert!(shown.contains("\"one↵two[31m!\""), "{shown}");
        let effects = press(&mut model, &["enter", "enter"]);
        assert!(
            matches!(&effects[..], [Effect::Ask { prompt, .. }] if prompt == "one\ntwo[31m!"),
            "{effects:?}"
        );
    }
}

#[test]
fn lines_pasted_where_one_line_is_typed_become_one_with_blanks() {
    for pasted in ["one\ntwo", "one\rtwo\r", "one\r\ntwo"] {
        let mut model = serving();
        press(&mut model, &["/"]);
        model.input(Input::Paste(pasted.into()));
        assert_eq!(model.ui.filter(), "one two");
    }
}

#[test]
fn leaving_asks_only_while_a_run_is_in_progress() {
    let mut model = serving();
    assert_eq!(press(&mut model, &["q"]), [Effect::Leave(Leave::Quit)]);
    let mut model = ran();
    assert_eq!(press(&mut model, &["q"]), []);
    assert_eq!(press(&mut model, &["n"]), []);
    assert_eq!(press(&mut model, &["q", "y"]), [Effect::Leave(Leave::Quit)]);
    assert_eq!(press(&mut model, &["ctrl-c"]), []);
    assert_eq!(
        press(&mut model, &["ctrl-c"]),
        [Effect::Leave(Leave::Interrupt)]
    );
    let mut model = ran();
    model.take(Message::Event(run_end()));
    assert_eq!(press(&mut model, &["q"]), [Effect::Leave(Leave::Quit)]);
}

#[test]
fn playbooks_and_models_are_started_by_keys() {
    let mut model = serving();
    let job = Job::Playbook {
        name: "teardown".into(),
        check: true,
        vars: Vec::new(),
    };
    assert_eq!(press(&mut model, &["4", "down", "c"]), []);
    assert_eq!(press(&mut model, &["enter"]), [Effect::Start(job)]);
    let mut model = serving();
    let effects = press(&mut model, &["1", "u", "ctrl-u", "\"qwen3\"", "enter"]);
    assert_eq!(effects, [Effect::Start(Job::Up("qwen3".into()))]);
    let mut model = serving();
    assert_eq!(press(&mut model, &["D"]), []);
    assert_eq!(press(&mut model, &["y"]), [Effect::Start(Job::Down)]);
    let mut model = ran();
    assert_eq!(press(&mut model, &["1", "D", "y"]), [], "one run at a time");
    assert_eq!(
        press(&mut model, &["1", "u", "enter"]),
        [],
        "one run at a time"
    );
}

#[test]
fn the_palette_does_what_it_names_wherever_one_is() {
    let mut model = serving();
    press(&mut model, &[":", "\"add host\"", "enter"]);
    assert_eq!(model.ui.screen, Screen::Hosts);
    assert!(model.ui.form.is_some());
}

#[test]
fn clicks_choose_screens_and_hosts() {
    let mut model = serving();
    let shown = text(&picture(&mut model, 80, 24, FULL));
    let tabs = shown
        .lines()
        .position(|line| line.contains("5 Chat"))
        .unwrap();
    let at = shown.lines().nth(tabs).unwrap().find("6 Logs").unwrap();
    model.input(Input::Click {
        column: u16::try_from(at).unwrap() + 1,
        row: u16::try_from(tabs).unwrap(),
    });
    assert_eq!(model.ui.screen, Screen::Logs);
    press(&mut model, &["1"]);
    let row = shown
        .lines()
        .position(|line| line.contains("halo2") && line.contains("serving"))
        .unwrap();
    model.input(Input::Click {
        column: 8,
        row: u16::try_from(row).unwrap(),
    });
    assert_eq!(model.ui.row(), 1);
}

#[test]
fn a_filter_chooses_hosts_and_esc_shows_all_again() {
    let mut model = serving();
    press(&mut model, &["/", "\"unreach\"", "enter"]);
    assert_eq!(model.shown_hosts().count(), 1);
    press(&mut model, &["/", "ctrl-u", "\"!unreach\"", "enter"]);
    assert_eq!(model.shown_hosts().count(), 2);
    press(&mut model, &["esc"]);
    assert_eq!(model.shown_hosts().count(), 3);
}

#[test]
fn a_playbook_s_values_are_asked_for_before_it_is_run() {
    let mut model = serving();
    assert_eq!(press(&mut model, &["4", "enter"]), []);
    let shown = text(&picture(&mut model, 80, 24, FULL));
    for wanted in [
        "run candle-pipeline with these values",
        "concurrency   1,2,4,8",
        "as the playbook has it: 1,2,4,8",
        "model         smollm2",
        "enter run",
    ] {
        assert!(shown.contains(wanted), "{wanted}:\n{shown}");
    }
    let keys = ["ctrl-u", "\"1\"", "enter"];
    let job = Job::Playbook {
        name: "candle-pipeline".into(),
        check: false,
        vars: vec![("concurrency".into(), "1".into())],
    };
    assert_eq!(press(&mut model, &keys), [Effect::Start(job)]);
    assert!(model.ui.form.is_none());
    let mut model = serving();
    press(&mut model, &["4", "enter", "esc"]);
    assert!(model.ui.form.is_none(), "esc leaves it");
    // One without values begins at once.
    model.take(Message::Playbooks(vec![Play {
        name: "facts".into(),
        ..Play::default()
    }]));
    assert!(matches!(
        &press(&mut model, &["enter"])[..],
        [Effect::Start(_)]
    ));
    // While another runs, the form is not even opened.
    let mut model = ran();
    model.ui.run = None;
    assert_eq!(press(&mut model, &["4", "enter"]), []);
    assert!(model.ui.form.is_none() && model.ui.note.is_some());
}

#[test]
fn a_playbook_that_stops_what_runs_asks_first_and_its_check_does_not() {
    let mut model = serving();
    let job = Job::Playbook {
        name: "teardown".into(),
        check: false,
        vars: Vec::new(),
    };
    assert_eq!(press(&mut model, &["4", "down", "enter", "enter"]), []);
    let shown = text(&picture(&mut model, 80, 24, FULL));
    assert!(shown.contains("stops the deployment of halo"), "{shown}");
    assert_eq!(press(&mut model, &["n"]), []);
    assert_eq!(press(&mut model, &["enter", "enter"]), []);
    assert_eq!(press(&mut model, &["y"]), [Effect::Start(job)]);
}

#[test]
fn ctrl_c_closes_what_is_typed_and_only_then_leaves() {
    let forms: [&[&str]; 6] = [
        &["2", "a", "\"halo4\""],
        &["4", "enter"],
        &[":", "\"add\""],
        &["/", "\"x\""],
        &["u"],
        &["D"],
    ];
    for keys in forms {
        let mut model = serving();
        press(&mut model, keys);
        assert_eq!(press(&mut model, &["ctrl-c"]), [], "{keys:?}");
        let closed = model.ui.form.is_none() && model.ui.typing.is_none();
        assert!(closed && model.ui.confirm.is_none(), "{keys:?}");
        assert!(model.ui.note.is_some(), "{keys:?}");
        assert_eq!(
            press(&mut model, &["ctrl-c"]),
            [Effect::Leave(Leave::Interrupt)],
            "{keys:?}"
        );
    }
    let mut model = talking();
    assert_eq!(press(&mut model, &["5", "\"a draft\"", "ctrl-c"]), []);
    assert_eq!(model.ui.draft.value(), "a draft");
}

#[test]
fn a_host_that_serves_is_removed_only_after_a_question() {
    let mut model = serving();
    assert_eq!(press(&mut model, &["2", "down", "x"]), []);
    let shown = text(&picture(&mut model, 80, 24, FULL));
    assert!(
        shown.contains("halo2 holds stage 1 of what runs"),
        "{shown}"
    );
    assert_eq!(press(&mut model, &["n"]), []);
    press(&mut model, &["x"]);
    assert_eq!(
        press(&mut model, &["y"]),
        [Effect::Preview(Edit::Remove(Whom::Host("halo2".into())))]
    );
}

/// A cluster that serves on halo1 and halo2, of which halo2 then leaves the inventory.
fn without_halo2() -> Model {
    let mut model = serving();
    model.take(Message::Record(Box::new(record("halo-1"))));
    let mut less = listed();
    less.hosts.retain(|host| host.name != "halo2");
    model.take(Message::Inventory(Box::new(less)));
    model
}

#[test]
fn a_host_that_left_the_inventory_is_shown_until_it_is_stopped() {
    let mut model = without_halo2();
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(shown.contains("halo2"), "{shown}");
    model.take(Message::Standing(Standing::Absent));
    let shown = text(&picture(&mut model, 120, 40, FULL));
    for wanted in ["▲ not all stopped", "▲ not stopped", "What ran on halo2"] {
        assert!(shown.contains(wanted), "{wanted}:\n{shown}");
    }
    // Looking again does not make it go.
    let mut less = listed();
    less.hosts.retain(|host| host.name != "halo2");
    model.take(Message::Inventory(Box::new(less)));
    model.take(Message::Standing(Standing::Absent));
    assert_eq!(model.data.left().count(), 1);
    // A deployment that is made anew on the others leaves it running too.
    let mut other = record("halo-2");
    other.stages.truncate(1);
    model.take(Message::Record(Box::new(other)));
    assert_eq!(model.data.left().count(), 1);

    let stopped = Event::TaskFinished {
        status: Status::Changed,
        seconds: 1.0,
        message: None,
    };
    let scope = Scope::host("halo2").in_task("stop");
    model.take(Message::Event(envelope("d1", 300, scope, stopped)));
    assert_eq!(model.data.left().count(), 0);
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(!shown.contains("▲"), "{shown}");
}

#[test]
fn a_host_that_came_back_to_the_inventory_is_one_like_the_others() {
    let mut model = without_halo2();
    model.take(Message::Standing(Standing::Absent));
    model.take(Message::Inventory(Box::new(listed())));
    model.take(Message::Record(Box::new(record("halo-1"))));
    assert_eq!(model.data.left().count(), 0);
    let host = model.data.host("halo2").unwrap();
    assert_eq!((host.stage, host.reason.as_deref()), (Some(1), None));
    // Whoever stopped it there by hand takes its row away.
    let mut model = without_halo2();
    model.take(Message::Standing(Standing::Absent));
    press(&mut model, &["2", "G", "x"]);
    assert!(model.data.hosts.iter().all(|host| host.name != "halo2"));
}

#[test]
fn looking_again_at_the_same_deployment_forgets_nothing_of_it() {
    let mut model = serving();
    model.take(Message::Record(Box::new(record("halo-1"))));
    let ready = |model: &mut Model| {
        for (stage, name) in [(0, "halo1"), (1, "halo2")] {
            let worker = Box::new(WorkerEvent::new(WorkerState::Ready));
            let scope = Scope::worker(name, stage);
            model.take(Message::Event(envelope(
                "w2",
                300,
                scope,
                Event::Worker(worker),
            )));
        }
    };
    ready(&mut model);
    model.take(Message::Uptime(60.0));
    tell(
        &mut model,
        301,
        Scope::run(),
        super::scene::rates(60.0, 0.0),
    );
    let events = model.data.events.len();
    // As r or a saved inventory has it: all is looked at anew.
    model.take(Message::Inventory(Box::new(listed())));
    model.take(Message::Standing(Standing::Looking));
    model.take(Message::Record(Box::new(record("halo-1"))));
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert_eq!(shown.matches("● serving").count(), 2, "{shown}");
    assert!(
        shown.contains("60.0 tok/s") && shown.contains("up 1m"),
        "{shown}"
    );
    ready(&mut model);
    assert_eq!(
        model.data.events.len(),
        events,
        "something old was told as news"
    );
    // Another deployment is another matter.
    model.take(Message::Record(Box::new(record("halo-2"))));
    assert!(model.data.telemetry.is_none() && model.data.uptime().is_none());
}

#[test]
fn the_last_row_is_chosen_where_the_chosen_one_is_there_no_more() {
    let mut model = serving();
    press(&mut model, &["2", "G"]);
    let mut less = listed();
    less.hosts.truncate(2);
    model.take(Message::Inventory(Box::new(less)));
    assert_eq!(model.ui.row(), 1);
    let shown = text(&picture(&mut model, 80, 24, FULL));
    assert!(shown.contains("▸ halo2"), "{shown}");
    press(&mut model, &["1", "G", "/", "\"halo1\"", "enter"]);
    assert_eq!(model.ui.row(), 0);
}

#[test]
fn what_needs_an_inventory_says_that_there_is_none() {
    let missing = |invalid| {
        let mut model = Model::new(0);
        let why = "inventory.toml:3:1: this is no key".into();
        model.take(Message::NoInventory { why, invalid });
        model
    };
    for key in ["u", "D"] {
        let mut model = missing(false);
        press(&mut model, &[key]);
        assert!(model.ui.typing.is_none() && model.ui.confirm.is_none());
        assert!(model.ui.note.unwrap().contains("press 2, then a"));
        let mut model = missing(true);
        press(&mut model, &[key]);
        assert!(model.ui.note.unwrap().contains("inventory.toml:3:1"));
    }
    let mut model = missing(true);
    model.take(Message::Standing(Standing::Trouble("it is invalid".into())));
    for keys in ["1", "2"] {
        press(&mut model, &[keys]);
        let shown = text(&picture(&mut model, 120, 40, FULL));
        assert!(shown.contains("✗ inventory invalid"), "{shown}");
        assert!(shown.contains("inventory.toml:3:1"), "{shown}");
        assert!(!shown.contains("not reached"), "{shown}");
    }
    // Mended, it is one like any other.
    model.take(Message::Inventory(Box::new(listed())));
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(!shown.contains("invalid"), "{shown}");
}

#[test]
fn a_demo_that_died_is_not_in_progress_and_offers_nothing_that_it_cannot_do() {
    let mut model = Model::new(0);
    model.take(Message::Source(Source::Demo));
    let started = Event::RunStarted {
        command: "demo".into(),
        version: String::new(),
        hosts: vec!["local-1".into()],
        tasks: Vec::new(),
        check: false,
    };
    tell(&mut model, 0, Scope::run(), started);
    press(&mut model, &["4"]);
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(shown.contains("in progress"), "{shown}");
    let failure = Failure::new(FailureKind::Worker, "local-1: it was killed");
    model.take(Message::Ended("w1".into(), Some(failure)));
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(!shown.contains("in progress"), "{shown}");
    assert!(
        shown.contains("exit 1") && shown.contains("it was killed"),
        "{shown}"
    );
    press(&mut model, &["esc"]);
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(
        shown.contains("✗ demo") && shown.contains("exit 1"),
        "{shown}"
    );

    for (screen, refused) in [
        ("1", &["u start", "u on the"][..]),
        ("2", &["a add", "Press a", "r looks"]),
        ("3", &["u on the"]),
        ("4", &["c check", "s stop"]),
        ("5", &["u there"]),
        ("6", &[]),
    ] {
        press(&mut model, &["esc", "esc", screen, "?"]);
        let helped = text(&picture(&mut model, 120, 40, FULL));
        assert!(!helped.contains("bring a model up"), "{helped}");
        press(&mut model, &["esc"]);
        let shown = text(&picture(&mut model, 120, 40, FULL));
        for refused in refused {
            assert!(!shown.contains(refused), "{refused}:\n{shown}");
        }
    }
    press(&mut model, &["1", "u"]);
    assert!(model.ui.typing.is_none());
    assert!(model.ui.note.as_ref().unwrap().contains("the demo"));
}

#[test]
fn a_run_that_was_cut_off_is_not_in_progress_in_its_journal() {
    let mut model = ran();
    model.data.close_journal();
    press(&mut model, &["4", "esc"]);
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(!shown.contains("in progress"), "{shown}");
    assert!(shown.contains("cut off before it told"), "{shown}");
    assert_eq!(press(&mut model, &["q"]), [Effect::Leave(Leave::Quit)]);
}

#[test]
fn a_filter_is_shown_wherever_it_chooses() {
    for (screen, title) in [
        ("1", "hosts with"),
        ("2", "inventory.toml with"),
        ("3", "smollm2 with"),
    ] {
        let mut model = serving();
        press(&mut model, &[screen, "/", "\"halo1\"", "enter"]);
        for (columns, rows) in [(120, 40), (80, 24), (40, 12)] {
            let shown = text(&picture(&mut model, columns, rows, FULL));
            assert!(shown.contains("/halo1"), "{screen}:\n{shown}");
            if columns >= 80 {
                assert!(shown.contains(title), "{title}:\n{shown}");
            }
        }
    }
    let mut model = ran();
    press(&mut model, &["4", "/", "\"slow\"", "enter"]);
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(shown.contains("output with \"slow\""), "{shown}");
}

#[test]
fn a_palette_that_found_nothing_says_so() {
    let mut model = serving();
    press(&mut model, &[":", "\"zzzz\""]);
    let shown = text(&picture(&mut model, 80, 24, FULL));
    assert!(shown.contains("No command has these letters"), "{shown}");
    assert_eq!(press(&mut model, &["enter"]), []);
    assert!(model.ui.note.as_ref().unwrap().contains("zzzz"));
    // It is still open, to be mended.
    press(&mut model, &["ctrl-u", "\"add host\"", "enter"]);
    assert!(model.ui.form.is_some());
}

#[test]
fn what_is_longer_than_its_row_ends_in_a_mark() {
    let mut model = serving();
    let long = "a sentence that goes on and on ".repeat(10);
    tell(
        &mut model,
        300,
        Scope::run(),
        Event::log(windlass::event::Level::Warn, long),
    );
    for (columns, rows) in [(120, 40), (80, 24), (40, 12)] {
        let shown = text(&picture(&mut model, columns, rows, FULL));
        let line = shown
            .lines()
            .find(|line| line.contains("a sentence"))
            .unwrap();
        let line = line.trim_end_matches([' ', '│']);
        assert!(line.ends_with('…'), "{columns}x{rows}: {line}");
    }
    let name = "playbooks/everything-that-is-done-on-mondays.toml";
    model.take(Message::Playbooks(vec![Play {
        name: name.into(),
        ..Play::default()
    }]));
    press(&mut model, &["4"]);
    let shown = text(&picture(&mut model, 120, 40, FULL));
    assert!(shown.contains(name), "{shown}");
}

#[test]
fn rates_of_a_measurement_are_not_counted_beside_those_of_the_watch() {
    let mut model = ran();
    let before = model.data.rates.len();
    let event = || super::scene::rates(500.0, 0.0);
    model.take(Message::Event(envelope(
        "7f3a0001",
        9,
        Scope::run(),
        event(),
    )));
    assert_eq!(model.data.rates.len(), before);
    tell(&mut model, 9, Scope::run(), event());
    assert_eq!(model.data.rates.len(), before + 1);
}

#[test]
fn questions_of_a_watch_that_is_over_are_gone() {
    let mut model = serving();
    let question = Event::Question {
        id: "q1".into(),
        text: "Trust it?".into(),
        choices: vec!["y".into(), "n".into()],
        secret: false,
    };
    tell(&mut model, 5, Scope::run(), question);
    assert!(model.question().is_some());
    model.take(Message::Unasked("w1".into()));
    assert!(model.question().is_none());
}
