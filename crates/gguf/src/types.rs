//! The tensor types of ggml: their ids in files, names and block sizes. Knows no file.

use std::fmt;

macro_rules! tensor_types {
    ($($name:ident = $id:literal, $len:literal, $bytes:literal;)*) => {
        /// How a tensor's values are stored, as numbered by ggml.
        ///
        /// Made with [`TensorType::from_id`]; an id this version does not know is kept as `Unknown`.
        #[allow(non_camel_case_types, missing_docs, reason = "the format's own names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum TensorType {
            $($name,)*
            Unknown(u32),
        }

        impl TensorType {
            /// All types this version knows.
            pub const ALL: &'static [TensorType] = &[$(TensorType::$name,)*];

            /// The type with this id in a file.
            pub fn from_id(id: u32) -> TensorType {
                match id {
                    $($id => TensorType::$name,)*
                    other => TensorType::Unknown(other),
                }
            }

            /// The id in a file.
            pub fn id(self) -> u32 {
                match self {
                    $(TensorType::$name => $id,)*
                    TensorType::Unknown(id) => id,
                }
            }

            /// The type of this name ("Q4_1"), in any case.
            pub fn from_name(name: &str) -> Option<TensorType> {
                $(if name.eq_ignore_ascii_case(stringify!($name)) {
                    return Some(TensorType::$name);
                })*
                None
            }

            /// The name, as "Q4_1"; "type 99" for an unknown id.
            pub fn name(self) -> String {
                match self {
                    $(TensorType::$name => stringify!($name).to_owned(),)*
                    TensorType::Unknown(id) => format!("type {id}"),
                }
            }

            /// Values in one block (1 for plain numbers); `None` for an unknown type.
            pub fn block_len(self) -> Option<u64> {
                match self {
                    $(TensorType::$name => Some($len),)*
                    TensorType::Unknown(_) => None,
                }
            }

            /// Bytes of one block; `None` for an unknown type.
            pub fn block_bytes(self) -> Option<u64> {
                match self {
                    $(TensorType::$name => Some($bytes),)*
                    TensorType::Unknown(_) => None,
                }
            }
        }
    };
}

// Ids 4, 5 (Q4_2, Q4_3), 31 to 33 and 36 to 38 (repacked layouts) were withdrawn from the format.
tensor_types! {
    F32 = 0, 1, 4;
    F16 = 1, 1, 2;
    Q4_0 = 2, 32, 18;
    Q4_1 = 3, 32, 20;
    Q5_0 = 6, 32, 22;
    Q5_1 = 7, 32, 24;
    Q8_0 = 8, 32, 34;
    Q8_1 = 9, 32, 36;
    Q2_K = 10, 256, 84;
    Q3_K = 11, 256, 110;
    Q4_K = 12, 256, 144;
    Q5_K = 13, 256, 176;
    Q6_K = 14, 256, 210;
    Q8_K = 15, 256, 292;
    IQ2_XXS = 16, 256, 66;
    IQ2_XS = 17, 256, 74;
    IQ3_XXS = 18, 256, 98;
    IQ1_S = 19, 256, 50;
    IQ4_NL = 20, 32, 18;
    IQ3_S = 21, 256, 110;
    IQ2_S = 22, 256, 82;
    IQ4_XS = 23, 256, 136;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
    IQ1_M = 29, 256, 56;
    BF16 = 30, 1, 2;
    TQ1_0 = 34, 256, 54;
    TQ2_0 = 35, 256, 66;
    MXFP4 = 39, 32, 17;
    NVFP4 = 40, 64, 36;
    Q1_0 = 41, 128, 18;
    Q2_0 = 42, 64, 18;
}

impl TensorType {
    /// Bytes of a row of `len` values; `None` for an unknown type, a row that is not whole blocks,
    /// or a size beyond 64 bits.
    pub fn row_bytes(self, len: u64) -> Option<u64> {
        let block = self.block_len()?;
        if !len.is_multiple_of(block) {
            return None;
        }
        (len / block).checked_mul(self.block_bytes()?)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::TensorType;

    #[test]
    fn every_known_id_survives_the_round_trip_and_unknown_ids_are_kept() {
        for ty in TensorType::ALL {
            assert_eq!(TensorType::from_id(ty.id()), *ty);
            assert_eq!(TensorType::from_name(&ty.name()), Some(*ty));
        }
        for id in [4, 5, 31, 36, 43, u32::MAX] {
            let ty = TensorType::from_id(id);
            assert_eq!(ty, TensorType::Unknown(id));
            assert_eq!(ty.id(), id);
            assert_eq!(ty.block_bytes(), None);
        }
    }

    /// Sizes added up from the fields of each block in the format's definition.
    #[test]
    fn block_sizes_are_the_sum_of_their_fields() {
        let half = 2;
        let k = 256;
        let cases = [
            (TensorType::Q4_0, half + 32 / 2),
            (TensorType::Q4_1, 2 * half + 32 / 2),
            (TensorType::Q5_0, half + 4 + 32 / 2),
            (TensorType::Q5_1, 2 * half + 4 + 32 / 2),
            (TensorType::Q8_0, half + 32),
            (TensorType::Q8_1, 2 * half + 32),
            (TensorType::Q2_K, k / 16 + k / 4 + 2 * half),
            (TensorType::Q3_K, k / 8 + k / 4 + 12 + half),
            (TensorType::Q4_K, 2 * half + 12 + k / 2),
            (TensorType::Q5_K, 2 * half + 12 + k / 8 + k / 2),
            (TensorType::Q6_K, k / 2 + k / 4 + k / 16 + half),
            (TensorType::Q8_K, 4 + k + k / 16 * 2),
            (TensorType::IQ2_XXS, half + k / 8 * 2),
            (TensorType::IQ2_XS, half + k / 8 * 2 + k / 32),
            (TensorType::IQ2_S, half + k / 4 + k / 16),
            (TensorType::IQ3_XXS, half + 3 * k / 8),
            (TensorType::IQ3_S, half + 13 * k / 32 + k / 64),
            (TensorType::IQ1_S, half + k / 8 + k / 16),
            (TensorType::IQ1_M, k / 8 + k / 16 + k / 32),
            (TensorType::IQ4_NL, half + 32 / 2),
            (TensorType::IQ4_XS, half + 2 + k / 64 + k / 2),
            (TensorType::TQ1_0, half + k / 64 + (k - 4 * k / 64) / 5),
            (TensorType::TQ2_0, half + k / 4),
            (TensorType::MXFP4, 1 + 32 / 2),
            (TensorType::NVFP4, 64 / 16 + 64 / 2),
            (TensorType::Q1_0, half + 128 / 8),
            (TensorType::Q2_0, half + 64 / 4),
        ];
        for (ty, bytes) in cases {
            assert_eq!(ty.block_bytes(), Some(bytes), "{ty}");
        }
    }

    #[test]
    fn a_row_of_partial_blocks_has_no_size() {
        assert_eq!(TensorType::Q4_0.row_bytes(64), Some(36));
        assert_eq!(TensorType::Q4_0.row_bytes(65), None);
        assert_eq!(TensorType::F64.row_bytes(u64::MAX), None);
    }
}
