//! From a run's inventory and limit to hosts that were reached: what all work on hosts begins with.
//! Must not know what is done then.

use super::context::Context;
use super::failures::summed;
use super::site::{self, Site};
use crate::event::{Failure, FailureKind, Level};
use crate::inventory::{Cluster, Host, Inventory};
use crate::reach;
use crate::ssh::{Connector, Options, Session};

/// Reads the inventory that the run is about.
///
/// # Errors
/// When there is none, or it is invalid.
pub fn inventory(context: &Context) -> Result<Inventory, Failure> {
    Inventory::load(context.inventory.as_deref(), &context.paths).map_err(|error| error.failure())
}

/// The hosts that the limit and a further selector mean, in the inventory's order.
///
/// # Errors
/// When nothing matches.
pub fn select(
    context: &Context,
    inventory: &Inventory,
    further: Option<&str>,
) -> Result<Vec<Host>, Failure> {
    let pick = |selector: &str| inventory.select(selector).map_err(|error| error.failure());
    let mut hosts: Vec<Host> = pick(further.unwrap_or("@all"))?
        .into_iter()
        .cloned()
        .collect();
    if let Some(limit) = &context.limit {
        let within: Vec<String> = pick(limit)?.into_iter().map(|h| h.name.clone()).collect();
        hosts.retain(|host| within.contains(&host.name));
        if hosts.is_empty() {
            return Err(Failure::new(
                FailureKind::Nothing,
                format!("--limit {limit} leaves no host"),
            ));
        }
    }
    Ok(hosts)
}

/// Names of the hosts that a run will be about, as far as they can be told before it begins: none when
/// the inventory or a selector is wrong, which the run itself will say.
pub fn names(context: &Context, further: Option<&str>) -> Vec<String> {
    let chosen = inventory(context).and_then(|inventory| select(context, &inventory, further));
    let names = chosen.map(|hosts| hosts.into_iter().map(|host| host.name).collect());
    names.unwrap_or_default()
}

/// What makes the run's sessions.
pub fn connector(context: &Context) -> Connector {
    let options = Options::of_user(context.accept_new_host_keys);
    Connector::new(options, context.asker.clone(), context.emitter.clone())
}

/// Connects to these hosts, many at once.
///
/// # Errors
/// When the ssh settings of this user cannot be had.
pub async fn connect(
    context: &Context,
    inventory: &Inventory,
    hosts: &[Host],
) -> Result<Vec<(Host, Result<Session, Failure>)>, Failure> {
    each(context, inventory, hosts, async |_, session| Ok(session)).await
}

/// Connects to these hosts, many at once, and does the same on each as soon as it is reached; see
/// [`reach::each`].
///
/// # Errors
/// When the ssh settings of this user cannot be had.
pub async fn each<T>(
    context: &Context,
    inventory: &Inventory,
    hosts: &[Host],
    work: impl AsyncFn(&Host, Session) -> Result<T, Failure>,
) -> Result<Vec<(Host, Result<T, Failure>)>, Failure> {
    // Before any secret of it is fetched.
    inventory
        .allow_commands(&context.asker, &context.paths)
        .await?;
    let connector = connector(context);
    let hosts: Vec<&Host> = hosts.iter().collect();
    Ok(reach::each(inventory, &hosts, &connector, &context.emitter, work).await)
}

/// Connects and looks. With `all`, every host must be there.
///
/// # Errors
/// With `all`, the failure that counts most; else when no host was reached.
pub async fn sites(
    context: &Context,
    inventory: &Inventory,
    hosts: &[Host],
    all: bool,
) -> Result<(Vec<Site>, Vec<Failure>), Failure> {
    let sessions = connect(context, inventory, hosts).await?;
    let mut sites = Vec::new();
    let mut failures = Vec::new();
    for (_, found) in site::look(sessions, &context.emitter).await {
        match found {
            Ok(site) => sites.push(site),
            // Told by the task that failed.
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure| failure.kind.exit());
    if (all || sites.is_empty())
        && let Some(failure) = summed(failures.clone())
    {
        return Err(failure);
    }
    Ok((sites, failures))
}

/// The cluster as these hosts are it: where `--limit` leaves the head out, the first is the head.
pub fn cluster(context: &Context, inventory: &Inventory, sites: &[Site]) -> Cluster {
    let mut cluster = inventory.cluster.clone();
    if !sites.iter().any(|site| site.name() == cluster.head)
        && let Some(first) = sites.first()
    {
        context.emitter.log(
            Level::Info,
            format!(
                "{} is left out by --limit; {} is the head",
                cluster.head,
                first.name()
            ),
        );
        first.name().clone_into(&mut cluster.head);
    }
    cluster
}
