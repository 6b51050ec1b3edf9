//! GPUs of AMD as amd-smi(1) lists them (`list`, `static`), in its text or its JSON, with or without
//! the wrapper that newer releases put around the list.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Devices, Silent, hexadecimal, indented};

/// A GPU. What is `N/A` is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AmdGpu {
    /// Its number in this list.
    pub index: u32,
    /// What it is sold as.
    pub market_name: Option<String>,
    /// Its PCI number.
    pub device_id: Option<u16>,
    /// Its revision.
    pub revision: Option<u16>,
    /// What programs are built for, e.g. `gfx1151`.
    pub gfx: Option<String>,
    /// Compute units.
    pub compute_units: Option<u32>,
    /// Where it is on the bus, e.g. `0000:c6:00.0`.
    pub slot: Option<String>,
    /// The driver.
    pub driver: Option<String>,
    /// Its version; that of the kernel for the driver that came with it.
    pub driver_version: Option<String>,
    /// Memory of its own, bytes: of an integrated GPU what the firmware sets aside, and no more.
    pub vram_bytes: Option<u64>,
    /// The most it may draw, watts. Some say 0 for what they do not know; that is `None`.
    pub max_power_w: Option<f64>,
}

/// Reads either form.
///
/// # Errors
/// [`Silent`] when it lists nothing for a reason that is not "there are none".
pub fn parse(text: &str) -> Devices<AmdGpu> {
    if super::no_driver(text) {
        return Err(Silent::NoDriver);
    }
    let mut found: BTreeMap<u32, BTreeMap<String, String>> = BTreeMap::new();
    // Complaints may stand before the JSON.
    let json = text
        .lines()
        .position(|line| line.starts_with(['[', '{']))
        .map(|at| text.lines().skip(at).collect::<Vec<_>>().join("\n"));
    if let Some(json) = json {
        let value: Value = serde_json::from_str(&json).map_err(|_| Silent::Unreadable)?;
        let list = value.get("gpu_data").unwrap_or(&value);
        for gpu in list.as_array().ok_or(Silent::Unreadable)? {
            let index = gpu.get("gpu").and_then(Value::as_u64);
            let index = index.and_then(|index| u32::try_from(index).ok());
            let fields = found.entry(index.ok_or(Silent::Unreadable)?).or_default();
            flatten("", gpu, fields);
        }
        return Ok(found.into_iter().map(|(at, own)| gpu(at, &own)).collect());
    }
    let mut current: Option<(u32, String)> = None;
    let mut add = |current: Option<(u32, String)>| {
        if let Some((index, text)) = current {
            found.entry(index).or_default().extend(indented(&text));
        }
    };
    for line in text.lines() {
        let number = line.strip_prefix("GPU:").map(str::trim);
        match (number.map(str::parse), &mut current) {
            (Some(Ok(index)), _) => add(current.replace((index, String::new()))),
            (_, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            _ => {}
        }
    }
    add(current);
    match found.is_empty() {
        true => Err(Silent::Unreadable),
        false => Ok(found.into_iter().map(|(at, own)| gpu(at, &own)).collect()),
    }
}

/// Fields by their path, parted by dots; an amount with its unit is one text.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            if let (Some(amount), Some(unit)) = (
                fields.get("value"),
                fields.get("unit").and_then(Value::as_str),
            ) {
                into.insert(path.to_owned(), format!("{amount} {unit}"));
                return;
            }
            for (name, value) in fields {
                let name = name.to_lowercase();
                let path = match path.is_empty() {
                    true => name,
                    false => format!("{path}.{name}"),
                };
                flatten(&path, value, into);
            }
        }
        Value::String(text) => {
            into.insert(path.to_owned(), text.clone());
        }
        Value::Number(number) => {
            into.insert(path.to_owned(), number.to_string());
        }
        Value::Null | Value::Bool(_) | Value::Array(_) => {}
    }
}

fn gpu(index: u32, fields: &BTreeMap<String, String>) -> AmdGpu {
    let of = |name: &str| {
        let value = fields.get(name)?.trim();
        (!value.is_empty() && value != "N/A").then_some(value)
    };
    let amount = |name: &str| {
        let (number, unit) = of(name)?.split_once(' ')?;
        Some((number.parse::<f64>().ok()?, unit.trim()))
    };
    AmdGpu {
        index,
        market_name: of("asic.market_name").map(str::to_owned),
        device_id: of("asic.device_id").and_then(hexadecimal),
        revision: of("asic.rev_id").and_then(hexadecimal),
        gfx: of("asic.target_graphics_version").map(str::to_owned),
        compute_units: of("asic.num_compute_units").and_then(|number| number.parse().ok()),
        slot: of("bus.bdf").or(of("bdf")).map(str::to_lowercase),
        driver: of("driver.name").map(str::to_owned),
        driver_version: of("driver.version").map(str::to_owned),
        vram_bytes: amount("vram.size").and_then(|(number, unit)| {
            // It says MB and means 1048576 bytes.
            let whole = unit == "MB" && (0.0..1e9).contains(&number);
            whole.then_some((number as u64) << 20)
        }),
        max_power_w: amount("limit.max_power")
            .map(|(number, _)| number)
            .filter(|watts| *watts > 0.0),
    }
}
