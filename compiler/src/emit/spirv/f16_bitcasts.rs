//! Bitcasts between u32 words and pairs of f16 in SPIR-V.
//!
//! WGSL has `bitcast` between a u32 and a `vec2<f16>`, but naga does not support it. Kernels write
//! `vec2<f16>(unpack2x16float(word))` and `pack2x16float(vec2<f32>(pair))` instead, which have equal results. Both
//! become `OpBitcast`, so that drivers need not detect the pattern.

use std::collections::{BTreeMap, BTreeSet};

use super::{HEADER_WORDS, instructions, opcode};

const OP_EXT_INST: u16 = 12;
const OP_TYPE_FLOAT: u16 = 22;
const OP_TYPE_VECTOR: u16 = 23;
const OP_F_CONVERT: u16 = 115;
const OP_BITCAST: u32 = 4 << 16 | 124;
/// Numbers of the instructions PackHalf2x16 and UnpackHalf2x16 in GLSL.std.450, the only extended instruction set that
/// naga imports.
const PACK_HALF: u32 = 58;
const UNPACK_HALF: u32 = 62;

/// Replaces `vec2<f16>(unpack2x16float(..))` and `pack2x16float(vec2<f32>(..))` by bitcasts.
///
/// # Errors
/// If the module is malformed.
pub(super) fn reinterpret(words: &[u32]) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    let half = instructions.iter().find_map(|i| match (opcode(i), *i) {
        (OP_TYPE_FLOAT, [_, id, 16, ..]) => Some(*id),
        _ => None,
    });
    let pair = instructions.iter().find_map(|i| match (opcode(i), *i) {
        (OP_TYPE_VECTOR, [_, id, part, 2]) if Some(*part) == half => Some(*id),
        _ => None,
    });
    let Some(pair) = pair else { return Ok(words.to_vec()) };
    // Word of each unpacked pair of f32, and f16 pair of each converted pair of f32.
    let mut unpacked: BTreeMap<u32, u32> = BTreeMap::new();
    let mut converted: BTreeMap<u32, u32> = BTreeMap::new();
    let mut pairs: BTreeSet<u32> = BTreeSet::new();
    let mut out = words[..HEADER_WORDS].to_vec();
    for i in instructions {
        let same = match (opcode(i), i) {
            (OP_F_CONVERT, [_, ty, id, from]) if *ty == pair => {
                unpacked.get(from).map(|word| [OP_BITCAST, pair, *id, *word])
            }
            (OP_EXT_INST, [_, ty, id, _, PACK_HALF, from]) => {
                converted.get(from).map(|halves| [OP_BITCAST, *ty, *id, *halves])
            }
            _ => None,
        };
        match (opcode(i), i) {
            (OP_EXT_INST, [_, _, id, _, UNPACK_HALF, word]) => _ = unpacked.insert(*id, *word),
            (OP_F_CONVERT, [_, ty, id, from]) if *ty != pair && pairs.contains(from) => {
                converted.insert(*id, *from);
            }
            _ => {}
        }
        if let [_, ty, id, ..] = i
            && *ty == pair
        {
            pairs.insert(*id);
        }
        match same {
            Some(same) => out.extend(same),
            None => out.extend_from_slice(i),
        }
    }
    Ok(out)
}
