//! Memory objects that hold tensors, and the position of elements in each.
//!
//! A tensor with the layout `slices4` has one texel (a vec4) per image, slice of 4 channels and position. In these
//! formulas x, y and z are the position along width, height and depth, s is the slice and b the image; B, S, W, H and D
//! are their sizes.
//!
//! ```text
//! buffer, texel buffer   (((s*D + z)*H + y)*W + x)*B + b
//! 2-D texture            ((x*B + b)*D + z,  y*S + s)
//! 3-D texture, array     (x*B + b,  y,  z*S + s)
//! ```

use serde::{Deserialize, Serialize};

use super::dim::{Bounds, Dim, product};

/// A kind of memory object that holds a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// A storage buffer.
    #[default]
    Buffer,
    /// A buffer that shaders write as a storage buffer and read through the texture units.
    TexelBuffer,
    /// A 2-D texture.
    #[serde(rename = "texture-2d")]
    Texture2d,
    /// A 2-D array texture.
    TextureArray,
    /// A 3-D texture.
    #[serde(rename = "texture-3d")]
    Texture3d,
}

impl Storage {
    /// All storage kinds.
    pub const ALL: [Storage; 5] = [
        Storage::Buffer,
        Storage::TexelBuffer,
        Storage::Texture2d,
        Storage::TextureArray,
        Storage::Texture3d,
    ];

    /// Name of the kind of memory object in target profiles and in the graph's text form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffer => "buffer",
            Self::TexelBuffer => "texel-buffer",
            Self::Texture2d => "texture-2d",
            Self::TextureArray => "texture-array",
            Self::Texture3d => "texture-3d",
        }
    }

    /// True if the memory object is a texture with extents; false if it is a range of a buffer.
    pub fn is_texture(self) -> bool {
        matches!(self, Self::Texture2d | Self::TextureArray | Self::Texture3d)
    }

    /// Returns the extents of a texture that holds a tensor with the axes N, C and spatial axes, at the upper bounds of
    /// the symbols: texels along x and y, and texels along z or layers. Returns `None` for a buffer, and if an extent
    /// exceeds u32.
    pub fn extent(self, shape: &[Dim], bounds: &Bounds) -> Option<[u32; 3]> {
        let sizes = SliceSizes::from_shape(shape)?;
        let [x, y, z] = match self {
            Self::Texture2d => [
                product([&sizes.width, &sizes.images, &sizes.depth]),
                sizes.height.mul(&sizes.slices),
                Dim::known(1),
            ],
            Self::TextureArray | Self::Texture3d => {
                [sizes.width.mul(&sizes.images), sizes.height.clone(), sizes.depth.mul(&sizes.slices)]
            }
            Self::Buffer | Self::TexelBuffer => return None,
        };
        let extent = |d: Dim| u32::try_from(d.range(bounds).1.max(1)).ok();
        Some([extent(x)?, extent(y)?, extent(z)?])
    }

    /// Returns three values, for the axes z, y and x. A value is true if every position outside the tensor along this
    /// axis is also outside its texture, so that the texture's border handling applies. Where a texture coordinate
    /// combines the positions along several axes, this holds only for the axis that varies slowest. It also requires
    /// known sizes, so that the texture ends where the tensor ends.
    pub fn axes_clipped_by_texture(self, shape: &[Dim]) -> [bool; 3] {
        let Some(sizes) = SliceSizes::from_shape(shape) else { return [false; 3] };
        let known = |dims: &[&Dim]| dims.iter().all(|d| d.as_known().is_some());
        let [along_y, along_x] = [known(&[&sizes.height]), known(&[&sizes.width, &sizes.images])];
        match self {
            Self::Texture2d => [false, along_y && known(&[&sizes.slices]), along_x && known(&[&sizes.depth])],
            Self::TextureArray | Self::Texture3d => [known(&[&sizes.depth, &sizes.slices]), along_y, along_x],
            Self::Buffer | Self::TexelBuffer => [false; 3],
        }
    }
}

/// Sizes of a tensor with the axes N, C and up to three spatial axes; missing axes have size 1.
pub struct SliceSizes {
    /// Number of images.
    pub images: Dim,
    /// Number of slices of 4 channels per image.
    pub slices: Dim,
    /// Size along z.
    pub depth: Dim,
    /// Size along y.
    pub height: Dim,
    /// Size along x.
    pub width: Dim,
}

impl SliceSizes {
    /// Returns the sizes of a shape; `None` if the shape cannot have the layout `slices4`.
    pub fn from_shape(shape: &[Dim]) -> Option<Self> {
        let [images, channels, spatial @ ..] = shape else { return None };
        if spatial.len() > 3 {
            return None;
        }
        let from_end =
            |back: usize| spatial.len().checked_sub(back).map_or(Dim::known(1), |i| spatial[i].clone());
        Some(Self {
            images: images.clone(),
            slices: channels.ceil_div(4),
            depth: from_end(3),
            height: from_end(2),
            width: from_end(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Storage;
    use crate::ir::dim::{Bounds, Dim};

    #[test]
    fn known_sizes_are_clipped_by_the_texture() {
        let mut shape: Vec<Dim> = [2, 9, 3, 5, 7].into_iter().map(Dim::known).collect();
        assert_eq!(Storage::Buffer.axes_clipped_by_texture(&shape), [false; 3]);
        assert_eq!(Storage::Texture2d.axes_clipped_by_texture(&shape), [false, true, true]);
        assert_eq!(Storage::Texture3d.axes_clipped_by_texture(&shape), [true; 3]);
        shape[0] = Dim::symbol("batch");
        assert_eq!(Storage::Texture2d.axes_clipped_by_texture(&shape), [false, true, false]);
        shape[3] = Dim::symbol("height");
        assert_eq!(Storage::TextureArray.axes_clipped_by_texture(&shape), [true, false, false]);
    }

    #[test]
    fn extents_follow_the_table() {
        let shape = |sizes: &[i64]| sizes.iter().map(|d| Dim::known(*d)).collect::<Vec<_>>();
        let extent = |storage: Storage, sizes: &[i64]| storage.extent(&shape(sizes), &Bounds::new());
        // Two images of 9 channels, so 3 slices; depth 3, height 5, width 7.
        let volume = [2, 9, 3, 5, 7];
        assert_eq!(extent(Storage::Texture2d, &volume), Some([42, 15, 1]));
        assert_eq!(extent(Storage::Texture3d, &volume), Some([14, 5, 9]));
        assert_eq!(extent(Storage::TextureArray, &volume[..4]), Some([10, 3, 3]));
        assert_eq!(extent(Storage::Texture2d, &[1, 8]), Some([1, 2, 1]));
        assert_eq!(extent(Storage::Buffer, &volume), None);
        assert_eq!(extent(Storage::Texture2d, &[1 << 20, 4, 1 << 20]), None);
    }
}
