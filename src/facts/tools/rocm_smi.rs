//! GPUs of AMD as rocm-smi lists them, in its table or its JSON (in which every number is a text).

use serde_json::Value;

use super::{Devices, Silent, hexadecimal};

/// A GPU. What is `N/A` or was not asked for is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RocmGpu {
    /// Its number in this list.
    pub index: u32,
    /// The series it is of.
    pub series: Option<String>,
    /// What programs are built for, e.g. `gfx1100`.
    pub gfx: Option<String>,
    /// Its PCI number.
    pub device_id: Option<u16>,
    /// The number that the driver gives it.
    pub guid: Option<u32>,
    /// Memory of its own, bytes.
    pub vram_total_bytes: Option<u64>,
    /// What is used of it, bytes.
    pub vram_used_bytes: Option<u64>,
    /// The same, of a hundred.
    pub vram_percent: Option<u32>,
    /// How busy it is, of a hundred.
    pub busy_percent: Option<u32>,
    /// Temperature, degrees Celsius.
    pub temperature_c: Option<f64>,
    /// What it draws, watts.
    pub power_w: Option<f64>,
    /// The clocks of its cores and memory, as shown.
    pub clocks: [Option<String>; 2],
}

/// Whether it says that a GPU sleeps to save power, which is no fault.
pub fn low_power(text: &str) -> bool {
    text.lines()
        .any(|line| line.starts_with("WARNING") && line.contains("low-power state"))
}

/// Reads either form.
///
/// # Errors
/// [`Silent`] when it lists nothing for a reason that is not "there are none". Its exit status is 0
/// all the same.
pub fn parse(text: &str) -> Devices<RocmGpu> {
    if super::no_driver(text) {
        return Err(Silent::NoDriver);
    }
    if let Some(at) = text.lines().position(|line| line.starts_with('{')) {
        let json: Vec<&str> = text.lines().skip(at).collect();
        let value: Value =
            serde_json::from_str(&json.join("\n")).map_err(|_| Silent::Unreadable)?;
        let cards = value.as_object().ok_or(Silent::Unreadable)?;
        let mut found: Vec<RocmGpu> = cards
            .iter()
            .filter_map(|(name, card)| {
                let index = name.strip_prefix("card")?.parse().ok()?;
                Some(object(index, card))
            })
            .collect();
        found.sort_by_key(|gpu| gpu.index);
        return Ok(found);
    }
    let mut lines = text
        .lines()
        .skip_while(|line| !line.contains("VRAM%") || !line.contains("GPU%"));
    lines.next().ok_or(Silent::Unreadable)?;
    Ok(lines.filter_map(row).collect())
}

fn object(index: u32, card: &Value) -> RocmGpu {
    // Releases differ in capital letters.
    let of = |name: &str| {
        let mut fields = card.as_object()?.iter();
        let (_, value) = fields.find(|(own, _)| own.eq_ignore_ascii_case(name))?;
        let value = value.as_str()?.trim();
        (!value.is_empty() && value != "N/A").then_some(value)
    };
    RocmGpu {
        index,
        series: of("Card Series").map(str::to_owned),
        gfx: of("GFX Version").map(str::to_owned),
        device_id: of("Card Model").and_then(hexadecimal),
        guid: of("GUID").and_then(|number| number.parse().ok()),
        vram_total_bytes: of("VRAM Total Memory (B)").and_then(|number| number.parse().ok()),
        vram_used_bytes: of("VRAM Total Used Memory (B)").and_then(|number| number.parse().ok()),
        busy_percent: of("GPU use (%)").and_then(|number| number.parse().ok()),
        ..RocmGpu::default()
    }
}

/// A row of the table, of which the last seven columns have been the same in all releases: clocks,
/// fan, mode, cap, memory, use.
fn row(line: &str) -> Option<RocmGpu> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let index = words.first()?.parse().ok()?;
    let [core, memory, _, _, _, vram, busy] = words.last_chunk::<7>()?;
    let percent = |word: &str| word.strip_suffix('%')?.parse().ok();
    let clock = |word: &str| (word != "N/A").then(|| word.to_owned());
    let number = |ends: &[&str]| {
        words.iter().find_map(|word| {
            let end = ends.iter().find(|end| word.ends_with(**end))?;
            word.strip_suffix(end)?.parse::<f64>().ok()
        })
    };
    let identity = words.iter().position(|word| word.starts_with("0x"));
    let at = |index: Option<usize>| words.get(index?).map(|word| word.trim_end_matches(','));
    Some(RocmGpu {
        index,
        device_id: at(identity).and_then(hexadecimal),
        guid: at(identity.map(|at| at + 1)).and_then(|word| word.parse().ok()),
        temperature_c: number(&["°C", "c"]),
        power_w: number(&["W"]),
        clocks: [clock(core), clock(memory)],
        vram_percent: percent(vram),
        busy_percent: percent(busy),
        ..RocmGpu::default()
    })
}
