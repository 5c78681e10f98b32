//! One binding for an operand and the result that overwrites it.
//!
//! A result may lie where an operand does. Where a device takes a buffer for reading or for writing only, both must then
//! be one binding, which the shader reads and writes:
//!
//! ```text
//! @group(0) @binding(1) var<storage, read> buffer_1: array<vec4<f32>>;           gone; its readers name buffer_2
//! @group(0) @binding(2) var<storage, read_write> buffer_2: array<vec4<f32>>;     becomes binding 1
//! ```

use super::launch::Launch;
use super::specialize::renamed;

/// A declaration of a bound buffer.
struct Declared<'a> {
    /// The whole text of it.
    text: &'a str,
    name: &'a str,
    element: &'a str,
}

/// The launch with the bindings of some operands gone, which are read through the result's instead; `None` where their
/// elements are read as another type, or the result is bound more than once.
pub fn with_result(launch: &Launch, operands: &[usize]) -> Option<Launch> {
    let written: Vec<usize> =
        launch.bindings.iter().enumerate().filter(|(_, b)| b.writable).map(|(index, _)| index).collect();
    let [result] = written[..] else { return None };
    let kept = declared(&launch.wgsl, result)?;
    let mut wgsl = launch.wgsl.clone();
    for operand in operands {
        let own = declared(&launch.wgsl, *operand)?;
        if own.element != kept.element {
            return None;
        }
        wgsl = renamed(&wgsl.replace(own.text, ""), own.name, kept.name);
    }
    let mut merged = Launch { wgsl, ..launch.clone() };
    // Binding numbers are places in the list.
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

/// The declaration of a storage buffer by its number.
fn declared(wgsl: &str, index: usize) -> Option<Declared<'_>> {
    let start = wgsl.find(&format!("@group(0) {} var<storage, ", attribute(index)))?;
    let text = wgsl.get(start..)?.split_inclusive(';').next()?;
    let (name, element) = text.split_once("> ")?.1.trim_end_matches(';').split_once(": ")?;
    Some(Declared { text, name, element })
}

#[cfg(test)]
mod tests {
    use crate::shader::specialize::renamed;

    #[test]
    fn whole_names_change() {
        let text = "buffer_1[i] + buffer_12[i] - my_buffer_1 * buffer_1";
        assert_eq!(renamed(text, "buffer_1", "out"), "out[i] + buffer_12[i] - my_buffer_1 * out");
    }
}
