//! Normal random numbers of PyTorch's CPU generator, so that a seed gives the latents that it gives in diffusers.

use std::f64::consts::TAU;

use rand_mt::Mt;

/// Number of elements from which PyTorch fills a tensor with uniform numbers first, and then transforms blocks of 16.
const BLOCK: usize = 16;

/// Generator of `torch.Generator("cpu")`.
#[derive(Debug, Clone)]
pub struct TorchGenerator {
    engine: Mt,
    /// Second number of a pair, which the next tensor of fewer than 16 elements uses first.
    cached: Option<f64>,
}

impl TorchGenerator {
    /// Creates a generator with a seed, as `manual_seed` does. PyTorch uses the low 32 bits of the seed.
    pub fn new(seed: u64) -> Self {
        Self { engine: Mt::new(seed as u32), cached: None }
    }

    /// Returns the elements of `torch.randn` in f32 for a tensor with this number of elements. They may differ from
    /// PyTorch's elements by a few units in the last place.
    pub fn randn(&mut self, count: usize) -> Vec<f32> {
        if count < BLOCK {
            return (0..count).map(|_| self.normal() as f32).collect();
        }
        let mut values: Vec<f32> = (0..count).map(|_| self.uniform()).collect();
        for block in values.chunks_exact_mut(BLOCK) {
            transform(block);
        }
        if !count.is_multiple_of(BLOCK) {
            // PyTorch fills the last 16 elements again.
            let tail: Vec<f32> = (0..BLOCK).map(|_| self.uniform()).collect();
            if let Some(block) = values.last_chunk_mut::<BLOCK>() {
                block.copy_from_slice(&tail);
                transform(block);
            }
        }
        values
    }

    /// Returns a uniform number of 24 random bits, at least 0 and below 1.
    fn uniform(&mut self) -> f32 {
        (self.engine.next_u32() & 0x00ff_ffff) as f32 / 16_777_216.0
    }

    /// Returns a uniform number of 53 random bits, at least 0 and below 1.
    fn uniform_f64(&mut self) -> f64 {
        let (high, low) = (u64::from(self.engine.next_u32()), u64::from(self.engine.next_u32()));
        ((high << 32 | low) & ((1 << 53) - 1)) as f64 / 9_007_199_254_740_992.0
    }

    /// Returns one normal number by the Box-Muller transform in f64.
    fn normal(&mut self) -> f64 {
        if let Some(value) = self.cached.take() {
            return value;
        }
        let (first, second) = (self.uniform_f64(), self.uniform_f64());
        let radius = (-2.0 * libm::log1p(-second)).sqrt();
        let (sin, cos) = libm::sincos(TAU * first);
        self.cached = Some(radius * sin);
        radius * cos
    }
}

/// Transforms a block of 16 uniform numbers to normal numbers (Box-Muller).
fn transform(block: &mut [f32]) {
    let (left, right) = block.split_at_mut(BLOCK / 2);
    for (a, b) in left.iter_mut().zip(right) {
        let radius = (-2.0 * libm::log(f64::from(1.0 - *a))).sqrt();
        let (sin, cos) = libm::sincos(f64::from(std::f32::consts::TAU * *b));
        *a = (radius * cos) as f32;
        *b = (radius * sin) as f32;
    }
}
