//! Constants in the arrangement a kernel wants, described first and produced when the bundle is written, so that
//! peak memory does not grow with the model.
//!
//! An arrangement is one ordered list of axis groups over the constant seen under a logical shape: iterating the
//! groups from the last (fastest) to the first gives the order of elements in memory. `[(O, rest), (K, rest), (O, 4)]`
//! is slices of four outputs by kernel position; positions past an axis's end are zero. OHWI, I4O4 and matrix-unit
//! tiles are all lists of this kind.

use half::f16;
use rayon::prelude::*;

use crate::error::OpError;
use crate::ir::array::{Data, strides};
use crate::ir::op::Constant;
use crate::ir::tensor::{DType, DeviceType};

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

/// Produces the bytes of a packed constant.
///
/// # Errors
/// When the constant's bytes do not fit its shape.
pub fn pack(packed: &Packed) -> Result<Vec<u8>, OpError> {
    if let Some(bytes) = as_it_is(packed) {
        return Ok(bytes);
    }
    let array = packed.source.to_array()?;
    let size = usize::try_from(packed.bytes()).map_err(|e| OpError::new(e.to_string()))?;
    let mut out = vec![0u8; size];
    let width = usize::try_from(packed.device.bytes()).unwrap_or(4);
    let order = match &packed.arrangement {
        Arrangement::Dense => None,
        Arrangement::Groups { shape, permutation, groups } => Some(Order::new(shape, permutation, groups)),
    };
    let elements = packed.elements();
    const BLOCK: usize = 1 << 14;
    out.par_chunks_mut(BLOCK * width).enumerate().for_each(|(block, bytes)| {
        for (i, slot) in bytes.chunks_exact_mut(width).enumerate() {
            let at = block * BLOCK + i;
            if at >= elements {
                break;
            }
            let Some(source) = order.as_ref().map_or(Some(at), |o| o.source(at)) else { continue };
            encode(&array.data, source, packed.device, slot);
        }
    });
    Ok(out)
}

/// The bytes of a constant that is stored as the model stores it.
fn as_it_is(packed: &Packed) -> Option<Vec<u8>> {
    let source = &packed.source;
    let same = matches!(
        (source.dtype, packed.device),
        (DType::F32, DeviceType::F32)
            | (DType::F16, DeviceType::F16)
            | (DType::I32, DeviceType::I32)
            | (DType::U32, DeviceType::U32)
    );
    let whole = source.elements().checked_mul(source.dtype.bytes()) == Some(source.bytes.len());
    if packed.arrangement != Arrangement::Dense || !same || !whole {
        return None;
    }
    let mut bytes = source.bytes.to_vec();
    bytes.resize(usize::try_from(packed.bytes()).ok()?, 0);
    Some(bytes)
}

fn encode(data: &Data, at: usize, device: DeviceType, slot: &mut [u8]) {
    match (data, device) {
        (Data::Float(v), DeviceType::F16) => slot.copy_from_slice(&f16::from_f32(v[at]).to_le_bytes()),
        (Data::Float(v), _) => slot.copy_from_slice(&v[at].to_le_bytes()),
        (Data::Int(v), DeviceType::F16) => slot.copy_from_slice(&f16::from_f32(v[at] as f32).to_le_bytes()),
        (Data::Int(v), DeviceType::F32) => slot.copy_from_slice(&(v[at] as f32).to_le_bytes()),
        // Integers beyond 32 bits keep their sign and saturate: they are sentinels such as i64::MAX.
        (Data::Int(v), DeviceType::I32) => {
            let clamped = v[at].clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
            slot.copy_from_slice(&clamped.to_le_bytes());
        }
        (Data::Int(v), DeviceType::U32) => slot.copy_from_slice(&(v[at] as u32).to_le_bytes()),
    }
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

/// Where each packed element comes from.
struct Order {
    /// Extent, axis and the axis positions that one step of the group advances, slowest group first.
    groups: Vec<(usize, usize, usize)>,
    /// Size and source stride of each logical axis.
    axes: Vec<(usize, usize)>,
}

impl Order {
    fn new(shape: &[usize], permutation: &[usize], groups: &[AxisGroup]) -> Self {
        let source = strides(shape);
        let axes: Vec<(usize, usize)> = permutation.iter().map(|p| (shape[*p], source[*p])).collect();
        let mut advance = vec![1usize; axes.len()];
        let mut out: Vec<(usize, usize, usize)> = Vec::with_capacity(groups.len());
        for (extent, axis) in extents(shape, permutation, groups).into_iter().rev() {
            out.push((extent, axis, advance[axis]));
            advance[axis] *= extent;
        }
        out.reverse();
        Self { groups: out, axes }
    }

    /// The source element of packed element `at`; `None` for padding.
    fn source(&self, mut at: usize) -> Option<usize> {
        let mut position = [0usize; 16];
        for (extent, axis, advance) in self.groups.iter().rev() {
            position[*axis] += (at % extent) * advance;
            at /= extent;
        }
        let mut source = 0;
        for (p, (size, stride)) in position.iter().zip(&self.axes) {
            if p >= size {
                return None;
            }
            source += p * stride;
        }
        Some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::{Arrangement, AxisGroup, Packed, pack};
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
}
