//! Instructions that a SPIR-V module is written for and that `driftc audit` looks for in the machine code.

/// SPIR-V: opcode of `OpCapability`.
const OP_CAPABILITY: u32 = 17;
/// SPIR-V: capability `CooperativeMatrixKHR`.
const COOPERATIVE_MATRIX: u32 = 6022;
/// SPIR-V: capability `DotProductInput4x8BitPacked`.
const PACKED_DOT_PRODUCT: u32 = 6018;
/// Number of words before the first instruction.
const HEADER_WORDS: usize = 5;

/// Instructions that a shader is written for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ShaderUses {
    /// Cooperative matrices.
    pub(crate) matrices: bool,
    /// Dot products of packed 8-bit integers.
    pub(crate) dot_products: bool,
}

/// Reads the capabilities of a SPIR-V module, which stand before all other instructions.
pub(crate) fn shader_uses(module: &[u8]) -> ShaderUses {
    let (chunks, _) = module.as_chunks::<4>();
    let words: Vec<u32> = chunks.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let mut uses = ShaderUses::default();
    let mut rest = words.get(HEADER_WORDS..).unwrap_or_default();
    while let [first, capability, after @ ..] = rest {
        if *first != 2 << 16 | OP_CAPABILITY {
            break;
        }
        uses.matrices |= *capability == COOPERATIVE_MATRIX;
        uses.dot_products |= *capability == PACKED_DOT_PRODUCT;
        rest = after;
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::{COOPERATIVE_MATRIX, HEADER_WORDS, PACKED_DOT_PRODUCT, ShaderUses, shader_uses};

    fn module(capabilities: &[u32]) -> Vec<u8> {
        let instructions = capabilities.iter().flat_map(|capability| [2 << 16 | 17, *capability]);
        let words = std::iter::repeat_n(0, HEADER_WORDS).chain(instructions).chain([3 << 16 | 14, 0, 1]);
        words.flat_map(u32::to_le_bytes).collect()
    }

    #[test]
    fn capabilities_are_found() {
        assert_eq!(shader_uses(&module(&[1])), ShaderUses::default());
        let uses = shader_uses(&module(&[1, PACKED_DOT_PRODUCT]));
        assert_eq!(uses, ShaderUses { matrices: false, dot_products: true });
        let uses = shader_uses(&module(&[COOPERATIVE_MATRIX, 1, PACKED_DOT_PRODUCT]));
        assert_eq!(uses, ShaderUses { matrices: true, dot_products: true });
        assert_eq!(shader_uses(&module(&[COOPERATIVE_MATRIX])[..21]), ShaderUses::default());
    }
}
