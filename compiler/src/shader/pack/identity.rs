//! Identity keys of packed constants, which deduplicate constants without reading their elements.

use super::{Arrangement, Order, Packed};
use crate::ir::array::strides;
use crate::ir::op::Constant;
use crate::ir::tensor::{DType, DeviceType};

/// Identity key of a packed constant: the address of the source's bytes, the view of these bytes (type, shape,
/// strides), the arrangement, and the type on the device.
pub type Identity =
    ((usize, usize, Option<usize>), (DType, Vec<usize>, Option<Vec<usize>>), Arrangement, DeviceType);

impl Packed {
    /// Returns a key that is equal for packed constants with equal bytes in this process. Different views of a constant
    /// have equal keys if they give equal orders of elements, as a matrix and its split-K view do.
    pub fn identity(&self) -> Identity {
        let Constant { dtype, shape, strides, bytes, encoding } = &self.source;
        let address = (bytes.as_ptr() as usize, bytes.len(), encoding.scales_address());
        let (view, arrangement) = match self.whole_axes() {
            Some((sizes, steps)) => ((*dtype, sizes, Some(steps)), Arrangement::Dense),
            None => ((*dtype, shape.clone(), strides.clone()), self.arrangement.clone()),
        };
        (address, view, arrangement, self.device)
    }

    /// Returns sizes and strides of the source in the order of the packed elements, slowest first, with contiguous axes
    /// merged. Returns `None` if the arrangement is not just a permutation of whole axes.
    fn whole_axes(&self) -> Option<(Vec<usize>, Vec<usize>)> {
        let source = &self.source;
        let steps = source.strides.clone().unwrap_or_else(|| strides(&source.shape));
        let axes: Vec<(usize, usize)> =
            source.shape.iter().copied().zip(steps).filter(|(size, _)| *size != 1).collect();
        let axes = match &self.arrangement {
            Arrangement::Dense => axes,
            Arrangement::Ordered(order) => order.permuted(&axes)?,
            Arrangement::Quantized(_) => return None,
        };
        let mut merged: Vec<(usize, usize)> = Vec::with_capacity(axes.len());
        for (size, step) in axes {
            match merged.last_mut() {
                Some((outer, outer_step)) if *outer_step == size * step => {
                    (*outer, *outer_step) = (*outer * size, step);
                }
                _ => merged.push((size, step)),
            }
        }
        Some(merged.into_iter().unzip())
    }
}

impl Order {
    /// Returns the axes of size above 1, permuted into this packing order, or `None` if the order splits, pads or
    /// interleaves an axis.
    fn permuted(&self, axes: &[(usize, usize)]) -> Option<Vec<(usize, usize)>> {
        let nontrivial: Vec<usize> =
            (0..).zip(&self.axes).filter(|(_, (_, n))| *n != 1).map(|(i, _)| i).collect();
        let sizes = self.axes.iter().map(|(_, size)| *size).filter(|size| *size != 1);
        let whole = self.groups.iter().all(|group| group.size == 0) && self.groups.len() == self.axes.len();
        if !whole
            || self.rows.is_some()
            || self.interleave.is_some()
            || !sizes.eq(axes.iter().map(|(n, _)| *n))
        {
            return None;
        }
        let place = |axis| nontrivial.iter().position(|kept| *kept == axis);
        Some(self.groups.iter().filter_map(|group| axes.get(place(group.axis)?).copied()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::presets::{KN, PANELS};
    use super::super::{Packed, pack};
    use crate::ir::array::Array;
    use crate::ir::op::Constant;
    use crate::ir::tensor::DeviceType;

    /// Packs a weight matrix `[n, k]` and a view of it that is split along K, both in the order K, N.
    #[test]
    fn a_matrix_and_its_split_view_have_one_identity() {
        let (n, k, splits) = (6, 8, 2);
        let elements = (0..n * k).map(|i| i as f32).collect();
        let whole = Constant::from_array(&Array::f32(&[n, k], elements));
        let (shape, steps) = (vec![splits, 1, n, k / splits], vec![k / splits, 1, k, 1]);
        let split = Constant { shape, strides: Some(steps), ..whole.clone() };
        let axes = [('N', n), ('K', k)];
        let split_axes = [('B', splits), ('N', n), ('K', k / splits)];
        let both = |preset: super::super::presets::Preset, tiles: &[(char, usize)]| {
            let pack_one =
                |source, axes: &[(char, usize)]| preset.packed(source, axes, tiles, DeviceType::F32);
            [pack_one(&whole, &axes), pack_one(&split, &split_axes)]
        };
        let [a, b] = both(KN, &[]);
        assert_eq!(a.identity(), b.identity());
        assert_eq!(pack(&a).unwrap(), pack(&b).unwrap());
        let across = whole.transposed(&[1, 0]).unwrap();
        assert_eq!(a.identity(), Packed { device: DeviceType::F32, ..Packed::dense(&across) }.identity());
        assert_ne!(a.identity(), Packed::dense(&whole).identity());
        let [a, b] = both(PANELS, &[('n', 2), ('r', 2)]);
        assert_ne!(a.identity(), b.identity());
        assert_ne!(pack(&a).unwrap(), pack(&b).unwrap());
    }
}
