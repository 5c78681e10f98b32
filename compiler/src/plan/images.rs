//! Assigns tensors to textures.
//!
//! Textures cannot be aliased byte by byte, so whole textures are reused. A tensor reuses a texture of equal kind,
//! element type and extents that no live tensor uses. Extents must be equal, because kernels rely on reads outside of a
//! texture returning zero.

use super::memory::{LiveRange, bounds};
use super::{Dispatch, Location};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;

/// A texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// Kind of texture.
    pub storage: Storage,
    /// Element type of the texture's texels.
    pub device: DeviceType,
    /// Extents of the texture in texels: along x and y, and depth or number of layers.
    pub extent: [u32; 3],
}

impl Image {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        let texels = self.extent.iter().fold(1u64, |n, e| n.saturating_mul(u64::from(*e)));
        texels.saturating_mul(4 * self.device.bytes().unsigned_abs())
    }
}

/// Assignment of tensors to textures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images {
    /// All textures.
    pub textures: Vec<Image>,
    /// Texture of each tensor, by index into `textures`.
    pub texture_of: Vec<usize>,
    /// Total bytes of the textures if every tensor had its own texture.
    pub naive: u64,
    /// Largest sum of the bytes of tensors that are live at the same dispatch. No assignment can need fewer bytes.
    pub lower_bound: u64,
}

impl Images {
    /// Bytes of all textures.
    pub fn bytes(&self) -> u64 {
        self.textures.iter().map(Image::bytes).sum()
    }
}

/// Assigns every tensor to a texture.
pub(super) fn place(tensors: &[Image], dispatches: &[Dispatch]) -> Images {
    let mut live = vec![(usize::MAX, 0); tensors.len()];
    for (at, dispatch) in dispatches.iter().enumerate() {
        for location in &dispatch.locations {
            if let Location::Image(i) = location {
                live[*i] = (live[*i].0.min(at), at);
            }
        }
    }
    // No dispatch uses an empty tensor.
    live.iter_mut().filter(|l| l.0 == usize::MAX).for_each(|l| *l = (0, 0));
    assign(tensors, &live)
}

/// Assigns tensors to textures, given the first and last dispatch that uses each tensor.
fn assign(tensors: &[Image], live: &[(usize, usize)]) -> Images {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|i| (live[*i].0, *i));
    let mut textures: Vec<Image> = Vec::new();
    // Last dispatch so far that uses each texture.
    let mut last_use: Vec<usize> = Vec::new();
    let mut texture_of = vec![0; tensors.len()];
    for i in order {
        let (first, last) = live[i];
        let free = (0..textures.len()).filter(|t| textures[*t] == tensors[i] && last_use[*t] < first);
        // The most recently used texture is the most likely to be in a cache.
        let texture = free.max_by_key(|t| last_use[*t]).unwrap_or_else(|| {
            textures.push(tensors[i]);
            last_use.push(0);
            textures.len() - 1
        });
        last_use[texture] = last;
        texture_of[i] = texture;
    }
    let range = |(image, (first, last)): (&Image, &(usize, usize))| LiveRange {
        size: image.bytes(),
        first: *first,
        last: *last,
    };
    let ranges: Vec<LiveRange> = tensors.iter().zip(live).map(range).collect();
    Images {
        textures,
        texture_of,
        naive: tensors.iter().map(Image::bytes).sum(),
        lower_bound: bounds::offsets(&ranges),
    }
}

#[cfg(test)]
mod tests {
    use super::{Image, assign};
    use crate::ir::storage::Storage;
    use crate::ir::tensor::DeviceType;

    #[test]
    fn only_equal_free_textures_are_reused() {
        let image = |x| Image { storage: Storage::Texture2d, device: DeviceType::F16, extent: [x, 3, 1] };
        let tensors = [image(4), image(4), image(4), image(5), image(4)];
        let images = assign(&tensors, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(images.texture_of, [0, 1, 0, 2, 0]);
        assert_eq!((images.bytes(), images.naive), (13 * 24, 21 * 24));
        // At dispatch 3, the textures of width 4 and 5 are live together.
        assert_eq!(images.lower_bound, 9 * 24);
    }
}
