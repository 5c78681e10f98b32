//! Selection of the variant of a bundle that fits a device.
//!
//! Backends (`vulkan`, `webgpu`) provide the device properties. This module calls no driver, so the selection
//! can be tested.

pub(crate) mod backend;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;
#[cfg(feature = "wgpu")]
pub(crate) mod webgpu;

pub use backend::Backend;
#[cfg(feature = "wgpu")]
pub use webgpu::adapters;

#[cfg(feature = "vulkan")]
pub use vulkan::{devices, probe};

pub use drift_format::device::{DeviceInfo, DeviceKind, ImageLimits, IntDotAcceleration, MemoryHeap};

use crate::error::{Error, Result, Unmet};
use crate::format::{ArtifactKind, BindingKind, ImageKind, Limits, Manifest, Variant};

/// Returns the index of the variant that fits best, or an error with every unmet requirement. Hints rank the
/// variants that fit. Among equals the first variant of the bundle is selected.
pub fn choose_variant(manifest: &Manifest, device: &DeviceInfo) -> Result<usize> {
    let mut best: Option<(usize, u32)> = None;
    let mut reports = Vec::new();
    for (index, variant) in manifest.variants.iter().enumerate() {
        let reasons = unmet(manifest, variant, device);
        if !reasons.is_empty() {
            reports.push(Unmet { target: variant.target.clone(), reasons });
            continue;
        }
        let score = hint_score(variant, device);
        if best.is_none_or(|(_, best)| score > best) {
            best = Some((index, score));
        }
    }
    match best {
        Some((index, _)) => Ok(index),
        None => Err(Error::Unmet { device: device.name.clone(), variants: reports }),
    }
}

/// Describes every requirement of a variant that the device does not meet. Empty if the variant can run.
pub fn unmet(manifest: &Manifest, variant: &Variant, device: &DeviceInfo) -> Vec<String> {
    let language = manifest.language(variant);
    // With a single backend, the shader language is known at compile time.
    let runnable = if cfg!(feature = "wgpu") { device.language } else { ArtifactKind::Spirv };
    let own_api = runnable.api_name().unwrap_or_default();
    if language != runnable && !variant.pipelines.is_empty() {
        let api = language.api_name().unwrap_or("no API");
        return vec![format!(
            "the variant is compiled for {api}, but this runtime drives {own_api}; compile the model for a {own_api} target"
        )];
    }
    let needs = &variant.requirements;
    let mut reasons = Vec::new();
    if runnable == ArtifactKind::Spirv && device.api_version < needs.api_version {
        reasons.push(format!(
            "Vulkan {} is needed, but the driver supports {}",
            needs.api_version, device.api_version
        ));
    }
    for feature in needs.features.iter().filter(|feature| !device.features.contains(*feature)) {
        reasons.push(format!("feature {} is missing", feature.name()));
    }
    for bit in needs.features.unknown_bits() {
        reasons.push(format!("feature number {bit} is unknown to this runtime, which may be too old"));
    }
    limit_reasons(&needs.limits, &device.limits, &mut reasons);
    image_reasons(variant, &device.images, &mut reasons);
    if !needs.subgroup_sizes.is_empty() && !needs.subgroup_sizes.contains(&device.subgroup_size) {
        let (size, sizes) = (device.subgroup_size, &needs.subgroup_sizes);
        reasons.push(format!("the subgroup size is {size}, but one of {sizes:?} is needed"));
    }
    let (min, max) = (device.min_subgroup_size, device.max_subgroup_size);
    let required = variant.pipelines.iter().filter_map(|pipeline| pipeline.required_subgroup_size);
    // Subgroup sizes are powers of two, so a bit set lists each size once.
    let required =
        required.filter(|size| *size < min || *size > max).fold(0u64, |sizes, size| sizes | u64::from(size));
    for size in (0..u64::BITS).map(|bit| 1u64 << bit).filter(|size| required & size != 0) {
        reasons.push(format!(
            "subgroups of {size} invocations are needed, but the device supports {min}..{max}"
        ));
    }
    for shape in needs.matrix_shapes.iter().filter(|shape| !device.matrix_shapes.contains(shape)) {
        reasons.push(format!("the device lacks the matrix shape {shape}"));
    }
    reasons
}

/// Returns the score of the hints of a variant that match the device. A device name counts most because it is the most
/// specific hint.
fn hint_score(variant: &Variant, device: &DeviceInfo) -> u32 {
    let hints = &variant.requirements.hints;
    let vendor = hints.vendor_ids.contains(&device.vendor_id);
    let name = hints.device_names.iter().any(|part| contains_ignoring_case(&device.name, part));
    let driver = hints.drivers.iter().any(|part| contains_ignoring_case(&device.driver_name, part));
    u32::from(name) * 4 + u32::from(vendor) * 2 + u32::from(driver)
}

/// Adds a reason to `reasons` if a needed value exceeds the device's limit, unless the same reason is listed already.
#[inline(never)]
fn require_at_most(name: &str, has: u64, needs: u64, reasons: &mut Vec<String>) {
    if needs > has {
        let reason = format!("the device's {name} is {has}, but {needs} is needed");
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
}

fn limit_reasons(needs: &Limits, has: &Limits, reasons: &mut Vec<String>) {
    for ((name, needs), (_, has)) in needs.named().iter().zip(has.named()) {
        require_at_most(name, has, *needs, reasons);
    }
    // Alignments compare in the other direction: the device must not require more than the bundle provides.
    for (name, provided, needed) in [
        ("storage_alignment", needs.storage_alignment, has.storage_alignment),
        ("uniform_alignment", needs.uniform_alignment, has.uniform_alignment),
    ] {
        if needed > provided {
            reasons.push(format!("the device's {name} is {needed}, but the bundle provides {provided}"));
        }
    }
}

/// Compares the images and texel buffers of a variant with the device limits.
fn image_reasons(variant: &Variant, has: &ImageLimits, reasons: &mut Vec<String>) {
    let mut require = |name: &str, has: u32, needs: u64| require_at_most(name, has.into(), needs, reasons);
    for image in variant.images().0 {
        let [x, y, z] = image.extent.map(u64::from);
        match image.texture.kind {
            ImageKind::D3 => require("max_3d", has.max_3d, x.max(y).max(z)),
            _ => {
                require("max_2d", has.max_2d, x.max(y));
                require("max_array_layers", has.max_array_layers, z);
            }
        }
    }
    for pipeline in &variant.pipelines {
        let count = |wanted: fn(&BindingKind) -> bool| {
            pipeline.bindings.iter().filter(|kind| wanted(kind)).count() as u64
        };
        let sampled = count(|kind| matches!(kind, BindingKind::Texels(_) | BindingKind::ImageRead(_)));
        require("max_sampled_images", has.max_sampled_images, sampled);
        let storage = count(|kind| matches!(kind, BindingKind::ImageWrite(_)));
        require("max_storage_images", has.max_storage_images, storage);
    }
    for dispatch in variant.functions.iter().flat_map(|function| &function.dispatches) {
        let pipeline = usize::try_from(dispatch.pipeline).ok().and_then(|index| variant.pipelines.get(index));
        let kinds = pipeline.map_or(&[][..], |pipeline| &pipeline.bindings);
        for (binding, kind) in dispatch.bindings.iter().zip(kinds) {
            let BindingKind::Texels(element) = kind else { continue };
            let texels = binding.size / (4 * element.size());
            require("max_texel_buffer_elements", has.max_texel_buffer_elements, texels);
            // The remainder of the offset must be zero.
            require("texel_alignment", 0, binding.offset % u64::from(has.texel_alignment.max(1)));
        }
    }
}

/// True if `text` contains `part`, ignoring ASCII case.
pub(crate) fn contains_ignoring_case(text: &str, part: &str) -> bool {
    let mut windows = text.as_bytes().windows(part.len().max(1));
    part.is_empty() || windows.any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}
