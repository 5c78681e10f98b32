//! Memory objects that can hold a tensor, and where its elements are in each.
//!
//! A tensor in slices of four channels has one texel (a vector of four) per image, slice and position. With
//! x, y, z its position along width, height and depth, s its slice and b its image, out of B images, S slices, and
//! sizes W, H and D, the texel is at
//!
//! ```text
//! buffer, texel buffer   (((s*D + z)*H + y)*W + x)*B + b
//! 2-D texture            ((x*B + b)*D + z,  y*S + s)
//! 3-D texture, array     (x*B + b,  y,  z*S + s)
//! ```

use serde::{Deserialize, Serialize};

use super::dim::{Bounds, Dim, product};

/// A kind of memory object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// A storage buffer.
    #[default]
    Buffer,
    /// A buffer that is written as one and read as texels, through the texture units.
    TexelBuffer,
    /// A texture of two dimensions.
    #[serde(rename = "texture-2d")]
    Texture2d,
    /// An array of textures of two dimensions.
    TextureArray,
    /// A texture of three dimensions.
    #[serde(rename = "texture-3d")]
    Texture3d,
}

impl Storage {
    /// All of them.
    pub const ALL: [Storage; 5] = [
        Storage::Buffer,
        Storage::TexelBuffer,
        Storage::Texture2d,
        Storage::TextureArray,
        Storage::Texture3d,
    ];

    /// The name in profiles and in the graph's text form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Buffer => "buffer",
            Self::TexelBuffer => "texel-buffer",
            Self::Texture2d => "texture-2d",
            Self::TextureArray => "texture-array",
            Self::Texture3d => "texture-3d",
        }
    }

    /// Whether it is an object of its own, with extents, rather than a range of a buffer.
    pub fn is_texture(self) -> bool {
        matches!(self, Self::Texture2d | Self::TextureArray | Self::Texture3d)
    }

    /// Extents of a texture that holds a tensor of axes N, C and spatial ones, at the upper bounds of the symbols:
    /// texels along x and y, and along z or in layers. `None` for a buffer and for sizes that fit no extent.
    pub fn extent(self, shape: &[Dim], bounds: &Bounds) -> Option<[u32; 3]> {
        let sizes = Sizes::of(shape)?;
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
        let most = |d: Dim| u32::try_from(d.range(bounds).1.max(1)).ok();
        Some([most(x)?, most(y)?, most(z)?])
    }

    /// Along which spatial axes (z, y, x) a position outside of the tensor is outside of its texture too, whatever its
    /// slice and image are: where the position is the slowest index of a coordinate, and the texture ends where the
    /// tensor does, which needs sizes that are known.
    pub fn ends_with(self, shape: &[Dim]) -> [bool; 3] {
        let Some(sizes) = Sizes::of(shape) else { return [false; 3] };
        let known = |dims: &[&Dim]| dims.iter().all(|d| d.as_known().is_some());
        let [along_y, along_x] = [known(&[&sizes.height]), known(&[&sizes.width, &sizes.images])];
        match self {
            Self::Texture2d => [false, along_y && known(&[&sizes.slices]), along_x && known(&[&sizes.depth])],
            Self::TextureArray | Self::Texture3d => [known(&[&sizes.depth, &sizes.slices]), along_y, along_x],
            Self::Buffer | Self::TexelBuffer => [false; 3],
        }
    }
}

/// Sizes of a tensor of axes N, C and up to three spatial ones; missing axes have size 1.
pub struct Sizes {
    /// Images.
    pub images: Dim,
    /// Slices of four channels.
    pub slices: Dim,
    /// Along z.
    pub depth: Dim,
    /// Along y.
    pub height: Dim,
    /// Along x.
    pub width: Dim,
}

impl Sizes {
    /// Of a shape; `None` where slices of channels cannot hold it.
    pub fn of(shape: &[Dim]) -> Option<Self> {
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
    fn textures_end_where_tensors_of_known_sizes_do() {
        let mut shape: Vec<Dim> = [2, 9, 3, 5, 7].into_iter().map(Dim::known).collect();
        assert_eq!(Storage::Buffer.ends_with(&shape), [false; 3]);
        assert_eq!(Storage::Texture2d.ends_with(&shape), [false, true, true]);
        assert_eq!(Storage::Texture3d.ends_with(&shape), [true; 3]);
        shape[0] = Dim::symbol("batch");
        assert_eq!(Storage::Texture2d.ends_with(&shape), [false, true, false]);
        shape[3] = Dim::symbol("height");
        assert_eq!(Storage::TextureArray.ends_with(&shape), [true, false, false]);
    }

    #[test]
    fn extents_follow_the_table() {
        let shape = |sizes: &[i64]| sizes.iter().map(|d| Dim::known(*d)).collect::<Vec<_>>();
        let extent = |storage: Storage, sizes: &[i64]| storage.extent(&shape(sizes), &Bounds::new());
        // Two images of nine channels, so three slices; depth 3, height 5, width 7.
        let five = [2, 9, 3, 5, 7];
        assert_eq!(extent(Storage::Texture2d, &five), Some([42, 15, 1]));
        assert_eq!(extent(Storage::Texture3d, &five), Some([14, 5, 9]));
        assert_eq!(extent(Storage::TextureArray, &five[..4]), Some([10, 3, 3]));
        assert_eq!(extent(Storage::Texture2d, &[1, 8]), Some([1, 2, 1]));
        assert_eq!(extent(Storage::Buffer, &five), None);
        assert_eq!(extent(Storage::Texture2d, &[1 << 20, 4, 1 << 20]), None);
    }
}
