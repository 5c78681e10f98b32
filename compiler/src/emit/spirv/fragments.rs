//! Multiplication of fragments: the elements of cooperative matrices that one invocation holds.
//!
//! WGSL cannot access single elements of cooperative matrices. A kernel that knows the device's fragment layout calls a
//! function `(.., vec4<u32>, vec2<u32>, vec4<f32>) -> vec4<f32>` of one invocation's fragments: packed f16 of A and of
//! B, and the f32 sums. In WGSL, the function multiplies zero matrices, which gives the matrix types. This rewrite
//! replaces the function's body: the new body inserts the elements into matrices, in the order in which an invocation
//! holds them, and multiplies the matrices.

use std::collections::BTreeMap;

use super::{HEADER_WORDS, OP_FUNCTION, OP_FUNCTION_END, instructions, opcode, push, replace_functions};

const OP_TYPE_INT: u16 = 21;
const OP_TYPE_FLOAT: u16 = 22;
const OP_TYPE_VECTOR: u16 = 23;
const OP_CONSTANT_NULL: u16 = 46;
const OP_FUNCTION_PARAMETER: u16 = 55;
const OP_COMPOSITE_CONSTRUCT: u16 = 80;
const OP_COMPOSITE_EXTRACT: u16 = 81;
const OP_COMPOSITE_INSERT: u16 = 82;
const OP_BITCAST: u16 = 124;
const OP_LABEL: u16 = 248;
const OP_RETURN_VALUE: u16 = 254;
const OP_COOPERATIVE_MATRIX_MUL_ADD: u16 = 4459;

/// SPIR-V ids of the types that the new body of a fragment multiplication needs.
struct Types {
    float: u32,
    half: u32,
    pair: u32,
    uint: u32,
    /// `vec2<u32>` and `vec4<u32>`.
    words: [u32; 2],
    floats: u32,
}

/// SPIR-V instructions of the new body of a fragment multiplication.
struct Body<'a> {
    out: Vec<u32>,
    bound: &'a mut u32,
}

impl Body<'_> {
    /// Adds a SPIR-V instruction with a result type and returns the result's id.
    fn push(&mut self, code: u16, ty: u32, operands: &[u32]) -> u32 {
        let id = *self.bound;
        *self.bound += 1;
        self.out.push((operands.len() as u32 + 3) << 16 | u32::from(code));
        self.out.extend([ty, id]);
        self.out.extend(operands);
        id
    }

    /// Builds a cooperative matrix from the packed f16 in the words of a vector.
    fn halves(&mut self, types: &Types, [ty, zero]: [u32; 2], vector: u32, words: u32) -> u32 {
        let mut matrix = zero;
        for word in 0..words {
            let bits = self.push(OP_COMPOSITE_EXTRACT, types.uint, &[vector, word]);
            let pair = self.push(OP_BITCAST, types.pair, &[bits]);
            for lane in 0..2 {
                let half = self.push(OP_COMPOSITE_EXTRACT, types.half, &[pair, lane]);
                matrix = self.push(OP_COMPOSITE_INSERT, ty, &[half, matrix, word * 2 + lane]);
            }
        }
        matrix
    }
}

/// Replaces the body of every fragment multiplication in a SPIR-V module. Cooperative matrices must already have their
/// real types.
///
/// # Errors
/// If the module is malformed.
pub(super) fn fill(words: &[u32]) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    if !instructions.iter().any(|i| opcode(i) == OP_COOPERATIVE_MATRIX_MUL_ADD) {
        return Ok(words.to_vec());
    }
    let mut bound = *words.get(3).ok_or("a module without a bound")?;
    let find = |code: u16, rest: &[u32]| {
        let found = instructions.iter().find(|i| opcode(i) == code && i.get(2..) == Some(rest));
        found.and_then(|i| i.get(1)).copied()
    };
    let vector = |part: Option<u32>, count: u32| part.and_then(|part| find(OP_TYPE_VECTOR, &[part, count]));
    let (float, half, uint) =
        (find(OP_TYPE_FLOAT, &[32]), find(OP_TYPE_FLOAT, &[16]), find(OP_TYPE_INT, &[32, 0]));
    let vectors = (vector(uint, 2), vector(uint, 4), vector(float, 4));
    let (Some(float), Some(half), Some(uint), (Some(two), Some(four), Some(floats))) =
        (float, half, uint, vectors)
    else {
        return Ok(words.to_vec());
    };
    let known_pair = vector(Some(half), 2);
    let pair = known_pair.unwrap_or(bound);
    bound += u32::from(known_pair.is_none());
    let types = Types { float, half, pair, uint, words: [two, four], floats };
    let nulls: BTreeMap<u32, u32> = instructions
        .iter()
        .filter_map(|i| match (opcode(i), *i) {
            (OP_CONSTANT_NULL, [_, ty, id]) => Some((*id, *ty)),
            _ => None,
        })
        .collect();

    let mut out = words[..HEADER_WORDS].to_vec();
    let start = instructions.iter().position(|i| opcode(i) == OP_FUNCTION).ok_or("a module without code")?;
    let (head, code) = instructions.split_at(start);
    head.iter().for_each(|i| out.extend_from_slice(i));
    if known_pair.is_none() {
        push(&mut out, OP_TYPE_VECTOR, &[pair, half, 2]);
    }
    out.extend(replace_functions(code, |function| filled(function, &types, &nulls, &mut bound))?);
    out[3] = bound;
    Ok(out)
}

/// Returns the instructions of a fragment multiplication with its new body, or `None` for other functions.
fn filled(
    function: &[&[u32]],
    types: &Types,
    nulls: &BTreeMap<u32, u32>,
    bound: &mut u32,
) -> Option<Vec<u32>> {
    let parameters: Vec<[u32; 2]> = function
        .iter()
        .filter(|i| opcode(i) == OP_FUNCTION_PARAMETER)
        .filter_map(|i| Some([*i.get(1)?, *i.get(2)?]))
        .collect();
    let [two, four] = types.words;
    let [.., [a_type, a], [b_type, b], [c_type, c]] = *parameters else { return None };
    let &[_, result, ..] = *function.first()? else { return None };
    if [a_type, b_type, c_type, result] != [four, two, types.floats, types.floats] {
        return None;
    }
    let label = function.iter().find(|i| opcode(i) == OP_LABEL)?;
    let product = function.iter().find(|i| opcode(i) == OP_COOPERATIVE_MATRIX_MUL_ADD)?;
    let &[_, sum_type, _, zero_a, zero_b, zero_c] = *product else { return None };
    let [type_a, type_b] = [zero_a, zero_b].map(|zero| nulls.get(&zero).copied());

    let head = function.iter().take_while(|i| opcode(i) != OP_LABEL);
    let mut body = Body { out: head.flat_map(|i| i.iter().copied()).collect(), bound };
    body.out.extend_from_slice(label);
    let left = body.halves(types, [type_a?, zero_a], a, 4);
    let right = body.halves(types, [type_b?, zero_b], b, 2);
    let mut sum = zero_c;
    for i in 0..4 {
        let element = body.push(OP_COMPOSITE_EXTRACT, types.float, &[c, i]);
        sum = body.push(OP_COMPOSITE_INSERT, sum_type, &[element, sum, i]);
    }
    let done = body.push(OP_COOPERATIVE_MATRIX_MUL_ADD, sum_type, &[left, right, sum]);
    let elements = [0, 1, 2, 3].map(|i| body.push(OP_COMPOSITE_EXTRACT, types.float, &[done, i]));
    let value = body.push(OP_COMPOSITE_CONSTRUCT, types.floats, &elements);
    body.out.extend([2 << 16 | u32::from(OP_RETURN_VALUE), value, 1 << 16 | u32::from(OP_FUNCTION_END)]);
    Some(body.out)
}
