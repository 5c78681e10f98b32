//! Production of the bytes of a packed constant, in runs of tiles (ranges of packed elements) on several threads.

use std::borrow::Cow;
use std::ops::Range;

use super::arrangement::Arrangement;
use super::convert;
use super::packed::Packed;
use super::quantized_panels::{self, QuantizedPanels};
use super::tiles::Tiles;
use crate::error::OpError;
use crate::ir::array::{count, strides};
use crate::ir::op::Constant;
use crate::ir::tensor::DeviceType;

/// Produces the bytes of a packed constant, tile by tile.
#[derive(Debug)]
pub struct Packer<'a> {
    device: DeviceType,
    source: Cow<'a, Constant>,
    tiles: Tiles,
    /// Packed form of a quantized constant; `None` if the constant is not quantized. With it, the bytes are produced panel
    /// by panel.
    quantized: Option<QuantizedPanels>,
    width: usize,
    size: usize,
}

impl<'a> Packer<'a> {
    /// Prepares the production of a packed constant's bytes.
    ///
    /// # Errors
    /// If the constant's bytes do not fit its shape, or the arrangement does not fit the constant.
    pub fn new(packed: &'a Packed) -> Result<Self, OpError> {
        let mut source = Cow::Borrowed(&packed.source);
        source.encoding.check(&source.encoded_shape(), source.bytes.len())?;
        let size = usize::try_from(packed.bytes()).map_err(|e| OpError::new(e.to_string()))?;
        let width = usize::try_from(packed.device.bytes()).map_err(|e| OpError::new(e.to_string()))?;
        let mut quantized = None;
        let tiles = match &packed.arrangement {
            Arrangement::Quantized(panels) => {
                if panels.rows.checked_mul(panels.depth) != Some(source.elements()) {
                    return Err(OpError::new(format!(
                        "a constant of shape {:?} does not fit its packed form {packed}",
                        source.shape
                    )));
                }
                quantized = Some(*panels);
                Tiles::uniform(panels.panels(), panels.panel_vec4s() * 4)
            }
            Arrangement::Dense => match &source.strides {
                None => Tiles::dense(source.elements()),
                Some(strides) => {
                    let groups: Vec<(usize, usize)> = source.shape.iter().copied().zip(0..).collect();
                    Tiles::new(&source.shape, strides, &groups, None)
                }
            },
            Arrangement::Ordered(order) => {
                let shape = order.shape();
                if count(&shape) != source.elements() || order.groups.iter().any(|g| g.axis >= shape.len()) {
                    return Err(OpError::new(format!(
                        "a constant of shape {:?} does not fit its packed form {packed}",
                        source.shape
                    )));
                }
                let strides = match source.strides_for_shape(&shape) {
                    Some(strides) => strides,
                    None => {
                        source = Cow::Owned(Constant::from_array(&source.to_array()?));
                        strides(&shape)
                    }
                };
                let axes = order.groups.iter().map(|g| g.axis);
                let groups: Vec<(usize, usize)> = order.extents().into_iter().zip(axes).collect();
                Tiles::new(&shape, &strides, &groups, order.interleave)
            }
        };
        Ok(Self { device: packed.device, source, tiles, quantized, width, size })
    }

    /// Splits the tiles into ranges of about `bytes` bytes, in order. Each range has at least one tile.
    pub fn tile_ranges(&self, bytes: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (all, step) =
            (self.tiles.count(), (bytes / (self.tiles.max_tile_elements() * self.width)).max(1));
        (0..all.max(1)).step_by(step).map(move |first| first..all.min(first + step))
    }

    /// Returns the range of packed bytes that a run of tiles covers.
    pub fn byte_range(&self, tiles: &Range<usize>) -> Range<usize> {
        // The last tile also covers the padding at the end.
        let end = if tiles.end == self.tiles.count() {
            self.size
        } else {
            self.tiles.start(tiles.end) * self.width
        };
        self.tiles.start(tiles.start) * self.width..end
    }

    /// Writes the packed bytes of a run of tiles, on several threads if the run is long. `out` has the length of the
    /// run's byte range.
    pub fn fill(&self, run: Range<usize>, out: &mut [u8]) {
        if run.len() > 1 && out.len() > self.tiles.run_elements() * self.width {
            let middle = run.start + run.len() / 2;
            let at = self.byte_range(&(run.start..middle)).len();
            if let Some((left, right)) = out.split_at_mut_checked(at) {
                rayon::join(|| self.fill(run.start..middle, left), || self.fill(middle..run.end, right));
            }
            return;
        }
        match &self.quantized {
            Some(panels) => quantized_panels::fill(&self.source, panels, run.start, out),
            None => convert::fill(&self.source, self.device, &self.tiles, run, out),
        }
    }
}

/// Returns all bytes of a packed constant.
///
/// # Errors
/// Returns the errors of [`Packer::new`].
pub fn pack(packed: &Packed) -> Result<Vec<u8>, OpError> {
    let packer = Packer::new(packed)?;
    let mut out = vec![0; packer.size];
    packer.fill(0..packer.tiles.count(), &mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::{Arrangement, AxisGroup, Interleave, Order, Packed};
    use super::{Packer, pack};
    use crate::ir::array::Array;
    use crate::ir::op::Constant;
    use crate::ir::tensor::DeviceType;

    fn ordered(
        source: Constant,
        shape: &[usize],
        groups: &[AxisGroup],
        interleave: Option<Interleave>,
    ) -> Packed {
        let axes = ('A'..).zip(shape.iter().copied()).collect();
        let order = Order { name: "test", axes, groups: groups.to_vec(), rows: None, interleave };
        Packed { source, arrangement: Arrangement::Ordered(Box::new(order)), device: DeviceType::F32 }
    }

    #[test]
    fn groups_pad_and_permute() {
        // A 3x2 matrix as slices of four rows: [(O, rest), (I, rest), (O, 4)].
        let source = Constant::from_array(&Array::f32(&[3, 2], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        let groups =
            [AxisGroup { axis: 0, size: 0 }, AxisGroup { axis: 1, size: 0 }, AxisGroup { axis: 0, size: 4 }];
        let packed = ordered(source, &[3, 2], &groups, None);
        let bytes = pack(&packed).unwrap();
        let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        assert_eq!(values, [1.0, 3.0, 5.0, 0.0, 2.0, 4.0, 6.0, 0.0]);
    }

    #[test]
    fn tiles_equal_single_elements() {
        let group = |axis, size| AxisGroup { axis, size };
        let cases: [(&[usize], &[AxisGroup]); 5] = [
            // Blocks of columns, with a tile that does not divide the rows.
            (&[300, 1037], &[group(0, 0), group(1, 0), group(0, 128)]),
            // A transposed matrix: neighbors are far apart in the source.
            (&[515, 70], &[group(1, 0), group(0, 0), group(0, 4)]),
            // Filters: groups, outputs, inputs, taps.
            (
                &[2, 37, 21, 9],
                &[group(0, 0), group(1, 0), group(3, 0), group(2, 0), group(1, 2), group(2, 4), group(1, 4)],
            ),
            (&[2, 21, 37, 3], &[group(0, 0), group(2, 0), group(3, 0), group(1, 0), group(2, 4)]),
            (&[3, 5], &[group(0, 16), group(1, 16)]),
        ];
        for (shape, groups) in cases {
            let elements: usize = shape.iter().product();
            let values: Vec<f32> = (1..=elements).map(|i| i as f32).collect();
            let source = Constant::from_array(&Array::f32(shape, values));
            // The whole constant, and the constant interleaved over three objects.
            for count in [1, 3] {
                let mut seen = 0;
                for index in 0..count {
                    let interleave = (count > 1).then_some(Interleave { axis: 0, count, index });
                    let packed = ordered(source.clone(), shape, groups, interleave);
                    let bytes = pack(&packed).unwrap();
                    assert_eq!(bytes.len() as u64, packed.bytes());
                    let packer = Packer::new(&packed).unwrap();
                    for (at, bytes) in bytes.as_chunks::<4>().0.iter().enumerate() {
                        let want = packer.tiles.source(at).map_or(0.0, |i| i as f32 + 1.0);
                        assert_eq!(f32::from_le_bytes(*bytes), want, "{shape:?} at {at}");
                        seen += usize::from(want != 0.0);
                    }
                }
                assert_eq!(seen, elements, "{shape:?} in {count}");
            }
        }
    }
}
