//! Watches the inventory's deployment: its state, its rates, its workers' logs.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};

use super::apart::{Apart, apart};
use super::tail::LINES;
use super::{Shared, Surroundings, Way, context, inventory, lock};
use crate::deploy::remote::follow;
use crate::deploy::remote::record::Record;
use crate::deploy::remote::site::Site;
use crate::deploy::remote::watch::{self, Told};
use crate::event::{Asker, Bus, Refusals, bus};
use crate::tui::model::{Message, Standing};

/// Pause before a log that ended is followed again.
const AGAIN: Duration = Duration::from_secs(3);

/// The watch. Dropping it ends it.
pub struct Watching {
    bus: Bus,
    watch: Option<Apart>,
    telling: JoinHandle<()>,
    shared: Arc<Shared>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.telling.abort();
        self.bus.close();
        lock(&self.shared.askers).remove(self.bus.run());
        let run = self.bus.run().to_owned();
        self.shared.tell(Message::Unasked(run));
    }
}

impl Watching {
    /// Begins. What was refused is not asked again.
    pub fn start(shared: &Arc<Shared>, around: &Surroundings, refusals: Refusals) -> Self {
        let bus = Bus::new(format!("tui-{}", bus::new_id()));
        shared.pass(bus.subscribe());
        let asker = Asker::new(bus.emitter(), true, false).heeding(refusals);
        lock(&shared.askers).insert(bus.run().to_owned(), asker.clone());
        let (tell, told) = unbounded_channel();
        let context = context(around, &bus, &asker, false);
        let watch = apart("watch", move || watch::watch(context, tell));
        if let Err(error) = &watch {
            shared.note(format!("no thread to watch with: {error}"));
        }
        let telling = tokio::spawn(pass_on(Arc::clone(shared), around.clone(), told));
        Self {
            bus,
            watch: watch.ok(),
            telling,
            shared: Arc::clone(shared),
        }
    }

    /// Ends it and waits until that is done.
    pub async fn end(mut self) {
        if let Some(watch) = self.watch.take() {
            watch.end().await;
        }
    }
}

/// Passes on what is told, and follows logs while there are some.
async fn pass_on(shared: Arc<Shared>, around: Surroundings, mut told: UnboundedReceiver<Told>) {
    let mut sites: Vec<Site> = Vec::new();
    // Whether the logs are followed through these.
    let mut followed = false;
    let mut record: Option<Box<Record>> = None;
    let mut logs = JoinSet::new();
    while let Some(told) = told.recv().await {
        let message = match told {
            Told::Looking { cluster } => {
                // It could be read; it may have been mended since it was last.
                inventory::list(&shared, &around);
                let _ = shared.sender.send(Message::Cluster(cluster)).await;
                Message::Standing(Standing::Looking)
            }
            Told::Sites(all) => {
                sites = all;
                followed = false;
                continue;
            }
            Told::Facts(host, facts) => Message::Facts(host, facts),
            Told::Absent => {
                logs.abort_all();
                record = None;
                shared.set_way(None).await;
                Message::Standing(Standing::Absent)
            }
            Told::Found(found) => {
                let is_new = record
                    .as_ref()
                    .is_none_or(|old| old.deployment != found.deployment);
                if is_new || !followed {
                    followed = true;
                    logs.shutdown().await;
                    for site in &sites {
                        if found.stage_on(site.name()).is_some() {
                            let record = Arc::new((*found).clone());
                            logs.spawn(log(Arc::clone(&shared), site.clone(), record));
                        }
                    }
                }
                record = Some(found.clone());
                if !is_new {
                    continue;
                }
                Message::Record(found)
            }
            Told::Way(head) => {
                let model = record.as_ref().map(|record| record.model.clone());
                let way = Way {
                    client: head.client.clone(),
                    model: model.unwrap_or_default(),
                    held: Some(head),
                };
                shared.set_way(Some(way)).await;
                continue;
            }
            Told::State(state, reason, uptime) => {
                let _ = shared.sender.send(Message::Uptime(uptime)).await;
                let reason = reason.unwrap_or_else(|| format!("its state is {state}"));
                Message::Standing(match state.as_str() {
                    "serving" => Standing::Serving,
                    "starting" => Standing::Starting,
                    _ => Standing::Degraded(reason),
                })
            }
            Told::Trouble(why) => {
                shared.set_way(None).await;
                Message::Standing(Standing::Trouble(why))
            }
        };
        if shared.sender.send(message).await.is_err() {
            return;
        }
    }
}

/// Follows a worker's log, again and again.
async fn log(shared: Arc<Shared>, site: Site, record: Arc<Record>) {
    loop {
        let (tell, mut told) = unbounded_channel::<String>();
        let name = site.name().to_owned();
        let sender = shared.sender.clone();
        let tails = &shared.tails;
        lock(tails)
            .entry(name.clone())
            .or_default()
            .begin(&record.deployment, &record.at);
        let passing = async move {
            while let Some(line) = told.recv().await {
                let mut all: Vec<String> = vec![line];
                while all.len() < 512
                    && let Ok(line) = told.try_recv()
                {
                    all.push(line);
                }
                if let Some(tail) = lock(tails).get_mut(&name) {
                    all.retain(|line| tail.is_new(line));
                }
                if all.is_empty() {
                    continue;
                }
                if sender.send(Message::Log(name.clone(), all)).await.is_err() {
                    return;
                }
            }
        };
        let following = async {
            // How it ended does not matter: it is followed again.
            let _ = follow::follow(&site, &record.cluster, LINES, |line| {
                let _ = tell.send(line);
            })
            .await;
            drop(tell);
        };
        tokio::join!(following, passing);
        tokio::time::sleep(AGAIN).await;
    }
}
