//! Arrangements of packed constants: the order of their elements in memory.

use super::quantized_panels::QuantizedPanels;

/// An axis group of a packing order: `size` consecutive positions of an axis. Size 0 stands for the rest of the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AxisGroup {
    /// Index of the axis in the logical shape.
    pub axis: usize,
    /// Number of consecutive positions; 0 for the rest of the axis.
    pub size: usize,
}

/// Order of a packed constant's elements.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arrangement {
    /// Row-major order, as in the model.
    Dense,
    /// An order that a list of axis groups defines.
    Ordered(Box<Order>),
    /// Quantized values and their scales, in panels of 16 rows.
    Quantized(QuantizedPanels),
}

/// Order of a packed constant's elements, as a list of axis groups over the constant's logical axes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order {
    /// Name of the order, as `driftc explain` prints it.
    pub name: &'static str,
    /// Letter and size of each logical axis. The constant's elements are row-major with these sizes.
    pub axes: Vec<(char, usize)>,
    /// Axis groups, slowest first.
    pub groups: Vec<AxisGroup>,
    /// Number of leading axis groups that count the rows of a texture, if a texture holds the constant. The other
    /// groups form a row.
    pub rows: Option<usize>,
    /// Positions of an axis that this memory object holds, if the constant is interleaved over several objects.
    pub interleave: Option<Interleave>,
}

/// Selection of every `count`-th position of axis `axis`, from position `index` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the doc comment above defines the fields")]
pub struct Interleave {
    pub axis: usize,
    pub count: usize,
    pub index: usize,
}

impl Order {
    /// Returns the size of each axis of the packed order. An axis of the packed order is a whole axis of the tensor, or a part of
    /// one.
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

    /// Returns the sizes of the logical axes.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|(_, size)| *size).collect()
    }
}
