//! RDMA devices and the network interfaces they belong to, as `rdma link show` and `ibdev2netdev`
//! list them.

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// The device.
    pub device: String,
    /// The port's number.
    pub port: u32,
    /// Whether it carries: `ACTIVE`, or that its interface is up.
    pub active: bool,
    /// Its network interface.
    pub interface: Option<String>,
}

/// Reads either.
pub fn parse(text: &str) -> Vec<Port> {
    text.lines().filter_map(port).collect()
}

fn port(line: &str) -> Option<Port> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [device, "port", number, "==>", interface, state] => Some(Port {
            device: (*device).to_owned(),
            port: number.parse().ok()?,
            active: *state == "(Up)",
            interface: Some((*interface).to_owned()),
        }),
        ["link", place, rest @ ..] => {
            let (device, number) = place.rsplit_once('/')?;
            let of = |name: &str| {
                let at = rest.iter().position(|word| *word == name)?;
                rest.get(at + 1)
            };
            Some(Port {
                device: device.to_owned(),
                port: number.parse().ok()?,
                active: of("state") == Some(&"ACTIVE"),
                interface: of("netdev").map(|name| (*name).to_owned()),
            })
        }
        _ => None,
    }
}
