//! Orders of weights, by the names that `explain` gives them.
//!
//! An order is written as its axis groups, slowest first: a letter is what is left of an axis, a number after it so many
//! neighbouring positions, and a small letter after it a number that the kernel picks. `G`, `O` and `I` are groups, output
//! and input channels, `S` the positions of a window, `C` channels that have filters of their own, `B`, `K` and `N`
//! batches, rows and columns of a matrix. What follows a bar is a row of the texture that holds the constant.

use super::{Arrangement, AxisGroup, Order, Packed, Share};
use crate::ir::op::Constant;
use crate::ir::tensor::DeviceType;

/// An order with a name.
#[derive(Debug)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The groups.
    pub order: &'static str,
    /// The axis of whose every four positions each of four objects holds one.
    pub shared: Option<char>,
}

/// All of them.
pub const PRESETS: &[Preset] =
    &[OHWI, I4O4, O4I4, FOUR_TEXTURES, HWI_O4, I_O4, CHW_C4, N4K4, PANELS, PANELS_OF_COLUMNS, KN];

/// Filters with the channels of an input position side by side.
pub const OHWI: Preset = Preset { name: "OHWI", order: "G O S I", shared: None };
/// Blocks of `n` slices of outputs; a vector is four outputs of an input, for multiply-adds.
pub const I4O4: Preset = Preset { name: "I4O4", order: "G O S I On I4 O4", shared: None };
/// The same with four inputs of an output in a vector, for dot products.
pub const O4I4: Preset = Preset { name: "O4I4", order: "G O S I On O4 I4", shared: None };
/// Four textures, one for each of four inputs: slices of outputs along x, positions and slices of inputs along y. Rows
/// are padded to whole blocks of `n` slices.
pub const FOUR_TEXTURES: Preset = Preset { name: "4xIO4", order: "S I | G O On O4", shared: Some('I') };
/// Vectors in the order in which an invocation with all outputs reads them.
pub const HWI_O4: Preset = Preset { name: "HWIO4", order: "S I O O4", shared: None };
/// A matrix of inputs by slices of outputs.
pub const I_O4: Preset = Preset { name: "IO4", order: "I | O O4", shared: None };
/// One filter for each channel, in slices of channels.
pub const CHW_C4: Preset = Preset { name: "CHWC4", order: "C | S C4", shared: None };
/// Words of four bytes of a column, for dot products, in vectors of four columns.
pub const N4K4: Preset = Preset { name: "N4K4", order: "B K N N4 K4", shared: None };
/// Panels of the `n` columns of a matrix instruction, whose rows are padded to `r`.
pub const PANELS: Preset = Preset { name: "panels", order: "B N S K Kr Nn", shared: None };
/// The same panels with `r` rows of a column together, as matrix units take numbers of 8 bits.
pub const PANELS_OF_COLUMNS: Preset =
    Preset { name: "panels of columns", order: "B N S K Nn Kr", shared: None };
/// A matrix with neighbours along its columns.
pub const KN: Preset = Preset { name: "KN", order: "B K N", shared: None };

impl Preset {
    /// A constant in this order. `axes` names the axes of its elements, row-major, with their sizes, and `tiles` says what
    /// the small letters stand for; groups of axes that are not named are left out.
    pub fn of(
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
        let order = Order { name: self.name, axes: axes.to_vec(), groups, rows, share: None };
        Packed { source: source.clone(), arrangement: Arrangement::Ordered(Box::new(order)), device }
    }

    /// The same as four objects, each with one of every four positions of the shared axis; one object where none is.
    pub fn shares(
        &self,
        source: &Constant,
        axes: &[(char, usize)],
        tiles: &[(char, usize)],
        device: DeviceType,
    ) -> Vec<Packed> {
        let shared = axes.iter().position(|(name, _)| Some(*name) == self.shared);
        let whole = self.of(source, axes, tiles, device);
        let Some(axis) = shared else { return vec![whole] };
        let share = |nth| {
            let mut packed = whole.clone();
            if let Arrangement::Ordered(order) = &mut packed.arrangement {
                order.share = Some(Share { axis, of: 4, nth });
            }
            packed
        };
        (0..4).map(share).collect()
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

    /// The filter of a group from an input to an output at a position, numbered from 1; 0 past the ends.
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
        let ohwi = values(&OHWI.of(&filters(), &AXES, &[], DeviceType::F32));
        let tiles = [('n', 2)];
        let i4o4 = values(&I4O4.of(&filters(), &AXES, &tiles, DeviceType::F32));
        let o4i4 = values(&O4I4.of(&filters(), &AXES, &tiles, DeviceType::F32));
        let textures = FOUR_TEXTURES.shares(&filters(), &AXES, &tiles, DeviceType::F32);
        assert_eq!(textures.len(), 4);
        // Four slices of outputs for each of two groups along x; three positions of two slices of inputs along y.
        assert!(textures.iter().all(|t| t.texture(64) == Some([8, 6, 1]) && t.texture(7).is_none()));
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
        let packed = I4O4.of(&filters(), &AXES, &[('n', 2)], DeviceType::F32);
        assert_eq!(packed.to_string(), "I4O4: G2 O2 S3 I2 O2 I4 O4");
        let part = &FOUR_TEXTURES.shares(&filters(), &AXES, &[('n', 1)], DeviceType::F32)[2];
        assert_eq!(part.to_string(), "4xIO4: S3 I2 | G2 O3 O1 O4, part 3 of 4 along I");
        assert_eq!(Packed::dense(&filters()).to_string(), "as in the model");
        let mut names: Vec<&str> = PRESETS.iter().map(|p| p.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PRESETS.len());
    }
}
