//! Which models windlass can run: one list for those who plan and those who compute. Knows no
//! kernel.

use crate::error::Result;
use crate::header::Gguf;
use crate::metadata::Metadata;
use crate::types::TensorType;

/// Architectures whose answers are tested.
pub const ARCHITECTURES: &[&str] = &["llama"];

/// Types of tensors that kernels read.
pub const TENSOR_TYPES: &[TensorType] = &[
    TensorType::F32,
    TensorType::F16,
    TensorType::BF16,
    TensorType::Q4_0,
    TensorType::Q4_1,
    TensorType::Q5_0,
    TensorType::Q5_1,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q3_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
];

/// Kinds of `rope.scaling.type` that are computed; a missing key is `none`.
pub const ROPE_SCALINGS: &[&str] = &["none", "linear"];

/// Why the worker would refuse the model, as far as the header tells; `None` when it would not.
/// Looks at architecture, experts, position scaling and tensor types; the worker itself checks
/// shapes too.
///
/// # Errors
/// When the header lacks the architecture, or a key has another type.
pub fn why_unsupported(header: &Gguf) -> Result<Option<String>> {
    if let Some(reason) = why_metadata_unsupported(header.metadata())? {
        return Ok(Some(reason));
    }
    let bad = header
        .tensors()
        .iter()
        .find(|tensor| !TENSOR_TYPES.contains(&tensor.ty));
    Ok(bad.map(|tensor| {
        let names: Vec<String> = TENSOR_TYPES.iter().map(|ty| ty.name()).collect();
        format!(
            "tensor {} is stored as {}, which no kernel reads; supported: {}",
            tensor.name,
            tensor.ty,
            names.join(", ")
        )
    }))
}

/// The part of [`why_unsupported`] that needs no tensor table.
///
/// # Errors
/// As [`why_unsupported`].
pub fn why_metadata_unsupported(metadata: &Metadata) -> Result<Option<String>> {
    let architecture = metadata.arch()?;
    if !ARCHITECTURES.contains(&architecture) {
        return Ok(Some(format!(
            "architecture \"{}\" is not supported; supported: {}",
            shown(architecture),
            ARCHITECTURES.join(", ")
        )));
    }
    if let Some(experts) = metadata.get_arch_u64("expert_count")?
        && experts > 0
    {
        return Ok(Some(format!(
            "the model has {experts} experts, which are not supported; take a dense model"
        )));
    }
    match metadata.get_arch_str("rope.scaling.type")? {
        Some(scaling) if !ROPE_SCALINGS.contains(&scaling) => Ok(Some(format!(
            "position scaling \"{}\" is not supported; supported: {}",
            shown(scaling),
            ROPE_SCALINGS.join(", ")
        ))),
        _ => Ok(None),
    }
}

/// A text of the file, fit to show.
fn shown(text: &str) -> String {
    let fit = |c: &char| !c.is_control();
    text.chars().filter(fit).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Value;

    fn why(pairs: &[(&str, Value)]) -> Option<String> {
        let mut metadata = Metadata::new();
        metadata.insert("general.architecture", Value::String("llama".into()));
        for (key, value) in pairs {
            metadata.insert(*key, value.clone());
        }
        why_metadata_unsupported(&metadata).unwrap()
    }

    #[test]
    fn what_is_not_computed_is_named_with_what_is() {
        let text = |text: &str| Value::String(text.into());
        assert_eq!(why(&[]), None);
        assert_eq!(why(&[("llama.rope.scaling.type", text("linear"))]), None);
        assert_eq!(why(&[("llama.expert_count", Value::U32(0))]), None);
        let table = [
            (
                "general.architecture",
                text("mamba\u{1b}"),
                "\"mamba\" is not supported; supported: llama",
            ),
            ("llama.expert_count", Value::U32(8), "8 experts"),
            (
                "llama.rope.scaling.type",
                text("yarn"),
                "\"yarn\" is not supported; supported: none, linear",
            ),
        ];
        for (key, value, part) in table {
            let reason = why(&[(key, value)]).unwrap();
            assert!(reason.contains(part), "{reason}");
        }
    }
}
