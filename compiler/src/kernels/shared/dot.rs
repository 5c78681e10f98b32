//! What the kernels that multiply 8-bit integers four at a time share: signs, and operands as words of four numbers.
//!
//! A dot product of two words takes both as signed or both as unsigned. Where one operand is signed and the other is
//! not, the top bits of the unsigned one are flipped, which takes 128 from each of its numbers; 128 times the sum of the
//! other operand is added in the end. Constants lie in memory as bytes, everything else as 32 bits a number, which are
//! packed on the way to the products.

use super::window::fits;
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Constant, MatMul};
use crate::ir::tensor::{DType, DeviceType};
use crate::kernels::shared::product::{batch_axes, has_one_each, matrix_coordinates, operand_batch};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::N4K4;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Need, Shader};

/// Which operands are unsigned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signs {
    unsigned: [bool; 2],
}

impl Signs {
    /// Of a product of 8-bit integers on a device with dot products.
    pub(crate) fn of(problem: &Problem<'_>) -> Option<Self> {
        let unsigned = |index: usize| match problem.operands.get(index)?.dtype {
            DType::U8 => Some(true),
            DType::I8 => Some(false),
            _ => None,
        };
        let able = problem.target.features.int_dot_product && problem.computed == DType::I32;
        let unsigned = [unsigned(0)?, unsigned(1)?];
        able.then_some(Self { unsigned })
    }

    /// Whether the products are of unsigned numbers.
    pub(crate) fn unsigned(self) -> bool {
        self.unsigned == [true, true]
    }

    /// Whether the top bits of an operand are flipped.
    pub(crate) fn flips(self, index: usize) -> bool {
        self.unsigned[0] != self.unsigned[1] && self.unsigned[index]
    }

    /// Replaces what depends on the signs.
    pub(crate) fn declare(self, shader: &mut Shader<'_>) {
        shader.constant("FLIP_A", self.flips(0));
        shader.constant("FLIP_B", self.flips(1));
        shader.needs(&[Need::IntDotProduct]);
        if self.unsigned() {
            let text = "fn product(a: u32, b: u32) -> i32 { return i32(dot4U8Packed(a, b)); }\n";
            shader.replace("product", text.into());
        }
    }

    /// An expression of a word of an operand, with its bits flipped where they must be.
    pub(crate) fn flipped(self, index: usize, word: &str) -> String {
        if self.flips(index) { format!("({word} ^ 0x80808080u)") } else { word.to_string() }
    }

    /// The same for four words of the second operand.
    pub(crate) fn four_flipped(self, words: &str) -> String {
        if self.flips(1) { format!("({words} ^ vec4<u32>(0x80808080u))") } else { words.to_string() }
    }
}

/// Whether four numbers along an axis are four numbers, and zeros past the end, rather than one in all places.
pub(crate) fn varies(operand: &Operand<'_>, axis: usize) -> bool {
    let repeated = match &operand.placement {
        Placement::Strided { strides, .. } => strides[axis].is(0),
        Placement::Slices4 => false,
    };
    !repeated && !operand.shape[axis].is(1)
}

/// Whether the kernels can read the operands of a matrix product.
pub(crate) fn readable(op: &MatMul, problem: &Problem<'_>) -> bool {
    let depth = |operand: &Operand<'_>, last: bool| operand.rank() - if last { 1 } else { 2 };
    match &problem.operands[..] {
        [a, b, ..] => varies(a, depth(a, !op.trans_a)) && varies(b, depth(b, op.trans_b)),
        _ => false,
    }
}

/// The first operand: hook `load_a(batch, row, k4)`, four numbers of a row as a word.
pub(crate) fn load_a(shader: &mut Shader<'_>, op: &MatMul, signs: Signs) {
    let (prelude, at) = matrix_coordinates(shader, 0, op.trans_a, "row", "k4");
    let params = "batch: u32, row: u32, k4: u32";
    let values = shader.read_fn("values_a", params, &prelude, 0, &at, false);
    let word = signs.flipped(0, "word(vec4<u32>(values_a(batch, row, k4)))");
    shader.replace("load_a", format!("{values}fn load_a({params}) -> u32 {{ return {word}; }}\n"));
}

/// A constant second operand: its matrices, of which there is one for all products of the batch or one for each.
pub(crate) struct Matrices<'a> {
    pub(crate) constant: &'a Constant,
    /// Batches, and rows and columns in the order of the elements, by the letters of orders of weights.
    pub(crate) axes: [(char, usize); 3],
    /// Whether there is one for each product, rather than one for all.
    pub(crate) each: bool,
}

impl<'a> Matrices<'a> {
    /// Of a matrix product; none where the operand is no constant or lies as codes, or one matrix serves some products.
    pub(crate) fn of(op: &MatMul, problem: &Problem<'a>) -> Option<Self> {
        Self::at(op, problem, 1)
    }

    /// The same for operand `index`.
    pub(crate) fn at(op: &MatMul, problem: &Problem<'a>, index: usize) -> Option<Self> {
        let operand = problem.operands.get(index)?;
        let constant = operand.constant.filter(|_| operand.codes.is_none())?;
        let [rest @ .., rows, columns] = constant.shape.as_slice() else { return None };
        let batch = problem.result.shape.split_last_chunk::<2>().map(|(batch, _)| batch)?;
        let one = rest.iter().all(|d| *d == 1);
        let each = has_one_each(problem, rest, batch);
        let [first, second] = if op.trans_b { ['N', 'K'] } else { ['K', 'N'] };
        let axes = [('B', rest.iter().product()), (first, *rows), (second, *columns)];
        (one || each).then_some(Self { constant, axes, each: each && !one })
    }
}

/// A constant second operand as words: per group of four depths, per group of four columns, a word for each column.
/// Also whether there is one matrix for each product of the batch, rather than one for all.
pub(crate) fn packed_b(op: &MatMul, problem: &Problem<'_>) -> Option<(Packed, bool)> {
    let Matrices { constant, axes, each } = Matrices::of(op, problem)?;
    let packed = N4K4.of(constant, &axes, &[], DeviceType::Byte);
    fits(problem, &packed).then_some((packed, each))
}

/// The second operand: hook `load_b(batch, k4, n4)`, four words of four depths, one for each of four columns. Past the
/// last depth there are zeros; past the last column there is anything.
pub(crate) fn load_b(shader: &mut Shader<'_>, op: &MatMul, signs: Signs, [n, k]: [&Dim; 2]) {
    let params = "batch: u32, k4: u32, n4: u32";
    if let Some((packed, each)) = packed_b(op, shader.problem) {
        let bound = shader.packed(packed);
        let buffer = shader.bind(bound, "vec4<u32>", false);
        let (deep, wide) = (shader.dim(&k.ceil_div(4)), shader.dim(&n.ceil_div(4)));
        let first = if each { format!("(batch * {deep} + k4)") } else { "k4".to_string() };
        let words = signs.four_flipped(&format!("{buffer}[{first} * {wide} + n4]"));
        shader.replace("load_b", format!("fn load_b({params}) -> vec4<u32> {{ return {words}; }}\n"));
        return;
    }
    let along_k = op.trans_b;
    let (prelude, mut axes) = operand_batch(shader, 1);
    let first = axes.len();
    // Vectors of four numbers along the last axis: `line` counts groups of four, `at` single numbers.
    axes.extend(["at".to_string(), "line".to_string()]);
    let at = Coordinates::four(axes, first + 1);
    let line = shader.read_fn("line_b", "batch: u32, line: u32, at: u32", &prelude, 1, &at, false);
    let (group, other, size) = if along_k { ("k4", "n4", n) } else { ("n4", "k4", k) };
    let limit = (!size.is_multiple_of(4)).then(|| shader.dim(size));
    // Lines past the end are read from the last one and replaced by zeros.
    let lines: String = (0..4)
        .map(|j| match &limit {
            Some(limit) if j > 0 => format!(
                "    let l{j} = select(vec4<u32>(), vec4<u32>(line_b(batch, {group}, min({other} * 4u + {j}u, {limit} - 1u))), {other} * 4u + {j}u < {limit});\n"
            ),
            _ => format!("    let l{j} = vec4<u32>(line_b(batch, {group}, {other} * 4u + {j}u));\n"),
        })
        .collect();
    let words = match along_k {
        true => ["l0", "l1", "l2", "l3"].map(str::to_string),
        false => ["x", "y", "z", "w"].map(|c| format!("vec4<u32>(l0.{c}, l1.{c}, l2.{c}, l3.{c})")),
    };
    let words = words.map(|v| signs.flipped(1, &format!("word({v})")));
    let text = format!("{lines}    return vec4<u32>({});\n", words.join(", "));
    shader.replace("load_b", format!("{line}fn load_b({params}) -> vec4<u32> {{\n{text}}}\n"));
}

/// The result: hook `store(batch, row, n4, v)`, four sums of a row.
pub(crate) fn store(shader: &mut Shader<'_>, batch: &[Dim]) -> Result<(), OpError> {
    let (prelude, mut axes) = batch_axes(shader, batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::four(axes, lanes))
}

/// Bytes that the operands and the result of a product take, with a packed second operand in bytes.
pub(crate) fn traffic(problem: &Problem<'_>, packed: Option<&Packed>) -> f64 {
    let saved = packed.map_or(0.0, |packed| 3.0 * packed.bytes() as f64);
    (problem.traffic() as f64 - saved).max(0.0)
}
