//! Sizes in shaders: symbolic ones are words of a uniform block, known ones are literals.

use crate::ir::dim::{Bounds, Dim};

/// Sizes as WGSL: literals, or words of the uniform block `params`.
#[derive(Debug, Clone, Default)]
pub struct Words {
    /// What each word of the block holds.
    pub params: Vec<Dim>,
    /// Bounds of the symbols.
    pub bounds: Bounds,
}

impl Words {
    /// The size as an expression of type u32 (modulo 2^32 when negative).
    pub fn dim(&mut self, dim: &Dim) -> String {
        if let Some(value) = dim.as_known() {
            return format!("{}u", value as u32);
        }
        let at = self.params.iter().position(|p| p == dim).unwrap_or_else(|| {
            self.params.push(dim.clone());
            self.params.len() - 1
        });
        word(at)
    }
}

/// A word of the uniform block as an expression of type u32.
pub(super) fn word(at: usize) -> String {
    format!("params[{}].{}", at / 4, ["x", "y", "z", "w"][at % 4])
}
