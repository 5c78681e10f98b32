//! In-place results: one binding for an operand and the result that overwrites it.
//!
//! Some APIs allow a buffer in a dispatch either for reading or for writing. If the result has an operand's memory,
//! both must then be one binding, which the shader reads and writes:
//!
//! ```text
//! @group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;           removed; its uses become buffer_2
//! @group(0) @binding(2) var<storage, read_write> buffer_2: array<vec4<f32>>;     becomes binding 1
//! ```

use super::launch::Launch;
use super::wgsl_syntax::rename_identifier;

/// WGSL declaration of a storage buffer.
struct BufferDeclaration<'a> {
    /// WGSL text of the declaration.
    text: &'a str,
    name: &'a str,
    element: &'a str,
}

/// Returns the launch without the bindings of the given operands; the shader reads these through the binding of the
/// result. Returns `None` if an operand's element type differs from the result's, or if the result has several bindings.
pub fn merge_with_result(launch: &Launch, operands: &[usize]) -> Option<Launch> {
    let writable: Vec<usize> =
        launch.bindings.iter().enumerate().filter(|(_, b)| b.writable).map(|(index, _)| index).collect();
    let [result] = writable[..] else { return None };
    let written = buffer_declaration(&launch.wgsl, result)?;
    let mut wgsl = launch.wgsl.clone();
    for operand in operands {
        let read = buffer_declaration(&launch.wgsl, *operand)?;
        if read.element != written.element {
            return None;
        }
        wgsl = rename_identifier(&wgsl.replace(read.text, ""), read.name, written.name);
    }
    let mut merged = Launch { wgsl, ..launch.clone() };
    // Binding numbers are indices of the list, so later bindings move down.
    let mut number = 0;
    for index in 0..launch.bindings.len() {
        if !operands.contains(&index) {
            merged.wgsl = merged.wgsl.replace(&attribute(index), &attribute(number));
            number += 1;
        }
    }
    let mut index = 0;
    merged.bindings.retain(|_| {
        index += 1;
        !operands.contains(&(index - 1))
    });
    Some(merged)
}

fn attribute(index: usize) -> String {
    format!("@binding({index})")
}

/// Returns the WGSL declaration of the storage buffer with binding number `index`.
fn buffer_declaration(wgsl: &str, index: usize) -> Option<BufferDeclaration<'_>> {
    let start = wgsl.find(&format!("@group(0) {} var<storage, ", attribute(index)))?;
    let text = wgsl.get(start..)?.split_inclusive(';').next()?;
    let (name, element) = text.split_once("> ")?.1.trim_end_matches(';').split_once(": ")?;
    Some(BufferDeclaration { text, name, element })
}

#[cfg(test)]
mod tests {
    use crate::shader::wgsl_syntax::rename_identifier;

    #[test]
    fn only_whole_identifiers_are_renamed() {
        let text = "buffer_1[i] + buffer_12[i] - my_buffer_1 * buffer_1";
        assert_eq!(rename_identifier(text, "buffer_1", "out"), "out[i] + buffer_12[i] - my_buffer_1 * out");
    }
}
