//! Lines of the kernel's log that tell of GPUs. A line is a hint, never a verdict: the same ones stand
//! in the logs of hosts that serve well, and are missing in those of hosts that failed.

use serde::{Deserialize, Serialize};

use super::script::{Sections, says};

/// What a line tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hint {
    /// Of what.
    pub kind: HintKind,
    /// The GPU, by its place on the bus, when it is named.
    pub slot: Option<String>,
    /// What it is about: a parameter, a file, a ring, a version, a way of resetting.
    pub subject: Option<String>,
    /// Memory it tells of, bytes.
    pub bytes: Option<u64>,
    /// When, seconds after the start of the kernel.
    pub seconds: Option<f64>,
    /// The line without what stands before the kernel's own words.
    pub text: String,
}

/// Of what a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HintKind {
    /// A parameter that a driver does not have was given, and does nothing.
    IgnoredParameter,
    /// A parameter works, and should be replaced by another.
    DeprecatedParameter,
    /// The driver's version.
    DriverVersion,
    /// A GPU's own memory is ready.
    VramReady,
    /// Main memory that a GPU may use is ready.
    GttReady,
    /// A file with firmware could not be loaded.
    MissingFirmware,
    /// A driver gave a GPU up.
    DriverFailed,
    /// Work on a GPU did not end.
    RingTimeout,
    /// The part of a GPU that hands out work does not answer.
    SchedulerHang,
    /// A GPU is reset; its programs lose what they had there.
    ResetBegun,
    /// How it is reset.
    ResetMode,
    /// A reset ended well.
    ResetDone,
    /// A reset did not.
    ResetFailed,
    /// A driver found no memory, which happens in good runs too.
    NoMemory,
    /// NVIDIA's driver reports an error by number.
    Xid,
}

/// Reads the section `kernel_log`; `None` when this login may not see the log.
pub fn parse(sections: &Sections<'_>) -> Option<Vec<Hint>> {
    let text = sections.find("kernel_log")?;
    says(text, "readable").then(|| hints(text))
}

/// What lines tell, in the form of dmesg(1) or of journalctl(1).
pub fn hints(text: &str) -> Vec<Hint> {
    text.lines().filter_map(hint).collect()
}

fn hint(line: &str) -> Option<Hint> {
    let (seconds, text) = own(line);
    let (kind, subject) = told(text)?;
    let bytes = matches!(kind, HintKind::VramReady | HintKind::GttReady)
        .then(|| mebibytes(text))
        .flatten();
    let slot = text
        .split([' ', ',', '(', ')', '\''])
        .map(|word| word.trim_end_matches([':', '.']))
        .find(|word| is_slot(word));
    Some(Hint {
        kind,
        slot: slot.map(str::to_owned),
        subject,
        bytes,
        seconds,
        text: text.trim().to_owned(),
    })
}

/// Without time, host and `kernel:`, as far as they are there.
fn own(line: &str) -> (Option<f64>, &str) {
    let mut rest = line.trim();
    let mut seconds = None;
    if let Some((time, after)) = rest
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
        && let Ok(time) = time.trim().parse::<f64>()
    {
        seconds = Some(time).filter(|time| time.is_finite());
        rest = after;
    }
    let by_kernel = rest.split_once("kernel: ").filter(|(before, _)| {
        before.len() <= 64 && (before.is_empty() || before.ends_with(' ')) && !before.contains('[')
    });
    (seconds, by_kernel.map_or(rest, |(_, rest)| rest).trim())
}

fn told(text: &str) -> Option<(HintKind, Option<String>)> {
    use HintKind as Kind;
    let between = |start: &str, end: &str| {
        let (_, rest) = text.split_once(start)?;
        Some(rest.split_once(end)?.0.to_owned())
    };
    let word = |start: &str| {
        let (_, rest) = text.split_once(start)?;
        let word = rest.split_whitespace().next()?;
        Some(word.trim_end_matches([',', '!', '.', ')']).to_owned())
    };
    let amd = text.contains("amdgpu") || text.starts_with("[drm");
    if let Some(name) = between("unknown parameter '", "' ignored") {
        return Some((Kind::IgnoredParameter, Some(name)));
    }
    if text.contains("is deprecated") && text.contains("gttsize") {
        return Some((Kind::DeprecatedParameter, Some("gttsize".to_owned())));
    }
    if text.contains("NV_ERR_NO_MEMORY") {
        return Some((Kind::NoMemory, Some("NV_ERR_NO_MEMORY".to_owned())));
    }
    if text.starts_with("NVRM: Xid") {
        return Some((Kind::Xid, word("): ")));
    }
    if let Some(file) = between("Direct firmware load for ", " failed") {
        return Some((Kind::MissingFirmware, Some(file)));
    }
    if !amd {
        return None;
    }
    if text.contains("Failed to load") && text.contains("firmware \"") {
        return Some((Kind::MissingFirmware, between("firmware \"", "\"")));
    }
    if text.contains("Fatal error during GPU init") || text.contains("fatal error during GPU init")
    {
        return Some((Kind::DriverFailed, None));
    }
    if text.contains(" of VRAM memory ready") {
        return Some((Kind::VramReady, None));
    }
    if text.contains(" of GTT memory ready") {
        return Some((Kind::GttReady, None));
    }
    if let Some(version) = word("amdgpu version: ") {
        return Some((Kind::DriverVersion, Some(version)));
    }
    if let Some(ring) =
        between("*ERROR* ring ", " timeout").or_else(|| between(": ring ", " timeout"))
    {
        return Some((Kind::RingTimeout, Some(ring)));
    }
    if text.contains("MES failed to respond") || text.contains("MES might be in unrecoverable") {
        return Some((Kind::SchedulerHang, word("msg=")));
    }
    if text.contains("GPU reset begin") {
        return Some((Kind::ResetBegun, word("Source: ")));
    }
    if let Some(mode) = text
        .strip_suffix(" reset")
        .and_then(|front| front.rsplit(' ').next())
        && mode.to_ascii_lowercase().starts_with("mode")
    {
        return Some((Kind::ResetMode, Some(mode.to_owned())));
    }
    if let Some((_, rest)) = text.split_once("GPU reset(") {
        let (count, rest) = rest.split_once(')')?;
        let kind = match rest.trim_start().starts_with("succeeded") {
            true => Kind::ResetDone,
            false => Kind::ResetFailed,
        };
        return Some((kind, Some(count.to_owned())));
    }
    if text.contains("GPU reset end with ret") {
        return Some((Kind::ResetFailed, word("ret = ")));
    }
    None
}

/// The bytes in `amdgpu: 98304M of VRAM memory ready`.
fn mebibytes(text: &str) -> Option<u64> {
    let front = text.split_once(" of ")?.0;
    let number: u64 = front.rsplit(' ').next()?.strip_suffix('M')?.parse().ok()?;
    number.checked_mul(1 << 20)
}

/// `0000:c5:00.0`.
fn is_slot(word: &str) -> bool {
    let parts: Vec<&str> = word.split([':', '.']).collect();
    let [domain, bus, device, function] = parts.as_slice() else {
        return false;
    };
    let digits = |part: &str, count: usize| {
        part.len() == count && part.chars().all(|c| c.is_ascii_hexdigit())
    };
    digits(domain, 4) && digits(bus, 2) && digits(device, 2) && digits(function, 1)
}
