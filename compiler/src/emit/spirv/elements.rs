//! Functions of single elements of workgroup-scope matrices (SPV_NV_cooperative_matrix2).
//!
//! WGSL cannot access single elements of cooperative matrices. A kernel has a function of one element, `(row: u32,
//! column: u32, value: f32, ..) -> f32`, and a function `(matrix, ..) -> matrix` that calls it once, which names the
//! function of the element and its further arguments. This rewrite replaces the body of the second function: the new
//! body applies the first function to every element of the matrix. Stores of matrices convert to another element type,
//! if the launch names one.

use std::collections::BTreeSet;

use super::{
    HEADER_WORDS, OP_FUNCTION_END, OP_TYPE_COOPERATIVE_MATRIX, instructions, opcode, push, replace_functions,
};

const OP_CAPABILITY: u16 = 17;
const OP_TYPE_FLOAT: u16 = 22;
const OP_FUNCTION_PARAMETER: u16 = 55;
const OP_FUNCTION_CALL: u16 = 57;
const OP_F_CONVERT: u16 = 115;
const OP_LABEL: u16 = 248;
const OP_RETURN_VALUE: u16 = 254;
const OP_COOPERATIVE_MATRIX_STORE: u16 = 4458;
const OP_COOPERATIVE_MATRIX_PER_ELEMENT: u16 = 5369;
const CAPABILITY_COOPERATIVE_MATRIX_PER_ELEMENT_OPERATIONS: u32 = 5432;

/// Replaces the body of every function that applies a function to the elements of a matrix. Cooperative matrices must
/// already have their real types.
///
/// # Errors
/// If the module is malformed.
pub(super) fn apply(words: &[u32]) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    let matrices = matrix_types(&instructions);
    let mut bound = *words.get(3).ok_or("a module without a bound")?;
    let first = bound;
    let out = replace_functions(&instructions, |function| {
        let function = per_element(function, &matrices, bound)?;
        bound += 1;
        Some(function)
    })?;
    let mut module = words.get(..HEADER_WORDS).ok_or("a module without a header")?.to_vec();
    module[3] = bound;
    if bound > first {
        push(&mut module, OP_CAPABILITY, &[CAPABILITY_COOPERATIVE_MATRIX_PER_ELEMENT_OPERATIONS]);
    }
    module.extend(out);
    Ok(module)
}

/// Returns a function of a matrix with its new body, whose result has the id `result`. Returns `None` for other
/// functions.
fn per_element(function: &[&[u32]], matrices: &BTreeSet<u32>, result: u32) -> Option<Vec<u32>> {
    let &[_, returned, ..] = *function.first()? else { return None };
    let mut parameters = function.iter().filter(|i| opcode(i) == OP_FUNCTION_PARAMETER);
    let &[_, ty, matrix] = *parameters.next()? else { return None };
    if ty != returned || !matrices.contains(&ty) {
        return None;
    }
    let call = function.iter().find(|i| opcode(i) == OP_FUNCTION_CALL)?;
    // Row, column and value come first; the further arguments are parameters of the function of the matrix.
    let &[_, _, _, element, _, _, _, ref arguments @ ..] = *call else { return None };
    let head = function.iter().take_while(|i| opcode(i) != OP_LABEL);
    let mut out: Vec<u32> = head.flat_map(|i| i.iter().copied()).collect();
    out.extend_from_slice(function.iter().find(|i| opcode(i) == OP_LABEL)?);
    push(&mut out, OP_COOPERATIVE_MATRIX_PER_ELEMENT, &[&[ty, result, matrix, element], arguments].concat());
    push(&mut out, OP_RETURN_VALUE, &[result]);
    push(&mut out, OP_FUNCTION_END, &[]);
    Some(out)
}

/// Converts matrices to f16 before they are stored.
///
/// # Errors
/// If the module is malformed, has no type f16, or stores matrices of several types.
pub(super) fn store_halves(words: &[u32]) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    let half = instructions.iter().find_map(|i| match **i {
        [_, id, 16] if opcode(i) == OP_TYPE_FLOAT => Some(id),
        _ => None,
    });
    let half = half.ok_or("a module that stores f16 has no type f16")?;
    let stored = stored_type(&instructions)?;
    let mut bound = *words.get(3).ok_or("a module without a bound")?;
    let mut fresh = || {
        bound += 1;
        bound - 1
    };
    let converted_type = fresh();
    let mut out = words.get(..HEADER_WORDS).ok_or("a module without a header")?.to_vec();
    for i in &instructions {
        match **i {
            [first, pointer, object, ref rest @ ..] if opcode(i) == OP_COOPERATIVE_MATRIX_STORE => {
                let converted = fresh();
                push(&mut out, OP_F_CONVERT, &[converted_type, converted, object]);
                out.extend([first, pointer, converted]);
                out.extend_from_slice(rest);
            }
            [_, id, _, ref shape @ ..] if opcode(i) == OP_TYPE_COOPERATIVE_MATRIX && id == stored => {
                out.extend_from_slice(i);
                push(&mut out, OP_TYPE_COOPERATIVE_MATRIX, &[&[converted_type, half], shape].concat());
            }
            _ => out.extend_from_slice(i),
        }
    }
    out[3] = bound;
    Ok(out)
}

/// Returns the id of the type of all matrices that a module stores.
fn stored_type(instructions: &[&[u32]]) -> Result<u32, String> {
    let objects: BTreeSet<u32> = instructions
        .iter()
        .filter(|i| opcode(i) == OP_COOPERATIVE_MATRIX_STORE)
        .filter_map(|i| i.get(2).copied())
        .collect();
    let matrices: BTreeSet<u32> = matrix_types(instructions);
    let types: BTreeSet<u32> = instructions
        .iter()
        .filter_map(|i| match **i {
            [_, ty, id, ..] if matrices.contains(&ty) && objects.contains(&id) => Some(ty),
            _ => None,
        })
        .collect();
    match types.iter().collect::<Vec<_>>().as_slice() {
        [stored] => Ok(**stored),
        _ => Err("a module that stores f16 has no matrix, or matrices of several types, to store".into()),
    }
}

/// Returns the ids of the cooperative matrix types of a module.
fn matrix_types(instructions: &[&[u32]]) -> BTreeSet<u32> {
    let types = instructions.iter().filter(|i| opcode(i) == OP_TYPE_COOPERATIVE_MATRIX);
    types.filter_map(|i| i.get(1).copied()).collect()
}
