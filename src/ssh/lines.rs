//! The connections to one host. A server opens only so many channels on each (OpenSSH's
//! `MaxSessions`, ten unless changed), so further ones are made when those there are full. Must not
//! know what runs on a channel.

use std::sync::Arc;

use russh::Channel;
use russh::client::Msg;
use tokio::sync::Mutex;

use super::connect::Connector;
use super::connection::Connection;
use super::error::SshError;
use super::target::Target;

/// Most further connections to a host.
const MOST: usize = 31;

/// See the module.
pub(super) struct Lines {
    first: Arc<Connection>,
    /// Held while another is made: whoever comes meanwhile finds it.
    more: Mutex<Vec<Arc<Connection>>>,
    connector: Connector,
    target: Target,
}

impl Lines {
    pub fn new(first: Arc<Connection>, connector: Connector, target: Target) -> Self {
        Self {
            first,
            more: Mutex::default(),
            connector,
            target,
        }
    }

    /// Whether the connection is gone.
    pub fn is_lost(&self) -> bool {
        self.first.is_lost()
    }

    /// A channel for a command, and the connection it is on.
    ///
    /// # Errors
    /// When the host opens none, also on another connection.
    pub async fn open(&self, what: &str) -> Result<(Channel<Msg>, Arc<Connection>), SshError> {
        let refused = match self.first.open().await {
            Ok(channel) => return Ok((channel, self.first.clone())),
            Err(error) => error,
        };
        if !matches!(refused, russh::Error::ChannelOpenFailure(_)) {
            return Err(self.first.not_opened(what, &refused));
        }
        let mut more = self.more.lock().await;
        more.retain(|connection| !connection.is_lost());
        for connection in more.iter() {
            if let Ok(channel) = connection.open().await {
                return Ok((channel, connection.clone()));
            }
        }
        if more.len() >= MOST {
            return Err(self.first.not_opened(what, &refused));
        }
        let another = self.connector.another(&self.target).await?;
        match another.open().await {
            Ok(channel) => {
                more.push(another.clone());
                Ok((channel, another))
            }
            Err(error) => Err(another.not_opened(what, &error)),
        }
    }
}
