//! Constants of few bits as they lie on the device: one form for every encoding, so that every kernel reads the same bytes.
//!
//! The constant is seen as a matrix, whose rows are those that scales are of. Sixteen rows are a panel, and all of a panel is
//! together:
//!
//! | part | order | an entry |
//! |---|---|---|
//! | codes | units of four rows, four units for each word's depths | a word: 4 codes of 8 bits or 8 of 4 along a row, from the lowest bits on |
//! | scales | group by group, 16 rows each | f16 or f32 |
//! | biases, where there are any | as scales | f16 or f32 |
//!
//! Each part is padded to units of 16 bytes. Codes of 2 bits are widened to 4, those of 5 and 6 to 8. No value changes. A
//! word holds neighbours of a row, so that one load serves a vector of the other operand and one scale a whole word.

use half::f16;

use crate::ir::array::strides;
use crate::ir::op::Constant;
use crate::ir::tensor::{DType, DeviceType};

/// Rows of a panel.
pub const ROWS: usize = 16;
/// Bytes of a unit.
const UNIT: usize = 16;

/// How a constant of codes lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodePanels {
    /// Bits of a code: 4 or 8.
    pub bits: usize,
    /// Rows of the matrix, in the order of the constant's elements.
    pub rows: usize,
    /// Elements of a row.
    pub depth: usize,
    /// Elements of the constant between neighbours of a row: 1 where rows lie one after the other.
    pub inner: usize,
    /// Neighbours of a row that share a scale.
    pub group: usize,
    /// What every code counts from.
    pub zero: u8,
    /// The type of scales.
    pub scale: DeviceType,
    /// The type of biases.
    pub bias: Option<DeviceType>,
}

impl CodePanels {
    /// The form of a constant; none where it has no codes, or is not seen in whole rows.
    pub fn of(constant: &Constant) -> Option<Self> {
        let coding = constant.stored.coding()?;
        let own = constant.strides.clone().unwrap_or_else(|| strides(&constant.shape));
        let axis = depth_axis(constant, &own)?;
        let depth = *constant.shape.get(axis)?;
        let whole = match coding.row {
            Some(row) => depth == row,
            None => depth.is_multiple_of(coding.group),
        };
        let others = constant.shape.iter().zip(&own).enumerate();
        let rows_apart = others
            .filter(|(i, (size, _))| *i != axis && **size > 1)
            .all(|(_, (_, stride))| stride.is_multiple_of(depth));
        let inner = constant.shape.iter().skip(axis + 1).product();
        let device = |dtype| if dtype == DType::F16 { DeviceType::F16 } else { DeviceType::F32 };
        (whole && rows_apart && depth > 0 && constant.dtype.is_float()).then(|| Self {
            bits: if coding.bits <= 4 { 4 } else { 8 },
            rows: constant.elements() / depth,
            depth,
            inner,
            group: coding.group.clamp(1, depth),
            zero: coding.zero,
            scale: device(coding.scale),
            bias: coding.bias.map(device),
        })
    }

    /// Groups of a row.
    pub fn groups(&self) -> usize {
        self.depth.div_ceil(self.group)
    }

    /// Panels of 16 rows.
    pub fn panels(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Neighbours of a row that a word holds.
    pub fn of_word(&self) -> usize {
        32 / self.bits.max(1)
    }

    /// Words of a row.
    pub fn words(&self) -> usize {
        self.depth.div_ceil(self.of_word())
    }

    /// Units of 16 bytes that the codes of a panel take.
    pub fn code_units(&self) -> usize {
        self.words() * ROWS / 4
    }

    /// Units of the scales of a group, and of its biases.
    pub fn scale_units(&self) -> [usize; 2] {
        let units = |device: DeviceType| device.bytes().unsigned_abs() as usize * ROWS / UNIT;
        [units(self.scale), self.bias.map_or(0, units)]
    }

    /// Units of a panel.
    pub fn panel_units(&self) -> usize {
        let [scales, biases] = self.scale_units();
        self.code_units() + self.groups() * (scales + biases)
    }

    /// Bytes of all panels.
    pub fn bytes(&self) -> u64 {
        (self.panels() as u64).saturating_mul((self.panel_units() * UNIT) as u64)
    }
}

/// The axis along which the elements of a row are neighbours.
fn depth_axis(constant: &Constant, strides: &[usize]) -> Option<usize> {
    let sizes = constant.shape.iter().zip(strides);
    let mut found =
        sizes.enumerate().filter(|(_, (size, stride))| **size > 1 && **stride == 1).map(|(i, _)| i);
    found.next_back().or_else(|| constant.shape.len().checked_sub(1))
}

/// The constant with the elements of a row as its last axis, in the type of its elements: constants that lie alike on the
/// device are alike then.
pub(super) fn in_rows(constant: &Constant) -> Option<Constant> {
    let own = constant.strides.clone().unwrap_or_else(|| strides(&constant.shape));
    let axis = depth_axis(constant, &own)?;
    let perm: Vec<usize> = (0..constant.shape.len()).filter(|i| *i != axis).chain([axis]).collect();
    let seen = constant.transposed(&perm)?;
    Some(Constant { dtype: seen.stored.element(), ..seen })
}

/// Writes panel after panel from a number on; `out` holds whole panels. `source` has rows as [`in_rows`] gives them.
pub(super) fn fill(source: &Constant, form: &CodePanels, first: usize, out: &mut [u8]) {
    let own = source.strides.clone().unwrap_or_else(|| strides(&source.shape));
    let size = form.panel_units() * UNIT;
    // The last word of a row may have codes that nothing fills.
    let mut row = vec![0; form.words() * form.of_word()];
    for (panel, out) in (first..).zip(out.chunks_mut(size.max(1))) {
        out.fill(0);
        let (codes, scales) = out.split_at_mut((form.code_units() * UNIT).min(out.len()));
        let (scales, biases) =
            scales.split_at_mut((form.groups() * form.scale_units()[0] * UNIT).min(scales.len()));
        for lane in 0..ROWS.min(form.rows.saturating_sub(panel * ROWS)) {
            let begin = first_element(panel * ROWS + lane, &source.shape, &own);
            source.stored.codes(&source.bytes, begin, &mut row[..form.depth]);
            let words = codes.as_chunks_mut::<4>().0.iter_mut().skip(lane).step_by(ROWS);
            if form.bits == 4 {
                for (word, codes) in words.zip(row.as_chunks::<8>().0) {
                    *word = std::array::from_fn(|i| codes[2 * i] | codes[2 * i + 1] << 4);
                }
            } else {
                words.zip(row.as_chunks().0).for_each(|(word, codes)| *word = *codes);
            }
            for group in 0..form.groups() {
                let [scale, bias] = source.stored.scale_and_bias(&source.bytes, begin + group * form.group);
                put(scales, group * ROWS + lane, form.scale, scale);
                if let Some(device) = form.bias {
                    put(biases, group * ROWS + lane, device, bias);
                }
            }
        }
    }
}

/// The element of the file with which a row begins.
fn first_element(mut row: usize, shape: &[usize], strides: &[usize]) -> usize {
    let mut at = 0;
    for (size, stride) in shape.iter().zip(strides).rev().skip(1) {
        at += row % size.max(&1) * stride;
        row /= size.max(&1);
    }
    at
}

fn put(out: &mut [u8], at: usize, device: DeviceType, value: f32) {
    let half = f16::from_f32(value).to_le_bytes();
    let whole = value.to_le_bytes();
    let bytes: &[u8] = if device == DeviceType::F16 { &half } else { &whole };
    if let Some(place) = out.get_mut(at * bytes.len()..(at + 1) * bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{CodePanels, ROWS, UNIT};
    use crate::ir::encoding::BlockKind;
    use crate::ir::op::Constant;
    use crate::ir::tensor::DeviceType;
    use crate::ir::text;
    use crate::shader::pack::{Packed, pack};

    fn constant(shape: [usize; 2], stored: &str) -> Constant {
        let graph = format!(
            "%0 = constant {{\"dtype\":\"f32\",\"shape\":{shape:?},\"stored\":\"{stored}\",\"random\":3}}\noutput \"y\" %0\n"
        );
        let graph = text::parse(&graph).unwrap();
        graph.constant(graph.outputs()[0].node).unwrap().clone()
    }

    /// Element `k` of a row as kernels read it.
    fn read(bytes: &[u8], form: &CodePanels, row: usize, k: usize) -> f32 {
        let panel = &bytes[row / ROWS * form.panel_units() * UNIT..];
        let lane = row % ROWS;
        let code = match form.bits {
            4 => panel[(k / 8 * ROWS + lane) * 4 + k % 8 / 2] >> (k % 2 * 4) & 15,
            _ => panel[(k / 4 * ROWS + lane) * 4 + k % 4],
        };
        let float = |unit: usize, device: DeviceType| {
            let at = (k / form.group) * ROWS + lane;
            match device {
                DeviceType::F16 => {
                    half::f16::from_le_bytes([0, 1].map(|i| panel[unit * UNIT + at * 2 + i])).to_f32()
                }
                _ => f32::from_le_bytes([0, 1, 2, 3].map(|i| panel[unit * UNIT + at * 4 + i])),
            }
        };
        let biases = form.code_units() + form.groups() * form.scale_units()[0];
        let bias = form.bias.map_or(0.0, |device| float(biases, device));
        (f32::from(code) - f32::from(form.zero)) * float(form.code_units(), form.scale) + bias
    }

    #[test]
    fn panels_hold_every_element() {
        let kinds = BlockKind::ALL.map(|kind| kind.name().to_string()).into_iter();
        let others = ["u2 in groups of 16", "u4 in groups of 40 with zeros", "u8 in groups of 1000"];
        for stored in kinds.chain(others.map(str::to_string)) {
            let source = constant([37, 512], &stored);
            let elements = source.to_array().unwrap();
            let elements = elements.floats().unwrap();
            let across = source.transposed(&[1, 0]).unwrap();
            let packed = Packed::dense(&source);
            let form = CodePanels::of(&source).unwrap();
            assert_eq!(CodePanels::of(&across).unwrap(), CodePanels { inner: 37, ..form });
            assert_eq!(packed.identity(), Packed::dense(&across).identity(), "{stored}");
            let bytes = pack(&packed).unwrap();
            assert_eq!(bytes.len() as u64, packed.bytes());
            for (i, want) in elements.iter().enumerate() {
                let got = read(&bytes, &form, i / 512, i % 512);
                assert!((got - want).abs() <= 1e-6 + want.abs() * 1e-6, "{stored} at {i}: {got}, {want}");
            }
        }
    }

    #[test]
    fn rows_that_are_cut_are_decoded() {
        let source = constant([6, 512], "u4 in groups of 128");
        let parts = source.reshaped(&[6, 2, 256]).unwrap();
        assert_eq!(CodePanels::of(&parts), None);
        let heads = source.reshaped(&[2, 3, 512]).unwrap().transposed(&[1, 0, 2]).unwrap();
        let form = CodePanels::of(&heads).unwrap();
        assert_eq!((form.rows, form.depth, form.inner), (6, 512, 1));
        let bytes = pack(&Packed::dense(&heads)).unwrap();
        let elements = heads.to_array().unwrap();
        for (i, want) in elements.floats().unwrap().iter().enumerate() {
            let got = read(&bytes, &form, i / 512, i % 512);
            assert!((got - want).abs() <= 1e-6 + want.abs() * 1e-6, "{i}: {got}, {want}");
        }
    }
}
