//! Made-up clusters for the screens: events as a run would emit them, with fixed times.

use std::collections::BTreeMap;
use std::sync::Arc;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use windlass::deploy::remote::record::{Record, StageRecord};
use windlass::event::{
    Envelope, Event, Failure, FailureKind, HostCounters, Level, Packed, Quantiles, RequestState,
    Scope, StageRate, Status, Stream, Summary, Telemetry, WorkerEvent, WorkerState,
};
use windlass::facts::Facts;
use windlass::tui::draw;
use windlass::tui::input::{Input, Key};
use windlass::tui::model::{Effect, Listed, ListedHost, Message, Model, Play, Standing};
use windlass::tui::theme::Theme;

/// All a terminal can do.
pub const FULL: Theme = Theme {
    colour: true,
    ascii: false,
};

/// An envelope of a run, so many seconds after noon.
pub fn envelope(run: &str, second: u64, scope: Scope, event: Event) -> Arc<Envelope> {
    Arc::new(Envelope {
        v: 1,
        run: run.to_owned(),
        seq: 0,
        ms: second * 1000,
        time: format!(
            "2026-01-02T12:{:02}:{:02}.000Z",
            second / 60 % 60,
            second % 60
        ),
        scope,
        event,
    })
}

/// A model in which an event happened.
pub fn tell(model: &mut Model, second: u64, scope: Scope, event: Event) {
    model.take(Message::Event(envelope("w1", second, scope, event)));
}

/// Types keys by their names in the command table; a text stands in quotes.
pub fn press(model: &mut Model, keys: &[&str]) -> Vec<Effect> {
    let mut effects = Vec::new();
    for name in keys {
        match name.strip_prefix('"') {
            Some(text) => {
                for c in text.trim_end_matches('"').chars() {
                    let key = Key::plain(windlass::tui::input::Code::Char(c));
                    effects.extend(model.input(Input::Key(key)));
                }
            }
            None => {
                let key = Key::parse(name).unwrap_or_else(|| panic!("{name} is no key"));
                effects.extend(model.input(Input::Key(key)));
            }
        }
    }
    effects
}

fn host(name: &str, address: &str) -> ListedHost {
    ListedHost {
        name: name.into(),
        address: address.into(),
        address_written: true,
        user: Some("ai".into()),
        groups: vec!["halos".into()],
        ..ListedHost::default()
    }
}

/// An inventory of three hosts.
pub fn listed() -> Listed {
    Listed {
        path: "inventory.toml".into(),
        cluster: "halo".into(),
        head: "halo1".into(),
        hosts: vec![
            host("halo1", "192.168.1.11"),
            host("halo2", "192.168.1.12"),
            host("halo3", "192.168.1.13"),
        ],
    }
}

fn facts() -> Facts {
    let mut facts = Facts::default();
    facts.os.name = Some("Fedora Linux 43".into());
    facts.kernel.release = Some("6.18.9-200.fc43.x86_64".into());
    facts.arch = Some("x86_64".into());
    facts.cpu.model = Some("AMD RYZEN AI MAX+ 395".into());
    facts.cpu.cores = Some(16);
    facts.memory.total_bytes = Some(125 << 30);
    facts.memory.available_bytes = Some(33 << 30);
    facts
}

/// The record of a deployment on halo1 and halo2.
pub fn record(deployment: &str) -> Record {
    let stage = |stage: u32, host: &str| StageRecord {
        stage,
        host: host.into(),
        data: format!("192.168.1.{}:47600", 11 + stage),
        first_layer: stage * 15,
        layers: 15,
        piece_bytes: 48_100_000,
        threads: 4,
        program_sha256: "0f".repeat(32),
        address: None,
    };
    Record {
        v: 1,
        cluster: "halo".into(),
        deployment: deployment.into(),
        version: "0.1.0".into(),
        worker_sha256: "0f".repeat(32),
        model: "smollm2".into(),
        model_sha256: "1e".repeat(32),
        context: 4096,
        concurrency: 8,
        kv_blocks: 1024,
        api: "127.0.0.1:8080".into(),
        api_key_sha256: None,
        by: "ai@desk".into(),
        at: "2026-01-02T12:00:00Z".into(),
        stages: vec![stage(0, "halo1"), stage(1, "halo2")],
        left_out: Vec::new(),
        left_behind: Vec::new(),
    }
}

/// Rates of two stages.
pub fn rates(generated: f64, prompt: f64) -> Event {
    let stage = |stage: u32, host: &str, busy| StageRate {
        stage,
        host: host.into(),
        busy,
        rows_per_second: generated + prompt,
        kv_used: 420,
        kv_total: 1024,
        anonymous_bytes: 310 << 20,
        ..StageRate::default()
    };
    Event::Telemetry(Box::new(Telemetry {
        tokens_per_second: generated,
        prompt_tokens_per_second: prompt,
        first_token_ms: Some(Quantiles {
            p50: 74.0,
            p95: 190.2,
        }),
        between_tokens_ms: Some(Quantiles { p50: 7.8, p95: 9.9 }),
        over: 0.5,
        running: 3,
        waiting: 1,
        stages: vec![stage(0, "halo1", 0.94), stage(1, "halo2", 0.89)],
    }))
}

/// A cluster that serves, one host of which cannot be reached.
pub fn serving() -> Model {
    let mut model = Model::new(0);
    model.take(Message::Inventory(Box::new(listed())));
    model.take(Message::Playbooks(vec![
        Play {
            name: "candle-pipeline".into(),
            about: "from bare hosts to a benchmark".into(),
            vars: vec![
                ("concurrency".into(), "1,2,4,8".into()),
                ("model".into(), "smollm2".into()),
            ],
            ..Play::default()
        },
        Play {
            name: "teardown".into(),
            about: "stop all and remove what was left".into(),
            vars: vec![("pieces".into(), "false".into())],
            stops: true,
        },
    ]));
    for name in ["halo1", "halo2"] {
        let state = "reached".into();
        tell(
            &mut model,
            1,
            Scope::host(name),
            Event::HostState {
                state,
                message: Some("as ai".into()),
            },
        );
        model.take(Message::Facts(name.into(), Box::new(facts())));
    }
    tell(
        &mut model,
        2,
        Scope::host("halo3"),
        Event::HostState {
            state: "unreachable".into(),
            message: Some("192.168.1.13:22 refused the connection: is sshd running there?".into()),
        },
    );
    for (stage, name) in [(0, "halo1"), (1, "halo2")] {
        let worker = WorkerEvent {
            layers: Some(15),
            bytes: Some(48_100_000),
            device: Some("cpu, avx512".into()),
            ..WorkerEvent::new(WorkerState::Ready)
        };
        tell(
            &mut model,
            3,
            Scope::worker(name, stage),
            Event::Worker(Box::new(worker)),
        );
    }
    model.take(Message::Standing(Standing::Serving));
    model.take(Message::Talk(Some("smollm2".into())));
    model.take(Message::Uptime(11_520.0));
    for n in 0..240_u32 {
        let wave = f64::from(n % 80);
        tell(
            &mut model,
            u64::from(4 + n / 2),
            Scope::run(),
            rates(60.0 + wave, if n % 40 < 8 { 400.0 } else { 0.0 }),
        );
    }
    model
}

/// The same, with a conversation.
pub fn talking() -> Model {
    let mut model = serving();
    let scope = || Scope::request("chat-1").in_task("answer");
    let request = |state, prompt: Option<&str>| Event::Request {
        state,
        message: None,
        prompt: prompt.map(str::to_owned),
    };
    tell(
        &mut model,
        130,
        scope(),
        request(RequestState::Sent, Some("What is a windlass?")),
    );
    let answer = "A windlass is a drum that is turned by a crank.\nA rope winds around it: 漢字, e\u{301}, and \u{1b}[31mno colour.";
    for (n, word) in (1_u32..).zip(answer.split_inclusive(' ')) {
        tell(
            &mut model,
            131,
            scope(),
            Event::Tokens {
                text: word.into(),
                count: n.into(),
                at: 80.0 + 10.0 * f64::from(n),
            },
        );
    }
    tell(
        &mut model,
        132,
        scope(),
        request(RequestState::Finished, None),
    );
    model
}

/// The same, with a run of which one host failed.
pub fn ran() -> Model {
    let mut model = serving();
    for envelope in run_events() {
        model.take(Message::Event(envelope));
    }
    model
}

/// A run of a playbook: one task done, one failed on a host, one moving bytes, one to come.
pub fn run_events() -> Vec<Arc<Envelope>> {
    let at = |second, scope, event| envelope("7f3a0001", second, scope, event);
    let finished = |status, message: &str| Event::TaskFinished {
        status,
        seconds: 1.2,
        message: Some(message.into()),
    };
    let hosts = ["halo1", "halo2", "halo3"];
    let mut all = vec![at(
        0,
        Scope::run(),
        Event::RunStarted {
            command: "playbook run candle-pipeline".into(),
            version: "0.1.0".into(),
            hosts: hosts.map(str::to_owned).to_vec(),
            tasks: ["facts", "same OS", "push", "up", "bench"]
                .map(str::to_owned)
                .to_vec(),
            check: false,
        },
    )];
    for host in hosts {
        let scope = Scope::host(host).in_task("facts");
        all.push(at(1, scope.clone(), Event::TaskStarted { message: None }));
        all.push(at(2, scope, finished(Status::Ok, "read")));
    }
    for host in hosts {
        let scope = Scope::host(host).in_task("same OS");
        let (status, message) = if host == "halo3" {
            (Status::Failed, "kernel 6.17.1, the reference has 6.18.9")
        } else {
            (Status::Ok, "as the reference")
        };
        all.push(at(3, scope, finished(status, message)));
    }
    let push = |host| Scope::host(host).in_task("push");
    all.push(at(4, push("halo1"), Event::TaskStarted { message: None }));
    for (second, done) in [(4, 0), (6, 412_000_000), (8, 824_000_000)] {
        all.push(at(
            second,
            push("halo1"),
            Event::Transfer {
                what: "pieces".into(),
                done,
                total: Some(1_160_000_000),
            },
        ));
    }
    all.push(at(
        8,
        push("halo2"),
        finished(Status::Changed, "from cache"),
    ));
    all.push(at(
        8,
        push("halo2"),
        Event::Output {
            stream: Stream::Stderr,
            text: "a warning \u{1b}]0;title\u{7} of the host\n".into(),
        },
    ));
    all.push(at(
        9,
        Scope::host("halo1"),
        Event::log(Level::Warn, "the link is slow: 0.94 Gb/s of 10"),
    ));
    all
}

/// The end of that run.
pub fn run_end() -> Arc<Envelope> {
    let counters = |ok, changed, failed, bytes_sent| HostCounters {
        ok,
        changed,
        failed,
        bytes_sent,
        ..HostCounters::default()
    };
    let mut fields = serde_json::Map::new();
    let resume = "windlass playbook run --resume 7f3a0001";
    fields.insert("resume".into(), resume.into());
    envelope(
        "7f3a0001",
        20,
        Scope::run(),
        Event::Summary(Box::new(Summary {
            command: "playbook run".into(),
            exit: 1,
            seconds: 20.0,
            hosts: BTreeMap::from([
                ("halo1".into(), counters(2, 1, 0, 1_160_000_000)),
                ("halo2".into(), counters(2, 1, 0, 0)),
                ("halo3".into(), counters(1, 0, 1, 0)),
            ]),
            error: Some(
                Failure::new(
                    FailureKind::Host,
                    "halo3: kernel 6.17.1, the reference has 6.18.9",
                )
                .on("halo3"),
            ),
            packed: Packed::default(),
            fields,
        })),
    )
}

/// The picture of a model in this many columns and rows.
pub fn picture(model: &mut Model, columns: u16, rows: u16, theme: Theme) -> Buffer {
    model.ui.size = (columns, rows);
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| draw::screen(frame, model, theme))
        .unwrap();
    terminal.backend().buffer().clone()
}

/// The characters of a picture, a line each, without blanks at the ends.
pub fn text(buffer: &Buffer) -> String {
    let mut all = String::new();
    for y in 0..buffer.area.height {
        let mut row = String::new();
        let mut skip = 0;
        for x in 0..buffer.area.width {
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let symbol = buffer[(x, y)].symbol();
            skip = windlass::tui::text::width(symbol).saturating_sub(1);
            row.push_str(symbol);
        }
        all.push_str(row.trim_end());
        all.push('\n');
    }
    all
}

/// The styles of a picture: runs of cells that are not plain, a line each.
pub fn styles(buffer: &Buffer) -> String {
    let mut all = String::new();
    for y in 0..buffer.area.height {
        let mut x = 0;
        while x < buffer.area.width {
            let style = |x| {
                let cell = &buffer[(x, y)];
                (cell.fg, cell.bg, cell.modifier)
            };
            let own = style(x);
            let from = x;
            let mut run = String::new();
            while x < buffer.area.width && style(x) == own {
                run.push_str(buffer[(x, y)].symbol());
                x += 1;
            }
            let plain = (
                ratatui::style::Color::Reset,
                ratatui::style::Color::Reset,
                ratatui::style::Modifier::empty(),
            );
            if own != plain {
                let (fg, bg, modifier) = own;
                all.push_str(&format!(
                    "{y:>2},{from:<3} {fg:?} on {bg:?} {modifier:?}: {}\n",
                    run.trim_end()
                ));
            }
        }
    }
    all
}
