//! Files that are damaged or made to harm end in errors that name what is wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use proptest::prelude::*;
use windlass_gguf::{Gguf, GgufError, MappedGguf, TinySpec, dequantize, model_size, tiny_llama};

/// Builds files field by field, valid or not.
#[derive(Clone)]
struct Raw {
    version: u32,
    tensor_count: Option<u64>,
    key_count: Option<u64>,
    keys: Vec<Vec<u8>>,
    tensors: Vec<Vec<u8>>,
    data: Vec<u8>,
}

fn raw() -> Raw {
    Raw {
        version: 3,
        tensor_count: None,
        key_count: None,
        keys: vec![key("general.architecture", 8, &string(b"llama"))],
        tensors: vec![],
        data: vec![],
    }
}

fn string(s: &[u8]) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s].concat()
}

fn key(name: &str, ty: u32, value: &[u8]) -> Vec<u8> {
    [&string(name.as_bytes())[..], &ty.to_le_bytes(), value].concat()
}

fn tensor(name: &str, dims: &[u64], ty: u32, offset: u64) -> Vec<u8> {
    let mut out = string(name.as_bytes());
    out.extend((dims.len() as u32).to_le_bytes());
    out.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
    out.extend(ty.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out
}

fn array(ty: u32, len: u64, data: &[u8]) -> Vec<u8> {
    [&ty.to_le_bytes()[..], &len.to_le_bytes(), data].concat()
}

impl Raw {
    fn key(mut self, name: &str, ty: u32, value: &[u8]) -> Raw {
        self.keys.push(key(name, ty, value));
        self
    }

    fn tensor(mut self, name: &str, dims: &[u64], ty: u32, offset: u64) -> Raw {
        self.tensors.push(tensor(name, dims, ty, offset));
        self
    }

    fn data(mut self, len: usize) -> Raw {
        self.data = vec![0; len];
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        let tensors = self.tensor_count.unwrap_or(self.tensors.len() as u64);
        out.extend(tensors.to_le_bytes());
        out.extend(
            self.key_count
                .unwrap_or(self.keys.len() as u64)
                .to_le_bytes(),
        );
        out.extend(self.keys.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&self.data);
        out
    }

    fn parse(&self) -> Result<Gguf, GgufError> {
        let bytes = self.bytes();
        Gguf::parse(&bytes, bytes.len() as u64)
    }

    fn error(&self) -> GgufError {
        self.parse().expect_err("this file must be refused")
    }
}

#[test]
fn another_file_type_is_refused_by_what_it_starts_with() {
    let error = Gguf::parse(b"PK\x03\x04 and more", 100).unwrap_err();
    assert!(matches!(error, GgufError::NotGguf { .. }));
    assert!(error.to_string().contains("[50, 4b, 03, 04]"), "{error}");
}

#[test]
fn an_empty_file_is_refused() {
    let error = Gguf::parse(b"", 0).unwrap_err();
    assert!(matches!(error, GgufError::TooShort { what: "magic", .. }));
}

#[test]
fn versions_2_and_3_are_read_and_others_refused_by_number() {
    for version in [2, 3] {
        let parsed = Raw { version, ..raw() }.parse().unwrap();
        assert_eq!(parsed.version(), version);
    }
    for version in [0, 1, 4] {
        let text = Raw { version, ..raw() }.error().to_string();
        assert!(text.contains(&format!("version {version}")), "{text}");
    }
}

#[test]
fn a_big_endian_file_is_refused_as_such() {
    let version = 3u32.swap_bytes();
    let error = Raw { version, ..raw() }.error();
    assert!(matches!(error, GgufError::BigEndian { version: 3 }));
}

#[test]
fn counts_beyond_the_limit_or_the_file_are_refused() {
    let huge = Raw {
        tensor_count: Some(u64::MAX),
        ..raw()
    };
    assert!(matches!(
        huge.error(),
        GgufError::TooMany {
            what: "tensor count",
            offset: 8,
            ..
        }
    ));
    let huge = Raw {
        key_count: Some(1 << 40),
        ..raw()
    };
    assert!(matches!(
        huge.error(),
        GgufError::TooMany { offset: 16, .. }
    ));
    let beyond = Raw {
        tensor_count: Some(900_000),
        ..raw()
    };
    assert!(matches!(beyond.error(), GgufError::TooShort { .. }));
}

#[test]
fn a_string_longer_than_the_file_is_refused_with_key_and_offset() {
    let file = raw().key("long", 8, &(1u64 << 20).to_le_bytes());
    let text = file.error().to_string();
    assert!(
        text.contains("metadata key long") && text.contains("1048576"),
        "{text}"
    );
    let file = raw().key("longer", 8, &u64::MAX.to_le_bytes());
    assert!(matches!(file.error(), GgufError::TooMany { .. }));
}

#[test]
fn an_array_longer_than_the_file_is_refused() {
    for (ty, len) in [
        (0, 1 << 20),
        (12, 1 << 26),
        (8, 1 << 20),
        (9, 1 << 20),
        (7, 1 << 20),
    ] {
        let file = raw().key("many", 9, &array(ty, len, b""));
        let error = file.error();
        assert!(matches!(error, GgufError::TooShort { .. }), "{error}");
        assert!(error.to_string().contains("many"), "{error}");
    }
    let file = raw().key("many", 9, &array(4, u64::MAX, b""));
    assert!(matches!(file.error(), GgufError::TooMany { .. }));
}

#[test]
fn arrays_that_nest_too_deep_are_refused() {
    let nest = |levels: usize| {
        let mut value = array(4, 1, &7u32.to_le_bytes());
        for _ in 1..levels {
            value = array(9, 1, &value);
        }
        raw().key("nest", 9, &value)
    };
    assert!(nest(4).parse().is_ok());
    assert!(matches!(nest(5).error(), GgufError::NestedTooDeep { .. }));
}

#[test]
fn unknown_value_types_and_bad_booleans_are_refused() {
    let error = raw().key("odd", 13, &[]).error();
    assert!(matches!(error, GgufError::UnknownValueType { id: 13, .. }));
    let error = raw().key("odd", 9, &array(99, 0, b"")).error();
    assert!(matches!(error, GgufError::UnknownValueType { id: 99, .. }));
    let error = raw().key("flag", 7, &[2]).error();
    assert!(matches!(error, GgufError::BadBool { found: 2, .. }));
    let error = raw().key("flags", 9, &array(7, 2, &[1, 9])).error();
    assert!(matches!(error, GgufError::BadBool { found: 9, .. }));
}

#[test]
fn text_that_is_not_utf8_is_refused_with_its_key() {
    let error = raw().key("name", 8, &string(b"a\xffb")).error();
    assert!(matches!(error, GgufError::NotUtf8 { .. }));
    assert!(error.to_string().contains("metadata key name"), "{error}");
}

#[test]
fn duplicate_and_empty_names_are_refused() {
    let error = raw().key("a", 0, &[1]).key("a", 0, &[1]).error();
    assert!(matches!(error, GgufError::DuplicateKey { key, .. } if key == "a"));
    let error = raw().key("", 0, &[1]).error();
    assert!(matches!(error, GgufError::EmptyName { what: "key", .. }));
    let twice = raw()
        .tensor("t", &[4], 0, 0)
        .tensor("t", &[4], 0, 32)
        .data(64);
    assert!(matches!(twice.error(), GgufError::DuplicateTensor { .. }));
    let error = raw().tensor("", &[4], 0, 0).data(32).error();
    assert!(matches!(error, GgufError::EmptyName { .. }));
    let long = "x".repeat(65);
    let error = raw().tensor(&long, &[4], 0, 0).data(32).error();
    assert!(matches!(error, GgufError::TooMany { limit: 64, .. }));
}

#[test]
fn dimensions_that_cannot_be_are_refused() {
    let error = raw().tensor("t", &[1; 5], 0, 0).data(32).error();
    assert!(matches!(error, GgufError::TooManyDims { found: 5, .. }));
    for dims in [
        &[1 << 32, 1 << 32][..],
        &[1 << 62],
        &[u64::MAX, 0],
        &[u64::MAX],
    ] {
        let error = raw().tensor("t", dims, 0, 0).data(32).error();
        assert!(
            matches!(error, GgufError::SizeOverflow { .. }),
            "{dims:?}: {error}"
        );
    }
    let error = raw().tensor("t", &[33, 2], 2, 0).data(64).error();
    assert!(matches!(
        error,
        GgufError::PartialBlock {
            row: 33,
            block: 32,
            ..
        }
    ));
    // A tensor without dimensions is one number.
    let scalar = raw().tensor("t", &[], 0, 0).data(32).parse().unwrap();
    assert_eq!(scalar.tensor("t").unwrap().bytes, 4);
}

#[test]
fn tensors_that_are_unaligned_overlap_or_leave_the_file_are_refused() {
    let error = raw().tensor("t", &[4], 0, 8).data(64).error();
    assert!(matches!(
        error,
        GgufError::Unaligned {
            offset: 8,
            alignment: 32,
            ..
        }
    ));
    let error = raw()
        .tensor("b", &[4], 0, 32)
        .tensor("a", &[16], 0, 0)
        .data(64)
        .error();
    assert!(
        matches!(error, GgufError::Overlap { first, second, .. } if first == "a" && second == "b")
    );
    let error = raw().tensor("t", &[17], 0, 0).data(64).error();
    assert!(matches!(error, GgufError::BeyondEnd { bytes: 68, .. }));
    let error = raw().tensor("t", &[4], 0, !31).data(64).error();
    assert!(matches!(error, GgufError::BeyondEnd { .. }));
}

#[test]
fn an_alignment_that_is_no_power_of_two_is_refused() {
    for bad in [0u32, 3, 48, 1 << 21] {
        let error = raw()
            .key("general.alignment", 4, &bad.to_le_bytes())
            .error();
        assert!(matches!(error, GgufError::BadAlignment { .. }), "{bad}");
    }
    let error = raw().key("general.alignment", 8, &string(b"32")).error();
    assert!(matches!(error, GgufError::WrongType { .. }));
    let file = raw().key("general.alignment", 4, &64u32.to_le_bytes());
    assert_eq!(file.parse().unwrap().data_start() % 64, 0);
}

#[test]
fn a_header_beyond_the_limit_is_refused_before_it_is_read() {
    let bytes = raw().key("huge", 9, &array(12, 1 << 27, b"")).bytes();
    let error = Gguf::parse(&bytes, 1 << 40).unwrap_err();
    assert!(matches!(error, GgufError::HeaderTooLarge { .. }), "{error}");
}

#[test]
fn an_unknown_tensor_type_fails_only_when_the_tensor_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.gguf");
    let file = raw()
        .key("llama.block_count", 4, &1u32.to_le_bytes())
        .tensor("token_embd.weight", &[4, 4], 0, 0)
        .tensor("blk.0.odd.weight", &[7], 999, 64)
        .data(128);
    std::fs::write(&path, file.bytes()).unwrap();
    let model = MappedGguf::open(&path).unwrap();
    assert_eq!(model.tensor_bytes("token_embd.weight").unwrap().len(), 64);
    let text = model
        .tensor_bytes("blk.0.odd.weight")
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("blk.0.odd.weight") && text.contains("999"),
        "{text}"
    );
    assert!(text.contains("m.gguf"), "{text}");
    let error = model_size(model.header()).unwrap_err();
    assert!(matches!(
        error,
        GgufError::UnknownTensorType { id: 999, .. }
    ));
}

#[test]
fn a_model_whose_layers_do_not_match_its_count_is_refused() {
    let model = |count: u32, layer: u32| {
        raw()
            .key("llama.block_count", 4, &count.to_le_bytes())
            .tensor("token_embd.weight", &[4, 4], 0, 0)
            .tensor(&format!("blk.{layer}.a.weight"), &[4], 0, 64)
            .data(128)
            .parse()
            .unwrap()
    };
    assert!(model_size(&model(1, 0)).is_ok());
    let error = model_size(&model(1, 1)).unwrap_err();
    assert!(matches!(
        error,
        GgufError::NoSuchLayer {
            layer: 1,
            layers: 1,
            ..
        }
    ));
    let error = model_size(&model(u32::MAX - 1, 0)).unwrap_err();
    assert!(matches!(error, GgufError::EmptyLayer { layer: 1, .. }));
    let error = model_size(&raw().key("split.count", 2, &[3, 0]).parse().unwrap()).unwrap_err();
    assert!(matches!(error, GgufError::SplitFile { count: 3 }));
}

#[test]
fn a_missing_file_or_a_folder_is_refused_by_path() {
    let dir = tempfile::tempdir().unwrap();
    let text = MappedGguf::open(dir.path()).unwrap_err().to_string();
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    let text = MappedGguf::open(dir.path().join("none.gguf"))
        .unwrap_err()
        .to_string();
    assert!(text.contains("none.gguf"), "{text}");
    let empty = dir.path().join("empty.gguf");
    std::fs::write(&empty, b"").unwrap();
    assert!(MappedGguf::open(&empty).is_err());
}

fn tiny_bytes() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.gguf");
    let spec = TinySpec {
        layers: 1,
        embd: 8,
        ffn: 8,
        heads: 1,
        head_dim: 4,
        ..TinySpec::default()
    };
    tiny_llama(&spec, &path).unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn a_header_is_read_by_growing_ranges_and_equals_the_whole_read() {
    let bytes = tiny_bytes();
    let len = bytes.len() as u64;
    let whole = Gguf::parse(&bytes, len).unwrap();
    let mut have = 0;
    let mut rounds = 0;
    let ranged = loop {
        rounds += 1;
        match Gguf::parse(&bytes[..have], len) {
            Ok(gguf) => break gguf,
            Err(GgufError::NeedMore { at_least }) => {
                assert!(at_least > have as u64 && at_least <= len);
                have = usize::try_from(at_least)
                    .unwrap()
                    .max(2 * have)
                    .min(bytes.len());
            }
            Err(other) => panic!("{other}"),
        }
    };
    assert!(rounds < 20, "{rounds} rounds");
    assert!(have < bytes.len());
    assert_eq!(ranged.tensors(), whole.tensors());
    assert_eq!(ranged.metadata(), whole.metadata());
}

#[test]
fn every_cut_of_a_file_is_refused_and_every_cut_of_a_range_asks_for_more() {
    let bytes = tiny_bytes();
    let whole = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
    let header = usize::try_from(whole.data_start()).unwrap();
    for cut in (0..header - 32).step_by(7) {
        let error = Gguf::parse(&bytes[..cut], cut as u64).unwrap_err();
        assert!(
            !matches!(error, GgufError::NeedMore { .. }),
            "{cut}: {error}"
        );
        let error = Gguf::parse(&bytes[..cut], bytes.len() as u64).unwrap_err();
        assert!(
            matches!(error, GgufError::NeedMore { .. }),
            "{cut}: {error}"
        );
    }
}

/// Uses everything a file offers, as a reader would.
fn walk(bytes: &[u8], file_len: u64) {
    let Ok(gguf) = Gguf::parse(bytes, file_len) else {
        return;
    };
    assert!(
        gguf.metadata()
            .iter()
            .all(|(key, _)| gguf.metadata().get(key).is_some())
    );
    let _ = model_size(&gguf);
    for t in gguf.tensors() {
        let start = usize::try_from(gguf.data_start() + t.offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(t.bytes).unwrap_or(usize::MAX));
        if let Some(data) = bytes.get(start..end)
            && t.elements() < 1 << 20
        {
            let mut out = vec![0.0; usize::try_from(t.elements()).unwrap()];
            let _ = dequantize(t.ty, data, &mut out);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn mutated_files_never_panic(
        edits in prop::collection::vec((0usize..16384, any::<u8>()), 1..6),
        cut in prop::option::of(0usize..20000),
        wide in any::<bool>(),
    ) {
        static BYTES: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = BYTES.get_or_init(tiny_bytes).clone();
        for (at, value) in edits {
            let len = bytes.len();
            bytes[at % len] = value;
        }
        bytes.truncate(cut.unwrap_or(usize::MAX));
        let len = bytes.len() as u64;
        walk(&bytes, if wide { len + (1 << 30) } else { len });
    }

    #[test]
    fn random_headers_never_panic(
        body in prop::collection::vec(any::<u8>(), 0..400),
        tensors in 0u64..5,
        keys in 0u64..5,
    ) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(keys.to_le_bytes());
        bytes.extend(body);
        walk(&bytes, bytes.len() as u64);
    }
}
