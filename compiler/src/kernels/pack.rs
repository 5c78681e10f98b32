//! Constants in the arrangement a kernel wants, described first and produced when the bundle is written, so that
//! peak memory does not grow with the model.
//!
//! An arrangement is one ordered list of axis groups over the constant seen under a logical shape: iterating the
//! groups from the last (fastest) to the first gives the order of elements in memory. `[(O, rest), (K, rest), (O, 4)]`
//! is slices of four outputs by kernel position; positions past an axis's end are zero. OHWI, I4O4 and matrix-unit
//! tiles are all lists of this kind.
//!
//! Bytes are produced a run of tiles at a time: [`tiles`] says which elements those are, [`convert`] what becomes of
//! one element.

mod convert;
mod tiles;

use std::borrow::Cow;
use std::ops::Range;

use tiles::Tiles;

use crate::error::OpError;
use crate::ir::array::strides;
use crate::ir::op::Constant;
use crate::ir::tensor::DeviceType;

/// Part of an axis: `size` consecutive positions, with 0 for however many groups cover the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AxisGroup {
    /// Axis of the logical shape.
    pub axis: usize,
    /// Positions; 0 for the rest of the axis.
    pub size: usize,
}

/// How a constant is rearranged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arrangement {
    /// Row-major as in the model.
    Dense,
    /// Axis groups over the constant viewed under `shape` (same elements) with `permutation` of its axes applied.
    Groups {
        /// The constant's elements row-major under this shape.
        shape: Vec<usize>,
        /// Logical axis i is axis `permutation[i]` of `shape`.
        permutation: Vec<usize>,
        /// Slowest first.
        groups: Vec<AxisGroup>,
    },
}

/// A constant to be packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The elements.
    pub source: Constant,
    /// Their order.
    pub arrangement: Arrangement,
    /// Their type in memory.
    pub device: DeviceType,
}

impl Packed {
    /// The constant as it is, in its type's device form.
    pub fn dense(source: &Constant) -> Self {
        Self { source: source.clone(), arrangement: Arrangement::Dense, device: source.dtype.on_device() }
    }

    /// Elements that the packed form takes.
    pub fn elements(&self) -> usize {
        match &self.arrangement {
            Arrangement::Dense => self.source.elements(),
            Arrangement::Groups { shape, permutation, groups } => {
                extents(shape, permutation, groups).iter().map(|(extent, _)| *extent).product()
            }
        }
    }

    /// Extents of a 2-D texture that holds the packed form, vector i at column `i % width` of row `i / width`; the
    /// width is a power of two. `None` where it exceeds the longest side that a texture may have.
    pub fn texture(&self, longest: u32) -> Option<[u32; 3]> {
        let texels = self.bytes().div_ceil(4 * self.device.bytes().unsigned_abs());
        let width =
            (1u64 << (64 - texels.max(1).leading_zeros()).div_ceil(2)).min(1 << longest.max(1).ilog2());
        let height = texels.div_ceil(width).max(1);
        let (width, height) = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
        (height <= longest).then_some([width, height, 1])
    }

    /// Bytes that the packed form takes, a multiple of 16 so that vectors may be read to the end.
    pub fn bytes(&self) -> u64 {
        let bytes = self.elements() as u64 * self.device.bytes().unsigned_abs();
        bytes.max(1).next_multiple_of(16)
    }
}

/// A constant whose bytes can be produced piece by piece.
#[derive(Debug)]
pub struct Packer<'a> {
    device: DeviceType,
    source: Cow<'a, Constant>,
    tiles: Tiles,
    width: usize,
    size: usize,
}

impl<'a> Packer<'a> {
    /// Prepares packing.
    ///
    /// # Errors
    /// When the constant's bytes do not fit its shape, or its arrangement does not fit the constant.
    pub fn new(packed: &'a Packed) -> Result<Self, OpError> {
        let mut source = Cow::Borrowed(&packed.source);
        if source.elements().checked_mul(source.stored.bytes()) != Some(source.bytes.len()) {
            return Err(OpError::new(format!("{} bytes do not fit {:?}", source.bytes.len(), source.shape)));
        }
        let size = usize::try_from(packed.bytes()).map_err(|e| OpError::new(e.to_string()))?;
        let width = usize::try_from(packed.device.bytes()).map_err(|e| OpError::new(e.to_string()))?;
        let tiles = match &packed.arrangement {
            Arrangement::Dense => match &source.strides {
                None => Tiles::dense(source.elements()),
                Some(strides) => {
                    let all: Vec<usize> = (0..source.shape.len()).collect();
                    let groups: Vec<(usize, usize)> = source.shape.iter().copied().zip(0..).collect();
                    Tiles::new(&source.shape, strides, &all, &groups)
                }
            },
            Arrangement::Groups { shape, permutation, groups } => {
                let strides = match source.strides_under(shape) {
                    Some(strides) => strides,
                    None => {
                        source = Cow::Owned(Constant::from_array(&source.to_array()?));
                        strides(shape)
                    }
                };
                Tiles::new(shape, &strides, permutation, &extents(shape, permutation, groups))
            }
        };
        Ok(Self { device: packed.device, source, tiles, width, size })
    }

    /// Runs of tiles of about so many bytes each, in order; one at least.
    pub fn pieces(&self, bytes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (all, step) = (self.tiles.count(), (bytes / (self.tiles.longest() * self.width)).max(1));
        (0..all.max(1)).step_by(step).map(move |first| first..all.min(first + step))
    }

    /// The bytes that a run of tiles is.
    pub fn span(&self, tiles: &Range<usize>) -> Range<usize> {
        // The last tile ends where the constant does, which is padded.
        let end = if tiles.end == self.tiles.count() {
            self.size
        } else {
            self.tiles.start(tiles.end) * self.width
        };
        self.tiles.start(tiles.start) * self.width..end
    }

    /// Writes a run of tiles, on several threads when it is long; `out` has the bytes of its span.
    pub fn fill(&self, run: Range<usize>, out: &mut [u8]) {
        if run.len() > 1 && out.len() > self.tiles.run() * self.width {
            let middle = run.start + run.len() / 2;
            let at = self.span(&(run.start..middle)).len();
            if let Some((left, right)) = out.split_at_mut_checked(at) {
                rayon::join(|| self.fill(run.start..middle, left), || self.fill(middle..run.end, right));
            }
            return;
        }
        convert::fill(&self.source, self.device, &self.tiles, run, out);
    }
}

/// Produces all bytes of a packed constant.
///
/// # Errors
/// As [`Packer::new`].
pub fn pack(packed: &Packed) -> Result<Vec<u8>, OpError> {
    let packer = Packer::new(packed)?;
    let mut out = vec![0; packer.size];
    packer.fill(0..packer.tiles.count(), &mut out);
    Ok(out)
}

/// Extent and axis of each group, slowest first.
fn extents(shape: &[usize], permutation: &[usize], groups: &[AxisGroup]) -> Vec<(usize, usize)> {
    groups
        .iter()
        .enumerate()
        .map(|(i, g)| {
            if g.size > 0 {
                return (g.size, g.axis);
            }
            let inner: usize = groups
                .iter()
                .enumerate()
                .filter(|(j, o)| *j != i && o.axis == g.axis)
                .map(|(_, o)| o.size.max(1))
                .product();
            (shape[permutation[g.axis]].div_ceil(inner), g.axis)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Arrangement, AxisGroup, Packed, Tiles, extents, pack, strides};
    use crate::ir::array::Array;
    use crate::ir::op::Constant;
    use crate::ir::tensor::DeviceType;

    #[test]
    fn textures_hold_every_vector() {
        for elements in [1usize, 4, 5, 64, 1000, 4096, 100_000] {
            let source = Constant::from_array(&Array::f32(&[elements], vec![0.0; elements]));
            let packed = Packed::dense(&source);
            let [width, height, _] = packed.texture(4096).unwrap();
            assert!(width.is_power_of_two() && width.max(height) <= 4096);
            assert!(u64::from(width) * u64::from(height) * 16 >= packed.bytes(), "{elements}");
            assert_eq!(packed.texture(1).is_some(), elements <= 4);
        }
    }

    #[test]
    fn groups_pad_and_permute() {
        // A 3x2 matrix as slices of four rows: [(O, rest), (I, rest), (O, 4)].
        let source = Constant::from_array(&Array::f32(&[3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let packed = Packed {
            source,
            arrangement: Arrangement::Groups {
                shape: vec![3, 2],
                permutation: vec![0, 1],
                groups: vec![
                    AxisGroup { axis: 0, size: 0 },
                    AxisGroup { axis: 1, size: 0 },
                    AxisGroup { axis: 0, size: 4 },
                ],
            },
            device: DeviceType::F32,
        };
        let bytes = pack(&packed).unwrap();
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(values, [1.0, 3.0, 5.0, 0.0, 2.0, 4.0, 6.0, 0.0]);
    }

    #[test]
    fn tiles_are_what_single_elements_are() {
        let part = |axis, size| AxisGroup { axis, size };
        let cases: [(&[usize], &[usize], &[AxisGroup]); 5] = [
            // Blocks of columns, with a tile that does not divide the rows.
            (&[300, 1037], &[0, 1], &[part(0, 0), part(1, 0), part(0, 128)]),
            // A transposed matrix, whose neighbours are far apart.
            (&[515, 70], &[0, 1], &[part(1, 0), part(0, 0), part(0, 4)]),
            // Filters: groups, outputs, inputs, taps.
            (
                &[2, 37, 21, 9],
                &[0, 1, 2, 3],
                &[part(0, 0), part(1, 0), part(3, 0), part(2, 0), part(1, 2), part(2, 4), part(1, 4)],
            ),
            (&[2, 21, 37, 3], &[0, 2, 1, 3], &[part(0, 0), part(1, 0), part(3, 0), part(2, 0), part(1, 4)]),
            (&[3, 5], &[1, 0], &[part(1, 16), part(0, 16)]),
        ];
        for (shape, permutation, groups) in cases {
            let elements: usize = shape.iter().product();
            let values: Vec<f32> = (1..=elements).map(|i| i as f32).collect();
            let arrangement = Arrangement::Groups {
                shape: shape.to_vec(),
                permutation: permutation.to_vec(),
                groups: groups.to_vec(),
            };
            let source = Constant::from_array(&Array::f32(shape, values));
            let packed = Packed { source, arrangement, device: DeviceType::F32 };
            let tiles = Tiles::new(shape, &strides(shape), permutation, &extents(shape, permutation, groups));
            let bytes = pack(&packed).unwrap();
            assert_eq!(bytes.len() as u64, packed.bytes());
            let mut seen = 0;
            for (at, bytes) in bytes.as_chunks::<4>().0.iter().enumerate() {
                let want = tiles.source(at).map_or(0.0, |i| i as f32 + 1.0);
                assert_eq!(f32::from_le_bytes(*bytes), want, "{shape:?} at {at}");
                seen += usize::from(want != 0.0);
            }
            assert_eq!(seen, elements, "{shape:?}");
        }
    }
}
