//! Self-test vectors: seeded inputs, and what the outputs of the CPU reference were.
//!
//! A bundle carries them as an attachment with the name [`ATTACHMENT`]. The compiler computes them, and the runtime
//! runs them on the device. Both generate the inputs from the seed, so a vector has no arrays.

use crate::HostType;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Name of the attachment with the encoded [`SelfTest`].
pub const ATTACHMENT: &str = "driftc.self-test";
/// Maximum size of an encoded vector in bytes.
pub const VECTOR_LIMIT: usize = 4096;
/// Maximum size of the attachment in bytes. It bounds the memory of decoding.
const LIMIT: usize = 1 << 20;

/// Self-test vectors of a bundle.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SelfTest {
    pub vectors: Vec<Vector>,
}

/// A run of a function with generated inputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Vector {
    pub function: String,
    /// Seed of the generator. The input at position `i` uses `seed * 1000 + i`.
    pub seed: u64,
    /// Maximum difference of an element: `relative * |expected| + absolute * largest`.
    pub relative: f64,
    pub absolute: f64,
    /// Values of symbols that no input determines.
    pub symbols: Vec<(String, i64)>,
    pub inputs: Vec<TestInput>,
    pub outputs: Vec<TestOutput>,
}

/// Shape of a generated input, and range of its integers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestInput {
    pub name: String,
    pub shape: Vec<u64>,
    /// Number of different integers, from 1 on. It has no effect on floats and bools.
    pub integers: u64,
}

/// Expected output: its statistics, and some elements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestOutput {
    pub name: String,
    /// Number of elements.
    pub elements: u64,
    pub mean: f64,
    /// Root of the mean of the squares.
    pub rms: f64,
    /// Largest absolute value.
    pub largest: f64,
    /// Elements at the positions of [`positions`].
    pub samples: Vec<f64>,
}

impl SelfTest {
    /// Encodes the vectors for the attachment.
    pub fn encode(&self) -> Result<Vec<u8>> {
        bincode::serde::encode_to_vec(self, bincode::config::standard())
            .map_err(|error| Error::invalid("self-test", format!("it cannot be encoded: {error}")))
    }

    /// Decodes the attachment.
    pub fn decode(bytes: &[u8]) -> Result<SelfTest> {
        let config = bincode::config::standard().with_limit::<LIMIT>();
        match bincode::serde::decode_from_slice(bytes, config) {
            Ok((test, size)) if size == bytes.len() => Ok(test),
            _ => Err(Error::invalid("self-test", "the attachment is damaged; compile the model again")),
        }
    }
}

/// Random numbers (xorshift64*).
struct Generator(u64);

impl Generator {
    fn new(seed: u64) -> Generator {
        Generator(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}

/// Returns the seed of an input from its vector's seed and its position.
pub fn input_seed(vector: u64, position: u64) -> u64 {
    vector.wrapping_mul(1000).wrapping_add(position)
}

/// Generates the bytes of an input with `elements` elements: floats are multiples of 1/128 in [-1, 1), which every float
/// type represents; integers are in `1..=integers`; bools are true.
pub fn generate(host: HostType, elements: usize, integers: u64, seed: u64) -> Vec<u8> {
    let mut generator = Generator::new(seed);
    let mut bytes = Vec::new();
    for _ in 0..elements {
        let draw = generator.draw();
        let step = (draw % 256) as i16 - 128;
        let float = f32::from(step) / 128.0;
        let integer = 1 + draw % integers.max(1);
        match host {
            HostType::F32 => bytes.extend(float.to_le_bytes()),
            HostType::F16 => bytes.extend(half_bits(step).to_le_bytes()),
            HostType::Bf16 => bytes.extend((float.to_bits() >> 16).to_le_bytes().iter().take(2)),
            HostType::F64 => bytes.extend(f64::from(float).to_le_bytes()),
            HostType::Bool => bytes.push(1),
            HostType::I8 | HostType::U8 => bytes.extend(integer.to_le_bytes().iter().take(1)),
            HostType::I16 | HostType::U16 => bytes.extend(integer.to_le_bytes().iter().take(2)),
            HostType::I32 | HostType::U32 => bytes.extend(integer.to_le_bytes().iter().take(4)),
            HostType::I64 | HostType::U64 => bytes.extend(integer.to_le_bytes()),
        }
    }
    bytes
}

/// Returns the bits of `step / 128` as f16.
fn half_bits(step: i16) -> u16 {
    let magnitude = step.unsigned_abs();
    if magnitude == 0 {
        return 0;
    }
    let highest = 15 - magnitude.leading_zeros() as u16;
    // The exponent's bias is 15, and a step is 2^-7. The highest bit is implied.
    let (exponent, fraction) = (highest + 8, (magnitude << (10 - highest)) & 0x3ff);
    u16::from(step < 0) << 15 | exponent << 10 | fraction
}

/// Positions of `count` samples among `elements` elements: all positions if they suffice, else random ones.
pub fn positions(elements: u64, count: usize, seed: u64) -> Vec<u64> {
    let mut generator = Generator::new(seed);
    match elements <= count as u64 {
        true => (0..elements).collect(),
        false => (0..count).map(|_| generator.draw() % elements).collect(),
    }
}

/// Computes mean, root mean square and largest absolute value.
pub fn statistics(values: &[f64]) -> [f64; 3] {
    let count = values.len().max(1) as f64;
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    [sum / count, (squares / count).sqrt(), largest]
}

#[cfg(test)]
mod tests {
    use super::{SelfTest, Vector, generate, half_bits, positions};
    use crate::HostType;

    #[test]
    fn generated_floats_are_equal_in_every_type() {
        let f32s = generate(HostType::F32, 500, 1, 7);
        let f32s: Vec<f32> = f32s.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert!(f32s.iter().all(|v| (-1.0..1.0).contains(v)));
        assert!(f32s.iter().any(|v| *v < -0.9) && f32s.iter().any(|v| *v > 0.9));
        let f64s = generate(HostType::F64, 500, 1, 7);
        let bf16s = generate(HostType::Bf16, 500, 1, 7);
        for (i, value) in f32s.iter().enumerate() {
            assert_eq!(f64::from_le_bytes(f64s[8 * i..8 * i + 8].try_into().unwrap()), f64::from(*value));
            assert_eq!(bf16s[2 * i..2 * i + 2], value.to_le_bytes()[2..]);
        }
        // 0, 1/128, 1/2, -3/4 and -1 as f16.
        assert_eq!([0, 1, 64, -96, -128].map(half_bits), [0, 0x2000, 0x3800, 0xba00, 0xbc00]);
    }

    #[test]
    fn integers_are_in_range_and_positions_exist() {
        let bytes = generate(HostType::I32, 300, 250, 3);
        let values: Vec<i32> = bytes.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect();
        assert!(values.iter().all(|v| (1..=250).contains(v)) && values.iter().any(|v| *v > 200));
        assert_eq!(generate(HostType::U8, 3, 1, 3), [1, 1, 1]);
        assert_eq!(positions(3, 64, 1), [0, 1, 2]);
        let many = positions(1 << 40, 64, 1);
        assert!(many.len() == 64 && many.iter().all(|p| *p < 1 << 40));
    }

    #[test]
    fn damaged_bytes_are_errors() {
        let test = SelfTest { vectors: vec![Vector { function: "main".to_owned(), ..Vector::default() }] };
        let bytes = test.encode().unwrap();
        assert_eq!(SelfTest::decode(&bytes).unwrap(), test);
        for length in 0..bytes.len() {
            assert!(SelfTest::decode(&bytes[..length]).is_err());
        }
        assert!(SelfTest::decode(&[bytes.as_slice(), &[0]].concat()).is_err());
        let huge = [253, 255, 255, 255, 255, 255, 255, 255, 255];
        for index in 0..bytes.len() {
            // The result does not matter. Decoding ends, and reserves no memory for a length that the bytes do not have.
            let _ = SelfTest::decode(&[&bytes[..index], &huge, &bytes[index + 1..]].concat());
        }
    }
}
