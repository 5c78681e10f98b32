//! Gives cooperative matrices their real types.
//!
//! In WGSL a matrix has the element type of the memory it is loaded from, and is square. Kernels therefore load eight
//! f16 as the bits of a `vec4<f32>`, and the matrices for A and B are declared with elements of f32; no device
//! multiplies those, so they stand for f16 here. Sizes follow from the use of a matrix: A is M x K, B is K x N, the
//! accumulator M x N. naga's loads, stores and products do not bake in either.

use std::collections::BTreeMap;

use super::{HEADER_WORDS, Matrix, instructions};

const OP_CAPABILITY: u16 = 17;
const OP_TYPE_INT: u16 = 21;
const OP_TYPE_FLOAT: u16 = 22;
const OP_CONSTANT: u16 = 43;
const OP_TYPE_COOPERATIVE_MATRIX: u16 = 4456;
const CAPABILITY_FLOAT16: u32 = 9;
/// Values of a matrix's use: A, B and the accumulator.
const USE_A: u32 = 0;
const USE_B: u32 = 1;
const SCOPE_WORKGROUP: u32 = 2;

/// Sets the element type of A and B matrices to f16 and, when `sizes` gives M, N and K, the sizes of all.
///
/// # Errors
/// When the module is malformed.
pub(super) fn retype(words: &[u32], matrix: Option<Matrix>) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    let opcode = |i: &[u32]| (i[0] & 0xffff) as u16;
    if !instructions.iter().any(|i| opcode(i) == OP_TYPE_COOPERATIVE_MATRIX) {
        return Ok(words.to_vec());
    }
    let mut bound = *words.get(3).ok_or("a module without a bound")?;
    let mut fresh = || {
        bound += 1;
        bound - 1
    };
    let find = |wanted: &dyn Fn(&[u32]) -> bool| {
        instructions.iter().find(|i| wanted(i)).and_then(|i| i.get(1)).copied()
    };
    let is_float = |i: &[u32], width: u32| opcode(i) == OP_TYPE_FLOAT && i.get(2) == Some(&width);
    let known_half = find(&|i| is_float(i, 16));
    let half = known_half.unwrap_or_else(&mut fresh);
    let uint =
        find(&|i| opcode(i) == OP_TYPE_INT && i.get(2..) == Some(&[32, 0])).ok_or("no u32 in a module")?;
    // Constants, so that the use of a matrix can be told.
    let values: BTreeMap<u32, u32> = instructions
        .iter()
        .filter_map(|i| match (opcode(i), *i) {
            (OP_CONSTANT, [_, ty, id, value]) if *ty == uint => Some((*id, *value)),
            _ => None,
        })
        .collect();
    let has_capability =
        instructions.iter().any(|i| **i == [2 << 16 | u32::from(OP_CAPABILITY), CAPABILITY_FLOAT16]);

    let mut out = words[..HEADER_WORDS].to_vec();
    if !has_capability {
        out.extend([2 << 16 | u32::from(OP_CAPABILITY), CAPABILITY_FLOAT16]);
    }
    let mut placed = false;
    let mut sized: BTreeMap<u32, u32> = BTreeMap::new();
    for i in &instructions {
        // The half type comes before the first matrix; where the module declares it later it is moved.
        if opcode(i) == OP_TYPE_FLOAT && i.get(1) == Some(&half) {
            if !placed {
                out.extend_from_slice(i);
                placed = true;
            }
            continue;
        }
        let &[first, id, element, scope, rows, columns, role] = *i else {
            out.extend_from_slice(i);
            continue;
        };
        if opcode(i) != OP_TYPE_COOPERATIVE_MATRIX {
            out.extend_from_slice(i);
            continue;
        }
        if !placed {
            out.extend([3 << 16 | u32::from(OP_TYPE_FLOAT), half, 16]);
            placed = true;
        }
        let used = *values.get(&role).ok_or("a matrix without a use")?;
        let element = if used == USE_A || used == USE_B { half } else { element };
        let (mut rows, mut columns) = (rows, columns);
        let mut scope = scope;
        if let Some(Matrix { sizes: [m, n, k], workgroup }) = matrix {
            let wanted = match used {
                USE_A => [m, k],
                USE_B => [k, n],
                _ => [m, n],
            };
            let wanted = wanted.into_iter().chain(workgroup.then_some(SCOPE_WORKGROUP));
            for (slot, size) in [&mut rows, &mut columns, &mut scope].into_iter().zip(wanted) {
                *slot = *sized.entry(size).or_insert_with(|| {
                    let id = fresh();
                    out.extend([4 << 16 | u32::from(OP_CONSTANT), uint, id, size]);
                    id
                });
            }
        }
        out.extend([first, id, element, scope, rows, columns, role]);
    }
    out[3] = bound;
    Ok(out)
}
