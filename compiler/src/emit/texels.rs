//! Texel buffers in SPIR-V. WGSL has no texel buffers, so kernels use 1-D textures instead, which this rewrite retypes
//! in the SPIR-V module.
//!
//! The rewrite changes the dimension of the image type and its capability, and drops the level of detail of the reads,
//! because buffers have none.

use std::collections::BTreeSet;

const HEADER_WORDS: usize = 5;
const OP_CAPABILITY: u32 = 17;
const OP_TYPE_IMAGE: u32 = 25;
const OP_LOAD: u32 = 61;
const OP_IMAGE_FETCH: u32 = 95;
const CAPABILITY_SAMPLED_1D: u32 = 43;
const CAPABILITY_SAMPLED_BUFFER: u32 = 46;
const DIM_1D: u32 = 0;
const DIM_BUFFER: u32 = 5;
const OPERAND_LOD: u32 = 2;

/// Replaces the 1-D textures of a SPIR-V module by texel buffers.
///
/// # Errors
/// If the module is malformed.
pub(super) fn retype(words: Vec<u32>) -> Result<Vec<u32>, String> {
    let mut types: BTreeSet<u32> = BTreeSet::new();
    let mut images: BTreeSet<u32> = BTreeSet::new();
    let mut out = words.get(..HEADER_WORDS).ok_or("a module without a header")?.to_vec();
    let mut rest = words.get(HEADER_WORDS..).unwrap_or_default();
    let mut changed = false;
    while let Some(first) = rest.first() {
        let length = (first >> 16) as usize;
        let (instruction, after) = rest
            .split_at_checked(length)
            .filter(|(instruction, _)| !instruction.is_empty())
            .ok_or("a malformed instruction")?;
        rest = after;
        match (first & 0xffff, instruction) {
            (OP_CAPABILITY, [op, CAPABILITY_SAMPLED_1D]) => out.extend([*op, CAPABILITY_SAMPLED_BUFFER]),
            (OP_TYPE_IMAGE, [op, id, sampled, DIM_1D, others @ ..]) => {
                types.insert(*id);
                changed = true;
                out.extend([*op, *id, *sampled, DIM_BUFFER]);
                out.extend(others);
            }
            (OP_LOAD, [_, ty, id, ..]) => {
                if types.contains(ty) {
                    images.insert(*id);
                }
                out.extend(instruction);
            }
            (OP_IMAGE_FETCH, [_, ty, id, image, at, OPERAND_LOD, _]) if images.contains(image) => {
                out.extend([5 << 16 | OP_IMAGE_FETCH, *ty, *id, *image, *at]);
            }
            _ => out.extend(instruction),
        }
    }
    Ok(if changed { out } else { words })
}
