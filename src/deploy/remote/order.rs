//! From a wish (a model, on these hosts) to an order that `push` and `up` carry out: inventory, hosts,
//! model file, worker programs and key. Must not know how the wish was given.

use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::context::Context;
use super::elsewhere::{self, Elsewhere};
use super::hosts;
use super::program::Program;
use super::site::Site;
use super::up::{Order, Origin};
use crate::deploy::fetch;
use crate::deploy::local::find_worker;
use crate::event::{Failure, FailureKind};
use crate::inventory::{Host, Inventory};
use crate::model::ModelFile;

/// What somebody wants served.
#[derive(Clone, Debug)]
pub struct Wish {
    /// Model, as it was named.
    pub model: String,
    /// Tokens of context a sequence may have; the default when `None`.
    pub context: Option<u32>,
    /// Sequences of full context at once.
    pub concurrency: u32,
    /// Whether every piece on the hosts is read and compared.
    pub verify: bool,
    /// Host of the inventory that holds the model file; this machine when `None`.
    pub source: Option<String>,
    /// Programs of the worker to choose from, before the one beside this program.
    pub workers: Vec<PathBuf>,
}

/// Reaches the hosts, gets the model, and puts together what `push` and `up` need.
///
/// # Errors
/// When the inventory, a host, the model, the worker's program or the API's key cannot be had.
pub async fn prepare(
    context: &Context,
    wish: &Wish,
) -> Result<(Inventory, Vec<Site>, Order), Failure> {
    let inventory = hosts::inventory(context)?;
    inventory
        .allow_commands(&context.asker, &context.paths)
        .await?;
    let chosen = hosts::select(context, &inventory, None)?;
    // What is wrong on this machine is told before a host is reached.
    let tools = Tools::find(context, &inventory, wish).await?;
    let (sites, model) = match &wish.source {
        None => {
            let reference = fetch::reference(&wish.model)?;
            let fetching = fetch::options(&context.emitter);
            let fetch = fetch::fetch_task(&reference, &fetching, &context.emitter);
            let sites = hosts::sites(context, &inventory, &chosen, true);
            // Hosts first in what is told: a wrong password is known long before a download ends.
            let (sites, found) = tokio::try_join!(sites, fetch)?;
            (sites.0, Named::here(found))
        }
        Some(source) => {
            let host = source_host(&inventory, source)?;
            let sites = hosts::sites(context, &inventory, &chosen, true).await?.0;
            let site = match sites.iter().find(|site| site.name() == host.name) {
                Some(site) => site.clone(),
                None => {
                    // It need not be among those that get pieces.
                    let alone = hosts::sites(context, &inventory, &[host], true).await?.0;
                    let site = alone.into_iter().next();
                    site.ok_or_else(|| Failure::internal("a host that was reached is missing"))?
                }
            };
            let cache = &context.paths.cache;
            let found = elsewhere::find(&site, &wish.model, cache, &context.emitter).await?;
            (sites, Named::there(found))
        }
    };
    let order = order(context, &inventory, &sites, wish, model, tools);
    Ok((inventory, sites, order))
}

/// Puts together what `push` and `up` need of hosts that were reached already, and a model file on
/// this machine.
///
/// # Errors
/// When the worker's program or the API's key cannot be had.
pub async fn of(
    context: &Context,
    inventory: &Inventory,
    sites: &[Site],
    wish: &Wish,
    found: ModelFile,
) -> Result<Order, Failure> {
    let tools = Tools::find(context, inventory, wish).await?;
    Ok(order(
        context,
        inventory,
        sites,
        wish,
        Named::here(found),
        tools,
    ))
}

/// A model file with its digest and the name to serve it under.
struct Named {
    origin: Origin,
    sha256: String,
    name: String,
}

impl Named {
    fn here(found: ModelFile) -> Self {
        Self {
            origin: Origin::Here(found.path),
            sha256: found.sha256,
            name: found.name,
        }
    }

    fn there(found: Elsewhere) -> Self {
        Self {
            sha256: found.file.sha256.clone(),
            name: found.name.clone(),
            origin: Origin::There(Box::new(found)),
        }
    }
}

/// What is needed of this machine.
struct Tools {
    programs: Vec<Program>,
    /// The key that clients of the API must give, masked from here on.
    api_key: Option<Zeroizing<String>>,
}

impl Tools {
    async fn find(context: &Context, inventory: &Inventory, wish: &Wish) -> Result<Self, Failure> {
        let programs = programs(&wish.workers)?;
        let api_key = match &inventory.cluster.api.key {
            Some(secret) => {
                let key = secret.fetch().await.map_err(|error| {
                    Failure::new(FailureKind::Config, error.to_string()).at("api key")
                })?;
                context.emitter.masks().add(key.as_str());
                Some(key)
            }
            None => None,
        };
        Ok(Self { programs, api_key })
    }
}

fn order(
    context: &Context,
    inventory: &Inventory,
    sites: &[Site],
    wish: &Wish,
    model: Named,
    tools: Tools,
) -> Order {
    Order {
        asked: wish.model.clone(),
        inventory: inventory.clone(),
        cluster: hosts::cluster(context, inventory, sites),
        origin: model.origin,
        model_sha256: model.sha256,
        name: model.name,
        context: wish.context,
        concurrency: wish.concurrency,
        verify: wish.verify,
        check: context.check,
        programs: tools.programs,
        paths: context.paths.clone(),
        run: context.run.clone(),
        api_key: tools.api_key,
    }
}

/// The one host that holds the model.
fn source_host(inventory: &Inventory, name: &str) -> Result<Host, Failure> {
    let found = inventory
        .select(name)
        .map_err(|error| error.failure().at("model"))?;
    match found.as_slice() {
        [host] => Ok((*host).clone()),
        several => Err(Failure::new(
            FailureKind::Usage,
            format!(
                "--source takes one host that holds the model, and {name} is {}",
                several.len()
            ),
        )
        .at("model")),
    }
}

/// The worker's programs on this machine: those named, then the one beside this program.
///
/// # Errors
/// When one cannot be read, or there is none.
pub(crate) fn programs(named: &[PathBuf]) -> Result<Vec<Program>, Failure> {
    let read = |path: &Path| {
        Program::read(path)
            .map_err(|error| Failure::new(FailureKind::Config, error.to_string()).at("worker"))
    };
    let mut all = Vec::new();
    for path in named {
        all.push(read(path)?);
    }
    let beside = std::env::var_os("WINDLASS_WORKER").map(PathBuf::from);
    match find_worker(beside.as_deref()) {
        Ok(path) => all.push(read(&path)?),
        Err(failure) if all.is_empty() => return Err(failure),
        Err(_) => {}
    }
    Ok(all)
}
