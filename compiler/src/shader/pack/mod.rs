//! Constants in the arrangement a kernel wants, described first and produced when the bundle is written, so that
//! peak memory does not grow with the model.
//!
//! An arrangement is one ordered list of axis groups over the constant seen under a logical shape: iterating the
//! groups from the last (fastest) to the first gives the order of elements in memory. `[(O, rest), (K, rest), (O, 4)]`
//! is slices of four outputs by kernel position; positions past an axis's end are zero. OHWI, I4O4 and matrix-unit
//! tiles are all lists of this kind, and [`presets`] has their names. A constant may lie in several objects, each with
//! some positions of an axis.
//!
//! Bytes are produced a run of tiles at a time: [`tiles`] says which elements those are, [`convert`] what becomes of
//! one element. Constants of few bits have a form of their own, [`codes`], in which they stay codes; where a kernel asks
//! for another arrangement of them, it gets their elements.

pub mod codes;
mod convert;
mod identity;
pub mod presets;
mod tiles;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use codes::CodePanels;
pub use identity::Identity;
use tiles::Tiles;

use crate::error::OpError;
use crate::ir::array::{count, strides};
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
    /// Another order.
    Ordered(Box<Order>),
    /// Codes with their scales, as words.
    Codes(CodePanels),
}

/// Axis groups over a constant seen under logical axes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    /// Name of the preset.
    pub name: &'static str,
    /// The logical axes: the constant's elements are row-major under these sizes. Each has a letter as a name.
    pub axes: Vec<(char, usize)>,
    /// Slowest first.
    pub groups: Vec<AxisGroup>,
    /// How many of the groups count rows where a texture holds the constant; the others are a row.
    pub rows: Option<usize>,
    /// The part of the constant that is meant, where it lies in several objects.
    pub share: Option<Share>,
}

/// Of every `of` positions along an axis, the one with number `nth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the sentence above names them")]
pub struct Share {
    pub axis: usize,
    pub of: usize,
    pub nth: usize,
}

impl Order {
    /// Positions of each group.
    fn extents(&self) -> Vec<usize> {
        let extent = |(i, group): (usize, &AxisGroup)| {
            if group.size > 0 {
                return group.size;
            }
            let others = self.groups.iter().enumerate().filter(|(j, o)| *j != i && o.axis == group.axis);
            let inner: usize = others.map(|(_, o)| o.size.max(1)).product();
            let size = self.axes.get(group.axis).map_or(1, |(_, size)| *size);
            let of = self.share.filter(|share| share.axis == group.axis).map_or(1, |share| share.of);
            size.div_ceil(of).div_ceil(inner)
        };
        self.groups.iter().enumerate().map(extent).collect()
    }

    /// Sizes of the logical axes.
    fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|(_, size)| *size).collect()
    }
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
    /// The constant as it is, in its type's device form: as codes, where it has any.
    pub fn dense(source: &Constant) -> Self {
        if let Some((form, rows)) = CodePanels::of(source).zip(codes::in_rows(source)) {
            let arrangement = Arrangement::Codes(CodePanels { inner: 1, ..form });
            return Self { source: rows, arrangement, device: DeviceType::U32 };
        }
        Self { source: source.clone(), arrangement: Arrangement::Dense, device: source.dtype.on_device() }
    }

    /// Elements that the packed form takes.
    pub fn elements(&self) -> usize {
        match &self.arrangement {
            Arrangement::Dense => self.source.elements(),
            Arrangement::Ordered(order) => order.extents().iter().product(),
            Arrangement::Codes(form) => usize::try_from(form.bytes() / 4).unwrap_or(usize::MAX),
        }
    }

    /// Extents of a 2-D texture that holds the packed form: rows as its order says, or else vector i at column
    /// `i % width` of row `i / width`, where the width is a power of two. `None` where it exceeds the longest side that a
    /// texture may have.
    pub fn texture(&self, longest: u32) -> Option<[u32; 3]> {
        let texels = self.bytes().div_ceil(4 * self.device.bytes().unsigned_abs());
        let width = self.columns().unwrap_or_else(|| {
            (1u64 << (64 - texels.max(1).leading_zeros()).div_ceil(2)).min(1 << longest.max(1).ilog2())
        });
        let height = texels.div_ceil(width.max(1)).max(1);
        let (width, height) = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
        (width.max(height) <= longest && width > 0).then_some([width, height, 1])
    }

    /// Vectors of four in a row, where the order has rows.
    pub fn columns(&self) -> Option<u64> {
        let Arrangement::Ordered(order) = &self.arrangement else { return None };
        let elements: usize = order.extents().iter().skip(order.rows?).product();
        Some(elements as u64 / 4)
    }

    /// Bytes that the packed form takes, a multiple of 16 so that vectors may be read to the end.
    pub fn bytes(&self) -> u64 {
        let bytes = self.elements() as u64 * self.device.bytes().unsigned_abs();
        bytes.max(1).next_multiple_of(16)
    }
}

impl fmt::Display for Packed {
    /// The name of the order and the positions of each group, slowest first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = match &self.arrangement {
            Arrangement::Dense => return f.write_str("as in the model"),
            Arrangement::Codes(form) => {
                let CodePanels { bits, rows, depth, group, scale, bias, .. } = form;
                write!(
                    f,
                    "panels of {bits}-bit codes: {rows} x {depth}, {} scales of {group}",
                    scale.wgsl()
                )?;
                return bias.map_or(Ok(()), |bias| write!(f, ", {} biases", bias.wgsl()));
            }
            Arrangement::Ordered(order) => order,
        };
        let letter = |axis: usize| order.axes.get(axis).map_or('?', |(name, _)| *name);
        write!(f, "{}:", order.name)?;
        for (i, (group, extent)) in order.groups.iter().zip(order.extents()).enumerate() {
            let bar = if order.rows == Some(i) { " |" } else { "" };
            write!(f, "{bar} {}{extent}", letter(group.axis))?;
        }
        match order.share {
            Some(Share { axis, of, nth }) => write!(f, ", part {} of {of} along {}", nth + 1, letter(axis)),
            None => Ok(()),
        }
    }
}

/// A constant whose bytes can be produced piece by piece.
#[derive(Debug)]
pub struct Packer<'a> {
    device: DeviceType,
    source: Cow<'a, Constant>,
    tiles: Tiles,
    /// Set where codes are packed, of which a tile is a panel.
    codes: Option<CodePanels>,
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
        source.stored.check(&source.shape_of_file(), source.bytes.len())?;
        let size = usize::try_from(packed.bytes()).map_err(|e| OpError::new(e.to_string()))?;
        let width = usize::try_from(packed.device.bytes()).map_err(|e| OpError::new(e.to_string()))?;
        let mut codes = None;
        let tiles = match &packed.arrangement {
            Arrangement::Codes(form) => {
                if form.rows.checked_mul(form.depth) != Some(source.elements()) {
                    return Err(OpError::new(format!("{:?} does not fit {packed}", source.shape)));
                }
                codes = Some(*form);
                Tiles::runs(form.panels(), form.panel_units() * 4)
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
                    return Err(OpError::new(format!("{:?} does not fit {packed}", source.shape)));
                }
                let strides = match source.strides_under(&shape) {
                    Some(strides) => strides,
                    None => {
                        source = Cow::Owned(Constant::from_array(&source.to_array()?));
                        strides(&shape)
                    }
                };
                let axes = order.groups.iter().map(|g| g.axis);
                let groups: Vec<(usize, usize)> = order.extents().into_iter().zip(axes).collect();
                Tiles::new(&shape, &strides, &groups, order.share)
            }
        };
        Ok(Self { device: packed.device, source, tiles, codes, width, size })
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
        match &self.codes {
            Some(form) => codes::fill(&self.source, form, run.start, out),
            None => convert::fill(&self.source, self.device, &self.tiles, run, out),
        }
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

#[cfg(test)]
mod tests {
    use super::{Arrangement, AxisGroup, Order, Packed, Packer, Share, pack};
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

    fn ordered(source: Constant, shape: &[usize], groups: &[AxisGroup], share: Option<Share>) -> Packed {
        let axes = ('A'..).zip(shape.iter().copied()).collect();
        let order = Order { name: "test", axes, groups: groups.to_vec(), rows: None, share };
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
    fn tiles_are_what_single_elements_are() {
        let part = |axis, size| AxisGroup { axis, size };
        let cases: [(&[usize], &[AxisGroup]); 5] = [
            // Blocks of columns, with a tile that does not divide the rows.
            (&[300, 1037], &[part(0, 0), part(1, 0), part(0, 128)]),
            // A transposed matrix, whose neighbours are far apart.
            (&[515, 70], &[part(1, 0), part(0, 0), part(0, 4)]),
            // Filters: groups, outputs, inputs, taps.
            (
                &[2, 37, 21, 9],
                &[part(0, 0), part(1, 0), part(3, 0), part(2, 0), part(1, 2), part(2, 4), part(1, 4)],
            ),
            (&[2, 21, 37, 3], &[part(0, 0), part(2, 0), part(3, 0), part(1, 0), part(2, 4)]),
            (&[3, 5], &[part(0, 16), part(1, 16)]),
        ];
        for (shape, groups) in cases {
            let elements: usize = shape.iter().product();
            let values: Vec<f32> = (1..=elements).map(|i| i as f32).collect();
            let source = Constant::from_array(&Array::f32(shape, values));
            // Whole, and as the parts of the first axis that make it.
            for of in [1, 3] {
                let mut seen = 0;
                for nth in 0..of {
                    let share = (of > 1).then_some(Share { axis: 0, of, nth });
                    let packed = ordered(source.clone(), shape, groups, share);
                    let bytes = pack(&packed).unwrap();
                    assert_eq!(bytes.len() as u64, packed.bytes());
                    let packer = Packer::new(&packed).unwrap();
                    for (at, bytes) in bytes.as_chunks::<4>().0.iter().enumerate() {
                        let want = packer.tiles.source(at).map_or(0.0, |i| i as f32 + 1.0);
                        assert_eq!(f32::from_le_bytes(*bytes), want, "{shape:?} at {at}");
                        seen += usize::from(want != 0.0);
                    }
                }
                assert_eq!(seen, elements, "{shape:?} in {of}");
            }
        }
    }
}
