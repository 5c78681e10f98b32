//! How an encoding makes elements of codes, whatever its kind: what kernels that read codes have to know.

use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::Stored;
use crate::ir::tensor::DType;

/// An element is `(code - zero) * scale + bias`, with a scale, and a bias where there are any, for each group of
/// neighbours in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coding {
    /// Bits of a code, which has no sign.
    pub bits: usize,
    /// Elements of a row, where the bytes say that; else any whole number of groups is one.
    pub row: Option<usize>,
    /// Neighbours that share a scale, from the first of a row on; the last ones may be fewer.
    pub group: usize,
    /// What every code counts from.
    pub zero: u8,
    /// A float type that holds every scale as it is.
    pub scale: DType,
    /// The same for biases; none where all are zero.
    pub bias: Option<DType>,
}

impl Stored {
    /// How elements follow from codes; none where they are floats themselves, or groups are no neighbours.
    pub fn coding(&self) -> Option<Coding> {
        match self {
            Self::Plain(_) => None,
            Self::Blocks(kind) => Some(kind.coding()),
            Self::Groups(groups) => groups.coding(),
            Self::Rounded(rounded) => Some(rounded.coding()),
            Self::Stack(stack) => stack.coding(),
        }
    }

    /// The code of an element, by its number in the order of the file; zero where there are no codes.
    pub fn code(&self, bytes: &[u8], index: usize) -> u8 {
        match self {
            Self::Plain(_) => 0,
            Self::Blocks(kind) => kind.code(bytes, index),
            Self::Groups(groups) => groups.code(bytes, index),
            Self::Rounded(rounded) => rounded.code(bytes, index),
            Self::Stack(stack) => stack.code(index),
        }
    }

    /// The codes of neighbours in a row, from the element with a number in the order of the file on.
    pub fn codes(&self, bytes: &[u8], index: usize, out: &mut [u8]) {
        match self {
            Self::Rounded(rounded) => rounded.codes(bytes, index, out),
            Self::Stack(stack) => stack.codes(index, out),
            Self::Plain(_) | Self::Blocks(_) | Self::Groups(_) => {
                for (i, code) in (index..).zip(out) {
                    *code = self.code(bytes, i);
                }
            }
        }
    }

    /// The scale and the bias of an element's group, by its number in the order of the file.
    pub fn scale_and_bias(&self, bytes: &[u8], index: usize) -> [f32; 2] {
        match self {
            Self::Plain(_) => [1.0, 0.0],
            Self::Blocks(kind) => kind.scale_and_bias(bytes, index),
            Self::Groups(groups) => groups.scale_and_bias(index),
            Self::Rounded(rounded) => rounded.scale_and_bias(index),
            Self::Stack(stack) => stack.scale_and_bias(index),
        }
    }

    /// What no element of so many exceeds, by their scales alone; none where there are no codes.
    pub fn bound(&self, bytes: &[u8], elements: usize) -> Option<f32> {
        let Coding { bits, row, group, zero, .. } = self.coding()?;
        let group = group.max(1);
        let row = row.unwrap_or(group).max(1);
        let groups = row.div_ceil(group);
        let zero = f32::from(zero);
        let steps = zero.max(((1u32 << bits) - 1) as f32 - zero);
        let largest = |i: usize| {
            let [scale, bias] = self.scale_and_bias(bytes, i / groups * row + i % groups * group);
            Some(scale.abs() * steps + bias.abs()).filter(|v| !v.is_nan()).unwrap_or(f32::INFINITY)
        };
        let all = (0..elements.div_ceil(row) * groups).into_par_iter().with_min_len(1 << 12);
        Some(all.map(largest).reduce(|| 0.0, f32::max))
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::encoding::BlockKind;
    use crate::ir::text;

    /// Elements are what their codes and scales make, for every kind of block and of groups.
    #[test]
    fn elements_follow_from_codes() {
        let blocks = BlockKind::ALL.map(|kind| kind.name().to_string());
        let groups = [
            "u4 in groups of 32",
            "u8 in groups of 48",
            "u2 in groups of 16 with zeros",
            "u4 in groups of 96 with zeros",
        ];
        for stored in blocks.into_iter().chain(groups.map(str::to_string)) {
            let graph = format!(
                "%0 = constant {{\"dtype\":\"f32\",\"shape\":[5,768],\"stored\":\"{stored}\",\"random\":3}}\noutput \"y\" %0\n"
            );
            let graph = text::parse(&graph).unwrap();
            let constant = graph.constant(graph.outputs()[0].node).unwrap();
            let coding = constant.stored.coding().unwrap();
            let array = constant.to_array().unwrap();
            for (i, want) in array.floats().unwrap().iter().enumerate() {
                let code = constant.stored.code(&constant.bytes, i);
                let first = i / 768 * 768 + i % 768 / coding.group * coding.group;
                let [scale, bias] = constant.stored.scale_and_bias(&constant.bytes, first);
                assert!(u32::from(code) < 1 << coding.bits, "{stored}: {code}");
                assert!(coding.bias.is_some() || bias == 0.0, "{stored}");
                let got = (f32::from(code) - f32::from(coding.zero)) * scale + bias;
                assert!((got - want).abs() <= want.abs() * 1e-6 + 1e-6, "{stored} at {i}: {got}, {want}");
            }
            let largest = array.floats().unwrap().iter().fold(0.0f32, |a, b| a.max(b.abs()));
            let bound = constant.stored.bound(&constant.bytes, 5 * 768).unwrap();
            assert!(largest <= bound * 1.000_01 && bound < largest * 4.0, "{stored}: {largest}, {bound}");
        }
    }
}
