//! Whatever happens and whatever is pressed, in terminals of any size: no panic, and nothing that
//! a terminal would obey.

use proptest::prelude::*;
use windlass::event::{
    Event, Level, RequestState, Scope, StageRate, Status, Stream, Telemetry, WorkerEvent,
    WorkerState,
};
use windlass::tui::input::{Code, Input, Key};
use windlass::tui::model::{Message, Model, Standing};
use windlass::tui::theme::Theme;

use super::scene::{envelope, listed, picture, run_end, run_events, text};

#[derive(Clone, Debug)]
enum Step {
    Message(Message),
    Input(Input),
    Draw(u16, u16, bool, bool),
}

fn nasty() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,40}",
        "[\\x00-\\x9f]{0,20}",
        Just("漢字\u{202e}e\u{301}\u{1b}[2J🙂\u{200d}🙂".to_owned()),
        "[a-z]{200,400}",
    ]
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        0.0..1e4,
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(-5.0),
        Just(1e300),
    ]
}

fn scope() -> impl Strategy<Value = Scope> {
    (
        prop::option::of(prop_oneof![
            Just("halo1".to_owned()),
            Just("halo2".to_owned()),
            nasty()
        ]),
        prop::option::of(prop_oneof![Just("push".to_owned()), nasty()]),
        prop::option::of(nasty()),
        prop::option::of(any::<u32>()),
        prop::option::of(Just("r1".to_owned())),
    )
        .prop_map(|(host, task, step, stage, request)| Scope {
            host,
            task,
            step,
            stage,
            request,
        })
}

fn worker() -> impl Strategy<Value = Event> {
    (
        prop::sample::select(vec![
            WorkerState::Starting,
            WorkerState::Listening,
            WorkerState::Loaded,
            WorkerState::Ready,
            WorkerState::Failed,
            WorkerState::Lost,
            WorkerState::Stopped,
        ]),
        prop::option::of(any::<u32>()),
        prop::option::of(any::<u64>()),
        prop::option::of(nasty()),
    )
        .prop_map(|(state, layers, bytes, message)| {
            Event::Worker(Box::new(WorkerEvent {
                layers,
                bytes,
                device: message.clone(),
                message,
                ..WorkerEvent::new(state)
            }))
        })
}

fn telemetry() -> impl Strategy<Value = Event> {
    (
        number(),
        number(),
        prop::collection::vec((any::<u32>(), nasty(), number(), any::<u32>()), 0..4),
    )
        .prop_map(|(generated, prompt, stages)| {
            Event::Telemetry(Box::new(Telemetry {
                tokens_per_second: generated,
                prompt_tokens_per_second: prompt,
                over: generated,
                stages: stages
                    .into_iter()
                    .map(|(stage, host, busy, kv)| StageRate {
                        stage,
                        host,
                        busy,
                        rows_per_second: busy,
                        kv_used: kv,
                        anonymous_bytes: u64::MAX,
                        ..StageRate::default()
                    })
                    .collect(),
                ..Telemetry::default()
            }))
        })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (nasty(), prop::option::of(nasty()))
            .prop_map(|(state, message)| Event::HostState { state, message }),
        prop::option::of(nasty()).prop_map(|message| Event::TaskStarted { message }),
        (number(), prop::option::of(nasty())).prop_map(|(seconds, message)| {
            Event::TaskFinished {
                status: Status::Failed,
                seconds,
                message,
            }
        }),
        (nasty(), any::<u64>(), prop::option::of(any::<u64>()))
            .prop_map(|(what, done, total)| Event::Transfer { what, done, total }),
        worker(),
        telemetry(),
        nasty().prop_map(|prompt| Event::Request {
            state: RequestState::Sent,
            message: None,
            prompt: Some(prompt),
        }),
        (nasty(), number()).prop_map(|(text, at)| Event::Tokens { text, count: 2, at }),
        nasty().prop_map(|reason| Event::StageLost {
            reason,
            ended_after_us: u64::MAX,
            requests: 1,
        }),
        nasty().prop_map(|text| Event::log(Level::Warn, text)),
        nasty().prop_map(|text| Event::Output {
            stream: Stream::Stdout,
            text,
        }),
        (nasty(), prop::collection::vec(nasty(), 0..3), any::<bool>()).prop_map(
            |(text, choices, secret)| Event::Question {
                id: "q".into(),
                text,
                choices,
                secret,
            }
        ),
        (nasty(), prop::collection::vec(nasty(), 0..3)).prop_map(|(command, tasks)| {
            Event::RunStarted {
                command,
                version: String::new(),
                hosts: tasks.clone(),
                tasks,
                check: false,
            }
        }),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        8 => (scope(), event(), any::<u32>(), prop::sample::select(vec!["w1", "7f3a0001"])).prop_map(
            |(scope, event, second, run)| Message::Event(envelope(run, second.into(), scope, event))
        ),
        1 => prop::sample::select(run_events()).prop_map(Message::Event),
        1 => Just(Message::Event(run_end())),
        1 => Just(Message::Inventory(Box::new(listed()))),
        1 => nasty().prop_map(|why| Message::Standing(Standing::Degraded(why))),
        1 => Just(Message::Standing(Standing::Absent)),
        1 => (nasty(), prop::collection::vec(nasty(), 0..5)).prop_map(|(host, lines)| Message::Log(host, lines)),
        1 => prop::option::of(nasty()).prop_map(Message::Talk),
        1 => nasty().prop_map(|why| Message::Preview(Err(why))),
        1 => nasty().prop_map(Message::Note),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    let code = prop_oneof![
        8 => prop::sample::select("123456qaexucsDnihFzfr?:/jkgGy ".chars().collect::<Vec<_>>()).prop_map(Code::Char),
        1 => any::<char>().prop_map(Code::Char),
        4 => prop::sample::select(vec![
            Code::Enter, Code::Esc, Code::Tab, Code::BackTab, Code::Backspace, Code::Delete,
            Code::Up, Code::Down, Code::Left, Code::Right, Code::Home, Code::End, Code::PageUp,
            Code::PageDown,
        ]),
    ];
    (code, prop::bool::weighted(0.1)).prop_map(|(code, ctrl)| Key { code, ctrl })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => message().prop_map(Step::Message),
        4 => key().prop_map(|key| Step::Input(Input::Key(key))),
        1 => nasty().prop_map(|text| Step::Input(Input::Paste(text))),
        1 => (0..250_u16, 0..80_u16).prop_map(|(column, row)| Step::Input(Input::Click { column, row })),
        1 => any::<bool>().prop_map(|up| Step::Input(Input::Wheel(up))),
        2 => (0..210_u16, 0..70_u16, any::<bool>(), any::<bool>()).prop_map(|(w, h, c, a)| Step::Draw(w, h, c, a)),
        1 => (0..45_u16, 0..16_u16, any::<bool>(), any::<bool>()).prop_map(|(w, h, c, a)| Step::Draw(w, h, c, a)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_happens_or_is_pressed_breaks_the_screens(steps in prop::collection::vec(step(), 1..60)) {
        let mut model = Model::new(0);
        for step in steps {
            match step {
                Step::Message(message) => model.take(message),
                Step::Input(input) => {
                    model.input(input);
                }
                Step::Draw(columns, rows, colour, ascii) => {
                    let buffer = picture(&mut model, columns, rows, Theme { colour, ascii });
                    let shown = text(&buffer);
                    let obeyed = shown.chars().any(|c| c.is_control() && c != '\n');
                    prop_assert!(!obeyed && !shown.contains('\u{202e}'), "{}", shown.escape_debug());
                }
            }
        }
        picture(&mut model, 120, 40, Theme { colour: true, ascii: false });
    }
}
