//! WGSL expressions for sizes: literals for known sizes, words of a uniform block for symbolic sizes.

use crate::ir::dim::{Bounds, Dim};

/// Generator of WGSL expressions for sizes, with the contents of the shader's uniform block `params`.
#[derive(Debug, Clone, Default)]
pub struct SizeParams {
    /// Size that the host writes into each word of the uniform block.
    pub params: Vec<Dim>,
    /// Bounds of the symbols in the sizes.
    pub bounds: Bounds,
}

impl SizeParams {
    /// Returns a size as a WGSL expression of type u32, modulo 2^32 if the size is negative.
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

/// Returns word `at` of the uniform block as a WGSL expression of type u32.
pub(super) fn param_word(at: usize) -> String {
    format!("params[{}].{}", at / 4, ["x", "y", "z", "w"][at % 4])
}
