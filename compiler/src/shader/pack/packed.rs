//! Description of a packed constant: the constant, its arrangement and its element type.

use std::fmt;

use super::arrangement::{Arrangement, Interleave};
use super::quantized_panels::{self, QuantizedPanels};
use crate::ir::op::Constant;
use crate::ir::tensor::DeviceType;

/// Description of a packed constant. Its bytes are produced only when the bundle is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The constant whose elements are packed.
    pub source: Constant,
    /// Order of the elements in memory.
    pub arrangement: Arrangement,
    /// Type of the elements in memory.
    pub device: DeviceType,
}

impl Packed {
    /// Describes a constant that is packed in row-major order, in its type on the device. A quantized constant stays
    /// quantized, in panels.
    pub fn dense(source: &Constant) -> Self {
        if let Some((panels, rows)) =
            QuantizedPanels::from_constant(source).zip(quantized_panels::with_k_last(source))
        {
            let arrangement = Arrangement::Quantized(QuantizedPanels { k_stride: 1, taps: 1, ..panels });
            return Self { source: rows, arrangement, device: DeviceType::U32 };
        }
        Self { source: source.clone(), arrangement: Arrangement::Dense, device: source.dtype.on_device() }
    }

    /// Returns the number of elements in the packed form, including padding.
    pub fn elements(&self) -> usize {
        match &self.arrangement {
            Arrangement::Dense => self.source.elements(),
            Arrangement::Ordered(order) => order.extents().iter().product(),
            Arrangement::Quantized(panels) => usize::try_from(panels.bytes() / 4).unwrap_or(usize::MAX),
        }
    }

    /// Returns the extents of a 2-D texture that holds the packed form. Rows of the packing order become rows of the texture. If
    /// the order has no rows, the vec4 with index i is at column `i % width` of row `i / width`, and the width is a power of two.
    /// Returns `None` if a side of the texture would exceed `longest`.
    pub fn texture_extent(&self, longest: u32) -> Option<[u32; 3]> {
        let texels = self.bytes().div_ceil(4 * self.device.bytes().unsigned_abs());
        let width = self.vec4s_per_row().unwrap_or_else(|| {
            (1u64 << (64 - texels.max(1).leading_zeros()).div_ceil(2)).min(1 << longest.max(1).ilog2())
        });
        let height = texels.div_ceil(width.max(1)).max(1);
        let (width, height) = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
        (width.max(height) <= longest && width > 0).then_some([width, height, 1])
    }

    /// Returns the number of vec4s per row, if the packing order has rows.
    pub fn vec4s_per_row(&self) -> Option<u64> {
        let Arrangement::Ordered(order) = &self.arrangement else { return None };
        let elements: usize = order.extents().iter().skip(order.rows?).product();
        Some(elements as u64 / 4)
    }

    /// Returns the size of the packed form in bytes. It is a multiple of 16, so that vector loads stay in range.
    pub fn bytes(&self) -> u64 {
        let bytes = self.elements() as u64 * self.device.bytes().unsigned_abs();
        bytes.max(1).next_multiple_of(16)
    }
}

impl fmt::Display for Packed {
    /// Writes the name of the packing order and the number of positions of each axis group, slowest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match &self.arrangement {
            Arrangement::Dense => return f.write_str("row-major"),
            Arrangement::Quantized(panels) => {
                let QuantizedPanels { bits, rows, depth, group_size, scale_type, bias_type, .. } = panels;
                write!(
                    f,
                    "panels of {bits}-bit values: {rows} x {depth}, {} scales of {group_size}",
                    scale_type.wgsl()
                )?;
                return bias_type.map_or(Ok(()), |bias| write!(f, ", {} biases", bias.wgsl()));
            }
            Arrangement::Ordered(order) => order,
        };
        let letter = |axis: usize| order.axes.get(axis).map_or('?', |(name, _)| *name);
        write!(f, "{}:", order.name)?;
        for (i, (group, extent)) in order.groups.iter().zip(order.extents()).enumerate() {
            let bar = if order.rows == Some(i) { " |" } else { "" };
            write!(f, "{bar} {}{extent}", letter(group.axis))?;
        }
        match order.interleave {
            Some(Interleave { axis, count, index }) => {
                write!(f, ", part {} of {count} along {}", index + 1, letter(axis))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Packed;
    use crate::ir::array::Array;
    use crate::ir::op::Constant;

    #[test]
    fn textures_hold_every_vector() {
        for elements in [1usize, 4, 5, 64, 1000, 4096, 100_000] {
            let source = Constant::from_array(&Array::f32(&[elements], vec![0.0; elements]));
            let packed = Packed::dense(&source);
            let [width, height, _] = packed.texture_extent(4096).unwrap();
            assert!(width.is_power_of_two() && width.max(height) <= 4096);
            assert!(u64::from(width) * u64::from(height) * 16 >= packed.bytes(), "{elements}");
            assert_eq!(packed.texture_extent(1).is_some(), elements <= 4);
        }
    }
}
