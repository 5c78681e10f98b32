//! Loads workgroup-scope matrices by tensor addressing.
//!
//! For a workgroup-scope matrix in a storage buffer, the driver copies the elements through workgroup memory. The
//! driver needs fewer instructions for the copy if the load names a tensor (SPV_NV_tensor_addressing) instead of a
//! pointer and a stride. naga supports only pointers. This rewrite gives each load a tensor of exactly the matrix's
//! rows and columns.

use std::collections::BTreeMap;

use super::{HEADER_WORDS, OP_FUNCTION, OP_TYPE_COOPERATIVE_MATRIX, instructions, opcode, push, uint_type};

const OP_UNDEF: u16 = 1;
const OP_EXTENSION: u16 = 10;
const OP_CAPABILITY: u16 = 17;
const OP_TYPE_POINTER: u16 = 32;
const OP_CONSTANT: u16 = 43;
const OP_ACCESS_CHAIN: u16 = 65;
const OP_I_MUL: u16 = 132;
const OP_COOPERATIVE_MATRIX_LOAD: u16 = 4457;
const OP_COOPERATIVE_MATRIX_LOAD_TENSOR: u16 = 5367;
const OP_TYPE_TENSOR_LAYOUT: u16 = 5370;
const OP_CREATE_TENSOR_LAYOUT: u16 = 5372;
const OP_TENSOR_LAYOUT_SET_DIMENSION: u16 = 5373;
const OP_TENSOR_LAYOUT_SET_STRIDE: u16 = 5374;
const OP_TENSOR_LAYOUT_SLICE: u16 = 5375;
const CAPABILITY_COOPERATIVE_MATRIX_TENSOR_ADDRESSING: u32 = 5433;
const CAPABILITY_TENSOR_ADDRESSING: u32 = 5439;
const EXTENSIONS: [&str; 2] = ["SPV_NV_tensor_addressing", "SPV_NV_cooperative_matrix2"];
const CLASS_STORAGE_BUFFER: u32 = 12;
const LAYOUT_ROW_MAJOR: u32 = 0;
/// Number of f16 elements in a 16-byte vector, the unit of the strides in naga's matrix loads.
const ELEMENTS: u32 = 8;

/// Rewrites all loads of cooperative matrices from storage buffers to loads by tensor addressing.
///
/// # Errors
/// If the module is malformed.
pub(super) fn address(words: &[u32]) -> Result<Vec<u32>, String> {
    let instructions = instructions(words)?;
    let start = instructions.iter().position(|i| opcode(i) == OP_FUNCTION).ok_or("a module without code")?;
    let (head, code) = instructions.split_at(start);
    let mut module = Module::new(*words.get(3).ok_or("a module without a bound")?, head, &instructions)?;
    let body = module.rewrite(code)?;
    let mut out = words.get(..HEADER_WORDS).ok_or("a module without a header")?.to_vec();
    for capability in [CAPABILITY_TENSOR_ADDRESSING, CAPABILITY_COOPERATIVE_MATRIX_TENSOR_ADDRESSING] {
        push(&mut out, OP_CAPABILITY, &[capability]);
    }
    let mut extended = false;
    for i in head {
        if !extended && opcode(i) != OP_CAPABILITY {
            for name in EXTENSIONS {
                push(&mut out, OP_EXTENSION, &text(name));
            }
            extended = true;
        }
        out.extend_from_slice(i);
    }
    out.extend(module.declarations);
    out.extend(body);
    out[3] = module.bound;
    Ok(out)
}

/// Ids of the types, constants and pointers of a SPIR-V module that the rewrite needs, and the declarations that it adds.
struct Module {
    bound: u32,
    uint: u32,
    /// Values of the module's u32 constants by id. The field `constants` has ids by value.
    values: BTreeMap<u32, u32>,
    constants: BTreeMap<u32, u32>,
    /// Rows and columns of the cooperative matrix types, by id.
    matrices: BTreeMap<u32, [u32; 2]>,
    /// Ids of the pointers into storage buffers.
    pointers: Vec<u32>,
    declarations: Vec<u32>,
    layout: u32,
    undefined: BTreeMap<u32, u32>,
}

impl Module {
    fn new(bound: u32, head: &[&[u32]], all: &[&[u32]]) -> Result<Self, String> {
        let uint = uint_type(head)?;
        let values: BTreeMap<u32, u32> = head
            .iter()
            .filter_map(|i| match (opcode(i), *i) {
                (OP_CONSTANT, [_, ty, id, value]) if *ty == uint => Some((*id, *value)),
                _ => None,
            })
            .collect();
        let sizes = |i: &[u32]| match (opcode(i), i) {
            (OP_TYPE_COOPERATIVE_MATRIX, [_, id, _, _, rows, columns, _]) => {
                Some((*id, [*values.get(rows)?, *values.get(columns)?]))
            }
            _ => None,
        };
        let matrices = head.iter().filter_map(|i| sizes(i)).collect();
        let types: Vec<u32> = head
            .iter()
            .filter_map(|i| match (opcode(i), *i) {
                (OP_TYPE_POINTER, [_, id, CLASS_STORAGE_BUFFER, _]) => Some(*id),
                _ => None,
            })
            .collect();
        let pointers = all
            .iter()
            .filter_map(|i| match (opcode(i), *i) {
                (OP_ACCESS_CHAIN, [_, ty, id, ..]) if types.contains(ty) => Some(*id),
                _ => None,
            })
            .collect();
        let constants = values.iter().map(|(id, value)| (*value, *id)).collect();
        let mut module = Self {
            bound,
            uint,
            values,
            constants,
            matrices,
            pointers,
            declarations: Vec::new(),
            layout: 0,
            undefined: BTreeMap::new(),
        };
        module.layout = module.fresh();
        // Two dimensions, without clamping: no load reaches outside of the tensor.
        let (two, unclamped) = (module.constant(2), module.constant(0));
        push(&mut module.declarations, OP_TYPE_TENSOR_LAYOUT, &[module.layout, two, unclamped]);
        Ok(module)
    }

    fn fresh(&mut self) -> u32 {
        self.bound += 1;
        self.bound - 1
    }

    fn constant(&mut self, value: u32) -> u32 {
        if let Some(known) = self.constants.get(&value) {
            return *known;
        }
        let id = self.fresh();
        push(&mut self.declarations, OP_CONSTANT, &[self.uint, id, value]);
        self.constants.insert(value, id);
        id
    }

    fn undefined(&mut self, ty: u32) -> u32 {
        if let Some(known) = self.undefined.get(&ty) {
            return *known;
        }
        let id = self.fresh();
        push(&mut self.declarations, OP_UNDEF, &[ty, id]);
        self.undefined.insert(ty, id);
        id
    }

    fn rewrite(&mut self, code: &[&[u32]]) -> Result<Vec<u32>, String> {
        let mut out = Vec::new();
        for i in code {
            match **i {
                [_, ty, id, pointer, order, stride, ..]
                    if opcode(i) == OP_COOPERATIVE_MATRIX_LOAD && self.pointers.contains(&pointer) =>
                {
                    let order = *self
                        .values
                        .get(&order)
                        .ok_or("a load of a matrix in an unknown order (row-major or column-major)")?;
                    self.load(&mut out, [ty, id, pointer, stride], order == LAYOUT_ROW_MAJOR)?;
                }
                _ => out.extend_from_slice(i),
            }
        }
        Ok(out)
    }

    fn load(
        &mut self,
        out: &mut Vec<u32>,
        [ty, id, pointer, stride]: [u32; 4],
        row_major: bool,
    ) -> Result<(), String> {
        let [rows, columns] = *self.matrices.get(&ty).ok_or("a load of a matrix of an unknown size")?;
        let [rows, columns, one, zero] = [rows, columns, 1, 0].map(|value| self.constant(value));
        let stride = match self.values.get(&stride) {
            Some(known) => {
                let elements = known.checked_mul(ELEMENTS).ok_or("a stride that overflows")?;
                self.constant(elements)
            }
            None => {
                let (product, elements) = (self.fresh(), self.constant(ELEMENTS));
                push(out, OP_I_MUL, &[self.uint, product, stride, elements]);
                product
            }
        };
        let strides = if row_major { [stride, one] } else { [one, stride] };
        let [created, sized, strided, sliced] = [(); 4].map(|()| self.fresh());
        push(out, OP_CREATE_TENSOR_LAYOUT, &[self.layout, created]);
        push(out, OP_TENSOR_LAYOUT_SET_DIMENSION, &[self.layout, sized, created, rows, columns]);
        push(out, OP_TENSOR_LAYOUT_SET_STRIDE, &[self.layout, strided, sized, strides[0], strides[1]]);
        push(out, OP_TENSOR_LAYOUT_SLICE, &[self.layout, sliced, strided, zero, rows, zero, columns]);
        // No memory operands and no tensor operands.
        let object = self.undefined(ty);
        push(out, OP_COOPERATIVE_MATRIX_LOAD_TENSOR, &[ty, id, pointer, object, sliced, 0, 0]);
        Ok(())
    }
}

/// Encodes a SPIR-V string: UTF-8 bytes in little-endian words, terminated by a zero byte.
fn text(name: &str) -> Vec<u32> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}
