//! Devices that Vulkan finds, as `vulkaninfo --summary` lists them.

use super::hexadecimal;

/// What vulkaninfo says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vulkan {
    /// The version of the loader's instance.
    pub instance: Option<String>,
    /// What drivers found: a GPU is there once for each driver that can use it.
    pub devices: Vec<Device>,
    /// What was said before the list.
    pub warnings: Vec<String>,
    /// Devices that the login may not open.
    pub refused: Vec<String>,
}

/// A device by one driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number in the list.
    pub index: u32,
    /// Its name.
    pub name: Option<String>,
    /// `INTEGRATED_GPU`, `DISCRETE_GPU`, `VIRTUAL_GPU`, `CPU`.
    pub kind: Option<String>,
    /// Its maker's PCI number.
    pub vendor_id: Option<u16>,
    /// Its own.
    pub device_id: Option<u16>,
    /// The driver, e.g. `radv`.
    pub driver: Option<String>,
    /// What the driver says of itself.
    pub driver_info: Option<String>,
    /// What is the same for one device under several drivers.
    pub uuid: Option<String>,
}

impl Device {
    /// The version of Mesa, when the driver is of it.
    pub fn mesa(&self) -> Option<&str> {
        let rest = self.driver_info.as_deref()?.strip_prefix("Mesa ")?;
        rest.split_whitespace().next()
    }
}

impl Vulkan {
    /// Each GPU once, by Mesa's driver where there are several. What the processor draws is none.
    pub fn gpus(&self) -> Vec<&Device> {
        let mut found: Vec<&Device> = Vec::new();
        for device in &self.devices {
            if device.kind.as_deref() == Some("CPU") {
                continue;
            }
            let twin = found
                .iter_mut()
                .find(|own| own.uuid.is_some() && own.uuid == device.uuid);
            match twin {
                Some(own) if own.mesa().is_none() && device.mesa().is_some() => *own = device,
                Some(_) => {}
                None => found.push(device),
            }
        }
        found
    }
}

/// Reads it.
pub fn parse(text: &str) -> Vulkan {
    let mut found = Vulkan::default();
    for line in text.lines() {
        let line = line.trim();
        if let Some(warning) = line.strip_prefix("WARNING: ") {
            found.warnings.push(warning.to_owned());
            if warning.contains("Permission denied") {
                let device = warning.split('\'').find(|part| part.starts_with("/dev/"));
                found.refused.extend(device.map(str::to_owned));
            }
        } else if let Some(version) = line.strip_prefix("Vulkan Instance Version:") {
            found.instance = Some(version.trim().to_owned());
        } else if let Some(index) = line
            .strip_prefix("GPU")
            .and_then(|rest| rest.strip_suffix(':'))
            .and_then(|index| index.parse().ok())
        {
            found.devices.push(Device {
                index,
                ..Device::default()
            });
        } else if let (Some((name, value)), Some(device)) =
            (line.split_once('='), found.devices.last_mut())
        {
            let value = value.trim();
            if value.is_empty() {
                continue;
            }
            let text = Some(value.to_owned());
            match name.trim() {
                "deviceName" => device.name = text,
                "deviceType" => {
                    let kind = value.strip_prefix("PHYSICAL_DEVICE_TYPE_");
                    device.kind = kind.map(str::to_owned);
                }
                "vendorID" => device.vendor_id = hexadecimal(value),
                "deviceID" => device.device_id = hexadecimal(value),
                "driverName" => device.driver = text,
                "driverInfo" => device.driver_info = text,
                "deviceUUID" => device.uuid = text,
                _ => {}
            }
        }
    }
    found
}
