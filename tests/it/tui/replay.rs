//! How fast a large journal is taken and drawn. Prints what it measured; asserts no times.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use windlass::event::{Event, Scope, StageRate, Status, Telemetry, WorkerEvent, WorkerState};
use windlass::tui::draw;
use windlass::tui::model::{Message, Model};

use super::scene::{FULL, envelope};

const HOSTS: u32 = 1_000;
const SECONDS: u64 = 60;

fn name(host: u32) -> String {
    format!("node{host:04}")
}

/// A journal of many hosts: a run that does three tasks on each, then rates twice a second.
fn journal() -> Vec<Message> {
    let mut all = Vec::new();
    let mut tell = |second, scope, event| {
        all.push(Message::Event(envelope("0badcafe", second, scope, event)));
    };
    let tasks = ["facts", "push", "start"];
    tell(
        0,
        Scope::run(),
        Event::RunStarted {
            command: "playbook run candle-pipeline".into(),
            version: "0".into(),
            hosts: (0..HOSTS).map(name).collect(),
            tasks: tasks.map(str::to_owned).to_vec(),
            check: false,
        },
    );
    for task in tasks {
        for host in 0..HOSTS {
            let scope = Scope::host(name(host)).in_task(task);
            tell(1, scope.clone(), Event::TaskStarted { message: None });
            for done in [0, 500_000, 1_000_000] {
                let event = Event::Transfer {
                    what: "pieces".into(),
                    done,
                    total: Some(1_000_000),
                };
                tell(2, scope.clone(), event);
            }
            let event = Event::TaskFinished {
                status: Status::Changed,
                seconds: 1.0,
                message: Some("48.1 MB".into()),
            };
            tell(3, scope, event);
        }
    }
    for host in 0..HOSTS {
        let event = WorkerEvent {
            layers: Some(1),
            bytes: Some(48_000_000),
            ..WorkerEvent::new(WorkerState::Ready)
        };
        tell(
            4,
            Scope::worker(name(host), host),
            Event::Worker(Box::new(event)),
        );
    }
    for half in 0..SECONDS * 2 {
        let stages = (0..HOSTS)
            .map(|stage| StageRate {
                stage,
                host: name(stage),
                busy: 0.9,
                rows_per_second: f64::from(stage % 100) + half as f64,
                kv_total: 1024,
                ..StageRate::default()
            })
            .collect();
        let rates = Telemetry {
            tokens_per_second: 100.0 + half as f64,
            over: 0.5,
            stages,
            ..Telemetry::default()
        };
        tell(
            5 + half / 2,
            Scope::run(),
            Event::Telemetry(Box::new(rates)),
        );
    }
    all
}

/// Resident bytes of this process, and the seconds of processor time it took.
fn used() -> (u64, f64) {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    // Fields 14 and 15, of which the name before may hold blanks; in hundredths of a second.
    let ticks = std::fs::read_to_string("/proc/self/stat").ok().map(|text| {
        let rest = text.rsplit(')').next().unwrap_or_default().to_owned();
        rest.split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|word| word.parse::<f64>().ok())
            .sum::<f64>()
    });
    (pages.unwrap_or(0) * 4096, ticks.unwrap_or(0.0) / 100.0)
}

#[test]
#[ignore = "a measurement; run with --ignored --nocapture"]
fn a_journal_of_a_thousand_hosts_at_full_speed() {
    let journal = journal();
    let events = journal.len();
    let (memory_before, cpu_before) = used();
    let begin = Instant::now();
    let mut model = Model::new(0);
    model.ui.size = (200, 60);
    let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
    let mut frames: Vec<Duration> = Vec::new();
    for chunk in journal.chunks(100) {
        for message in chunk {
            model.take(message.clone());
        }
        let at = Instant::now();
        terminal
            .draw(|frame| draw::screen(frame, &model, FULL))
            .unwrap();
        frames.push(at.elapsed());
    }
    let all = begin.elapsed();
    let (memory, cpu) = used();
    frames.sort();
    let at = |part: f64| {
        let index = ((frames.len() - 1) as f64 * part) as usize;
        frames[index].as_secs_f64() * 1000.0
    };
    println!(
        "{HOSTS} hosts, {events} events, {} frames of 200x60 in {:.2} s",
        frames.len(),
        all.as_secs_f64()
    );
    println!(
        "frame: p50 {:.2} ms, p95 {:.2} ms, most {:.2} ms; {:.0} events/s",
        at(0.5),
        at(0.95),
        at(1.0),
        events as f64 / all.as_secs_f64()
    );
    println!(
        "processor time {:.2} s; memory of the model {:.1} MiB",
        cpu - cpu_before,
        memory.saturating_sub(memory_before) as f64 / 1048576.0
    );
    assert_eq!(model.data.hosts.len(), HOSTS as usize);
}
