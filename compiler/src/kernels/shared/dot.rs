//! Shared code of kernels that compute 8-bit integer dot products: the signs of operands, and operands as words of four bytes.
//!
//! A dot product of two words takes both as signed or both as unsigned. If an operand has the other sign, the top bits of
//! its elements are flipped, which subtracts 128 from unsigned elements and adds 128 to signed elements. In the end the
//! kernel corrects each result element by 128 times the sum of the other operand's elements along K.
//!
//! The kernels use signed dot products, unless both operands are unsigned, or the device has instructions for unsigned dot
//! products only.

use super::window::fits;
use super::words::word_read;
use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::{Constant, MatMul};
use crate::ir::tensor::DType;
use crate::kernels::shared::matmul_sizes::{
    batch_axes, has_matrix_per_batch, matrix_coordinates, operand_batch,
};
use crate::shader::access::Coordinates;
use crate::shader::pack::Packed;
use crate::shader::pack::presets::N4K4;
use crate::shader::problem::{Operand, Placement, Problem};
use crate::shader::{Need, Shader};
use crate::target::IntDotSigns;

/// Signs of the two operands of an 8-bit matmul, and of the dot products that compute it: signed or unsigned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signs {
    unsigned: [bool; 2],
    unsigned_dot: bool,
    /// True if the device has no dot instructions, so that multiplications and additions replace them.
    emulated: bool,
}

impl Signs {
    /// Returns the signs of a problem's operands. Returns `None` if the operands are not 8-bit integers or the device
    /// has no integer dot products.
    pub(crate) fn from_problem(problem: &Problem<'_>) -> Option<Self> {
        let unsigned = |index: usize| match problem.operands.get(index)?.dtype {
            DType::U8 => Some(true),
            DType::I8 => Some(false),
            _ => None,
        };
        let supported = problem.target.features.int_dot_product && problem.computed == DType::I32;
        let unsigned = [unsigned(0)?, unsigned(1)?];
        supported.then(|| Self::new(problem, unsigned))
    }

    /// Returns the signs of two signed operands. Devices without integer dot instructions multiply and add.
    pub(crate) fn signed(problem: &Problem<'_>) -> Self {
        Self::new(problem, [false; 2])
    }

    fn new(problem: &Problem<'_>, unsigned: [bool; 2]) -> Self {
        let features = &problem.target.features;
        let accelerated = &features.int_dot_accelerated;
        let only_unsigned =
            accelerated.contains(&IntDotSigns::Unsigned) && !accelerated.contains(&IntDotSigns::Signed);
        let unsigned_dot = unsigned == [true, true] || only_unsigned;
        Self { unsigned, unsigned_dot, emulated: !features.int_dot_product }
    }

    /// True if operand `index` is unsigned.
    pub(crate) fn is_unsigned(self, index: usize) -> bool {
        self.unsigned[index]
    }

    /// True if the kernel flips the top bits of operand `index`, because its sign is not the sign of the dot products.
    pub(crate) fn flips(self, index: usize) -> bool {
        self.unsigned[index] != self.unsigned_dot
    }

    /// Replaces the WGSL declarations that depend on the signs of the operands.
    pub(crate) fn declare(self, shader: &mut Shader<'_>) {
        shader.constant("FLIP_A", self.flips(0));
        shader.constant("FLIP_B", self.flips(1));
        if self.emulated {
            let function = "fn dot4(a: u32, b: u32) -> i32 { let v = unpack4xI8(a) * unpack4xI8(b); return v.x + v.y + v.z + v.w; }\n";
            shader.replace("dot4", function.into());
            return;
        }
        shader.needs(&[Need::IntDotProduct]);
        if self.unsigned_dot {
            // Flipping adds 128 to a signed element, where it subtracts 128 from an unsigned element.
            shader.constant("FLIPPED", "-128i");
            let function = "fn dot4(a: u32, b: u32) -> i32 { return i32(dot4U8Packed(a, b)); }\n";
            shader.replace("dot4", function.into());
        }
    }

    /// Returns a WGSL expression for a word of four elements of operand `index`, with flipped top bits if its sign is not
    /// the sign of the dot products.
    pub(crate) fn flipped_word(self, index: usize, word: &str) -> String {
        if self.flips(index) { format!("({word} ^ 0x80808080u)") } else { word.to_string() }
    }

    /// Returns a WGSL expression for a vec4 of four words of the second operand, with flipped top bits as in
    /// [`Self::flipped_word`].
    pub(crate) fn flipped_vec4(self, words: &str) -> String {
        if self.flips(1) { format!("({words} ^ vec4<u32>(0x80808080u))") } else { words.to_string() }
    }
}

/// True if a read of four elements along an axis of an operand gives four elements, with zeros past the end. False if
/// the axis is broadcast, so that the read repeats one element four times.
pub(crate) fn varies(operand: &Operand<'_>, axis: usize) -> bool {
    let repeated = match &operand.placement {
        Placement::Strided { strides, .. } => strides[axis].is(0),
        Placement::Slices4 => false,
    };
    !repeated && !operand.shape[axis].is(1)
}

/// True if the 8-bit kernels can read both operands of a matmul: neither is broadcast along K.
pub(crate) fn readable(op: &MatMul, problem: &Problem<'_>) -> bool {
    let k_axis = |operand: &Operand<'_>, last: bool| operand.rank() - if last { 1 } else { 2 };
    match &problem.operands[..] {
        [a, b, ..] => varies(a, k_axis(a, !op.trans_a)) && varies(b, k_axis(b, op.trans_b)),
        _ => false,
    }
}

/// Replaces the hook `load_a(batch, row, k4)`, which reads four elements of a row of the first operand as a word of
/// four bytes.
pub(crate) fn declare_load_a(shader: &mut Shader<'_>, op: &MatMul, signs: Signs) {
    let (prelude, at) = matrix_coordinates(shader, 0, op.trans_a, "row", "k4");
    let params = "batch: u32, row: u32, k4: u32";
    let function = word_read(shader, "word_a", params, &prelude, 0, &at);
    let word = signs.flipped_word(0, "word_a(batch, row, k4)");
    shader.replace("load_a", format!("{function}fn load_a({params}) -> u32 {{ return {word}; }}\n"));
}

/// A constant second operand of a matmul: one matrix for all batches, or one matrix for each batch.
pub(crate) struct ConstantMatrices<'a> {
    pub(crate) constant: &'a Constant,
    /// Letter and size of each axis, in the order of the elements: `B` batches, `K` rows, `N` columns. Packing orders
    /// use these letters.
    pub(crate) axes: [(char, usize); 3],
    /// True if each batch has its own matrix.
    pub(crate) per_batch: bool,
}

impl<'a> ConstantMatrices<'a> {
    /// Returns the constant second operand of a matmul. Returns `None` if it is not a constant, is quantized, or has
    /// matrices for some but not all of the batches.
    pub(crate) fn from_matmul(op: &MatMul, problem: &Problem<'a>) -> Option<Self> {
        Self::from_operand(op, problem, 1)
    }

    /// Returns operand `index` of a matmul as constant matrices, as [`Self::from_matmul`] does for operand 1.
    pub(crate) fn from_operand(op: &MatMul, problem: &Problem<'a>, index: usize) -> Option<Self> {
        let operand = problem.operands.get(index)?;
        let constant = operand.constant.filter(|_| operand.quantized.is_none())?;
        let [leading @ .., rows, columns] = constant.shape.as_slice() else { return None };
        let batch = problem.result.shape.split_last_chunk::<2>().map(|(batch, _)| batch)?;
        let one_matrix = leading.iter().all(|d| *d == 1);
        let per_batch = has_matrix_per_batch(problem, leading, batch);
        let [first, second] = if op.trans_b { ['N', 'K'] } else { ['K', 'N'] };
        let axes = [('B', leading.iter().product()), (first, *rows), (second, *columns)];
        (one_matrix || per_batch).then_some(Self { constant, axes, per_batch: per_batch && !one_matrix })
    }
}

/// Packs a constant second operand of 8-bit integers into words. Each word holds four rows of a column, and the words
/// of four columns are adjacent. Also returns true if each batch has its own matrix. Returns `None` if the operand
/// cannot be packed.
pub(crate) fn packed_b(op: &MatMul, problem: &Problem<'_>) -> Option<(Packed, bool)> {
    let ConstantMatrices { constant, axes, per_batch } = ConstantMatrices::from_matmul(op, problem)?;
    let packed = N4K4.packed(constant, &axes, &[], constant.dtype.on_device());
    fits(problem, &packed).then_some((packed, per_batch))
}

/// Replaces the hook `load_b(batch, k4, n4)`, which reads four rows of four columns of the second operand, one word of
/// four bytes per column. Rows past the end are zero; columns past the end are undefined.
pub(crate) fn declare_load_b(shader: &mut Shader<'_>, op: &MatMul, signs: Signs, [n, k]: [&Dim; 2]) {
    let params = "batch: u32, k4: u32, n4: u32";
    if let Some((packed, per_batch)) = packed_b(op, shader.problem) {
        let bound = shader.packed(packed);
        let buffer = shader.bind(bound, "vec4<u32>", false);
        let (k4s, n4s) = (shader.dim(&k.ceil_div(4)), shader.dim(&n.ceil_div(4)));
        let first = if per_batch { format!("(batch * {k4s} + k4)") } else { "k4".to_string() };
        let words = signs.flipped_vec4(&format!("{buffer}[{first} * {n4s} + n4]"));
        shader.replace("load_b", format!("fn load_b({params}) -> vec4<u32> {{ return {words}; }}\n"));
        return;
    }
    let along_k = op.trans_b;
    let (prelude, mut axes) = operand_batch(shader, 1);
    let first = axes.len();
    // Vec4s along the last axis: `line` counts vec4s, `at` counts elements of the other axis.
    axes.extend(["at".to_string(), "line".to_string()]);
    let at = Coordinates::vec4(axes, first + 1);
    let line = shader.read_fn("line_b", "batch: u32, line: u32, at: u32", &prelude, 1, &at, false);
    let (group, other, size) = if along_k { ("k4", "n4", n) } else { ("n4", "k4", k) };
    let limit = (!size.is_multiple_of(4)).then(|| shader.dim(size));
    // Lines past the end read the last line and are replaced by zeros.
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
    let words = words.map(|v| signs.flipped_word(1, &format!("pack_bytes({v})")));
    let body = format!("{lines}    return vec4<u32>({});\n", words.join(", "));
    shader.replace("load_b", format!("{line}fn load_b({params}) -> vec4<u32> {{\n{body}}}\n"));
}

/// Replaces the hook `store(batch, row, n4, v)`, which applies the epilogue to four sums of a row and stores them.
pub(crate) fn declare_store(shader: &mut Shader<'_>, batch: &[Dim]) -> Result<(), OpError> {
    let (prelude, mut axes) = batch_axes(shader, batch);
    axes.extend(["row".to_string(), "n4".to_string()]);
    let lanes = axes.len() - 1;
    shader.write("store", "batch: u32, row: u32, n4: u32", &prelude, &Coordinates::vec4(axes, lanes))
}
