//! The inventory for the screens: listing it, what an edit would do, writing it.

use std::fs;
use std::path::PathBuf;

use super::{Shared, Surroundings};
use crate::inventory::edit::{Edit, edited};
use crate::inventory::file::{self, LoadError};
use crate::inventory::{Connection, Host, Inventory, Level, diff};
use crate::tui::model::{Listed, ListedHost, Message, Preview};

/// Lists it.
pub fn list(shared: &Shared, around: &Surroundings) {
    let message = match Inventory::load(around.inventory.as_deref(), &around.paths) {
        Ok(inventory) => Message::Inventory(Box::new(listed(&inventory))),
        Err(error) => Message::NoInventory {
            invalid: !is_missing(&error),
            why: error.to_string(),
        },
    };
    shared.tell(message);
}

/// Whether there is no file, and so nothing wrong with one.
fn is_missing(error: &LoadError) -> bool {
    match error {
        LoadError::Nowhere(_) => true,
        LoadError::Read { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
        LoadError::Faults { .. } => false,
    }
}

fn listed(inventory: &Inventory) -> Listed {
    Listed {
        path: inventory.path.display().to_string(),
        cluster: inventory.cluster.name.clone(),
        head: inventory.cluster.head.clone(),
        hosts: inventory
            .hosts
            .iter()
            .map(|host| listed_host(inventory, host))
            .collect(),
    }
}

fn listed_host(inventory: &Inventory, host: &Host) -> ListedHost {
    let written = |key: &str| {
        inventory
            .origins
            .get(&host.name)
            .and_then(|origins| origins.get(key))
            .is_some_and(|origin| origin.from != Level::BuiltIn)
    };
    ListedHost {
        name: host.name.clone(),
        address: host.address.clone(),
        address_written: written("address"),
        data: written("data").then(|| host.data.clone()),
        user: host.user.clone(),
        port: host.ssh.port,
        identity: host
            .ssh
            .identity
            .as_ref()
            .map(|path| path.display().to_string()),
        local: host.connection == Connection::Local,
        memory_limit: host.memory_limit,
        groups: host.groups.clone(),
    }
}

/// Says what an edit would do.
pub fn preview(shared: &Shared, around: &Surroundings, edit: Edit) {
    shared.tell(Message::Preview(compute(around, &edit)));
}

fn compute(around: &Surroundings, edit: &Edit) -> Result<Preview, String> {
    let adds = matches!(edit, Edit::Add(..));
    let path = match file::find(around.inventory.as_deref(), &around.paths) {
        Ok((path, _)) => path,
        // The first host makes the file.
        Err(LoadError::Nowhere(_)) if adds => PathBuf::from(file::NAME),
        Err(error) => return Err(error.to_string()),
    };
    let is_new = adds && fs::symlink_metadata(&path).is_err();
    let old = if is_new {
        None
    } else {
        Some(file::read(&path).map_err(|error| error.to_string())?)
    };
    let text = old.as_deref().unwrap_or_default();
    let new = edited(&path, text, edit).map_err(|error| error.to_string())?;
    Ok(Preview {
        diff: diff::unified(&path.display().to_string(), text, &new),
        path,
        old,
        new,
    })
}

/// Writes an edit that was computed.
pub fn write(shared: &Shared, preview: &Preview) {
    let path = preview.path.display();
    let written = file::replace(&preview.path, preview.old.as_deref(), &preview.new)
        .map(|()| match preview.old {
            Some(_) => format!("{path} was changed"),
            None => format!("{path} was made"),
        })
        .map_err(|error| error.to_string());
    shared.tell(Message::Written(written));
}
