//! GPUs of NVIDIA as nvidia-smi(1) shows them: what was queried, its table, its table of parts (MIG).

use std::collections::BTreeMap;

use super::{Devices, Silent};

/// The table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The driver's version.
    pub driver: Option<String>,
    /// The newest CUDA that it serves.
    pub cuda: Option<String>,
    /// The GPUs.
    pub gpus: Vec<Nvidia>,
    /// Parts that GPUs are cut into.
    pub parts: Vec<Part>,
}

/// A GPU of the table. What is `N/A` or not supported is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nvidia {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Where it is on the bus, as it says: with eight digits before the first colon.
    pub bus: String,
    /// Memory that is used, MiB. With no memory of its own (GB10) it has none to tell.
    pub memory_used_mib: Option<u64>,
    /// All of its memory, MiB.
    pub memory_total_mib: Option<u64>,
    /// Temperature, degrees Celsius.
    pub temperature_c: Option<f64>,
    /// What it draws, watts.
    pub power_w: Option<f64>,
    /// The most it may draw, watts.
    pub power_cap_w: Option<f64>,
}

/// A part of a GPU, which programs see as a GPU: the memory of the whole is not theirs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The GPU's number.
    pub gpu: u32,
    /// The part's own.
    pub instance: u32,
    /// Memory that is used, MiB.
    pub memory_used_mib: Option<u64>,
    /// All of its memory, MiB.
    pub memory_total_mib: Option<u64>,
    /// Its multiprocessors.
    pub multiprocessors: Option<u32>,
}

/// What stands for a value that a GPU does not have.
const ABSENT: [&str; 4] = ["", "N/A", "[N/A]", "[Not Supported]"];

/// Why it does not answer, if it says so.
pub fn silent(text: &str) -> Option<Silent> {
    if text.contains("Driver/library version mismatch") {
        return Some(Silent::Mismatch);
    }
    let failed = text.contains("NVIDIA-SMI has failed") || text.contains("NVML: Driver Not Loaded");
    failed.then_some(Silent::NoDriver)
}

/// The version of the library, which it tells when that is not the driver's.
pub fn library(text: &str) -> Option<&str> {
    super::field(text, "NVML library version")
}

/// What `--query-gpu=FIELDS --format=csv,noheader,nounits` answers: for each GPU its fields by name,
/// without those it does not have. One that could not be read has its reason in square brackets.
///
/// # Errors
/// [`Silent`] when it does not answer.
pub fn query(text: &str, fields: &[&str]) -> Devices<BTreeMap<String, String>> {
    if let Some(reason) = silent(text) {
        return Err(reason);
    }
    if text.contains("No devices were found") {
        return Ok(Vec::new());
    }
    let found: Vec<_> = text
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            (cells.len() == fields.len()).then_some(cells)
        })
        .map(|cells| {
            fields
                .iter()
                .zip(cells)
                .filter(|(_, cell)| !ABSENT.contains(cell))
                .map(|(name, cell)| ((*name).to_owned(), cell.to_owned()))
                .collect()
        })
        .collect();
    match found.is_empty() {
        true => Err(Silent::Unreadable),
        false => Ok(found),
    }
}

/// A place on the bus as the kernel writes it: `0000000F:01:00.0` is `000f:01:00.0`.
pub fn slot(bus: &str) -> Option<String> {
    let (domain, rest) = bus.split_once(':')?;
    let domain = u32::from_str_radix(domain, 16).ok()?;
    Some(format!("{domain:04x}:{}", rest.to_lowercase()))
}

/// Reads the table.
///
/// # Errors
/// [`Silent`] when it is none.
pub fn table(text: &str) -> Result<Table, Silent> {
    if let Some(reason) = silent(text) {
        return Err(reason);
    }
    let mut found = Table::default();
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let after = |name: &str| {
            let (_, rest) = line.split_once(name)?;
            let word = rest.split_whitespace().next()?;
            (word != "|" && word != "N/A").then(|| word.to_owned())
        };
        found.driver = found.driver.or_else(|| after("Driver Version:"));
        found.cuda = found.cuda.or_else(|| after("CUDA Version:"));
        let cells: Vec<Vec<&str>> = line
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.split_whitespace().collect())
            .collect();
        let [first, second, third, ..] = cells.as_slice() else {
            continue;
        };
        let numbers: Vec<u32> = first.iter().filter_map(|word| word.parse().ok()).collect();
        let memory = memory(second);
        if let ([gpu, instance, ..], true) = (numbers.as_slice(), numbers.len() == first.len())
            && numbers.len() >= 4
        {
            found.parts.push(Part {
                gpu: *gpu,
                instance: *instance,
                memory_used_mib: memory.map(|(used, _)| used),
                memory_total_mib: memory.map(|(_, total)| total),
                multiprocessors: third.first().and_then(|word| word.parse().ok()),
            });
        } else if let ([index, name @ .., _], Some(bus)) = (
            first.as_slice(),
            second.first().filter(|word| word.contains(':')),
        ) && let Ok(index) = index.parse()
        {
            found.gpus.push(Nvidia {
                index,
                name: name.join(" "),
                bus: (*bus).to_owned(),
                ..Nvidia::default()
            });
        } else if let Some(gpu) = found.gpus.last_mut().filter(|_| found.parts.is_empty())
            && first.contains(&"/")
        {
            // The second line of a GPU: fan, temperature, state, watts of watts.
            let unit = |word: &str, unit: char| word.strip_suffix(unit)?.parse().ok();
            let mut watts = first.iter().skip_while(|word| !word.ends_with('W'));
            gpu.temperature_c = first.iter().find_map(|word| unit(word, 'C'));
            gpu.power_w = watts.next().and_then(|word| unit(word, 'W'));
            gpu.power_cap_w = watts.find_map(|word| unit(word, 'W'));
            gpu.memory_used_mib = memory.map(|(used, _)| used);
            gpu.memory_total_mib = memory.map(|(_, total)| total);
        }
    }
    match found.driver.is_none() && found.gpus.is_empty() && found.parts.is_empty() {
        true => Err(Silent::Unreadable),
        false => Ok(found),
    }
}

/// `14366MiB / 19968MiB`.
fn memory(words: &[&str]) -> Option<(u64, u64)> {
    let [used, "/", total, ..] = words else {
        return None;
    };
    let mib = |word: &str| word.strip_suffix("MiB")?.parse().ok();
    Some((mib(used)?, mib(total)?))
}
