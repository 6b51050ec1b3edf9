//! Cutting: pieces are complete, equal however they are cut, and appear whole or not at all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::TempDir;
use windlass_gguf::{
    GgufError, Manifest, MappedGguf, OpenGguf, Slice, TensorType, TinySpec, TinyTokenizer, Value,
    cut, cut_stream, load_manifest, manifest_file_name, model_size, piece_len, tiny_llama,
    verify_piece, write_f32, write_known_piece, write_piece,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn digest(path: &Path) -> String {
    hex(&Sha256::digest(fs::read(path).unwrap()))
}

struct Model {
    dir: TempDir,
    path: PathBuf,
    sha: String,
}

fn model(spec: &TinySpec) -> Model {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    tiny_llama(spec, &path).unwrap();
    let sha = digest(&path);
    Model { dir, path, sha }
}

fn untied() -> Model {
    model(&TinySpec {
        rope_freqs: true,
        ..TinySpec::default()
    })
}

fn cut_all(m: &Model, folder: &str) -> (PathBuf, Manifest) {
    let dir = m.dir.path().join(folder);
    let source = MappedGguf::open(&m.path).unwrap();
    let layers = model_size(source.header()).unwrap().layers;
    let manifest = cut(&source, &m.sha, &dir, &Slice::all(layers), &mut |_| {}).unwrap();
    (dir, manifest)
}

fn files(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap();
    entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn pieces_hold_every_tensor_of_the_source_byte_for_byte() {
    let m = untied();
    let source = MappedGguf::open(&m.path).unwrap();
    let (dir, manifest) = cut_all(&m, "pieces");
    assert_eq!(manifest.layers, 3);
    assert!(!manifest.tied_output);
    let mut seen = BTreeSet::new();
    for entry in &manifest.pieces {
        verify_piece(&dir, entry).unwrap();
        let piece = MappedGguf::open(dir.join(&entry.file)).unwrap();
        assert_eq!(piece.header().version(), 3);
        assert_eq!(digest(piece.path()), entry.sha256);
        for t in piece.header().tensors() {
            let whole = source.header().tensor(&t.name).unwrap();
            assert_eq!((&t.dims, t.ty), (&whole.dims, whole.ty));
            assert_eq!(
                piece.tensor_bytes(&t.name).unwrap(),
                source.tensor_bytes(&t.name).unwrap()
            );
            let fresh = seen.insert(t.name.clone());
            assert!(fresh || t.name == "rope_freqs.weight", "{} twice", t.name);
        }
        let rope = piece.header().tensor("rope_freqs.weight").is_some();
        assert_eq!(rope, matches!(entry.slice, Slice::Layer(_)));
    }
    assert_eq!(seen.len(), source.header().tensors().len());
}

#[test]
fn pieces_carry_the_scalars_and_only_the_metadata_piece_the_tokenizer() {
    let m = model(&TinySpec {
        tokenizer: TinyTokenizer::Bpe,
        ..TinySpec::default()
    });
    let source = MappedGguf::open(&m.path).unwrap();
    let (dir, manifest) = cut_all(&m, "pieces");
    for entry in &manifest.pieces {
        let piece = MappedGguf::open(dir.join(&entry.file)).unwrap();
        let found = piece.header().metadata();
        let slice = found.get_str("windlass.piece.slice").unwrap();
        assert_eq!(slice, Some(entry.slice.to_string().as_str()));
        assert_eq!(
            found.get_str("windlass.piece.source_sha256").unwrap(),
            Some(m.sha.as_str())
        );
        for (key, value) in source.header().metadata().iter() {
            let kept = !matches!(value, Value::Array(_)) || entry.slice == Slice::Metadata;
            assert_eq!(found.get(key), Some(value).filter(|_| kept), "{key}");
        }
    }
    let metadata = manifest.piece(Slice::Metadata).unwrap();
    let piece = MappedGguf::open(dir.join(&metadata.file)).unwrap();
    assert!(piece.header().tensors().is_empty());
}

#[test]
fn files_are_private_and_named_by_source_and_slice() {
    let m = untied();
    let (dir, manifest) = cut_all(&m, "pieces");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    let start = &m.sha[..16];
    let mut expected: BTreeSet<String> = [
        "metadata",
        "embedding",
        "layer-0000",
        "layer-0001",
        "layer-0002",
        "output",
    ]
    .map(|slice| format!("{start}-{slice}.gguf"))
    .into();
    for entry in &manifest.pieces {
        assert_eq!(mode(&dir.join(&entry.file)), 0o600);
    }
    expected.insert(format!("{start}-manifest.json"));
    assert_eq!(files(&dir), expected);
    assert_eq!(load_manifest(&dir, &m.sha).unwrap(), Some(manifest));
}

/// Yields a few bytes at a time, as a socket does.
struct Dribble<'a>(&'a [u8], usize);

impl Read for Dribble<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 = self.1 % 977 + 13;
        let n = self.1.min(out.len()).min(self.0.len());
        out[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

#[test]
fn pieces_cut_from_a_stream_equal_those_of_the_mapped_file() {
    for spec in [
        TinySpec {
            rope_freqs: true,
            ..TinySpec::default()
        },
        TinySpec {
            tied: true,
            embd: 64,
            ty: TensorType::Q4_1,
            ..TinySpec::default()
        },
    ] {
        let m = model(&spec);
        let (dir, manifest) = cut_all(&m, "mapped");
        let bytes = fs::read(&m.path).unwrap();
        let other = m.dir.path().join("streamed");
        let mut last = 0;
        let streamed = cut_stream(
            &mut Dribble(&bytes, 0),
            bytes.len() as u64,
            &m.sha,
            &other,
            &Slice::all(3),
            &mut |done| {
                assert!(done > last);
                last = done;
            },
        )
        .unwrap();
        assert_eq!(last, bytes.len() as u64);
        assert_eq!(streamed, manifest);
        assert_eq!(files(&dir), files(&other));
        for name in files(&dir) {
            assert_eq!(
                fs::read(dir.join(&name)).unwrap(),
                fs::read(other.join(&name)).unwrap()
            );
        }
    }
}

#[test]
fn a_stream_that_ends_early_fails_or_differs_leaves_nothing() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the line dropped"))
        }
    }
    let m = model(&TinySpec {
        embd: 256,
        ..TinySpec::default()
    });
    let bytes = fs::read(&m.path).unwrap();
    let len = bytes.len() as u64;
    let dir = m.dir.path().join("pieces");
    let run = |reader: &mut dyn Read| {
        let result = cut_stream(reader, len, &m.sha, &dir, &Slice::all(3), &mut |_| {});
        assert_eq!(files(&dir), BTreeSet::new());
        result.unwrap_err()
    };
    let error = run(&mut &bytes[..bytes.len() - 1]);
    assert!(matches!(error, GgufError::SizeMismatch { .. }), "{error}");
    let mut late = (&bytes[..bytes.len() / 2]).chain(Broken);
    let text = run(&mut late).to_string();
    assert!(text.contains("the line dropped"), "{text}");
    let mut changed = bytes.clone();
    *changed.last_mut().unwrap() ^= 1;
    let error = run(&mut changed.as_slice());
    assert!(matches!(error, GgufError::DigestMismatch { .. }), "{error}");
}

#[test]
fn a_second_cut_keeps_sound_pieces_and_renews_damaged_ones() {
    let m = untied();
    let dir = m.dir.path().join("pieces");
    let source = MappedGguf::open(&m.path).unwrap();
    let first = cut(
        &source,
        &m.sha,
        &dir,
        &[Slice::Layer(0), Slice::Output],
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(first.pieces.len(), 2);
    let kept = dir.join(&first.pieces[1].file);
    let before = fs::metadata(&kept).unwrap().modified().unwrap();
    let damaged = dir.join(&first.pieces[0].file);
    let mut bytes = fs::read(&damaged).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&damaged, &bytes).unwrap();
    let text = verify_piece(&dir, &first.pieces[0])
        .unwrap_err()
        .to_string();
    assert!(text.contains(&first.pieces[0].file), "{text}");

    let mut written = 0;
    let wanted = [Slice::Layer(1), Slice::Layer(0)];
    let second = cut(&source, &m.sha, &dir, &wanted, &mut |n| written = n).unwrap();
    let slices: Vec<Slice> = second.pieces.iter().map(|p| p.slice).collect();
    assert_eq!(slices, [Slice::Layer(0), Slice::Layer(1), Slice::Output]);
    let size = model_size(source.header()).unwrap();
    assert_eq!(
        written,
        size.bytes(Slice::Layer(0)) + size.bytes(Slice::Layer(1))
    );
    assert_eq!(fs::metadata(&kept).unwrap().modified().unwrap(), before);
    for entry in &second.pieces {
        verify_piece(&dir, entry).unwrap();
    }
    assert_eq!(second.pieces[0], first.pieces[0]);
}

#[test]
fn leftovers_of_a_killed_cut_are_replaced() {
    let m = untied();
    let dir = m.dir.path().join("pieces");
    fs::create_dir(&dir).unwrap();
    let left = dir.join(format!("{}-output.gguf.partial", &m.sha[..16]));
    fs::write(&left, b"half").unwrap();
    let (dir, _) = cut_all(&m, "pieces");
    assert!(files(&dir).iter().all(|name| !name.ends_with(".partial")));
}

#[test]
fn a_folder_in_use_by_another_cut_is_refused() {
    let m = untied();
    let dir = m.dir.path().join("pieces");
    let source = MappedGguf::open(&m.path).unwrap();
    let mut inner = None;
    cut(&source, &m.sha, &dir, &[Slice::Output], &mut |_| {
        inner = Some(cut(&source, &m.sha, &dir, &[Slice::Output], &mut |_| {}));
    })
    .unwrap();
    assert!(matches!(inner.unwrap(), Err(GgufError::Busy { .. })));
}

#[test]
fn an_input_output_error_names_the_path_and_leaves_nothing() {
    let m = untied();
    let source = MappedGguf::open(&m.path).unwrap();
    let dir = m.dir.path().join("pieces");
    fs::create_dir(&dir).unwrap();
    // A folder stands where the output piece must go, so the last rename fails.
    let name = format!("{}-output.gguf", &m.sha[..16]);
    fs::create_dir(dir.join(&name)).unwrap();
    let error = cut(&source, &m.sha, &dir, &[Slice::Output], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
    assert_eq!(files(&dir), BTreeSet::from([name]));

    let file = m.dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let error = cut(&source, &m.sha, &file, &[Slice::Output], &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("file"), "{error}");
}

#[test]
fn slices_digests_and_sources_that_cannot_be_are_refused() {
    let m = untied();
    let dir = m.dir.path().join("pieces");
    let source = MappedGguf::open(&m.path).unwrap();
    let run = |sha: &str, slice| cut(&source, sha, &dir, &[slice], &mut |_| {}).unwrap_err();
    let text = run(&m.sha, Slice::Layer(3)).to_string();
    assert!(text.contains("model.gguf"), "{text}");
    assert!(
        text.contains("layer-0003") && text.contains("3 layers"),
        "{text}"
    );
    for bad in [
        "",
        "../../../etc",
        &m.sha[1..],
        &m.sha.replace(&m.sha[..1], "g"),
    ] {
        let text = run(bad, Slice::Output).to_string();
        assert!(text.contains("SHA-256"), "{text}");
    }
    let (dir, manifest) = cut_all(&m, "pieces");
    let piece = MappedGguf::open(dir.join(&manifest.pieces[2].file)).unwrap();
    let text = cut(&piece, &m.sha, &dir, &[Slice::Output], &mut |_| {})
        .unwrap_err()
        .to_string();
    assert!(text.contains("already a piece (layer-0000)"), "{text}");
}

#[test]
fn a_manifest_that_lies_is_refused() {
    let m = untied();
    let (dir, manifest) = cut_all(&m, "pieces");
    let path = dir.join(manifest_file_name(&m.sha).unwrap());
    let refused = |change: &dyn Fn(&mut Manifest)| {
        let mut lie = manifest.clone();
        change(&mut lie);
        fs::write(&path, serde_json::to_vec(&lie).unwrap()).unwrap();
        let error = load_manifest(&dir, &m.sha).unwrap_err();
        assert!(
            matches!(
                error,
                GgufError::BadManifest { .. } | GgufError::BadDigest { .. }
            ),
            "{error}"
        );
    };
    refused(&|lie| lie.pieces[0].file = "../../etc/passwd".into());
    refused(&|lie| lie.pieces[0].sha256 = "x".into());
    refused(&|lie| lie.pieces.push(lie.pieces[0].clone()));
    refused(&|lie| lie.layers = 1);
    refused(&|lie| lie.source_sha256 = "0".repeat(64));
    fs::write(&path, b"{").unwrap();
    assert!(load_manifest(&dir, &m.sha).is_err());
    fs::remove_file(&path).unwrap();
    assert_eq!(load_manifest(&dir, &m.sha).unwrap(), None);
    let mut entry = manifest.pieces[0].clone();
    entry.file = "../x".into();
    assert!(matches!(
        verify_piece(&dir, &entry),
        Err(GgufError::BadPieceName { .. })
    ));
    entry = manifest.pieces[0].clone();
    entry.bytes += 1;
    assert!(matches!(
        verify_piece(&dir, &entry),
        Err(GgufError::SizeMismatch { .. })
    ));
}

#[test]
fn sizes_add_up_to_the_tensors_and_say_whether_the_output_is_tied() {
    let m = model(&TinySpec {
        tied: true,
        rope_freqs: true,
        ..TinySpec::default()
    });
    let source = MappedGguf::open(&m.path).unwrap();
    let size = model_size(source.header()).unwrap();
    assert!(size.tied_output);
    assert_eq!((size.architecture.as_str(), size.layers), ("llama", 3));
    // 320 tokens of 70 values; a norm; eleven rope factors stand in each layer's piece.
    assert_eq!(size.bytes(Slice::Embedding), 320 * 70 * 4);
    assert_eq!(size.bytes(Slice::Output), 70 * 4);
    let attention = 70 * 110 + 2 * 70 * 22 + 110 * 70;
    let layer = 2 * 70 + attention + 3 * 70 * 118 + 11;
    assert_eq!(size.bytes(Slice::Layer(2)), layer * 4);
    assert_eq!(size.total(), (320 * 70 + 70 + 3 * layer) * 4);
    assert_eq!(
        size.slice(Slice::Output).unwrap().tensors,
        ["output_norm.weight"]
    );
    assert!(size.slice(Slice::Metadata).unwrap().tensors.is_empty());
    assert_eq!(size.slice(Slice::Layer(3)), None);
}

#[test]
fn an_f32_copy_holds_the_dequantised_values() {
    for ty in [
        TensorType::F16,
        TensorType::Q8_0,
        TensorType::Q4_0,
        TensorType::Q4_1,
    ] {
        let m = model(&TinySpec {
            embd: 64,
            ffn: 96,
            ty,
            ..TinySpec::default()
        });
        let out = m.dir.path().join("f32.gguf");
        let source = MappedGguf::open(&m.path).unwrap();
        write_f32(&source, &out).unwrap();
        let copy = MappedGguf::open(&out).unwrap();
        assert_eq!(
            copy.header()
                .metadata()
                .get_u64("general.file_type")
                .unwrap(),
            Some(0)
        );
        // The same seed in F32 is the truth that the rounding approximates.
        let exact = model(&TinySpec {
            embd: 64,
            ffn: 96,
            ..TinySpec::default()
        });
        let exact = MappedGguf::open(&exact.path).unwrap();
        for t in exact.header().tensors() {
            let info = copy.header().tensor(&t.name).unwrap();
            assert_eq!((info.ty, &info.dims), (TensorType::F32, &t.dims));
            let read = |m: &MappedGguf| -> Vec<f32> {
                let (raw, _) = m.tensor_bytes(&t.name).unwrap().as_chunks::<4>();
                raw.iter().map(|b| f32::from_le_bytes(*b)).collect()
            };
            let (a, b) = (read(&copy), read(&exact));
            let largest = b.iter().fold(0f32, |m, v| m.max(v.abs()));
            // Half a step of 15, 16 or 254 levels over at most twice the largest value.
            let step = match ty {
                TensorType::F16 => largest / 1024.0,
                TensorType::Q8_0 => largest / 120.0,
                _ => largest / 6.5,
            };
            for (a, b) in a.iter().zip(&b) {
                assert!((a - b).abs() <= step, "{ty} {}: {a} for {b}", t.name);
            }
        }
    }
}

#[test]
fn a_tiny_model_is_the_same_for_the_same_seed_only() {
    let spec = TinySpec::default();
    let a = model(&spec);
    assert_eq!(a.sha, model(&spec).sha);
    assert_ne!(a.sha, model(&TinySpec { seed: 2, ..spec }).sha);
}

#[test]
fn a_tiny_model_that_cannot_be_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    for spec in [
        TinySpec {
            heads: 5,
            kv_heads: 2,
            ..TinySpec::default()
        },
        TinySpec {
            head_dim: 7,
            ..TinySpec::default()
        },
        TinySpec {
            layers: 0,
            ..TinySpec::default()
        },
        TinySpec {
            vocab: 10,
            ..TinySpec::default()
        },
        TinySpec {
            ty: TensorType::Q6_K,
            ..TinySpec::default()
        },
    ] {
        assert!(
            matches!(tiny_llama(&spec, &path), Err(GgufError::BadSpec { .. })),
            "{spec:?}"
        );
    }
}

#[test]
fn a_streamed_piece_is_the_cut_one_from_any_offset_and_its_size_is_known_before() {
    let m = untied();
    let (dir, manifest) = cut_all(&m, "pieces");
    let source = OpenGguf::open(&m.path).unwrap();
    for piece in &manifest.pieces {
        let whole = fs::read(dir.join(&piece.file)).unwrap();
        assert_eq!(
            piece_len(source.header(), &m.sha, piece.slice).unwrap(),
            whole.len() as u64,
            "{}",
            piece.file
        );
        for offset in [0, 1, whole.len() / 2, whole.len() - 1, whole.len()] {
            let mut out = Vec::new();
            let entry = write_piece(&source, &m.sha, piece.slice, offset as u64, &mut out).unwrap();
            assert_eq!(&entry, piece);
            assert!(out == whole[offset..], "{} from {offset}", piece.file);

            let (mut out, known) = (Vec::new(), &piece.sha256);
            let entry =
                write_known_piece(&source, &m.sha, piece.slice, offset as u64, known, &mut out)
                    .unwrap();
            assert_eq!(&entry, piece);
            assert!(out == whole[offset..], "{} from {offset}", piece.file);
        }
    }
    let no_such = write_piece(&source, &m.sha, Slice::Layer(99), 0, &mut Vec::new());
    assert!(no_such.unwrap_err().to_string().contains("99"));
}

#[test]
fn a_source_that_is_cut_short_or_written_over_meanwhile_gives_no_digest() {
    let m = untied();
    let short = m.path.with_file_name("short.gguf");
    fs::copy(&m.path, &short).unwrap();
    let source = OpenGguf::open(&short).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&short).unwrap();
    file.set_len(source.header().data_start() + 1).unwrap();
    let error = write_piece(&source, &m.sha, Slice::Layer(0), 0, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("changed while"), "{error}");

    let over = m.path.with_file_name("over.gguf");
    fs::copy(&m.path, &over).unwrap();
    let source = OpenGguf::open(&over).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&over).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    file.set_modified(later).unwrap();
    let error = write_piece(&source, &m.sha, Slice::Layer(0), 0, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("changed while"), "{error}");
    // Also where the digest is known already.
    let (known, mut out) = ("00", Vec::new());
    let error =
        write_known_piece(&source, &m.sha, Slice::Layer(0), 0, known, &mut out).unwrap_err();
    assert!(error.to_string().contains("changed while"), "{error}");
}
