//! Which variant of a bundle fits a device.
//!
//! The facts come from a backend (`vulkan`, `webgpu`); nothing here calls a driver, so that the choice can be tested.

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

pub use drift_format::device::{DeviceInfo, DeviceKind, ImageLimits, MemoryHeap};

use crate::error::{Error, Result, Unmet};
use crate::format::{ArtifactKind, BindingKind, ImageKind, Limits, Manifest, Variant};

/// The index of the variant that fits best, or every reason why none does.
/// Hints order the variants that fit; among equals the first in the bundle wins.
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

/// Every requirement of a variant that a device does not meet, in words; empty where it can run.
pub fn unmet(manifest: &Manifest, variant: &Variant, device: &DeviceInfo) -> Vec<String> {
    let language = manifest.language(variant);
    // Without a choice of backends it is known what a device takes.
    let taken = if cfg!(feature = "wgpu") { device.language } else { ArtifactKind::Spirv };
    let own = taken.interface().unwrap_or_default();
    if language != taken && !variant.pipelines.is_empty() {
        let interface = language.interface().unwrap_or("no interface");
        return vec![format!(
            "it is compiled for {interface}, and this runtime drives {own}; compile the model for a {own} target"
        )];
    }
    let needs = &variant.requirements;
    let mut reasons = Vec::new();
    if taken == ArtifactKind::Spirv && device.api_version < needs.api_version {
        reasons
            .push(format!("Vulkan {} is needed, the driver has {}", needs.api_version, device.api_version));
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
        reasons.push(format!("the subgroup size is {size}, one of {sizes:?} is needed"));
    }
    let (min, max) = (device.min_subgroup_size, device.max_subgroup_size);
    let asked = variant.pipelines.iter().filter_map(|pipeline| pipeline.required_subgroup_size);
    // Sizes are powers of two, so a bit for each is enough to name each once.
    let asked =
        asked.filter(|size| *size < min || *size > max).fold(0u64, |sizes, size| sizes | u64::from(size));
    for size in (0..u64::BITS).map(|bit| 1u64 << bit).filter(|size| asked & size != 0) {
        reasons.push(format!("subgroups of {size} are needed, the device has {min}..={max}"));
    }
    for shape in needs.matrix_shapes.iter().filter(|shape| !device.matrix_shapes.contains(shape)) {
        reasons.push(format!("matrix shape {shape} is missing"));
    }
    reasons
}

/// How many kinds of hints match; a device name counts most, being the most specific.
fn hint_score(variant: &Variant, device: &DeviceInfo) -> u32 {
    let hints = &variant.requirements.hints;
    let vendor = hints.vendor_ids.contains(&device.vendor_id);
    let name = hints.device_names.iter().any(|part| contains(&device.name, part));
    let driver = hints.drivers.iter().any(|part| contains(&device.driver_name, part));
    u32::from(name) * 4 + u32::from(vendor) * 2 + u32::from(driver)
}

/// Adds the reason where more is needed than there is, once.
#[inline(never)]
fn at_most(name: &str, has: u64, needs: u64, reasons: &mut Vec<String>) {
    if needs > has {
        let reason = format!("{name} is {has}, {needs} is needed");
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
}

fn limit_reasons(needs: &Limits, has: &Limits, reasons: &mut Vec<String>) {
    for ((name, needs), (_, has)) in needs.named().iter().zip(has.named()) {
        at_most(name, has, *needs, reasons);
    }
    // Alignments are the other way round: the device must not ask for more than the bundle keeps.
    for (name, keeps, asks) in [
        ("storage_alignment", needs.storage_alignment, has.storage_alignment),
        ("uniform_alignment", needs.uniform_alignment, has.uniform_alignment),
    ] {
        if asks > keeps {
            reasons.push(format!("{name} is {asks}, the bundle keeps {keeps}"));
        }
    }
}

/// Compares the images and texel buffers of a variant with what the device takes.
fn image_reasons(variant: &Variant, has: &ImageLimits, reasons: &mut Vec<String>) {
    let mut most = |name: &str, has: u32, needs: u64| at_most(name, has.into(), needs, reasons);
    for image in variant.images().0 {
        let [x, y, z] = image.extent.map(u64::from);
        match image.texture.kind {
            ImageKind::D3 => most("max_3d", has.max_3d, x.max(y).max(z)),
            _ => {
                most("max_2d", has.max_2d, x.max(y));
                most("max_array_layers", has.max_array_layers, z);
            }
        }
    }
    for pipeline in &variant.pipelines {
        let count = |wanted: fn(&BindingKind) -> bool| {
            pipeline.bindings.iter().filter(|kind| wanted(kind)).count() as u64
        };
        let sampled = count(|kind| matches!(kind, BindingKind::Texels(_) | BindingKind::ImageRead(_)));
        most("max_sampled_images", has.max_sampled_images, sampled);
        let storage = count(|kind| matches!(kind, BindingKind::ImageWrite(_)));
        most("max_storage_images", has.max_storage_images, storage);
    }
    for dispatch in variant.functions.iter().flat_map(|function| &function.dispatches) {
        let pipeline = usize::try_from(dispatch.pipeline).ok().and_then(|index| variant.pipelines.get(index));
        let kinds = pipeline.map_or(&[][..], |pipeline| &pipeline.bindings);
        for (binding, kind) in dispatch.bindings.iter().zip(kinds) {
            let BindingKind::Texels(element) = kind else { continue };
            let texels = binding.size / (4 * element.size());
            most("max_texel_buffer_elements", has.max_texel_buffer_elements, texels);
            // What the offset is off by must be nothing.
            most("texel_alignment", 0, binding.offset % u64::from(has.texel_alignment.max(1)));
        }
    }
}

/// Whether a name contains a part, in whatever case.
pub(crate) fn contains(text: &str, part: &str) -> bool {
    let mut windows = text.as_bytes().windows(part.len().max(1));
    part.is_empty() || windows.any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}
