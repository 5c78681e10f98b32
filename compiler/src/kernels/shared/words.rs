//! WGSL functions that read four 8-bit elements as one word, for kernels that compute with packed words.

use crate::ir::storage::Storage;
use crate::shader::access::{Access, Coordinates, tensor_access};
use crate::shader::{Bound, Shader};

/// Returns the WGSL function `name`, which reads the four 8-bit elements of operand `index` at coordinates `at` as one
/// word, the first element in the lowest bits. The kernel must declare the function `pack_bytes`.
pub(crate) fn word_read(
    shader: &mut Shader<'_>,
    name: &str,
    params: &str,
    prelude: &str,
    index: usize,
    at: &Coordinates,
) -> String {
    let operand = shader.problem.operands[index].clone();
    let in_words = operand.storage == Storage::Buffer && operand.dtype.on_device().is_8_bit();
    if let (Access::Vector { index: place }, true) =
        (tensor_access(&mut shader.sizes, &operand, at, false), in_words)
    {
        let buffer = shader.bind(Bound::Operand(index), "u32", false);
        return format!("fn {name}({params}) -> u32 {{\n{prelude}    return {buffer}[{place}];\n}}\n");
    }
    let elements = shader.read_fn(&format!("{name}_elements"), params, prelude, index, at, false);
    let arguments = parameter_names(params).join(", ");
    format!(
        "{elements}fn {name}({params}) -> u32 {{ return pack_bytes(vec4<u32>({name}_elements({arguments}))); }}\n"
    )
}

/// Returns the names in a WGSL parameter list such as `batch: u32, row: u32`.
pub(crate) fn parameter_names(params: &str) -> Vec<&str> {
    params.split(',').filter_map(|p| p.split(':').next()).map(str::trim).collect()
}
