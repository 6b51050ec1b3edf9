//! `windlass model …`: from arguments to what the model module does, and its summary. Decides
//! nothing about models.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use windlass_gguf::{MappedGguf, Slice, model_size, why_unsupported};

use super::arguments::{Common, ModelVerb};
use super::table::table;
use super::work::{Outcome, Work, perform};
use crate::deploy::fetch;
use crate::event::{Event, Exit, Failure, FailureKind, Level, Scope, Status};
use crate::figures::size;
use crate::model::{Check, Disk, Held, ModelFile, Source};

/// Runs a `model` command.
pub fn model(common: &Common, verb: &ModelVerb) -> Exit {
    let action = verb.clone();
    perform(common, verb.name(), Vec::new(), move |work| async move {
        if let Some(flag) = does_not_apply(&work.common) {
            let message = format!("{flag} does not apply: models are kept on this machine alone");
            return Failure::new(FailureKind::Usage, message).into();
        }
        let result = match action {
            ModelVerb::Pull { model } => pull(&work, &model).await,
            ModelVerb::List => Ok(list(&disk(&work))),
            ModelVerb::Show { model } => show(&work, &model).await,
            ModelVerb::Verify { model, .. } => verify(&work, model.as_deref()).await,
            ModelVerb::Remove { model } => remove(&work, &model).await,
        };
        result.unwrap_or_else(Outcome::from)
    })
}

fn does_not_apply(common: &Common) -> Option<&'static str> {
    [
        (common.inventory.is_some(), "--inventory"),
        (common.limit.is_some(), "--limit"),
        (common.diff, "--diff"),
    ]
    .into_iter()
    .find_map(|(given, name)| given.then_some(name))
}

fn disk(work: &Work) -> Disk {
    Disk::new(&fetch::options(&work.emitter).folders)
}

fn find(disk: &Disk, text: &str) -> Result<Vec<Held>, Failure> {
    let reference = fetch::reference(text)?;
    disk.find(&reference)
        .map_err(|error| fetch::failure(&error))
}

async fn pull(work: &Work, text: &str) -> Result<Outcome, Failure> {
    let reference = fetch::reference(text)?;
    let options = fetch::options(&work.emitter);
    if work.common.check {
        let task = work.emitter.task(Scope::run().in_task("model"), None);
        // Not there is the only answer of interest; why is told by the pull itself.
        let here = Disk::new(&options.folders).find(&reference).ok();
        let model = here.as_ref().and_then(|all| all.first());
        match model {
            Some(held) => task.finish(Status::Ok, format!("{} is there already", held.name)),
            None => task.finish(Status::WouldChange, format!("{reference} would be fetched")),
        }
        return Ok(outcome(
            "model",
            model.map_or(Value::Null, |held| held_json(held, None)),
            String::new(),
        ));
    }
    let found = fetch::fetch_task(&reference, &options, &work.emitter).await?;
    let text = format!("{}\n", found.path.display());
    Ok(outcome("model", file_json(&found), text))
}

fn list(disk: &Disk) -> Outcome {
    let all = disk.list();
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|held| {
            vec![
                held.reference.clone(),
                held.quant.clone().unwrap_or_else(|| "?".into()),
                size(held.bytes),
                if held.complete {
                    ""
                } else {
                    "not complete: pull it again"
                }
                .to_owned(),
            ]
        })
        .collect();
    let text = if rows.is_empty() {
        "no models; fetch one: windlass model pull smollm2\n".to_owned()
    } else {
        table(&["MODEL", "QUANT", "SIZE", ""], &rows, &[2])
    };
    let models = all.iter().map(|held| held_json(held, None)).collect();
    outcome("models", models, text)
}

async fn show(work: &Work, text: &str) -> Result<Outcome, Failure> {
    let disk = disk(work);
    let held = first(find(&disk, text)?)?;
    let emitter = work.emitter.clone();
    let sha256 = disk
        .digest(&held, |bytes| {
            let message = format!("reading {} for its digest", size(bytes));
            emitter.emit(
                Scope::run().in_task("model"),
                Event::log(Level::Info, message),
            );
        })
        .await
        .map_err(|error| fetch::failure(&error))?;
    let path = held.path.clone();
    let inner = tokio::task::spawn_blocking(move || inside(path))
        .await
        .map_err(|error| Failure::internal(error.to_string()))??;
    let mut fields = held_json(&held, Some(&sha256));
    if let Some(object) = fields.as_object_mut() {
        if held.license.is_none() {
            object.insert("license".into(), json!(inner.license));
        }
        object.extend(inner.fields.clone());
    }
    let text = told(&held, &sha256, &inner, &fields);
    Ok(outcome("model", fields, text))
}

/// What the file itself tells.
struct Inside {
    license: Option<String>,
    fields: Map<String, Value>,
    /// Bytes by type of tensor, the largest first.
    quants: Vec<(String, u64)>,
    layers: Vec<u64>,
}

fn inside(path: PathBuf) -> Result<Inside, Failure> {
    let refused =
        |error: windlass_gguf::GgufError| Failure::new(FailureKind::Model, error.to_string());
    let file = MappedGguf::open(path).map_err(refused)?;
    let header = file.header();
    let sizes = model_size(header).map_err(refused)?;
    let metadata = header.metadata();
    let mut quants: Vec<(String, u64)> = Vec::new();
    for tensor in header.tensors() {
        let name = tensor.ty.name();
        match quants.iter_mut().find(|(known, _)| *known == name) {
            Some((_, bytes)) => *bytes = bytes.saturating_add(tensor.bytes),
            None => quants.push((name, tensor.bytes)),
        }
    }
    quants.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let layers: Vec<u64> = (0..sizes.layers)
        .map(|layer| sizes.bytes(Slice::Layer(layer)))
        .collect();
    let unsupported = why_unsupported(header).map_err(refused)?;
    let mut fields = Map::new();
    for (name, value) in [
        ("architecture", json!(sizes.architecture)),
        ("layers", json!(sizes.layers)),
        (
            "context",
            json!(metadata.get_arch_u64("context_length").ok().flatten()),
        ),
        ("tied_output", json!(sizes.tied_output)),
        (
            "quant_bytes",
            quants.iter().cloned().map(|(n, b)| (n, json!(b))).collect(),
        ),
        ("layer_bytes", json!(layers)),
        ("embedding_bytes", json!(sizes.bytes(Slice::Embedding))),
        ("output_bytes", json!(sizes.bytes(Slice::Output))),
        ("supported", json!(unsupported.is_none())),
        ("unsupported", json!(unsupported)),
    ] {
        fields.insert(name.to_owned(), value);
    }
    let license = metadata.get_str("general.license").ok().flatten();
    Ok(Inside {
        license: license.map(|text| text.chars().filter(|c| !c.is_control()).take(80).collect()),
        fields,
        quants,
        layers,
    })
}

fn told(held: &Held, sha256: &str, inner: &Inside, fields: &Value) -> String {
    let text = |name: &str| match fields.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "not stated".to_owned(),
        Some(other) => other.to_string(),
    };
    let least = inner.layers.iter().min().copied().unwrap_or(0);
    let most = inner.layers.iter().max().copied().unwrap_or(0);
    let each = if least == most {
        format!("{} each", size(most))
    } else {
        format!("{} to {} each", size(least), size(most))
    };
    let quants: Vec<String> = inner
        .quants
        .iter()
        .map(|(name, bytes)| format!("{name} {}", size(*bytes)))
        .collect();
    let bytes = |name: &str| size(fields.get(name).and_then(Value::as_u64).unwrap_or(0));
    let output = if fields.get("tied_output") == Some(&json!(true)) {
        format!("{}, with the embedding's matrix", bytes("output_bytes"))
    } else {
        bytes("output_bytes")
    };
    let worker = match fields.get("unsupported") {
        Some(Value::String(reason)) => format!("refuses it: {reason}"),
        _ => "runs it".to_owned(),
    };
    [
        ("model", held.name.clone()),
        ("file", held.path.display().to_string()),
        ("revision", text("revision")),
        ("sha256", sha256.to_owned()),
        ("size", size(held.bytes)),
        ("licence", text("license")),
        ("architecture", text("architecture")),
        ("context", text("context")),
        ("quant", quants.join(", ")),
        ("layers", format!("{}, {each}", inner.layers.len())),
        ("embedding", bytes("embedding_bytes")),
        ("output", output),
        ("worker", worker),
    ]
    .into_iter()
    .map(|(name, value)| format!("{name:<13}{value}\n"))
    .collect()
}

async fn verify(work: &Work, text: Option<&str>) -> Result<Outcome, Failure> {
    let disk = disk(work);
    let mut chosen = match text {
        Some(text) => find(&disk, text)?,
        None => disk.list(),
    };
    // Two revisions may share a file; it is read once.
    let mut seen = std::collections::BTreeSet::new();
    chosen.retain(|held| {
        let real = std::fs::canonicalize(&held.path).unwrap_or_else(|_| held.path.clone());
        held.complete && seen.insert(real)
    });
    let mut models = Vec::new();
    let mut rows = Vec::new();
    let mut damaged = Vec::new();
    for held in &chosen {
        let scope = Scope::run().in_task("verify");
        let task = work.emitter.task(
            scope,
            Some(format!("{}, {}", held.reference, size(held.bytes))),
        );
        let (word, sha256) = match disk.check(held, |_| ()).await {
            Ok(Check::Sound) => ("ok", held.promised.clone()),
            Ok(Check::Damaged(got)) => ("damaged", Some(got)),
            Ok(Check::Unpromised(got)) => ("unknown", Some(got)),
            Err(error) => {
                task.finish(Status::Failed, "");
                return Err(fetch::failure(&error));
            }
        };
        match word {
            "ok" => task.finish(Status::Ok, held.reference.clone()),
            "damaged" => {
                task.finish(Status::Failed, held.path.display().to_string());
                damaged.push(held);
            }
            _ => {
                let message = format!("{}: nothing says what its digest should be", held.reference);
                task.finish(Status::Unknown, message);
            }
        }
        let digest = sha256.as_deref();
        rows.push(vec![
            held.reference.clone(),
            word.to_owned(),
            digest.unwrap_or_default().to_owned(),
        ]);
        let mut fields = held_json(held, digest);
        if let Some(object) = fields.as_object_mut() {
            object.insert("status".into(), json!(word));
            object.insert("expected".into(), json!(held.promised));
        }
        models.push(fields);
    }
    let mut out = outcome(
        "models",
        Value::Array(models),
        table(&["MODEL", "STATUS", "SHA256"], &rows, &[]),
    );
    if chosen.is_empty() {
        out.text.clear();
        out.failure = Some(Failure::new(
            FailureKind::Nothing,
            "there is no model to verify; fetch one: windlass model pull smollm2",
        ));
    }
    if !damaged.is_empty() {
        let each: Vec<String> = damaged
            .iter()
            .map(|held| match held.source {
                Source::Path => format!("{}: get it again", held.path.display()),
                _ => format!(
                    "{}: windlass model remove {r}, then windlass model pull {r}",
                    held.path.display(),
                    r = held.reference
                ),
            })
            .collect();
        out.failure = Some(
            Failure::new(
                FailureKind::Model,
                format!(
                    "{} of {} model file{} damaged (the sha256 is not the promised one): {}",
                    damaged.len(),
                    chosen.len(),
                    if chosen.len() == 1 { " is" } else { "s are" },
                    each.join("; ")
                ),
            )
            .at("verify"),
        );
    }
    Ok(out)
}

async fn remove(work: &Work, text: &str) -> Result<Outcome, Failure> {
    let disk = disk(work);
    let all = find(&disk, text)?;
    let model = |error: &crate::model::ModelError| fetch::failure(error).at("remove");
    let mut removals = Vec::new();
    for held in &all {
        removals.push(disk.removal(held).map_err(|error| model(&error))?);
    }
    let bytes: u64 = removals.iter().map(|removal| removal.bytes).sum();
    let paths: Vec<String> = removals
        .iter()
        .flat_map(|removal| &removal.paths)
        .map(|path| path.display().to_string())
        .collect();
    let scope = Scope::run().in_task("remove");
    for path in &paths {
        work.emitter.emit(
            scope.clone(),
            Event::log(Level::Info, format!("would go: {path}")),
        );
    }
    for kept in removals.iter().filter_map(|removal| removal.kept.as_ref()) {
        let message = format!("stays, another revision has it too: {}", kept.display());
        work.emitter
            .emit(scope.clone(), Event::log(Level::Info, message));
    }
    let mut fields = held_json(&first(all)?, None);
    if let Some(object) = fields.as_object_mut() {
        object.insert("removed".into(), json!(paths));
        object.insert("freed_bytes".into(), json!(bytes));
    }
    let mut out = outcome("model", fields, String::new());
    let what = format!("{text}, {} in {} files and links", size(bytes), paths.len());
    if work.common.check {
        let task = work.emitter.task(scope, None);
        task.finish(Status::WouldChange, format!("{what} would be removed"));
        return Ok(out);
    }
    let leave = work
        .asker
        .leave(scope.clone(), format!("remove {what}?"))
        .await;
    match leave {
        Some(true) => {}
        Some(false) => {
            let task = work.emitter.task(scope, None);
            task.finish(Status::Skipped, "nothing was removed");
            if let Some(object) = out.fields.get_mut("model").and_then(Value::as_object_mut) {
                object.insert("removed".into(), json!([]));
                object.insert("freed_bytes".into(), json!(0));
            }
            return Ok(out);
        }
        None => {
            return Err(Failure::new(
                FailureKind::Usage,
                format!("removing {what} needs leave, and nobody can be asked here: give --yes"),
            )
            .at("remove"));
        }
    }
    let task = work.emitter.task(scope, None);
    for removal in &removals {
        if let Err(error) = disk.remove(removal).await {
            task.finish(Status::Failed, "");
            return Err(model(&error));
        }
    }
    task.finish(Status::Changed, format!("removed {what}"));
    Ok(out)
}

fn first(all: Vec<Held>) -> Result<Held, Failure> {
    all.into_iter()
        .next()
        .ok_or_else(|| Failure::internal("a search that found nothing said it did"))
}

fn outcome(name: &str, value: Value, text: String) -> Outcome {
    let mut fields = Map::new();
    fields.insert(name.to_owned(), value);
    Outcome {
        fields,
        text,
        failure: None,
        ..Outcome::default()
    }
}

fn file_json(file: &ModelFile) -> Value {
    json!({
        "name": file.name,
        "path": file.path,
        "bytes": file.bytes,
        "sha256": file.sha256,
        "source": file.source.name(),
        "license": file.license,
        "revision": file.revision,
    })
}

fn held_json(held: &Held, sha256: Option<&str>) -> Value {
    json!({
        "name": held.name,
        "path": held.path,
        "bytes": held.bytes,
        "sha256": sha256.or(held.promised.as_deref()),
        "source": held.source.name(),
        "license": held.license,
        "revision": held.from.as_ref().map(|(_, commit)| commit),
        "reference": held.reference,
        "file": held.file,
        "quant": held.quant,
        "complete": held.complete,
    })
}
