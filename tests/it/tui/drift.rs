//! What differs between hosts, at the screens: what keys do, and the events that tell of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass::event::{Envelope, Event, Failure, FailureKind, Packed, Scope, Summary};
use windlass::tui::command::Screen;
use windlass::tui::model::{Effect, Job, Message, Model, Source};

use super::scene::{FULL, envelope, picture, press, serving, text};

fn verify_summary(error: Option<Failure>, fields: serde_json::Value) -> Arc<Envelope> {
    envelope(
        "7f3a0002",
        31,
        Scope::run(),
        Event::Summary(Box::new(Summary {
            command: "verify".into(),
            exit: if error.is_some() { 5 } else { 0 },
            seconds: 1.4,
            hosts: BTreeMap::new(),
            error,
            packed: Packed::default(),
            fields: fields.as_object().unwrap().clone(),
        })),
    )
}

/// A comparison of hosts that are the same.
pub fn nothing_differs() -> Arc<Envelope> {
    verify_summary(
        None,
        serde_json::json!({"reference": "halo1", "drift": [], "equal": 26, "untold": [], "known_bad": []}),
    )
}

/// A run of `verify` that found something.
pub fn verified() -> Vec<Arc<Envelope>> {
    let row = |subject: &str, key: Option<&str>, values: [Option<&str>; 3], mend: &str| {
        let hosts = ["halo1", "halo2", "halo3"];
        let differs: Vec<&str> = hosts
            .into_iter()
            .zip(values)
            .filter(|(_, value)| value.is_some() && *value != values[0])
            .map(|(host, _)| host)
            .collect();
        let unknown: Vec<&str> = hosts
            .into_iter()
            .zip(values)
            .filter(|(_, value)| value.is_none())
            .map(|(host, _)| host)
            .collect();
        serde_json::json!({
            "subject": subject, "key": key, "needs": "equal",
            "values": {"halo1": values[0], "halo2": values[1], "halo3": values[2]},
            "differs": differs, "unknown": unknown,
            "why": "the GPU's driver and its memory limits are part of the kernel", "mend": mend,
        })
    };
    let started = Event::RunStarted {
        command: "verify".into(),
        version: "0.1.0".into(),
        hosts: ["halo1", "halo2", "halo3"].map(str::to_owned).to_vec(),
        tasks: Vec::new(),
        check: false,
    };
    let failure = Failure::new(
        FailureKind::Drift,
        "4 differences and 1 known bad against halo1, on halo2, halo3; the table says why each matters and what mends it",
    );
    let good = Some("6.18.9-200.fc43.x86_64");
    let fields = serde_json::json!({
        "reference": "halo1", "equal": 26, "untold": [],
        "drift": [
            row("kernel", None, [good, good, Some("6.17.1-300.fc43.x86_64")],
                "install the reference's kernel there, make it the one that boots, and reboot"),
            row("gpu_memory_limit", None, [Some("120.0 GiB"), Some("120.0 GiB"), Some("62.0 GiB")],
                "windlass memory set SIZE on all hosts; where it is set already, reboot"),
            row("loaded_firmware", Some("mes"), [Some("0x80"), None, Some("0x83")],
                "install the reference's firmware package, rebuild the initramfs, and reboot"),
            row("packages", Some("zstd\u{1b}[31m"), [Some("1.5.7"), Some("1.5.6"), Some("absent")],
                "windlass align; or install zstd in the reference's version"),
        ],
        "known_bad": [{
            "host": "halo3", "subject": "kernel", "value": "6.17.1-300.fc43.x86_64",
            "what": "compute on this GPU hangs or gives wrong results",
            "mend": "boot kernel 6.18.4 or newer", "source": "ROCm/ROCm #5724",
        }],
    });
    vec![
        envelope("7f3a0002", 30, Scope::run(), started),
        verify_summary(Some(failure), fields),
    ]
}

#[test]
fn hosts_are_compared_by_one_key_and_what_differs_is_read_row_by_row() {
    let mut model = serving();
    assert_eq!(press(&mut model, &["2", "v"]), [Effect::Start(Job::Verify)]);
    let shown = |model: &mut Model| text(&picture(model, 80, 24, FULL));
    assert!(shown(&mut model).contains("Not verified yet. Press v"));
    let mut events = verified().into_iter();
    model.take(Message::Event(events.next().unwrap()));
    assert!(shown(&mut model).contains("Reading and comparing"));
    // One at a time.
    assert_eq!(press(&mut model, &["v"]), []);
    assert!(model.ui.note.take().unwrap().contains("in progress"));
    model.take(Message::Event(events.next().unwrap()));
    let first = shown(&mut model);
    assert!(first.contains("known bad: compute on this GPU"), "{first}");
    assert!(first.contains("boot kernel 6.18.4"), "{first}");
    press(&mut model, &["end"]);
    let last = shown(&mut model);
    assert!(last.contains("✗ absent: halo3"), "{last}");
    assert!(last.contains("windlass align"), "{last}");
    press(&mut model, &["/", "\"memory\"", "enter"]);
    let filtered = shown(&mut model);
    assert!(
        filtered.contains("gpu_memory_limit") && !filtered.contains("loaded_firmware"),
        "{filtered}"
    );
    // Keys that are for the list of hosts do nothing here.
    assert_eq!(press(&mut model, &["esc", "x"]), []);
    assert!(model.ui.note.take().unwrap().contains("esc goes back"));
    // One step back are the hosts; the screens' own key shows it again.
    press(&mut model, &["esc"]);
    assert!(shown(&mut model).contains("hosts of inventory.toml"));
    press(&mut model, &["d"]);
    assert!(shown(&mut model).contains("drift against halo1"));
    press(&mut model, &["z"]);
    assert!(!shown(&mut model).contains("why "), "{}", shown(&mut model));
    press(&mut model, &["esc", "d"]);
    assert_eq!(model.ui.screen, Screen::Hosts);
    assert!(shown(&mut model).contains("hosts of inventory.toml"));
}

#[test]
fn hosts_that_cannot_be_compared_are_told_so() {
    let mut model = Model::new(0);
    model.take(Message::NoInventory {
        why: "there is none".into(),
        invalid: false,
    });
    assert_eq!(press(&mut model, &["2", "v"]), []);
    assert!(model.ui.note.take().unwrap().contains("no inventory yet"));
    model.take(Message::Source(Source::Journal));
    let shown = text(&picture(&mut model, 80, 24, FULL));
    assert!(shown.contains("No run of this journal"), "{shown}");
    assert_eq!(press(&mut model, &["v"]), []);
}
