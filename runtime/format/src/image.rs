//! Images: tensors or constants stored in textures with four elements per texel.

use super::{DeviceType, SlotKind, Variant};
use serde::{Deserialize, Serialize};

/// An image that the dispatches of a function can bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub texture: Texture,
    /// Number of texels along x and y, and depth or number of layers along z. The extent is 1 along axes that the kind
    /// of image lacks.
    pub extent: [u32; 3],
    /// The chunk that fills the image at load: texels without gaps, x fastest, then y. Such an image is read
    /// only. Without a chunk the image holds intermediate results.
    pub chunk: Option<u32>,
}

/// The properties of an image that a shader depends on: dimensionality and element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Texture {
    pub kind: ImageKind,
    /// The type of the four elements of a texel.
    pub element: DeviceType,
}

/// Dimensionality of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ImageKind {
    D2,
    D2Array,
    D3,
}

impl Image {
    /// Returns the byte size of all texels, or `None` if the size exceeds u64 or the extent does not suit the kind of
    /// image.
    pub fn size(&self) -> Option<u64> {
        let [x, y, z] = self.extent.map(u64::from);
        let fits = x > 0 && y > 0 && z > 0 && (z == 1 || self.texture.kind != ImageKind::D2);
        let texel = 4 * self.texture.element.size();
        x.checked_mul(y)?.checked_mul(z)?.checked_mul(texel).filter(|_| fits)
    }
}

impl Variant {
    /// Returns the images to create at load, and for each image slot of all functions the index of its image. Slots for
    /// equal constants use one image. Each slot for intermediate results has its own image within its function; other
    /// functions reuse that image for a slot of equal kind, element type and extent.
    pub fn images(&self) -> (Vec<Image>, Vec<usize>) {
        let mut images: Vec<Image> = Vec::new();
        let mut indices = Vec::new();
        for function in &self.functions {
            let first = indices.len();
            for slot in &function.slots {
                let SlotKind::Image(image) = slot.kind else { continue };
                let of_function: &[usize] = indices.get(first..).unwrap_or_default();
                let free = |index: usize| image.chunk.is_some() || !of_function.contains(&index);
                let known = images.iter().enumerate().find(|(index, known)| **known == image && free(*index));
                let index = match known {
                    Some((index, _)) => index,
                    None => {
                        images.push(image);
                        images.len() - 1
                    }
                };
                indices.push(index);
            }
        }
        (images, indices)
    }
}
