//! WGSL to HLSL for DirectX 12, by naga's writer without the run-time checks that kernels do not need.
//!
//! Binding N of group 0 is register N of space 0: `t` if it is read, `u` if it is written, `b` if it is uniform.
//! DirectX has no built-in for the number of workgroups, so kernels read it from three words at `b0` of space 1.

use naga::back::hlsl::{BindTarget, Options, PipelineOptions, ShaderModel, Writer};
use naga::{Binding, BuiltIn, ShaderStage};

/// HLSL's dot product functions of packed 8-bit integers, and the types of their sums.
const DOTS: [(&str, &str); 2] = [("dot4add_i8packed", "int"), ("dot4add_u8packed", "uint")];

/// DirectX shader model: the first one with dot products of packed 8-bit integers. f16 needs model 6.2.
pub(super) const VERSION: (u8, u8) = (6, 4);
const MODEL: ShaderModel = ShaderModel::V6_4;

/// Returns the HLSL of a WGSL module with the entry point `main`, and the name of the entry point in HLSL.
pub(super) fn emit(wgsl: &str) -> Result<(String, String), String> {
    let (module, info) = super::parsed(wgsl)?;
    let number = Some(Binding::BuiltIn(BuiltIn::NumWorkGroups));
    let mut arguments = module.entry_points.iter().flat_map(|entry| &entry.function.arguments);
    let asks = arguments.any(|argument| argument.binding == number);
    let mut options = Options {
        shader_model: MODEL,
        fake_missing_bindings: false,
        special_constants_binding: asks.then(|| BindTarget { space: 1, ..BindTarget::default() }),
        zero_initialize_workgroup_memory: false,
        restrict_indexing: false,
        force_loop_bounding: false,
        ..Options::default()
    };
    for at in module.global_variables.iter().filter_map(|(_, variable)| variable.binding) {
        let space = u8::try_from(at.group).map_err(|e| e.to_string())?;
        let target = BindTarget { space, register: at.binding, ..BindTarget::default() };
        options.binding_map.insert(at, target);
    }
    let pipeline = PipelineOptions { entry_point: Some((ShaderStage::Compute, "main".into())) };
    let mut hlsl = String::new();
    let written = Writer::new(&mut hlsl, &options, &pipeline).write(&module, &info, None);
    let info = written.map_err(|e| e.to_string())?;
    let entry = info.entry_point_names.into_iter().next().ok_or("there is no entry point")?;
    Ok((typed(&hlsl), entry.map_err(|e| e.to_string())?))
}

/// Adds type casts to the initial sums of dot products in HLSL. naga writes a bare zero as the initial sum, and
/// Microsoft's compiler makes it a 64-bit integer, which devices do not support.
fn typed(hlsl: &str) -> String {
    let used = DOTS.into_iter().filter(|(name, _)| hlsl.contains(name));
    let macros = used.map(|(name, ty)| format!("#define {name}(a, b, c) {name}(a, b, {ty}(c))\n"));
    macros.collect::<String>() + hlsl
}

#[cfg(test)]
mod tests {
    use super::emit;
    use crate::kernels::KERNELS;

    #[test]
    fn registers_are_the_numbers_of_bindings() {
        let wgsl = "@group(0) @binding(0) var<storage, read> a: array<f32>;
            @group(0) @binding(1) var<uniform> c: array<vec4<f32>, 2>;
            @group(0) @binding(2) var<storage, read_write> b: array<f32>;
            @compute @workgroup_size(64) fn main(
                @builtin(local_invocation_index) i: u32, @builtin(num_workgroups) groups: vec3<u32>,
            ) { b[i] = a[i] + c[0].x + f32(groups.x); }";
        let (hlsl, entry) = emit(wgsl).unwrap();
        assert_eq!(entry, "main");
        for part in ["register(t0)", "register(b1)", "register(u2)", "register(b0, space1)"] {
            assert!(hlsl.contains(part), "{part}: {hlsl}");
        }
    }

    #[test]
    fn sums_of_dot_products_have_types() {
        let wgsl = "@group(0) @binding(0) var<storage, read_write> b: array<u32>;
            @compute @workgroup_size(1) fn main() { b[0] = u32(dot4I8Packed(b[1], b[2])); }";
        let (hlsl, _) = emit(wgsl).unwrap();
        assert!(
            hlsl.starts_with("#define dot4add_i8packed(a, b, c) dot4add_i8packed(a, b, int(c))\n"),
            "{hlsl}"
        );
    }

    #[test]
    fn kernels_without_matrices_are_written() {
        for kernel in KERNELS.iter().filter(|kernel| !kernel.wgsl.contains("coop_mat")) {
            emit(kernel.wgsl).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        }
    }
}
