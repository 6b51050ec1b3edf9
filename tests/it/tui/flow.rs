//! What keys do, without a terminal: from keys to what is asked of the work in the background.

use windlass::event::{Event, Scope};
use windlass::inventory::edit::{Edit, Whom};
use windlass::tui::command::Screen;
use windlass::tui::input::Input;
use windlass::tui::model::{Effect, Job, Leave, Message, Preview};

use super::scene::{FULL, picture, press, ran, run_end, serving, talking, tell, text};

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
    let effects = press(&mut model, &["2", "down", "x"]);
    assert_eq!(
        effects,
        [Effect::Preview(Edit::Remove(Whom::Host("halo2".into())))]
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
fn pasted_lines_become_one_line_without_control_characters() {
    let mut model = talking();
    press(&mut model, &["5"]);
    model.input(Input::Paste("one\ntwo\u{1b}[31m".into()));
    let effects = press(&mut model, &["enter"]);
    assert!(
        matches!(&effects[..], [Effect::Ask { prompt, .. }] if prompt == "one two[31m"),
        "{effects:?}"
    );
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
    };
    assert_eq!(press(&mut model, &["4", "down", "c"]), [Effect::Start(job)]);
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
