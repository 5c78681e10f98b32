//! Arrangements of packed constants: the order of their elements in memory.

use super::quantized_panels::QuantizedPanels;

/// A range of an axis: `size` consecutive positions. Size 0 covers the rest of the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AxisGroup {
    /// Axis of the logical shape.
    pub axis: usize,
    /// Positions; 0 for the rest of the axis.
    pub size: usize,
}

/// Order of a packed constant's elements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arrangement {
    /// Row-major as in the model.
    Dense,
    /// Another order.
    Ordered(Box<Order>),
    /// Quantized values and their scales, in panels.
    Quantized(QuantizedPanels),
}

/// Axis groups over a constant's logical axes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    /// Name of the preset.
    pub name: &'static str,
    /// The logical axes: the constant's elements are row-major under these sizes. Each has a letter as a name.
    pub axes: Vec<(char, usize)>,
    /// Slowest first.
    pub groups: Vec<AxisGroup>,
    /// Number of leading groups that count rows, if a texture holds the constant. The other groups form a row.
    pub rows: Option<usize>,
    /// The positions of an axis that this object holds, if the constant is interleaved over several objects.
    pub interleave: Option<Interleave>,
}

/// Positions `index`, `index + count`, `index + 2 * count` ... of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the doc comment above defines the fields")]
pub struct Interleave {
    pub axis: usize,
    pub count: usize,
    pub index: usize,
}

impl Order {
    /// Number of positions of each group.
    pub(super) fn extents(&self) -> Vec<usize> {
        let extent = |(i, group): (usize, &AxisGroup)| {
            if group.size > 0 {
                return group.size;
            }
            let others = self.groups.iter().enumerate().filter(|(j, o)| *j != i && o.axis == group.axis);
            let inner: usize = others.map(|(_, o)| o.size.max(1)).product();
            let size = self.axes.get(group.axis).map_or(1, |(_, size)| *size);
            let count = self.interleave.filter(|part| part.axis == group.axis).map_or(1, |part| part.count);
            size.div_ceil(count).div_ceil(inner)
        };
        self.groups.iter().enumerate().map(extent).collect()
    }

    /// Sizes of the logical axes.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|(_, size)| *size).collect()
    }
}
