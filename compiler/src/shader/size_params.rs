//! WGSL expressions of sizes: literals for known sizes, words of a uniform block for symbolic sizes.

use crate::ir::dim::{Bounds, Dim};

/// WGSL expressions of sizes, and the contents of the uniform block `params`.
#[derive(Debug, Clone, Default)]
pub struct SizeParams {
    /// Size in each word of the block.
    pub params: Vec<Dim>,
    /// Bounds of the symbols.
    pub bounds: Bounds,
}

impl SizeParams {
    /// Returns the size as an expression of type u32, modulo 2^32 if it is negative.
    pub fn dim(&mut self, dim: &Dim) -> String {
        if let Some(value) = dim.as_known() {
            return format!("{}u", value as u32);
        }
        let at = self.params.iter().position(|p| p == dim).unwrap_or_else(|| {
            self.params.push(dim.clone());
            self.params.len() - 1
        });
        param_word(at)
    }
}

/// Returns a word of the uniform block as an expression of type u32.
pub(super) fn param_word(at: usize) -> String {
    format!("params[{}].{}", at / 4, ["x", "y", "z", "w"][at % 4])
}
