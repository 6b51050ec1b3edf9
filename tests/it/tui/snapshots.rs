//! Every screen at three sizes and without colours, as files beside this one.

use windlass::event::{Event, Scope};
use windlass::tui::model::{Message, Model, Preview, Standing};
use windlass::tui::theme::Theme;

use super::scene::{
    FULL, listed, picture, press, ran, run_end, serving, styles, talking, tell, text,
};

const SIZES: [(u16, u16); 4] = [(120, 40), (80, 24), (40, 12), (200, 60)];

/// Compares a model's pictures at all sizes with the files of this name, and its styles with and
/// without colours.
fn check(name: &str, model: &mut Model) {
    for (columns, rows) in SIZES {
        let buffer = picture(model, columns, rows, FULL);
        insta::assert_snapshot!(format!("{name}-{columns}x{rows}"), text(&buffer));
    }
    let buffer = picture(model, 80, 24, FULL);
    insta::assert_snapshot!(format!("{name}-styles"), styles(&buffer));
    let plain = Theme {
        colour: false,
        ascii: false,
    };
    let bare = picture(model, 80, 24, plain);
    assert_eq!(text(&bare), text(&buffer), "what is said hangs on colour");
    insta::assert_snapshot!(format!("{name}-no-colour"), styles(&bare));
}

#[test]
fn overview() {
    check("overview", &mut serving());
}

#[test]
fn hosts() {
    let mut model = serving();
    press(&mut model, &["2", "down", "down"]);
    check("hosts", &mut model);
}

#[test]
fn drift() {
    let mut model = serving();
    press(&mut model, &["2", "d"]);
    check("drift-not-verified", &mut model);
    for envelope in super::drift::verified() {
        model.take(Message::Event(envelope));
    }
    press(&mut model, &["down"]);
    check("drift", &mut model);
    let mut model = serving();
    model.take(Message::Event(super::drift::nothing_differs()));
    press(&mut model, &["2", "d"]);
    check("drift-none", &mut model);
}

#[test]
fn plan() {
    let mut model = serving();
    press(&mut model, &["3"]);
    check("plan", &mut model);
}

#[test]
fn runs() {
    let mut model = serving();
    press(&mut model, &["4"]);
    check("runs", &mut model);
    let mut model = ran();
    press(&mut model, &["4"]);
    check("run-in-progress", &mut model);
    model.take(Message::Event(run_end()));
    check("run-ended", &mut model);
}

#[test]
fn chat() {
    let mut model = talking();
    press(&mut model, &["5", "\"and 漢字?\""]);
    check("chat", &mut model);
}

#[test]
fn logs() {
    let mut model = ran();
    model.take(Message::Log(
        "halo2".into(),
        vec!["loaded 15 layers".into(), "\u{1b}[2Jready".into()],
    ));
    press(&mut model, &["6"]);
    check("logs", &mut model);
}

#[test]
fn help_and_palette() {
    let mut model = serving();
    press(&mut model, &["?"]);
    check("help", &mut model);
    press(&mut model, &["esc", ":", "\"host\""]);
    check("palette", &mut model);
}

#[test]
fn questions() {
    let mut model = serving();
    let question = |id: &str, text: &str, choices: &[&str], secret| Event::Question {
        id: id.into(),
        text: text.into(),
        choices: choices.iter().map(|c| (*c).to_owned()).collect(),
        secret,
    };
    tell(
        &mut model,
        200,
        Scope::host("halo3"),
        question("q0", "passphrase of ~/.ssh/id_ed25519", &[], true),
    );
    press(&mut model, &["\"opensesame\""]);
    check("question-secret", &mut model);
    press(&mut model, &["enter"]);
    tell(
        &mut model,
        201,
        Scope::host("halo3"),
        question(
            "q1",
            "its key is SHA256:abcdefg and is not known. Trust it?",
            &["y", "n"],
            false,
        ),
    );
    check("question-choice", &mut model);
}

#[test]
fn form_and_difference() {
    let mut model = serving();
    press(&mut model, &["2", "a", "\"halo4\"", "tab", "\"10.0.0.4\""]);
    check("form", &mut model);
    press(&mut model, &["enter"]);
    model.take(Message::Preview(Ok(Preview {
        path: "inventory.toml".into(),
        old: Some("[hosts.halo3]\n".into()),
        new: "[hosts.halo3]\n[hosts.halo4]\naddress = \"10.0.0.4\"\n".into(),
        diff: "--- inventory.toml\n+++ inventory.toml\n@@ -1 +1,3 @@\n [hosts.halo3]\n+[hosts.halo4]\n+address = \"10.0.0.4\"\n".into(),
    })));
    check("difference", &mut model);
}

#[test]
fn values_of_a_playbook() {
    let mut model = serving();
    press(&mut model, &["4", "enter", "tab", "\"-large\""]);
    check("playbook-form", &mut model);
}

#[test]
fn empty_states_say_what_to_do_next() {
    let mut model = Model::new(0);
    model.take(Message::NoInventory {
        why: "there is no inventory, neither ./inventory.toml nor /home/ai/.config/windlass/inventory.toml".into(),
        invalid: false,
    });
    check("no-inventory", &mut model);
    model.take(Message::Inventory(Box::new(listed())));
    model.take(Message::Standing(Standing::Absent));
    check("nothing-runs", &mut model);
    model.take(Message::Standing(Standing::Trouble(
        "halo1: the head does not answer".into(),
    )));
    check("not-reached", &mut model);
}

#[test]
fn a_lost_worker_is_red_with_its_reason_and_leaving_with_a_run_asks() {
    let mut model = serving();
    tell(
        &mut model,
        210,
        Scope::worker("halo2", 1),
        Event::StageLost {
            reason: "the connection was closed".into(),
            ended_after_us: 1_200,
            requests: 2,
        },
    );
    model.take(Message::Standing(Standing::Degraded(
        "stage 1 is lost".into(),
    )));
    check("worker-lost", &mut model);
    let mut model = ran();
    press(&mut model, &["q"]);
    check("leaving", &mut model);
}

#[test]
fn plain_letters_only_when_asked() {
    let theme = Theme {
        colour: false,
        ascii: true,
    };
    for (keys, name) in [("1", "overview"), ("4", "runs"), ("3", "plan")] {
        let mut model = ran();
        press(&mut model, &[keys]);
        let buffer = picture(&mut model, 120, 40, theme);
        let shown = text(&buffer);
        assert!(shown.is_ascii(), "{name}: {shown}");
        insta::assert_snapshot!(format!("ascii-{name}"), shown);
    }
}

#[test]
fn frozen_pictures_stay_as_they_were() {
    let mut model = serving();
    press(&mut model, &["f"]);
    let before = text(&picture(&mut model, 120, 40, FULL));
    tell(&mut model, 220, Scope::run(), super::scene::rates(1.0, 1.0));
    assert_eq!(text(&picture(&mut model, 120, 40, FULL)), before);
    assert!(before.contains("FROZEN"));
    press(&mut model, &["f"]);
    assert_ne!(text(&picture(&mut model, 120, 40, FULL)), before);
}

#[test]
fn one_run_is_found_whole_on_the_screens() {
    let mut model = ran();
    model.take(Message::Event(run_end()));
    press(&mut model, &["4"]);
    let shown = text(&picture(&mut model, 200, 60, FULL));
    for wanted in [
        "facts",
        "same OS",
        "push",
        "up",
        "bench",
        "halo1",
        "halo2",
        "halo3",
        "FAILED",
        "kernel 6.17.1, the reference has 6.18.9",
        "2 ok",
        "1 changed",
        "1 FAILED",
        "1.2 GB sent",
        "exit 1",
        "--resume 7f3a0001",
    ] {
        assert!(shown.contains(wanted), "{wanted} is missing:\n{shown}");
    }
}
