//! One connection to make, with everything decided: from a target and the ssh configuration. Must
//! not know how it is made.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::config::{self, Asked, Disk, Family, File, Local, Notice, Resolved, Strict};
use super::connect::Options;
use super::error::SshError;
use super::login::Credentials;
use super::target::Target;
use super::trust::{Trust, Unknown};

/// A host to connect to.
#[derive(Clone, Debug)]
pub(super) struct Hop {
    /// Name or address.
    pub address: String,
    /// Port.
    pub port: u16,
    /// Which of its addresses to use.
    pub family: Family,
    /// How long it may take.
    pub limit: Duration,
    /// How its key is judged.
    pub trust: Trust,
    /// Who logs in.
    pub credentials: Credentials,
}

impl Hop {
    /// `user@address:port`.
    pub fn name(&self) -> String {
        let user = &self.credentials.user;
        if self.address.contains(':') {
            format!("{user}@[{}]:{}", self.address, self.port)
        } else {
            format!("{user}@{}:{}", self.address, self.port)
        }
    }
}

/// The hops to a target, itself the last, and what there is to tell about the ssh configuration.
/// What an inventory says stands above it, the way to a target too.
///
/// # Errors
/// When the ssh configuration asks for what cannot be honoured.
pub(super) fn hops(
    target: &Target,
    options: &Options,
) -> Result<(Vec<Hop>, Vec<Notice>), SshError> {
    let local = Local {
        user: options.user.clone(),
        home: options.home.clone(),
        ..Local::of_process()
    };
    let files = match &options.ssh_config {
        Some(path) => vec![File {
            path: path.clone(),
            own: true,
        }],
        None => config::files(&local),
    };
    let refused = |refusal: config::Refusal| SshError::Config {
        message: format!("ssh configuration: {refusal}"),
    };
    let (mut hops, mut notices) = (Vec::new(), Vec::new());
    let mut add = |resolved: Resolved, target: Option<&Target>| {
        notices.extend(resolved.notices.iter().cloned());
        hops.push(hop(resolved, target, options));
    };
    for (index, one) in target.jumps.iter().chain([target]).enumerate() {
        let asked = Asked {
            host: &one.address,
            user: one.user.as_deref(),
            port: one.port,
        };
        if index > 0 {
            let resolved = config::resolve(&Disk, &files, &local, asked).map_err(refused)?;
            add(resolved, Some(one));
            continue;
        }
        // The first is reached the way its own configuration says.
        let mut route = config::route(&Disk, &files, &local, asked).map_err(refused)?;
        let last = route.pop();
        route.into_iter().for_each(|resolved| add(resolved, None));
        if let Some(resolved) = last {
            add(resolved, Some(one));
        }
    }
    Ok((hops, notices))
}

fn hop(resolved: Resolved, target: Option<&Target>, options: &Options) -> Hop {
    let home = &options.home;
    let label = target.map_or(&resolved.host, |target| &target.host).clone();
    let files = match (
        target.and_then(|one| one.known_hosts.as_ref()),
        &options.known_hosts,
    ) {
        (Some(file), _) | (None, Some(file)) => vec![at_home(file, home)],
        (None, None) => {
            let mut files = resolved.user_known_hosts;
            files.extend(resolved.global_known_hosts);
            files
        }
    };
    let unknown = match resolved.strict {
        _ if options.accept_new => Unknown::Accept,
        Strict::AcceptNew => Unknown::Accept,
        Strict::Ask => Unknown::Ask,
        Strict::Yes => Unknown::Refuse,
    };
    let identities = match target.and_then(|one| one.identity.as_ref()) {
        Some(path) => vec![at_home(path, home)],
        None if resolved.identities_given => resolved.identity_files,
        None => Vec::new(),
    };
    let agent = match resolved.agent {
        config::Agent::Environment => options.agent.clone(),
        config::Agent::None => None,
        config::Agent::Socket(path) => Some(path),
    };
    Hop {
        trust: Trust {
            label: label.clone(),
            host: resolved.host_name.clone(),
            port: resolved.port,
            files,
            pin: target.and_then(|one| one.host_key.clone()),
            unknown,
            asked: false,
            hashed: resolved.hash_known_hosts,
        },
        credentials: Credentials {
            label,
            user: resolved.user,
            identities,
            defaults: super::keys::defaults(home),
            only_named: resolved.identities_only,
            agent,
            password: target.and_then(|one| one.password.clone()),
        },
        address: resolved.host_name,
        port: resolved.port,
        family: resolved.family,
        limit: resolved.connect_timeout.unwrap_or(options.limit),
    }
}

/// A path with `~/` put right.
fn at_home(path: &Path, home: &Path) -> PathBuf {
    path.strip_prefix("~")
        .map_or_else(|_| path.to_owned(), |rest| home.join(rest))
}
