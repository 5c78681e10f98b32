//! WGSL to the Metal shading language, by naga's writer without the run-time checks that kernels do not need.
//!
//! Binding N of group 0 is buffer N or texture N. naga's MSL expects two more arguments from the host, which are
//! removed here. Workgroup memory, whose size the host would set, becomes variables of the entry point. The buffer with
//! the lengths of all buffers, which only run-time checks read, becomes a constant.

use naga::back::msl;
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::{AddressSpace, Expression, ShaderStage, StorageAccess, TypeInner};

/// Buffer number that naga uses for the lengths of all buffers. This buffer is removed from the emitted source.
const SIZES: msl::Slot = 30;

/// Version of the Metal shading language: the first one with all features that naga emits for kernels.
pub(super) const VERSION: (u8, u8) = (2, 4);

/// Returns the MSL of a WGSL module with the entry point `main`, and the name of the entry point in MSL.
pub(super) fn emit(wgsl: &str) -> Result<(String, String), String> {
    let (module, info) = super::parsed(wgsl)?;
    let functions = module.functions.iter().map(|(_, f)| f);
    let mut functions = functions.chain(module.entry_points.iter().map(|e| &e.function));
    if functions.any(|f| f.expressions.iter().any(|(_, e)| matches!(e, Expression::ArrayLength(_)))) {
        return Err("a kernel uses `arrayLength`, which is not available in MSL".into());
    }
    let mut resources = msl::EntryPointResources { sizes_buffer: Some(SIZES), ..Default::default() };
    for (_, variable) in module.global_variables.iter() {
        let Some(at) = variable.binding else { continue };
        let slot = msl::Slot::try_from(at.binding).ok().filter(|slot| *slot < SIZES);
        let slot = slot
            .ok_or_else(|| format!("binding {} exceeds the limit of {SIZES} bindings in MSL", at.binding))?;
        let inner = module.types.get_handle(variable.ty).map_err(|e| e.to_string())?;
        let image = matches!(inner.inner, TypeInner::Image { .. });
        let mutable = matches!(variable.space, AddressSpace::Storage { access } if access.contains(StorageAccess::STORE));
        let (buffer, texture) = if image { (None, Some(slot)) } else { (Some(slot), None) };
        resources.resources.insert(at, msl::BindTarget { buffer, texture, mutable, ..Default::default() });
    }
    let unchecked = BoundsCheckPolicy::Unchecked;
    let options = msl::Options {
        lang_version: VERSION,
        per_entry_point_map: [("main".to_owned(), resources)].into(),
        fake_missing_bindings: false,
        bounds_check_policies: BoundsCheckPolicies {
            index: unchecked,
            buffer: unchecked,
            image_load: unchecked,
            binding_array: unchecked,
        },
        zero_initialize_workgroup_memory: false,
        force_loop_bounding: false,
        emit_int_div_checks: false,
        ..msl::Options::default()
    };
    let pipeline = msl::PipelineOptions {
        entry_point: Some((ShaderStage::Compute, "main".into())),
        ..msl::PipelineOptions::default()
    };
    let (source, info) = msl::write_string(&module, &info, &options, &pipeline).map_err(|e| e.to_string())?;
    let entry = info.entry_point_names.into_iter().next().ok_or("there is no entry point")?;
    let entry = entry.map_err(|e| e.to_string())?;
    Ok((self_contained(&source, &entry)?, entry))
}

/// Removes the arguments of the MSL entry point that a host would have to provide besides the bindings.
fn self_contained(source: &str, entry: &str) -> Result<String, String> {
    let changed = || "the MSL entry point that naga wrote has an unknown form".to_owned();
    let head = format!("kernel void {entry}(\n");
    let (before, rest) = source.split_once(&head).ok_or_else(changed)?;
    let (arguments, body) = rest.split_once(") {\n").ok_or_else(changed)?;
    let (mut kept, mut shared, mut sizes) = (Vec::new(), String::new(), "");
    for argument in arguments.lines() {
        let argument = argument.trim_start_matches([',', ' ']);
        if let Some(variable) = argument.strip_prefix("threadgroup ") {
            let (ty, name) = variable.split_once("& ").ok_or_else(changed)?;
            shared += &format!("    threadgroup {ty} {name};\n");
        } else if argument.starts_with("constant _mslBufferSizes& ") {
            sizes = "constant _mslBufferSizes _buffer_sizes = {};\n";
        } else if !argument.is_empty() {
            kept.push(format!("  {argument}"));
        }
    }
    Ok(format!("{before}{sizes}{head}{}\n) {{\n{shared}{body}", kept.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::emit;
    use crate::kernels::KERNELS;

    #[test]
    fn only_the_bindings_of_the_kernel_remain() {
        let wgsl = "var<workgroup> tile: array<f32, 64>;
            @group(0) @binding(0) var<storage, read> a: array<f32>;
            @group(0) @binding(1) var t: texture_2d<f32>;
            @group(0) @binding(2) var<storage, read_write> b: array<f32>;
            fn sum(i: u32) -> f32 { return a[i] + tile[i]; }
            @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32) {
                tile[i] = textureLoad(t, vec2<i32>(0, 0), 0).x;
                workgroupBarrier();
                b[i] = sum(i);
            }";
        let (source, entry) = emit(wgsl).unwrap();
        assert_eq!(entry, "main_");
        for part in ["[[buffer(0)]]", "[[texture(1)]]", "[[buffer(2)]]", "    threadgroup type_"] {
            assert!(source.contains(part), "{part}: {source}");
        }
        let arguments = source.split("kernel void main_(").nth(1).unwrap().split(") {").next().unwrap();
        assert!(!arguments.contains("threadgroup type") && !arguments.contains("_buffer_sizes"), "{source}");
        assert!(source.contains("constant _mslBufferSizes _buffer_sizes = {};"), "{source}");
        let length = "@group(0) @binding(0) var<storage, read_write> a: array<u32>;
            @compute @workgroup_size(1) fn main() { a[0] = arrayLength(&a); }";
        assert!(emit(length).is_err_and(|e| e.contains("arrayLength")));
    }

    #[test]
    fn kernels_without_matrices_are_written() {
        for kernel in KERNELS.iter().filter(|kernel| !kernel.wgsl.contains("coop_mat")) {
            emit(kernel.wgsl).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
        }
    }
}
