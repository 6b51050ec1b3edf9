//! Devices on the bus, as lspci(8) lists them: plain, with numbers (`-nn`), with drivers (`-k`).

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Where it is, as shown: without the domain where there is one domain alone.
    pub slot: String,
    /// What it is, e.g. `Display controller`.
    pub class: String,
    /// The same as a number, e.g. 0x0380.
    pub class_id: Option<u16>,
    /// Its maker and name.
    pub name: String,
    /// Its maker's number.
    pub vendor_id: Option<u16>,
    /// Its own.
    pub device_id: Option<u16>,
    /// Its revision.
    pub revision: Option<u8>,
    /// The driver in use.
    pub driver: Option<String>,
}

impl Device {
    /// Whether it draws or computes. GPUs without a socket for a screen are not "VGA compatible".
    pub fn is_gpu(&self) -> bool {
        match self.class_id {
            Some(id) => id >> 8 == 3,
            None => [
                "VGA compatible controller",
                "3D controller",
                "Display controller",
            ]
            .contains(&self.class.as_str()),
        }
    }

    /// The domain that its slot is in; 0 where none is shown.
    pub fn domain(&self) -> Option<u32> {
        match self.slot.split(':').collect::<Vec<_>>().as_slice() {
            [domain, _, _] => u32::from_str_radix(domain, 16).ok(),
            _ => Some(0),
        }
    }
}

/// Reads it. Lines that begin with no slot are what the library complains of.
pub fn parse(text: &str) -> Vec<Device> {
    let mut found: Vec<Device> = Vec::new();
    for line in text.lines() {
        if line.starts_with(char::is_whitespace) {
            let driver = line.trim().strip_prefix("Kernel driver in use:");
            if let (Some(driver), Some(device)) = (driver, found.last_mut()) {
                device.driver = Some(driver.trim().to_owned());
            }
        } else if let Some(device) = device(line) {
            found.push(device);
        }
    }
    found
}

fn device(line: &str) -> Option<Device> {
    let (slot, rest) = line.split_once(' ')?;
    let fits = slot.contains('.')
        && slot
            .chars()
            .all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.');
    let (class, name) = rest.split_once(": ")?;
    if !fits {
        return None;
    }
    let (class, class_id) = numbered(class);
    let (name, revision) = match name
        .strip_suffix(')')
        .and_then(|name| name.rsplit_once(" (rev "))
    {
        Some((name, revision)) => (name, u8::from_str_radix(revision, 16).ok()),
        None => (name, None),
    };
    let ids = name
        .strip_suffix(']')
        .and_then(|name| name.rsplit_once('['))
        .and_then(|(name, ids)| {
            let (vendor, device) = ids.split_once(':')?;
            let number = |digits| u16::from_str_radix(digits, 16).ok();
            Some((name, number(vendor)?, number(device)?))
        });
    Some(Device {
        slot: slot.to_lowercase(),
        class: class.to_owned(),
        class_id,
        name: ids.map_or(name, |(name, _, _)| name).trim().to_owned(),
        vendor_id: ids.map(|(_, vendor, _)| vendor),
        device_id: ids.map(|(_, _, device)| device),
        revision,
        driver: None,
    })
}

/// `Display controller [0380]`.
fn numbered(text: &str) -> (&str, Option<u16>) {
    let split = text
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once(" ["));
    match split.map(|(name, digits)| (name, u16::from_str_radix(digits, 16))) {
        Some((name, Ok(id))) => (name, Some(id)),
        _ => (text, None),
    }
}
