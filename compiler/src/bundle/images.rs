//! Conversion of textures to the bundle format.

use drift_format::{self as format, ImageKind, Texture};

use super::types::device_type;
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;
use crate::plan::images::Image;
use crate::plan::{Location, Plan};
use crate::shader::resource::Resource;

/// Returns a texture's kind and element type, as the bundle format names them.
pub(super) fn texture(storage: Storage, device: DeviceType) -> Texture {
    let kind = match storage {
        Storage::TextureArray => ImageKind::D2Array,
        Storage::Texture3d => ImageKind::D3,
        Storage::Buffer | Storage::TexelBuffer | Storage::Texture2d => ImageKind::D2,
    };
    Texture { kind, element: device_type(device) }
}

/// Returns the bundle format's description of a texture. `chunk` is the index of the weight chunk that fills the
/// texture, if the texture holds a constant.
pub(super) fn slot(image: &Image, chunk: Option<u32>) -> format::Image {
    format::Image { texture: texture(image.storage, image.device), extent: image.extent, chunk }
}

/// Returns the texture of each constant of a plan, or `None` for constants in buffers.
pub(super) fn weights(plan: &Plan, longest_side: u32) -> Vec<Option<Image>> {
    let mut out = vec![None; plan.weights.len()];
    for step in &plan.dispatches {
        for (location, binding) in step.locations.iter().zip(&step.launch.bindings) {
            let (Location::Weight(i), Resource::Texture(storage, device)) = (*location, binding.resource)
            else {
                continue;
            };
            if let Some((slot, packed)) = out.get_mut(i).zip(plan.weights.get(i)) {
                let image = |extent| Image { storage, device, extent };
                *slot = packed.texture_extent(longest_side).map(image);
            }
        }
    }
    out
}
