//! A device's link to the bus, by its four files in sysfs, each line `file: value`. To read them on a
//! host wakes the device.

/// A link as it is and as it could be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Link {
    /// Speed of a lane now, GT/s.
    pub speed_gt: Option<f64>,
    /// Lanes now.
    pub lanes: Option<u32>,
    /// The highest speed.
    pub max_speed_gt: Option<f64>,
    /// The most lanes.
    pub max_lanes: Option<u32>,
}

/// Reads it.
pub fn parse(text: &str) -> Link {
    let speed = |name: &str| {
        let (number, _) = super::field(text, name)?.split_once(" GT/s")?;
        number.parse().ok().filter(|speed: &f64| speed.is_finite())
    };
    let lanes = |name: &str| super::field(text, name)?.parse().ok();
    Link {
        speed_gt: speed("current_link_speed"),
        lanes: lanes("current_link_width"),
        max_speed_gt: speed("max_link_speed"),
        max_lanes: lanes("max_link_width"),
    }
}
