//! WGSL to SPIR-V for Vulkan: naga's writer, rewrites of its output, and a final step such as validation.
//!
//! Kernels check their own bounds, so all run-time checks of naga are off. naga decorates every array with a stride and
//! every structure member with an offset, which Vulkan forbids outside of buffers (VUID-StandaloneSpirv-None-10684).
//! The decorations are removed from types that no buffer uses.
//!
//! WGSL has only square cooperative matrices, with the element type of the memory they are loaded from. `matrices`
//! gives them their real types, and `fragments` multiplies matrices given as fragments of single invocations. `tensors`
//! loads workgroup-scope matrices by tensor addressing, `barriers` sets scope and semantics of barriers, and
//! `f16_bitcasts` turns conversions between words and f16 pairs into bitcasts.

mod atomics;
mod barriers;
mod elements;
mod f16_bitcasts;
mod fragments;
mod loops;
mod matrices;
#[cfg(test)]
mod rewrites;
mod tensors;

#[cfg(test)]
use std::collections::BTreeMap;
use std::collections::BTreeSet;

use crate::shader::Launch;
use crate::target::{MatrixScope, MatrixType};
use naga::back::spv;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};

/// Function that processes an emitted SPIR-V module at the end, for example validates or optimizes it. Returns the
/// module, or a sentence that states the error.
pub type Finish = fn(Vec<u32>) -> Result<Vec<u32>, String>;

/// Options of SPIR-V emission.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Function that validates or optimizes each emitted module at the end.
    pub finish: Option<Finish>,
    /// Shape and element types of the kernel's cooperative matrices, if WGSL cannot express them.
    pub matrix: Option<Matrix>,
}

/// The cooperative matrices of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrix {
    /// M, N and K of one cooperative matrix multiplication.
    pub sizes: [u32; 3],
    /// True for matrices of workgroup scope, false for subgroup scope.
    pub workgroup: bool,
    /// Element types of A and B, and of the accumulator.
    pub elements: [MatrixType; 2],
    /// True if stores convert the accumulator from f32 to f16. Only for matrices of workgroup scope.
    pub stores_halves: bool,
    /// True if the driver should not unroll loops.
    pub keeps_loops: bool,
}

impl Matrix {
    /// Returns the cooperative matrices of a launch, if it has any.
    pub fn from_launch(launch: &Launch) -> Option<Matrix> {
        launch.matrix.as_ref().map(|shape| Matrix {
            sizes: [shape.m, shape.n, shape.k],
            workgroup: shape.scope == MatrixScope::Workgroup,
            elements: [shape.a, shape.c],
            stores_halves: launch.stores_halves,
            keeps_loops: launch.keeps_loops,
        })
    }
}

const OP_DECORATE: u16 = 71;
const OP_MEMBER_DECORATE: u16 = 72;
const OP_TYPE_INT: u16 = 21;
#[cfg(test)]
const OP_TYPE_FLOAT: u16 = 22;
#[cfg(test)]
const OP_TYPE_VECTOR: u16 = 23;
#[cfg(test)]
const OP_CONSTANT: u16 = 43;
#[cfg(test)]
const OP_VARIABLE: u16 = 59;
#[cfg(test)]
const CLASS_WORKGROUP: u32 = 4;
const OP_TYPE_ARRAY: u16 = 28;
const OP_TYPE_RUNTIME_ARRAY: u16 = 29;
const OP_TYPE_STRUCT: u16 = 30;
const OP_TYPE_POINTER: u16 = 32;
const OP_FUNCTION: u16 = 54;
const OP_FUNCTION_END: u16 = 56;
const OP_TYPE_COOPERATIVE_MATRIX: u16 = 4456;
const DECORATION_ARRAY_STRIDE: u32 = 6;
const DECORATION_OFFSET: u32 = 35;
/// SPIR-V storage classes of buffers: Uniform, PushConstant, StorageBuffer, PhysicalStorageBuffer.
const BUFFER_CLASSES: [u32; 4] = [2, 9, 12, 5349];
const HEADER_WORDS: usize = 5;

/// Compiles a WGSL module with the entry point `main` to SPIR-V.
///
/// # Errors
/// The rendered diagnostic, if the module is not valid (a defect of a kernel).
pub fn emit(wgsl: &str, options: Options) -> Result<Vec<u32>, String> {
    let words = super::texels::retype(strip_explicit_layout(&write(wgsl)?)?)?;
    let words = f16_bitcasts::reinterpret(&words)?;
    let mut words = fragments::fill(&matrices::retype(&words, options.matrix)?)?;
    if let Some(matrix) = options.matrix.filter(|matrix| matrix.workgroup) {
        words = tensors::address(&elements::apply(&words)?)?;
        if matrix.stores_halves {
            words = elements::store_halves(&words)?;
        }
    }
    if options.matrix.is_some_and(|matrix| matrix.keeps_loops) {
        words = loops::keep(&words)?;
    }
    let words = atomics::narrow(&barriers::repair(&words)?)?;
    match options.finish {
        Some(finish) => finish(words),
        None => Ok(words),
    }
}

/// Returns the SPIR-V that naga writes for a WGSL module.
fn write(wgsl: &str) -> Result<Vec<u32>, String> {
    let (module, info) = super::parsed(wgsl)?;
    let unchecked = BoundsCheckPolicy::Unchecked;
    let writer = spv::Options {
        lang_version: (1, 3),
        flags: spv::WriterFlags::empty(),
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
        force_loop_bounding: false,
        use_storage_input_output_16: false,
        emit_int_div_checks: false,
        ..spv::Options::default()
    };
    let pipeline =
        spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: "main".into() };
    spv::write_vec(&module, &info, &writer, Some(&pipeline)).map_err(|e| e.to_string())
}

/// Splits a SPIR-V module into its instructions. Each instruction is a slice of words: the opcode word, then the
/// operands.
fn instructions(words: &[u32]) -> Result<Vec<&[u32]>, String> {
    let mut out = Vec::new();
    let mut rest = words.get(HEADER_WORDS..).ok_or("a module without a header")?;
    while let Some(first) = rest.first() {
        let length = (first >> 16) as usize;
        if length == 0 || length > rest.len() {
            return Err("a malformed instruction".into());
        }
        let (instruction, tail) = rest.split_at(length);
        out.push(instruction);
        rest = tail;
    }
    Ok(out)
}

/// Returns the opcode of a SPIR-V instruction.
fn opcode(instruction: &[u32]) -> u16 {
    instruction.first().map_or(0, |first| (first & 0xffff) as u16)
}

/// Adds a short SPIR-V instruction to a module. Its length must fit 16 bits.
fn push(out: &mut Vec<u32>, opcode: u16, operands: &[u32]) {
    let length = operands.len() as u32 + 1;
    out.push(length << 16 | u32::from(opcode));
    out.extend_from_slice(operands);
}

/// Returns instructions with every function replaced for which `replace` returns another one.
fn replace_functions(
    code: &[&[u32]],
    mut replace: impl FnMut(&[&[u32]]) -> Option<Vec<u32>>,
) -> Result<Vec<u32>, String> {
    let mut out = Vec::new();
    let mut rest = code;
    while let Some((first, others)) = rest.split_first() {
        if opcode(first) != OP_FUNCTION {
            out.extend_from_slice(first);
            rest = others;
            continue;
        }
        let end =
            rest.iter().position(|i| opcode(i) == OP_FUNCTION_END).ok_or("a function without an end")?;
        let (function, after) = rest.split_at(end + 1);
        match replace(function) {
            Some(function) => out.extend(function),
            None => function.iter().for_each(|i| out.extend_from_slice(i)),
        }
        rest = after;
    }
    Ok(out)
}

/// Returns the id of the type `u32` among the instructions of a module.
fn uint_type(instructions: &[&[u32]]) -> Result<u32, String> {
    let found = instructions.iter().find_map(|i| match **i {
        [_, id, 32, 0] if opcode(i) == OP_TYPE_INT => Some(id),
        _ => None,
    });
    found.ok_or_else(|| "no u32 in a module".into())
}

/// Returns the bytes of workgroup memory that a SPIR-V module declares. Supports arrays of vectors and scalars of 32
/// bits.
#[cfg(test)]
pub(crate) fn workgroup_memory(words: &[u32]) -> Result<u32, String> {
    let instructions = instructions(words)?;
    let mut values: BTreeMap<u32, u32> = BTreeMap::new();
    let mut bytes: BTreeMap<u32, u32> = BTreeMap::new();
    let mut total = 0;
    for i in instructions {
        match (opcode(i), i) {
            (OP_CONSTANT, [_, _, id, value]) => _ = values.insert(*id, *value),
            (OP_TYPE_INT | OP_TYPE_FLOAT, [_, id, width, ..]) => _ = bytes.insert(*id, width / 8),
            (OP_TYPE_VECTOR, [_, id, part, count]) => {
                if let Some(part) = bytes.get(part) {
                    bytes.insert(*id, part * count);
                }
            }
            (OP_TYPE_ARRAY, [_, id, part, count]) => {
                if let (Some(part), Some(count)) = (bytes.get(part), values.get(count)) {
                    bytes.insert(*id, part * count);
                }
            }
            (OP_TYPE_POINTER, [_, id, CLASS_WORKGROUP, part]) => {
                if let Some(size) = bytes.get(part) {
                    bytes.insert(*id, *size);
                }
            }
            (OP_VARIABLE, [_, ty, _, CLASS_WORKGROUP, ..]) => {
                total += bytes.get(ty).ok_or("a workgroup variable of an unknown type")?;
            }
            _ => {}
        }
    }
    Ok(total)
}

/// Removes the decorations `ArrayStride` and `Offset` of SPIR-V types that no buffer uses.
fn strip_explicit_layout(words: &[u32]) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    // Types are declared before they are used, so a backward walk sees all users of a type before its element types.
    let mut in_buffer: BTreeSet<u32> = BTreeSet::new();
    for i in instructions.iter().rev() {
        match (opcode(i), *i) {
            (OP_TYPE_POINTER, [_, _, class, pointee, ..]) if BUFFER_CLASSES.contains(class) => {
                in_buffer.insert(*pointee);
            }
            (OP_TYPE_ARRAY | OP_TYPE_RUNTIME_ARRAY, [_, id, element, ..]) if in_buffer.contains(id) => {
                in_buffer.insert(*element);
            }
            (OP_TYPE_STRUCT, [_, id, members @ ..]) if in_buffer.contains(id) => {
                in_buffer.extend(members);
            }
            _ => {}
        }
    }
    let mut out = words[..HEADER_WORDS].to_vec();
    for i in instructions {
        let layout = match (opcode(i), i) {
            (OP_DECORATE, [_, id, DECORATION_ARRAY_STRIDE, ..])
            | (OP_MEMBER_DECORATE, [_, id, _, DECORATION_OFFSET, ..]) => !in_buffer.contains(id),
            _ => false,
        };
        if !layout {
            out.extend_from_slice(i);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{Options, emit};
    use crate::kernels::{KERNELS, PRELUDES};

    #[test]
    fn every_kernel_is_valid_with_its_defaults() {
        for kernel in KERNELS {
            for finish in [drift_spirv_tools::validate, drift_spirv_tools::optimize] {
                emit(kernel.wgsl, Options { finish: Some(finish), matrix: None })
                    .unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
            }
        }
    }

    #[test]
    fn every_prelude_is_valid_by_itself() {
        for (name, prelude) in PRELUDES {
            crate::emit::parsed(prelude).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }

    #[test]
    fn errors_name_the_line() {
        let error = emit("@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }", Options::default());
        assert!(error.is_err_and(|e| e.contains("wgsl:1")));
    }
}
