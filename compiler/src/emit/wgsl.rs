//! WGSL for WebGPU: the kernel's own text, validated, in the dialect that all implementations take.
//!
//! Browsers refuse constants that are no finite number. Kernels make infinities of their bits, so those bits are read
//! from a variable here, which no compiler takes for a constant.

use std::collections::BTreeSet;

use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

/// What stands before bits of floats in the text of kernels.
const CASTS: [&str; 2] = ["bitcast<f32>(", "bitcast<vec4<f32>>(vec4<u32>("];

/// The text of a module with the entry point `main`.
///
/// # Errors
/// Text with the rendered diagnostic when the module is not valid, or takes what no browser offers (a defect of a kernel).
pub fn emit(wgsl: &str) -> Result<String, String> {
    let text = portable(wgsl);
    let module = naga::front::wgsl::parse_str(&text).map_err(|e| e.emit_to_string(&text))?;
    let capabilities = Capabilities::SHADER_FLOAT16 | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.subgroup_operations(SubgroupOperationSet::empty());
    validator.subgroup_stages(ShaderStages::empty());
    validator.validate(&module).map_err(|e| e.emit_to_string(&text))?;
    Ok(text)
}

/// The text with the bits of infinities and of what is no number in variables.
fn portable(wgsl: &str) -> String {
    let mut text = String::with_capacity(wgsl.len());
    let mut known: BTreeSet<u32> = BTreeSet::new();
    let mut rest = wgsl;
    while let Some((at, cast)) = CASTS.iter().filter_map(|c| Some((rest.find(c)?, *c))).min() {
        let (before, after) = rest.split_at(at + cast.len());
        text.push_str(before);
        rest = after;
        let Some((literal, tail)) = after.split_once(')') else { break };
        if let Some(bits) = bits_of(literal).filter(|bits| !f32::from_bits(*bits).is_finite()) {
            known.insert(bits);
            text.push_str(&name(bits));
            text.push(')');
            rest = tail;
        }
    }
    text.push_str(rest);
    let declared = known.into_iter().map(|bits| format!("var<private> {}: u32 = {bits:#x}u;\n", name(bits)));
    text + &declared.collect::<String>()
}

fn name(bits: u32) -> String {
    format!("bits_{bits:x}")
}

/// The value of an unsigned literal.
fn bits_of(literal: &str) -> Option<u32> {
    let digits = literal.trim().strip_suffix('u')?;
    match digits.strip_prefix("0x") {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
        None => digits.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::emit;

    fn body(statement: &str) -> String {
        format!("@compute @workgroup_size(1) fn main() {{ {statement} }}")
    }

    #[test]
    fn bits_of_infinities_are_no_constants() {
        let text =
            emit(&body("let a = bitcast<f32>(0xff800000u); let b = bitcast<f32>(2139095040u);")).unwrap();
        assert!(text.contains("let a = bitcast<f32>(bits_ff800000); let b = bitcast<f32>(bits_7f800000);"));
        assert!(text.contains("var<private> bits_ff800000: u32 = 0xff800000u;"), "{text}");
        let wide = emit(&body("let a = bitcast<vec4<f32>>(vec4<u32>(0xff800000u));")).unwrap();
        assert!(wide.contains("bitcast<vec4<f32>>(vec4<u32>(bits_ff800000))"), "{wide}");
    }

    #[test]
    fn other_bits_stay() {
        let plain = body("let a = bitcast<f32>(1065353216u); let b = bitcast<f32>(bitcast<u32>(a));");
        assert_eq!(emit(&plain).unwrap(), plain);
    }

    #[test]
    fn what_browsers_lack_is_refused() {
        assert!(emit(&body("var x: i64 = 1li;")).is_err());
        assert!(emit(&body("let x: u32 = 1.5;")).is_err_and(|e| e.contains("wgsl:1")));
    }
}
