//! A cable with delay, pumped in user space because not every kernel has `sch_netem`: a TAP device
//! in each of two network namespaces, frames between them held for a while. Frames pass with their
//! offload headers, so 64 KiB at a time, which is what makes a gigabit cheap.

use std::collections::{HashMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::cgroup;
use crate::command::{Context, Result, wrong};
use crate::network;
use crate::place::Place;
use crate::sys;

/// The longest frame with its header: a 64 KiB super-frame.
const FRAME: usize = 70_000;
/// Frames on their way in one direction; more are lost, as in a switch.
const QUEUE: usize = 4096;
/// Frames taken from one side before the other is looked at.
const BURST: usize = 32;

/// Who pumps the wires.
pub enum Keeper {
    /// Threads of this process: the wires end with it.
    Threads(HashMap<String, Vec<Arc<AtomicBool>>>),
    /// A program that calls [`serve`] with the arguments after these.
    Program(PathBuf, Vec<String>),
}

impl Keeper {
    /// Threads of this process.
    pub fn threads() -> Self {
        Keeper::Threads(HashMap::new())
    }

    /// Lays a wire between a host's interface and a port of the switches; both exist afterwards.
    pub(crate) fn lay(
        &mut self,
        place: &Place,
        host: &str,
        interface: &str,
        port: &str,
        delay: u64,
    ) -> Result<()> {
        let ends = [
            (place.netns_path(host), interface.to_owned()),
            (place.netns_path("sw"), port.to_owned()),
        ];
        match self {
            Keeper::Threads(wires) => {
                let taps = taps(&ends)?;
                let stop = Arc::new(AtomicBool::new(false));
                wires
                    .entry(place.netns(host))
                    .or_default()
                    .push(stop.clone());
                thread::spawn(move || pump(taps, Duration::from_micros(delay), &stop));
                Ok(())
            }
            Keeper::Program(program, first) => {
                let group = place.serving_cgroup("wire", host)?;
                cgroup::make(&group)?;
                let mut command = Command::new(&*program);
                command.args(&*first).arg(group.join("cgroup.procs"));
                for (netns, interface) in &ends {
                    command.arg(netns).arg(interface);
                }
                let mut child = command
                    .arg(delay.to_string())
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::inherit())
                    .spawn()
                    .during(program.display())?;
                let mut line = String::new();
                if let Some(stdout) = child.stdout.take() {
                    BufReader::new(stdout)
                        .read_line(&mut line)
                        .during("a wire")?;
                }
                thread::spawn(move || child.wait());
                if line == "ready\n" {
                    Ok(())
                } else {
                    wrong(format!("the wire of {host} did not come up"))
                }
            }
        }
    }

    /// Takes a host's wires away.
    pub(crate) fn cut(&mut self, place: &Place, host: &str) -> Result<()> {
        if let Keeper::Threads(wires) = self {
            for stop in wires.remove(&place.netns(host)).unwrap_or_default() {
                stop.store(true, Ordering::Release);
            }
        }
        let group = place.serving_cgroup("wire", host)?;
        cgroup::kill(&group)?;
        cgroup::remove(&group)
    }
}

/// What a keeper's program does: joins a control group, lays one wire, says `ready`, pumps until it
/// is killed. Arguments: CGROUP.PROCS NETNS INTERFACE NETNS INTERFACE MICROSECONDS.
///
/// # Errors
/// When an argument is missing or a TAP device cannot be made.
pub fn serve(arguments: &[String]) -> Result<()> {
    let [group, a, a_name, b, b_name, delay] = arguments else {
        return wrong("a wire needs CGROUP.PROCS NETNS INTERFACE NETNS INTERFACE MICROSECONDS");
    };
    let delay: u64 = delay.parse().during(delay)?;
    std::fs::write(group, "0").during(group)?;
    let taps = taps(&[
        (PathBuf::from(a), a_name.clone()),
        (PathBuf::from(b), b_name.clone()),
    ])?;
    println!("ready");
    std::io::stdout().flush().during("stdout")?;
    pump(taps, Duration::from_micros(delay), &AtomicBool::new(false));
    Ok(())
}

fn taps(ends: &[(PathBuf, String); 2]) -> Result<[File; 2]> {
    let [(a, a_name), (b, b_name)] = ends;
    Ok([tap(a, a_name)?, tap(b, b_name)?])
}

/// Makes a TAP device in a network namespace.
fn tap(netns: &Path, name: &str) -> Result<File> {
    network::inside(netns, || {
        // The namespace in which the file is opened is the one the device is made in.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .during("/dev/net/tun")?;
        sys::make_tap(&file, name).during(format_args!("{name}: TAP"))?;
        Ok(file)
    })?
}

/// One direction of a wire: frames with the time at which they arrive.
#[derive(Default)]
struct Way {
    frames: VecDeque<(Instant, Vec<u8>)>,
}

/// Carries frames both ways until told to stop or an end is gone.
fn pump(taps: [File; 2], delay: Duration, stop: &AtomicBool) {
    sys::exact_timers();
    let [a, b] = &taps;
    let mut ways = [Way::default(), Way::default()];
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut buffer = vec![0; FRAME];
    while !stop.load(Ordering::Acquire) {
        let now = Instant::now();
        for (way, mut to) in ways.iter_mut().zip([b, a]) {
            while way.frames.front().is_some_and(|(due, _)| *due <= now) {
                if let Some((_, frame)) = way.frames.pop_front() {
                    // An interface that is down takes none: the frame is lost.
                    let _ = to.write(&frame);
                    spare.push(frame);
                }
            }
        }
        let next = ways
            .iter()
            .filter_map(|way| way.frames.front())
            .map(|(due, _)| due.saturating_duration_since(Instant::now()))
            .min()
            .unwrap_or(Duration::from_millis(100));
        let Ok(ready) = sys::readable([a, b], next) else {
            return;
        };
        for ((way, mut from), ready) in ways.iter_mut().zip([a, b]).zip(ready) {
            if !ready {
                continue;
            }
            for _ in 0..BURST {
                let Ok(length) = from.read(&mut buffer) else {
                    break;
                };
                let Some(bytes) = buffer.get(..length).filter(|bytes| !bytes.is_empty()) else {
                    break;
                };
                if way.frames.len() >= QUEUE {
                    continue;
                }
                let mut frame = spare.pop().unwrap_or_default();
                frame.clear();
                frame.extend_from_slice(bytes);
                way.frames.push_back((Instant::now() + delay, frame));
            }
        }
    }
}
