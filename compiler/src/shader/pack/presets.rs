//! Named orders of packed weights. `driftc explain` prints the names.
//!
//! An order is written as axis groups, slowest first. A capital letter alone stands for the rest of an axis. A letter with a
//! number, such as `O4`, stands for this number of neighboring positions. A capital letter with a small letter, such as `On`,
//! stands for a number of positions that the kernel chooses. `G`, `O` and `I` are the groups, output channels and input channels
//! of a convolution. `S` are the taps, that is, the positions of a filter window. `C` are the channels of a depthwise filter.
//! `B`, `K` and `N` are batches, rows and columns of a matrix. The axis groups after a bar form a row of the texture that holds
//! the constant.

use super::{Arrangement, AxisGroup, Interleave, Order, Packed};
use crate::ir::op::Constant;
use crate::ir::tensor::DeviceType;

/// A named order of packed weights.
#[derive(Debug)]
pub struct Preset {
    /// Name of the order.
    pub name: &'static str,
    /// Axis groups of the order, as the module's documentation explains.
    pub order: &'static str,
    /// Letter of the axis that is interleaved over four memory objects, if any.
    pub interleaved: Option<char>,
}

/// All named orders of packed weights.
pub const PRESETS: &[Preset] =
    &[OHWI, I4O4, O4I4, FOUR_TEXTURES, HWI_O4, I_O4, CHW_C4, N4K4, PANELS, PANELS_OF_COLUMNS, KN];

/// Order of convolution filters in which all input channels at one position of the filter window are contiguous.
pub const OHWI: Preset = Preset { name: "OHWI", order: "G O S I", interleaved: None };
/// Order of convolution filters in blocks of `n` slices of 4 output channels. A vec4 holds the weights from one input channel to
/// 4 output channels, for multiply-adds.
pub const I4O4: Preset = Preset { name: "I4O4", order: "G O S I On I4 O4", interleaved: None };
/// Order of convolution filters in blocks of `n` slices of 4 output channels. A vec4 holds the weights from 4 input channels to
/// one output channel, for dot products.
pub const O4I4: Preset = Preset { name: "O4I4", order: "G O S I On O4 I4", interleaved: None };
/// Order of convolution filters in four textures, one for each of the 4 input channels of a slice. Along x are the slices of 4
/// output channels; along y are the positions of the filter window and the slices of input channels. Rows are padded to whole
/// blocks of `n` slices.
pub const FOUR_TEXTURES: Preset = Preset { name: "4xIO4", order: "S I | G O On O4", interleaved: Some('I') };
/// Order of convolution filters for a kernel whose invocations compute all output channels: vec4s of 4 output channels, ordered
/// by position of the filter window, input channel and output slice.
pub const HWI_O4: Preset = Preset { name: "HWIO4", order: "S I O O4", interleaved: None };
/// Order of 1x1 convolution filters: one row for each input channel, with the weights to all output channels in slices of 4.
pub const I_O4: Preset = Preset { name: "IO4", order: "I | O O4", interleaved: None };
/// Order of depthwise filters in slices of four channels.
pub const CHW_C4: Preset = Preset { name: "CHWC4", order: "C | S C4", interleaved: None };
/// Order of an 8-bit matrix for integer dot products: a word holds 4 values along K, and a vector holds the words of 4 columns.
pub const N4K4: Preset = Preset { name: "N4K4", order: "B K N N4 K4", interleaved: None };
/// Order of a matrix in panels (blocks of columns) as wide as the `n` columns of a cooperative matrix. The number of
/// rows is padded to a multiple of `r`.
pub const PANELS: Preset = Preset { name: "panels", order: "B N S K Kr Nn", interleaved: None };
/// Order of a matrix in panels of `n` columns, with `r` rows of a column contiguous, as matrix units read 8-bit values.
pub const PANELS_OF_COLUMNS: Preset =
    Preset { name: "panels of columns", order: "B N S K Nn Kr", interleaved: None };
/// Order of a matrix with the columns of a row contiguous.
pub const KN: Preset = Preset { name: "KN", order: "B K N", interleaved: None };

impl Preset {
    /// Describes a constant that is packed in this order. `axes` lists letter and size of the constant's axes, in row-major
    /// order. `tiles` gives values for the small letters of the order. Axis groups of the order whose axis is not in `axes` are
    /// left out.
    pub fn packed(
        &self,
        source: &Constant,
        axes: &[(char, usize)],
        tiles: &[(char, usize)],
        device: DeviceType,
    ) -> Packed {
        let axis = |letter: Option<char>| axes.iter().position(|(name, _)| Some(*name) == letter);
        let mut groups = Vec::new();
        let mut rows = None;
        for word in self.order.split_whitespace() {
            let mut letters = word.chars();
            let Some(axis) = axis(letters.next()) else {
                if word == "|" {
                    rows = Some(groups.len());
                }
                continue;
            };
            let count = letters.as_str();
            let tile =
                || tiles.iter().find(|(name, _)| count.starts_with(*name)).map_or(0, |(_, size)| *size);
            groups.push(AxisGroup { axis, size: count.parse().unwrap_or_else(|_| tile()) });
        }
        let order = Order { name: self.name, axes: axes.to_vec(), groups, rows, interleave: None };
        Packed { source: source.clone(), arrangement: Arrangement::Ordered(Box::new(order)), device }
    }

    /// Like [`Preset::packed`], but as four memory objects if `axes` has the interleaved axis, and otherwise as one object.
    pub fn packed_interleaved(
        &self,
        source: &Constant,
        axes: &[(char, usize)],
        tiles: &[(char, usize)],
        device: DeviceType,
    ) -> Vec<Packed> {
        let axis = axes.iter().position(|(name, _)| Some(*name) == self.interleaved);
        let whole = self.packed(source, axes, tiles, device);
        let Some(axis) = axis else { return vec![whole] };
        let object = |index| {
            let mut packed = whole.clone();
            if let Arrangement::Ordered(order) = &mut packed.arrangement {
                order.interleave = Some(Interleave { axis, count: 4, index });
            }
            packed
        };
        (0..4).map(object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{FOUR_TEXTURES, I4O4, O4I4, OHWI, PRESETS};
    use crate::ir::array::Array;
    use crate::ir::op::Constant;
    use crate::ir::tensor::DeviceType;
    use crate::shader::pack::{Packed, pack};

    const AXES: [(char, usize); 4] = [('G', 2), ('O', 11), ('I', 6), ('S', 3)];

    /// Returns the test weight of group `g` from input channel `i` to output channel `o` at position `s` of the filter window.
    /// The weight equals its index in the filters, counted from 1; past the ends of the axes it is 0.
    fn filter(g: usize, o: usize, i: usize, s: usize) -> f32 {
        if o < 11 && i < 6 { (((g * 11 + o) * 6 + i) * 3 + s + 1) as f32 } else { 0.0 }
    }

    fn filters() -> Constant {
        let elements = AXES.iter().map(|(_, size)| size).product();
        Constant::from_array(&Array::f32(&[elements], (1..=elements).map(|i| i as f32).collect()))
    }

    fn values(packed: &Packed) -> Vec<f32> {
        pack(packed).unwrap().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    }

    #[test]
    fn orders_are_what_their_formulas_say() {
        let ohwi = values(&OHWI.packed(&filters(), &AXES, &[], DeviceType::F32));
        let tiles = [('n', 2)];
        let i4o4 = values(&I4O4.packed(&filters(), &AXES, &tiles, DeviceType::F32));
        let o4i4 = values(&O4I4.packed(&filters(), &AXES, &tiles, DeviceType::F32));
        let textures = FOUR_TEXTURES.packed_interleaved(&filters(), &AXES, &tiles, DeviceType::F32);
        assert_eq!(textures.len(), 4);
        // Along x: 4 output slices for each of 2 groups. Along y: 3 positions of 2 input slices.
        assert!(
            textures.iter().all(|t| t.texture_extent(64) == Some([8, 6, 1]) && t.texture_extent(7).is_none())
        );
        let textures: Vec<Vec<f32>> = textures.iter().map(values).collect();
        for g in 0..2 {
            for s in 0..3 {
                for (o, i) in (0..16).flat_map(|o| (0..8).map(move |i| (o, i))) {
                    let want = filter(g, o, i, s);
                    if o < 11 && i < 6 {
                        assert_eq!(ohwi[((g * 11 + o) * 3 + s) * 6 + i], want);
                    }
                    let block = ((g * 2 + o / 8) * 3 + s) * 2 + i / 4;
                    let slice = block * 2 + o / 4 % 2;
                    assert_eq!(i4o4[(slice * 4 + i % 4) * 4 + o % 4], want);
                    assert_eq!(o4i4[(slice * 4 + o % 4) * 4 + i % 4], want);
                    let (x, y) = (g * 4 + o / 4, s * 2 + i / 4);
                    assert_eq!(textures[i % 4][(y * 8 + x) * 4 + o % 4], want);
                }
            }
        }
    }

    #[test]
    fn names_are_told_with_sizes() {
        let packed = I4O4.packed(&filters(), &AXES, &[('n', 2)], DeviceType::F32);
        assert_eq!(packed.to_string(), "I4O4: G2 O2 S3 I2 O2 I4 O4");
        let part = &FOUR_TEXTURES.packed_interleaved(&filters(), &AXES, &[('n', 1)], DeviceType::F32)[2];
        assert_eq!(part.to_string(), "4xIO4: S3 I2 | G2 O3 O1 O4, part 3 of 4 along I");
        assert_eq!(Packed::dense(&filters()).to_string(), "row-major");
        let mut names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PRESETS.len());
    }
}
