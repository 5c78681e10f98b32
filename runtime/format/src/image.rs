//! Images: tensors, or constants, that lie in textures of four elements per texel.

use super::{DeviceType, SlotKind, Variant};
use serde::{Deserialize, Serialize};

/// An image that dispatches of a function can bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub texture: Texture,
    /// Texels along x and y, and along z or in layers. Along what the kind does not have it is 1.
    pub extent: [u32; 3],
    /// The chunk that fills the image at load: texels without gaps, x fastest, then y. Such an image is read only.
    /// Without one the image holds intermediate results.
    pub chunk: Option<u32>,
}

/// What a shader must know of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Texture {
    pub kind: ImageKind,
    /// The type of the four elements of a texel.
    pub element: DeviceType,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ImageKind {
    D2,
    D2Array,
    D3,
}

impl Image {
    /// Bytes of all texels; none where they do not fit u64, or an extent is zero or along what the kind lacks.
    pub fn size(&self) -> Option<u64> {
        let [x, y, z] = self.extent.map(u64::from);
        let fits = x > 0 && y > 0 && z > 0 && (z == 1 || self.texture.kind != ImageKind::D2);
        let texel = 4 * self.texture.element.size();
        x.checked_mul(y)?.checked_mul(z)?.checked_mul(texel).filter(|_| fits)
    }
}

impl Variant {
    /// The images that loading creates, and which of them each image slot is, over the slots of all functions.
    /// Those of equal description are shared: one holds equal constants, and the n-th of a function that hold
    /// intermediate results is also the n-th of every other function.
    pub fn images(&self) -> (Vec<Image>, Vec<usize>) {
        let mut images: Vec<Image> = Vec::new();
        let mut places = Vec::new();
        for function in &self.functions {
            let first = places.len();
            for slot in &function.slots {
                let SlotKind::Image(image) = slot.kind else { continue };
                let own: &[usize] = places.get(first..).unwrap_or_default();
                let free = |at: usize| image.chunk.is_some() || !own.contains(&at);
                let known = images.iter().enumerate().find(|(at, known)| **known == image && free(*at));
                let place = match known {
                    Some((at, _)) => at,
                    None => {
                        images.push(image);
                        images.len() - 1
                    }
                };
                places.push(place);
            }
        }
        (images, places)
    }
}
