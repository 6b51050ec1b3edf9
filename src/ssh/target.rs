//! Whom to reach. Plain data.

use std::path::PathBuf;

use crate::secret::Secret;

/// A host to reach, as an inventory gives it; what is not set is left to the ssh configuration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// Name of the host, for messages and events.
    pub host: String,
    /// Name or address to connect to.
    pub address: String,
    /// Whether it is this machine, and no SSH is needed.
    pub local: bool,
    /// User.
    pub user: Option<String>,
    /// Port.
    pub port: Option<u16>,
    /// Private key file.
    pub identity: Option<PathBuf>,
    /// The hosts to jump over, first to last; each is reached through the one before.
    pub jumps: Vec<Target>,
    /// Known-hosts file instead of the user's.
    pub known_hosts: Option<PathBuf>,
    /// The only host key to accept.
    pub host_key: Option<String>,
    /// Password for the login.
    pub password: Option<Secret>,
    /// Password for sudo.
    pub sudo_password: Option<Secret>,
}
