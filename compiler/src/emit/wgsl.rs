//! WGSL for WebGPU: the specialized kernel, validated, in the dialect that all implementations accept.
//!
//! Browsers reject constant expressions that are infinite or NaN. Kernels write such numbers as bitcasts of their bits.
//! This module moves the bits into private variables, which are not constant expressions.

use std::collections::BTreeSet;

use naga::valid::{Capabilities, ShaderStages, SubgroupOperationSet, ValidationFlags, Validator};

/// Beginnings of the bitcasts of integer literals to floats, as kernels write them.
const CASTS: [&str; 2] = ["bitcast<f32>(", "bitcast<vec4<f32>>(vec4<u32>("];

/// Returns the WGSL for browsers of a module with the entry point `main`.
///
/// # Errors
/// The rendered diagnostic, if the module is not valid or uses features that browsers lack (a defect of a kernel).
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

/// Moves the bits of infinities and NaNs from constant expressions into private WGSL variables.
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

/// Parses an unsigned integer literal of WGSL, such as `10u` or `0xau`.
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
    fn bits_of_infinities_become_variables() {
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
    fn features_that_browsers_lack_are_errors() {
        assert!(emit(&body("var x: i64 = 1li;")).is_err());
        assert!(emit(&body("let x: u32 = 1.5;")).is_err_and(|e| e.contains("wgsl:1")));
    }
}
