//! The cache of pieces: what is trusted, what is read again, what is cut again.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use windlass::deploy::pieces::{Pieces, folder, provide};
use windlass_gguf::{MappedGguf, Slice};

use crate::support::tiny_model;

struct Model {
    base: tempfile::TempDir,
    file: MappedGguf,
    sha256: String,
}

impl Model {
    fn new(layers: u32) -> Self {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("m.gguf");
        tiny_model(&path, layers);
        let digest = Sha256::digest(fs::read(&path).unwrap());
        Self {
            file: MappedGguf::open(&path).unwrap(),
            sha256: digest.iter().map(|b| format!("{b:02x}")).collect(),
            base,
        }
    }

    fn cache(&self) -> &Path {
        self.base.path()
    }

    fn provide(&self, wanted: &[Slice]) -> Pieces {
        provide(&self.file, &self.sha256, self.cache(), wanted, &mut |_| {}).unwrap()
    }
}

#[test]
fn pieces_are_cut_once_and_then_found() {
    let model = Model::new(3);
    let all = Slice::all(3);
    let first = model.provide(&all);
    assert_eq!((first.cut.len(), first.reused.len()), (all.len(), 0));
    let mode = fs::metadata(&first.folder).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o700);
    assert_eq!(first.folder, folder(model.cache(), &model.sha256));
    let second = model.provide(&all);
    assert_eq!((second.cut.len(), second.reused.len()), (0, all.len()));
    assert_eq!(second.manifest, first.manifest);
    assert!(second.bytes(&all) > 0);
}

#[test]
fn a_later_plan_cuts_only_what_is_missing() {
    let model = Model::new(3);
    model.provide(&[Slice::Metadata, Slice::Layer(0)]);
    let pieces = model.provide(&Slice::all(3));
    assert_eq!(pieces.reused, [Slice::Metadata, Slice::Layer(0)]);
    assert_eq!(pieces.cut.len(), 4);
}

#[test]
fn a_piece_with_one_byte_changed_is_refused_and_cut_again() {
    let model = Model::new(2);
    let all = Slice::all(2);
    let first = model.provide(&all);
    let entry = first.manifest.piece(Slice::Layer(1)).unwrap().clone();
    let path = first.folder.join(&entry.file);
    let good = fs::read(&path).unwrap();
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    fs::write(&path, &bad).unwrap();
    // The change is seen by its time even where it fell into the same tick of the clock.
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5))
        .unwrap();

    let again = model.provide(&all);
    assert_eq!(again.refused, [entry.file]);
    assert_eq!(again.cut, [Slice::Layer(1)]);
    assert_eq!(fs::read(&path).unwrap(), good);
}

#[test]
fn a_piece_that_was_only_touched_is_read_and_kept() {
    let model = Model::new(2);
    let all = Slice::all(2);
    let first = model.provide(&all);
    let entry = first.manifest.piece(Slice::Layer(0)).unwrap().clone();
    let path = first.folder.join(&entry.file);
    let inode = fs::metadata(&path).unwrap().ino();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5))
        .unwrap();
    model.provide(&all);
    assert_eq!(
        fs::metadata(&path).unwrap().ino(),
        inode,
        "it was written again"
    );
    // And its new time is on record.
    assert_eq!(model.provide(&all).reused.len(), all.len());
}

#[test]
fn a_missing_piece_or_record_is_made_up_for() {
    let model = Model::new(2);
    let all = Slice::all(2);
    let first = model.provide(&all);
    fs::remove_file(first.folder.join("checked.json")).unwrap();
    let piece = first.manifest.piece(Slice::Output).unwrap();
    fs::remove_file(first.folder.join(&piece.file)).unwrap();
    let again = model.provide(&all);
    assert!(again.cut.contains(&Slice::Output));
    assert_eq!(again.manifest, first.manifest);
    assert_eq!(model.provide(&all).reused.len(), all.len());
}
