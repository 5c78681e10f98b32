//! Which texture each tensor in a texture lives in.
//!
//! Textures cannot share bytes at will, so whole textures are shared: a tensor takes over one of the same kind,
//! element type and extents that no live tensor uses. Extents must be equal, because reads outside of a texture give
//! zero, and kernels count on it.

use super::memory::{LiveRange, bounds};
use super::{Dispatch, Location};
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;

/// A texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// Its kind.
    pub storage: Storage,
    /// The element type of its texels.
    pub device: DeviceType,
    /// Texels along x and y, and along z or in layers.
    pub extent: [u32; 3],
}

impl Image {
    /// Bytes of its texels.
    pub fn bytes(&self) -> u64 {
        let texels = self.extent.iter().fold(1u64, |n, e| n.saturating_mul(u64::from(*e)));
        texels.saturating_mul(4 * self.device.bytes().unsigned_abs())
    }
}

/// Tensors in textures and the textures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Images {
    /// The textures there are.
    pub objects: Vec<Image>,
    /// Which of them each tensor lives in.
    pub places: Vec<usize>,
    /// Bytes when nothing is shared.
    pub naive: u64,
    /// The largest sum of sizes live at one time.
    pub lower_bound: u64,
}

impl Images {
    /// Bytes of all textures.
    pub fn bytes(&self) -> u64 {
        self.objects.iter().map(Image::bytes).sum()
    }
}

/// Gives every tensor a texture.
pub(super) fn place(tensors: &[Image], dispatches: &[Dispatch]) -> Images {
    let mut lives = vec![(usize::MAX, 0); tensors.len()];
    for (at, dispatch) in dispatches.iter().enumerate() {
        for location in &dispatch.locations {
            if let Location::Image(i) = location {
                lives[*i] = (lives[*i].0.min(at), at);
            }
        }
    }
    // A tensor without elements is never touched.
    lives.iter_mut().filter(|l| l.0 == usize::MAX).for_each(|l| *l = (0, 0));
    assign(tensors, &lives)
}

/// The same for tensors whose first and last dispatches are known.
fn assign(tensors: &[Image], lives: &[(usize, usize)]) -> Images {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|i| (lives[*i].0, *i));
    let mut objects: Vec<Image> = Vec::new();
    // The last dispatch that touches each object so far.
    let mut busy: Vec<usize> = Vec::new();
    let mut places = vec![0; tensors.len()];
    for i in order {
        let (first, last) = lives[i];
        let free = (0..objects.len()).filter(|o| objects[*o] == tensors[i] && busy[*o] < first);
        // The one that was in use last is the likeliest to be in a cache.
        let object = free.max_by_key(|o| busy[*o]).unwrap_or_else(|| {
            objects.push(tensors[i]);
            busy.push(0);
            objects.len() - 1
        });
        busy[object] = last;
        places[i] = object;
    }
    let record = |(image, (first, last)): (&Image, &(usize, usize))| LiveRange {
        size: image.bytes(),
        first: *first,
        last: *last,
    };
    let records: Vec<LiveRange> = tensors.iter().zip(lives).map(record).collect();
    Images {
        objects,
        places,
        naive: tensors.iter().map(Image::bytes).sum(),
        lower_bound: bounds::offsets(&records),
    }
}

#[cfg(test)]
mod tests {
    use super::{Image, assign};
    use crate::ir::storage::Storage;
    use crate::ir::tensor::DeviceType;

    #[test]
    fn only_equal_textures_that_are_free_are_shared() {
        let image = |x| Image { storage: Storage::Texture2d, device: DeviceType::F16, extent: [x, 3, 1] };
        let tensors = [image(4), image(4), image(4), image(5), image(4)];
        let images = assign(&tensors, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(images.places, [0, 1, 0, 2, 0]);
        assert_eq!((images.bytes(), images.naive), (13 * 24, 21 * 24));
        // Two of five texels are live together at dispatch 3, at most.
        assert_eq!(images.lower_bound, 9 * 24);
    }
}
