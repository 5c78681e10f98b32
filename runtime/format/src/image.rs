//! Images: tensors or constants stored in textures with four elements per texel.

use super::{DeviceType, SlotKind, Variant};
use serde::{Deserialize, Serialize};

/// An image that the dispatches of a function can bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub texture: Texture,
    /// Texels along x and y, and depth or layers along z. 1 along axes that the kind lacks.
    pub extent: [u32; 3],
    /// The chunk that fills the image at load: texels without gaps, x fastest, then y. Such an image is read
    /// only. Without a chunk the image holds intermediate results.
    pub chunk: Option<u32>,
}

/// The properties of an image that a shader depends on.
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
    /// Byte size of all texels. Returns `None` if it exceeds u64, or if the extent does not suit the kind.
    pub fn size(&self) -> Option<u64> {
        let [x, y, z] = self.extent.map(u64::from);
        let fits = x > 0 && y > 0 && z > 0 && (z == 1 || self.texture.kind != ImageKind::D2);
        let texel = 4 * self.texture.element.size();
        x.checked_mul(y)?.checked_mul(z)?.checked_mul(texel).filter(|_| fits)
    }
}

impl Variant {
    /// The images to create at load, and for each image slot of all functions its index into them. Slots with
    /// equal descriptions use one image: one image per distinct constant, and the n-th image of intermediate
    /// results of a function is reused as the n-th of every other function.
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
