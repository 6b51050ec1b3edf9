//! Dequantisation against blocks worked out by hand from the formats' definitions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use windlass_gguf::{GgufError, TensorType, dequantize};

/// Half-precision bit patterns: sign, 5 exponent bits (bias 15), 10 fraction bits.
const HALF_0_5: [u8; 2] = [0x00, 0x38];
const HALF_1: [u8; 2] = [0x00, 0x3c];
const HALF_2: [u8; 2] = [0x00, 0x40];
const HALF_MINUS_3: [u8; 2] = [0x00, 0xc2];

fn values(ty: TensorType, bytes: &[u8]) -> Vec<f32> {
    let blocks = bytes.len() as u64 / ty.block_bytes().unwrap();
    let mut out = vec![f32::NAN; (blocks * ty.block_len().unwrap()) as usize];
    dequantize(ty, bytes, &mut out).unwrap();
    out
}

#[test]
fn plain_numbers_are_widened_exactly() {
    assert_eq!(values(TensorType::F32, &1.5f32.to_le_bytes()), [1.5]);
    assert_eq!(values(TensorType::F64, &(-2.25f64).to_le_bytes()), [-2.25]);
    assert_eq!(
        values(TensorType::F16, &[HALF_0_5, HALF_MINUS_3].concat()),
        [0.5, -3.0]
    );
    // The smallest subnormal half is 2^-24.
    assert_eq!(values(TensorType::F16, &[1, 0]), [2f32.powi(-24)]);
    // A brain float is the upper half of an f32: 0x4049 is 3.140625.
    assert_eq!(values(TensorType::BF16, &[0x49, 0x40]), [3.140625]);
}

#[test]
fn q4_0_centres_at_eight_and_splits_halves_sixteen_apart() {
    let mut b = HALF_0_5.to_vec();
    b.extend([0u8; 16]);
    b[2] = 0xf1; // value 0: level 1, value 16: level 15
    b[17] = 0x8a; // value 15: level 10, value 31: level 8
    let y = values(TensorType::Q4_0, &b);
    assert_eq!((y[0], y[16]), ((1.0 - 8.0) * 0.5, (15.0 - 8.0) * 0.5));
    assert_eq!((y[15], y[31]), ((10.0 - 8.0) * 0.5, 0.0));
    assert_eq!(y[1], -4.0);
}

#[test]
fn q4_1_adds_its_offset() {
    let mut b = [HALF_0_5, HALF_MINUS_3].concat();
    b.extend([0u8; 16]);
    b[4] = 0xf1;
    let y = values(TensorType::Q4_1, &b);
    assert_eq!(
        (y[0], y[16], y[1]),
        (1.0 * 0.5 - 3.0, 15.0 * 0.5 - 3.0, -3.0)
    );
}

#[test]
fn q5_0_and_q5_1_take_the_fifth_bit_from_the_mask() {
    let mask = (1u32 << 0 | 1 << 16 | 1 << 31).to_le_bytes();
    let mut b = HALF_0_5.to_vec();
    b.extend(mask);
    b.extend([0u8; 16]);
    b[6] = 0x21;
    b[7] = 0x43;
    let y = values(TensorType::Q5_0, &b);
    assert_eq!(y[0], (17.0 - 16.0) * 0.5);
    assert_eq!(y[16], (18.0 - 16.0) * 0.5);
    assert_eq!((y[1], y[17]), ((3.0 - 16.0) * 0.5, (4.0 - 16.0) * 0.5));
    assert_eq!((y[15], y[31]), (-8.0, 0.0));

    let mut b = [HALF_2, HALF_1].concat();
    b.extend(mask);
    b.extend([0u8; 16]);
    b[8] = 0x21;
    let y = values(TensorType::Q5_1, &b);
    assert_eq!(
        (y[0], y[16], y[31]),
        (17.0 * 2.0 + 1.0, 18.0 * 2.0 + 1.0, 16.0 * 2.0 + 1.0)
    );
}

#[test]
fn q8_0_is_signed() {
    let mut b = HALF_0_5.to_vec();
    b.extend((0..32).map(|i| (i - 16) as i8 as u8));
    let y = values(TensorType::Q8_0, &b);
    let hand: Vec<f32> = (0..32).map(|i| (i - 16) as f32 * 0.5).collect();
    assert_eq!(y, hand);
}

#[test]
fn q2_k_scales_each_run_of_sixteen() {
    let mut b = vec![0u8; 84];
    b[80..82].copy_from_slice(&HALF_2);
    b[82..84].copy_from_slice(&HALF_0_5);
    b[0] = 0x13; // run 0: scale 3, offset 1
    b[3] = 0xf2; // run 3 (values 48 to 63): scale 2, offset 15
    b[8] = 0x05; // run 8 (values 128 to 143): scale 5, offset 0
    b[16] = 0b11_00_01_10; // byte 0: value 0 is 2, value 32 is 1, value 96 is 3
    b[16 + 20] = 0b00_00_11_00; // byte 20: value 52 is 3
    b[16 + 32] = 0b00_00_00_01; // second half, byte 0: value 128 is 1
    let y = values(TensorType::Q2_K, &b);
    assert_eq!(y[0], 2.0 * 3.0 * 2.0 - 0.5 * 1.0);
    assert_eq!(y[1], -0.5);
    assert_eq!(y[32], 0.0); // run 2 has no scale
    assert_eq!(y[52], 2.0 * 2.0 * 3.0 - 0.5 * 15.0);
    assert_eq!(y[128], 2.0 * 5.0 * 1.0);
}

#[test]
fn q3_k_unpacks_six_bit_scales_and_the_inverted_third_bit() {
    let mut b = vec![0u8; 110];
    b[108..110].copy_from_slice(&HALF_0_5);
    // Scales sit at 96: run 0 is low 5 with high 2 (37 - 32 = 5); run 9 is low 7 with high 1
    // (23 - 32 = -9): low in the upper half of byte 1, high in bits 4 and 5 of byte 8 + 1.
    b[96] = 0x05;
    b[97] = 0x70;
    b[96 + 8] = 0b00_00_00_10;
    b[96 + 9] = 0b00_01_00_00;
    // Value 0: low bits 3, third bit set, so 7 - 4 = 3. Value 1: nothing set, so -4.
    b[0] = 0b0000_0001;
    b[32] = 0b00_00_00_11;
    // Value 146 = 128 + 18 is in run 9: second half, byte 18, shift 0; third bit 4 of byte 18.
    b[18] = 0b0001_0000;
    b[32 + 32 + 18] = 0b00_00_00_10;
    let y = values(TensorType::Q3_K, &b);
    assert_eq!(y[0], 0.5 * 5.0 * 3.0);
    assert_eq!(y[1], 0.5 * 5.0 * -4.0);
    assert_eq!(y[146], 0.5 * -9.0 * 2.0);
    // Run 2 has scale 0 - 32.
    assert_eq!(y[32], 0.5 * -32.0 * -4.0);
}

/// Twelve bytes with run 1: scale 33, offset 12; run 6: scale 45 (13 low, 2 high), offset 50 (2
/// low, 3 high).
fn packed_scales() -> [u8; 12] {
    let mut s = [0u8; 12];
    s[1] = 33;
    s[5] = 12;
    s[10] = 0x2d;
    s[2] = 0b1000_0000;
    s[6] = 0b1100_0000;
    s
}

#[test]
fn q4_k_packs_scales_and_offsets_in_twelve_bytes() {
    let mut b = [HALF_2, HALF_0_5].concat();
    b.extend(packed_scales());
    b.extend([0u8; 128]);
    b[16 + 3] = 0x90; // value 35 (run 1): level 9
    b[16 + 96 + 4] = 0x07; // value 196 (run 6): level 7
    let y = values(TensorType::Q4_K, &b);
    assert_eq!(y[35], 2.0 * 33.0 * 9.0 - 0.5 * 12.0);
    assert_eq!(y[36], -0.5 * 12.0);
    assert_eq!(y[196], 2.0 * 45.0 * 7.0 - 0.5 * 50.0);
    // Run 2 takes six bits only: the top bits belong to run 6.
    assert_eq!(y[64], 0.0);
}

#[test]
fn q5_k_adds_one_bit_a_run() {
    let mut b = [HALF_2, HALF_0_5].concat();
    b.extend(packed_scales());
    b.extend([0u8; 32 + 128]);
    b[16 + 3] = 0b0000_0010; // fifth bit of value 35 (run 1)
    b[16 + 4] = 0b0100_0000; // fifth bit of value 196 (run 6)
    b[48 + 3] = 0x90;
    b[48 + 96 + 4] = 0x07;
    let y = values(TensorType::Q5_K, &b);
    assert_eq!(y[35], 2.0 * 33.0 * 25.0 - 0.5 * 12.0);
    assert_eq!(y[196], 2.0 * 45.0 * 23.0 - 0.5 * 50.0);
}

#[test]
fn q6_k_joins_four_and_two_bits_under_signed_scales() {
    let mut b = vec![0u8; 210];
    b[208..210].copy_from_slice(&HALF_0_5);
    b[192] = 3; // run 0
    b[192 + 5] = (-2i8) as u8; // run 5: values 80 to 95
    b[192 + 14] = 1; // run 14: values 224 to 239
    b[0] = 0x0c; // value 0: low 12
    b[128] = 0b00_00_00_11; // value 0: high 3, so 60 - 32
    // Value 84 is in the first half: low byte 84 % 64 = 20, upper half; pair 84 / 32 = 2 of high
    // byte 84 % 32 = 20.
    b[20] = 0x50;
    b[128 + 20] = 0b00_01_00_00;
    // Value 230 = 128 + 102: low byte 64 + 38, upper half; pair 3 of high byte 32 + 6.
    b[64 + 38] = 0xf0;
    b[128 + 32 + 6] = 0b10_00_00_00;
    let y = values(TensorType::Q6_K, &b);
    assert_eq!(y[0], 0.5 * 3.0 * (12.0 + 48.0 - 32.0));
    assert_eq!(y[84], 0.5 * -2.0 * (5.0 + 16.0 - 32.0));
    assert_eq!(y[230], 0.5 * 1.0 * (15.0 + 32.0 - 32.0));
    assert_eq!(y[16], 0.0);
}

#[test]
fn iq4_and_mxfp4_look_their_values_up() {
    let mut b = HALF_2.to_vec();
    b.extend([0x80u8; 16]);
    let y = values(TensorType::IQ4_NL, &b);
    assert_eq!((y[0], y[16]), (-254.0, 2.0));

    let mut b = vec![0u8; 136];
    b[0..2].copy_from_slice(&HALF_2);
    b[2..4].copy_from_slice(&(0b10u16 << 6).to_le_bytes()); // run 3: high 2
    b[5] = 0x30; // run 3: low 3, so 35 - 32
    b[8 + 48] = 0xf0;
    let y = values(TensorType::IQ4_XS, &b);
    assert_eq!((y[96], y[112]), (2.0 * 3.0 * -127.0, 2.0 * 3.0 * 113.0));

    let mut b = vec![128u8]; // 2^(128 - 127)
    b.extend([0x97u8; 16]);
    let y = values(TensorType::MXFP4, &b);
    assert_eq!((y[0], y[16]), (2.0 * 6.0, 2.0 * -0.5));
}

#[test]
fn a_wrong_number_of_bytes_is_refused() {
    let mut out = [0.0; 32];
    for bytes in [0, 17, 19, 36] {
        let error = dequantize(TensorType::Q4_0, &vec![0; bytes], &mut out).unwrap_err();
        assert!(matches!(error, GgufError::WrongLength { elements: 32, .. }));
    }
    let error = dequantize(TensorType::Q4_0, &[0; 18], &mut out[..31]).unwrap_err();
    assert!(matches!(error, GgufError::WrongLength { .. }));
}

#[test]
fn a_type_without_dequantisation_is_refused_by_name() {
    let text = dequantize(TensorType::IQ2_S, &[0; 82], &mut [0.0; 256])
        .unwrap_err()
        .to_string();
    assert!(text.contains("IQ2_S"), "{text}");
}
