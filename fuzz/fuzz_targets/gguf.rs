//! Any bytes as a GGUF file: parsing, sizing and dequantising must end in a value or an error.
//! The first byte chooses how much longer than the bytes the file claims to be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use windlass_gguf::{Gguf, GgufError, dequantize, model_size};

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let len = bytes.len() as u64;
    let file_len = match choice & 3 {
        0 | 1 => len,
        2 => len + 4096,
        _ => len + (1 << 40),
    };
    let gguf = match Gguf::parse(bytes, file_len) {
        Ok(gguf) => gguf,
        Err(GgufError::NeedMore { at_least }) => {
            assert!(at_least > len && at_least <= file_len);
            return;
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for (key, _) in gguf.metadata().iter() {
        let m = gguf.metadata();
        assert!(m.get(key).is_some());
        let _ = (
            m.get_str(key),
            m.get_u64(key),
            m.get_f32(key),
            m.get_bool(key),
        );
        let _ = (
            m.get_str_array(key),
            m.get_f32_array(key),
            m.get_i32_array(key),
        );
    }
    if let Ok(size) = model_size(&gguf) {
        assert_eq!(size.slices.len() as u64, u64::from(size.layers) + 3);
    }
    for t in gguf.tensors() {
        let start = usize::try_from(gguf.data_start() + t.offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(t.bytes).unwrap_or(usize::MAX));
        if let Some(data) = bytes.get(start..end)
            && t.elements() <= 1 << 16
        {
            let mut out = vec![0.0; t.elements() as usize];
            let _ = dequantize(t.ty, data, &mut out);
        }
    }
});
