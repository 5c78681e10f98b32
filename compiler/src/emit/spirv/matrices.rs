//! Gives cooperative matrices their real element types and sizes.
//!
//! In WGSL, a matrix has the element type of the memory it is loaded from, and is square. Kernels therefore load 8
//! elements as the bits of a vector of f32, and declare all matrices with f32 elements. The real sizes follow from the
//! use of a matrix: A is M x K, B is K x N, the accumulator is M x N. naga's loads, stores and multiplications do not
//! depend on the types; only multiplications of signed integers need an extra operand.

use std::collections::BTreeMap;

use super::{HEADER_WORDS, Matrix, OP_TYPE_COOPERATIVE_MATRIX, OP_TYPE_INT, instructions, opcode, uint_type};
use crate::target::MatrixType;

const OP_CAPABILITY: u16 = 17;
const OP_TYPE_FLOAT: u16 = 22;
const OP_CONSTANT: u16 = 43;
const OP_COOPERATIVE_MATRIX_MUL_ADD: u16 = 4459;
const CAPABILITY_FLOAT16: u32 = 9;
const CAPABILITY_INT8: u32 = 39;
/// Values of the operand `Use` of a SPIR-V cooperative matrix type: 0 is A, 1 is B, all others are the accumulator.
const USE_A: u32 = 0;
const USE_B: u32 = 1;
const SCOPE_WORKGROUP: u32 = 2;
/// Operand of `OpCooperativeMatrixMulAddKHR`: the elements of A, B, the accumulator and the result are signed.
const ALL_SIGNED: u32 = 0xf;
/// Number of words of `OpCooperativeMatrixMulAddKHR` without the operand for signed elements.
const MUL_ADD_WORDS: usize = 6;

/// Returns the SPIR-V declaration of a matrix's element type: opcode, operands without the id, and the capability that
/// the type needs.
fn numeric(ty: MatrixType) -> Result<(u16, &'static [u32], Option<u32>), String> {
    match ty {
        MatrixType::F16 => Ok((OP_TYPE_FLOAT, &[16], Some(CAPABILITY_FLOAT16))),
        MatrixType::F32 => Ok((OP_TYPE_FLOAT, &[32], None)),
        MatrixType::I8 => Ok((OP_TYPE_INT, &[8, 1], Some(CAPABILITY_INT8))),
        MatrixType::U8 => Ok((OP_TYPE_INT, &[8, 0], Some(CAPABILITY_INT8))),
        MatrixType::I32 => Ok((OP_TYPE_INT, &[32, 1], None)),
        MatrixType::U32 => Ok((OP_TYPE_INT, &[32, 0], None)),
        MatrixType::Bf16 => Err("cooperative matrices of bf16 are not supported".into()),
    }
}

/// Element type that a SPIR-V module declares, or that is added to the module: id, declaration and needed capability.
type ElementType = (u32, Vec<u32>, Option<u32>);

/// Returns the declarations of the matrices' element types. Types that the SPIR-V module lacks get an id from `fresh`.
fn element_types(
    instructions: &[&[u32]],
    elements: [MatrixType; 2],
    mut fresh: impl FnMut() -> u32,
) -> Result<Vec<ElementType>, String> {
    let mut types = Vec::new();
    for element in elements {
        let (code, rest, capability) = numeric(element)?;
        let known = instructions.iter().find(|i| opcode(i) == code && i.get(2..) == Some(rest));
        let id = known.and_then(|i| i.get(1)).copied().unwrap_or_else(&mut fresh);
        let length = rest.len() as u32 + 2;
        types.push((id, [&[length << 16 | u32::from(code), id], rest].concat(), capability));
    }
    Ok(types)
}

/// Adds the capabilities that the element types need and that the SPIR-V module does not declare yet.
fn add_capabilities(out: &mut Vec<u32>, types: &[ElementType], instructions: &[&[u32]]) {
    for (_, _, capability) in types {
        let wanted = capability.map(|capability| [2 << 16 | u32::from(OP_CAPABILITY), capability]);
        if let Some(wanted) = wanted.filter(|wanted| !instructions.contains(&wanted.as_slice())) {
            out.extend(wanted);
        }
    }
}

/// Returns the values of a SPIR-V module's constants of type `ty`, by id.
fn constants(instructions: &[&[u32]], ty: u32) -> BTreeMap<u32, u32> {
    instructions
        .iter()
        .filter_map(|i| match (opcode(i), *i) {
            (OP_CONSTANT, [_, of, id, value]) if *of == ty => Some((*id, *value)),
            _ => None,
        })
        .collect()
}

/// Sets the element types of cooperative matrices, and their sizes if `matrix` gives M, N and K. Without `matrix`, A
/// and B become f16, and the accumulator and all sizes stay.
///
/// # Errors
/// If the module is malformed.
pub(super) fn retype(words: &[u32], matrix: Option<Matrix>) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    if !instructions.iter().any(|i| opcode(i) == OP_TYPE_COOPERATIVE_MATRIX) {
        return Ok(words.to_vec());
    }
    let mut bound = *words.get(3).ok_or("a module without a bound")?;
    let mut fresh = || {
        bound += 1;
        bound - 1
    };
    let elements = matrix.map_or([MatrixType::F16, MatrixType::F32], |matrix| matrix.elements);
    let types = element_types(&instructions, elements, &mut fresh)?;
    let uint = uint_type(&instructions)?;
    // Values of constants, to evaluate the use of a matrix.
    let values = constants(&instructions, uint);

    let mut out = words[..HEADER_WORDS].to_vec();
    add_capabilities(&mut out, &types, &instructions);
    let mut placed: Vec<u32> = Vec::new();
    let mut sized: BTreeMap<u32, u32> = BTreeMap::new();
    for i in &instructions {
        // Element types must precede the first matrix type, so later declarations of them are moved.
        if let Some((id, ..)) = types.iter().find(|(_, declaration, _)| declaration == i) {
            if !placed.contains(id) {
                out.extend_from_slice(i);
                placed.push(*id);
            }
            continue;
        }
        if opcode(i) == OP_COOPERATIVE_MATRIX_MUL_ADD
            && elements[0] == MatrixType::I8
            && i.len() == MUL_ADD_WORDS
        {
            out.push((MUL_ADD_WORDS as u32 + 1) << 16 | u32::from(OP_COOPERATIVE_MATRIX_MUL_ADD));
            out.extend_from_slice(&i[1..]);
            out.push(ALL_SIGNED);
            continue;
        }
        let &[first, id, _, scope, rows, columns, role] = *i else {
            out.extend_from_slice(i);
            continue;
        };
        if opcode(i) != OP_TYPE_COOPERATIVE_MATRIX {
            out.extend_from_slice(i);
            continue;
        }
        for (id, declaration, _) in &types {
            if !placed.contains(id) {
                out.extend_from_slice(declaration);
                placed.push(*id);
            }
        }
        let used = *values.get(&role).ok_or("a matrix without a use")?;
        let [(factor, ..), (sum, ..)] = types.as_slice() else { return Err("two element types".into()) };
        let element = if used == USE_A || used == USE_B { *factor } else { *sum };
        let (mut rows, mut columns) = (rows, columns);
        let mut scope = scope;
        if let Some(Matrix { sizes: [m, n, k], workgroup, .. }) = matrix {
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
