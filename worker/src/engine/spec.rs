//! What a model computes, read from its metadata. Must not know files, tensors' bytes or kernels.

use windlass_gguf::Metadata;
pub use windlass_gguf::support::ARCHITECTURES;

use super::error::EngineError;

/// Sizes and constants of a decoder of the llama family.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// `general.architecture`.
    pub architecture: String,
    /// Layers of the whole model.
    pub layers: u32,
    /// Floats of a hidden state.
    pub hidden: usize,
    /// Inner width of the feed-forward part.
    pub ffn: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Floats of a query or key head.
    pub key_length: usize,
    /// Floats of a value head.
    pub value_length: usize,
    /// Leading floats of a head that are rotated, in pairs (2i, 2i+1).
    pub rope_dims: usize,
    /// Base of the rotation frequencies.
    pub rope_base: f32,
    /// Positions are divided by this (linear scaling; 1 without).
    pub rope_factor: f32,
    /// Added to the mean square in a norm.
    pub rms_eps: f32,
    /// Tokens in the vocabulary; `None` when the metadata does not say (the tensors do).
    pub vocab: Option<usize>,
    /// Tokens the model was trained for.
    pub context: u32,
}

/// Larger sizes than these are refused, so that products of two fit 64 bits with ease.
const MAX_SIZE: u64 = 1 << 24;

impl ModelSpec {
    /// Reads and checks the specification.
    pub fn from_metadata(metadata: &Metadata) -> Result<ModelSpec, EngineError> {
        let architecture = metadata.arch()?.to_owned();
        if !ARCHITECTURES.contains(&architecture.as_str()) {
            return Err(EngineError::Architecture {
                found: architecture,
                supported: ARCHITECTURES,
            });
        }
        let bad = |key: &str, found: String, expected: &str| EngineError::Metadata {
            key: format!("{architecture}.{key}"),
            found,
            expected: expected.to_owned(),
        };
        let bounded = |key: &str, value: u64| -> Result<usize, EngineError> {
            if value == 0 || value > MAX_SIZE {
                return Err(bad(key, value.to_string(), "1 to 16777216"));
            }
            Ok(value as usize)
        };
        let size = |key: &str| bounded(key, metadata.arch_u64(key)?);
        let size_or = |key: &str, default: usize| match metadata.get_arch_u64(key)? {
            Some(value) => bounded(key, value),
            None => Ok(default),
        };
        if let Some(experts) = metadata.get_arch_u64("expert_count")?
            && experts > 0
        {
            return Err(EngineError::Unsupported {
                what: format!("{experts} experts ({architecture}.expert_count)"),
                advice: "take a dense model",
            });
        }
        let hidden = size("embedding_length")?;
        let heads = size("attention.head_count")?;
        let kv_heads = size_or("attention.head_count_kv", heads)?;
        if !heads.is_multiple_of(kv_heads) {
            return Err(bad(
                "attention.head_count_kv",
                kv_heads.to_string(),
                &format!("a divisor of the {heads} heads"),
            ));
        }
        let head = |key: &str| match metadata.get_arch_u64(key)? {
            Some(value) => bounded(key, value),
            None if hidden.is_multiple_of(heads) => Ok(hidden / heads),
            None => Err(bad(
                key,
                "missing".into(),
                &format!("a length, as {heads} heads do not divide {hidden}"),
            )),
        };
        let key_length = head("attention.key_length")?;
        let value_length = head("attention.value_length")?;
        let rope_dims = size_or("rope.dimension_count", key_length)?;
        if !rope_dims.is_multiple_of(2) || rope_dims > key_length {
            return Err(bad(
                "rope.dimension_count",
                rope_dims.to_string(),
                &format!("an even number up to the key length {key_length}"),
            ));
        }
        let positive = |key: &str, default: Option<f32>| {
            let value = match (metadata.get_arch_f32(key)?, default) {
                (Some(value), _) | (None, Some(value)) => value,
                (None, None) => metadata.arch_f32(key)?,
            };
            if value.is_finite() && value > 0.0 {
                Ok(value)
            } else {
                Err(bad(key, value.to_string(), "a positive number"))
            }
        };
        let scaling = metadata
            .get_arch_str("rope.scaling.type")?
            .unwrap_or("none")
            .to_owned();
        let rope_factor = match scaling.as_str() {
            "none" => 1.0,
            "linear" => positive("rope.scaling.factor", Some(1.0))?,
            other => {
                return Err(EngineError::Unsupported {
                    what: format!("{architecture}.rope.scaling.type \"{other}\""),
                    advice: "supported: none, linear, and llama 3's rope_freqs.weight",
                });
            }
        };
        let vocab = match metadata.get_arch_u64("vocab_size")? {
            Some(value) => Some(bounded("vocab_size", value)?),
            None => None,
        };
        Ok(ModelSpec {
            layers: size("block_count")? as u32,
            hidden,
            ffn: size("feed_forward_length")?,
            heads,
            kv_heads,
            key_length,
            value_length,
            rope_dims,
            rope_base: positive("rope.freq_base", Some(10_000.0))?,
            rope_factor,
            rms_eps: positive("attention.layer_norm_rms_epsilon", None)?,
            vocab,
            context: size("context_length")? as u32,
            architecture,
        })
    }

    /// Rotation frequencies, one for each pair of `rope_dims`, in radians a position.
    ///
    /// `divisors` is llama 3's `rope_freqs.weight`, of the same length.
    pub fn rope_frequencies(&self, divisors: Option<&[f32]>) -> Vec<f64> {
        let dims = self.rope_dims as f64;
        (0..self.rope_dims / 2)
            .map(|i| {
                let frequency = f64::from(self.rope_base).powf(-2.0 * i as f64 / dims);
                let divisor = divisors.and_then(|d| d.get(i)).copied().unwrap_or(1.0);
                frequency / f64::from(divisor) / f64::from(self.rope_factor)
            })
            .collect()
    }

    /// Query heads that share a key and value head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_gguf::Value;
    use windlass_gguf::support::why_metadata_unsupported;

    fn metadata() -> Metadata {
        let mut m = Metadata::new();
        m.insert("general.architecture", Value::String("llama".into()));
        for (key, value) in [
            ("block_count", 3),
            ("context_length", 128),
            ("embedding_length", 60),
            ("feed_forward_length", 96),
            ("attention.head_count", 5),
        ] {
            m.insert(format!("llama.{key}"), Value::U32(value));
        }
        m.insert("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
        m
    }

    #[test]
    fn defaults_follow_from_the_required_keys() {
        let spec = ModelSpec::from_metadata(&metadata()).unwrap();
        assert_eq!(
            (spec.kv_heads, spec.key_length, spec.value_length),
            (5, 12, 12)
        );
        assert_eq!(
            (spec.rope_dims, spec.rope_base, spec.rope_factor),
            (12, 10_000.0, 1.0)
        );
    }

    #[test]
    fn another_architecture_is_refused_by_name_with_the_supported_ones() {
        let mut m = metadata();
        m.insert("general.architecture", Value::String("qwen9".into()));
        let error = ModelSpec::from_metadata(&m).unwrap_err().to_string();
        assert!(
            error.contains("qwen9") && error.contains("llama"),
            "{error}"
        );
        assert!(why_metadata_unsupported(&m).unwrap().is_some());
    }

    #[test]
    fn experts_and_yarn_are_refused_by_name() {
        let mut m = metadata();
        m.insert("llama.expert_count", Value::U32(8));
        let error = ModelSpec::from_metadata(&m).unwrap_err().to_string();
        assert!(error.contains("8 experts"), "{error}");
        assert!(why_metadata_unsupported(&m).unwrap().is_some());
        let mut m = metadata();
        m.insert("llama.rope.scaling.type", Value::String("yarn".into()));
        let error = ModelSpec::from_metadata(&m).unwrap_err().to_string();
        assert!(error.contains("yarn"), "{error}");
        assert!(why_metadata_unsupported(&m).unwrap().is_some());
    }

    #[test]
    fn sizes_that_contradict_each_other_are_refused_by_key() {
        for (key, value) in [
            ("attention.head_count_kv", 2),
            ("rope.dimension_count", 14),
            ("rope.dimension_count", 7),
            ("attention.head_count", 0),
            ("attention.head_count", 7),
        ] {
            let mut m = metadata();
            m.insert(format!("llama.{key}"), Value::U32(value));
            assert!(ModelSpec::from_metadata(&m).is_err(), "{key} {value}");
        }
    }

    #[test]
    fn linear_scaling_and_divisors_slow_the_rotation() {
        let mut m = metadata();
        m.insert("llama.rope.scaling.type", Value::String("linear".into()));
        m.insert("llama.rope.scaling.factor", Value::F32(4.0));
        let spec = ModelSpec::from_metadata(&m).unwrap();
        let frequencies = spec.rope_frequencies(Some(&[1.0, 2.0, 1.0, 1.0, 1.0, 8.0]));
        assert_eq!(frequencies.len(), 6);
        assert!((frequencies[0] - 0.25).abs() < 1e-12);
        // 10000^(-2/12) / 2 / 4
        assert!((frequencies[1] - 0.215_443_469 / 8.0).abs() < 1e-9);
    }
}
