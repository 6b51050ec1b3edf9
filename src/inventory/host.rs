//! What an inventory means, with every range, group and default resolved. Must not know TOML.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use super::fault::Fault;

use crate::secret::Secret;

/// Port of the data path unless said otherwise.
pub const DATA_PORT: u16 = 47600;

/// All that an inventory says.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// The file it was read from.
    pub path: PathBuf,
    /// The cluster.
    pub cluster: Cluster,
    /// The hosts, in the order of the file, ranges expanded.
    pub hosts: Vec<Host>,
    /// The groups, in the order of the file; `all` is not among them.
    pub groups: Vec<Group>,
    /// Where each value of each host comes from: by host, then by key with dots (`ssh.port`,
    /// `vars.rack`).
    pub origins: BTreeMap<String, BTreeMap<String, Origin>>,
    /// What is valid and yet probably not meant.
    pub warnings: Vec<Fault>,
    /// How the file was found, which decides whether its commands may run.
    pub found: Found,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its hosts, in the order of the file.
    pub hosts: Vec<String>,
    /// Line of its table.
    pub line: usize,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Kind of table.
    pub from: Level,
    /// Line of the value; none for a built-in one.
    pub line: Option<usize>,
    /// The table as written, or what a built-in value is.
    pub place: String,
}

/// What a value stands for, the strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// The host's own table.
    Host,
    /// The table of a range of hosts.
    Range,
    /// A group.
    Group,
    /// All hosts.
    Defaults,
    /// What holds when nothing is said.
    BuiltIn,
}

/// How an inventory was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// It lay in the folder where windlass was started; perhaps someone else put it there.
    #[default]
    Here,
    /// It was named with `--inventory`.
    Named,
    /// It lay in the user's configuration folder.
    Configuration,
}

/// What the table `cluster` says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cluster {
    /// Its name; one deployment runs under it.
    pub name: String,
    /// Name of the head; a host of the inventory. The first host unless said otherwise.
    pub head: String,
    /// The API on the head.
    pub api: ApiSettings,
}

/// The API on the head.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ApiSettings {
    /// Where it listens on the head, `ip:port`.
    pub listen: String,
    /// The key clients must give; required beyond loopback.
    pub key: Option<Secret>,
}

/// How a host is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Connection {
    /// By SSH.
    #[default]
    Ssh,
    /// It is this machine.
    Local,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Host {
    /// Its name, unique.
    pub name: String,
    /// Where SSH connects: a name or an address without brackets or port.
    pub address: String,
    /// Where the other workers reach it: a name or an address without brackets or port.
    pub data: String,
    /// Port there.
    pub data_port: u16,
    /// User to log in as; `None` leaves it to the ssh configuration, then the local user's name.
    pub user: Option<String>,
    /// How it is reached.
    pub connection: Connection,
    /// More for SSH.
    pub ssh: SshSettings,
    /// Password for sudo.
    pub sudo_password: Option<Secret>,
    /// The most memory to plan with, bytes.
    pub memory_limit: Option<u64>,
    /// Threads to compute with; all cores unless said otherwise.
    pub threads: Option<u32>,
    /// Device to compute with, e.g. `cpu`.
    pub device: Option<String>,
    /// Groups it belongs to, sorted.
    pub groups: Vec<String>,
    /// Free values.
    pub vars: serde_json::Map<String, serde_json::Value>,
}

/// SSH settings of one host; what is not set is left to the ssh configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SshSettings {
    /// Port.
    pub port: Option<u16>,
    /// Private key file.
    pub identity: Option<PathBuf>,
    /// Host to jump over: a host of the inventory, or `[user@]name[:port]`.
    pub jump: Option<String>,
    /// Known-hosts file to use instead of the user's.
    pub known_hosts: Option<PathBuf>,
    /// The only host key to accept, as in a `.pub` file: `ssh-ed25519 AAAA…`.
    pub host_key: Option<String>,
    /// Password for the login.
    pub password: Option<Secret>,
}

impl Inventory {
    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }
}
