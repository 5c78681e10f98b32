//! What tells packed constants apart without a look at their elements.

use super::{Arrangement, Order, Packed};
use crate::ir::array::strides;
use crate::ir::op::Constant;
use crate::ir::tensor::{DType, DeviceType};

/// Where the bytes of the source lie, how they are seen, and what becomes of them.
pub type Identity =
    ((usize, usize, Option<usize>), (DType, Vec<usize>, Option<Vec<usize>>), Arrangement, DeviceType);

impl Packed {
    /// What tells it apart from other packed constants of the process. Views of a constant that hold its elements in one
    /// order have one identity, as a matrix and the parts of its rows do.
    pub fn identity(&self) -> Identity {
        let Constant { dtype, shape, strides, bytes, stored } = &self.source;
        let place = (bytes.as_ptr() as usize, bytes.len(), stored.aside());
        let (view, arrangement) = match self.whole_axes() {
            Some((sizes, steps)) => ((*dtype, sizes, Some(steps)), Arrangement::Dense),
            None => ((*dtype, shape.clone(), strides.clone()), self.arrangement.clone()),
        };
        (place, view, arrangement, self.device)
    }

    /// Sizes and steps through the source in the order of memory, slowest first, where these are whole axes; axes that
    /// follow each other as one would are one.
    fn whole_axes(&self) -> Option<(Vec<usize>, Vec<usize>)> {
        let source = &self.source;
        let steps = source.strides.clone().unwrap_or_else(|| strides(&source.shape));
        let axes: Vec<(usize, usize)> =
            source.shape.iter().copied().zip(steps).filter(|(size, _)| *size != 1).collect();
        let axes = match &self.arrangement {
            Arrangement::Dense => axes,
            Arrangement::Ordered(order) => order.permuted(&axes)?,
            Arrangement::Codes(_) => return None,
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
    /// Axes of more than one position in this order, where it takes each as a whole.
    fn permuted(&self, axes: &[(usize, usize)]) -> Option<Vec<(usize, usize)>> {
        let own: Vec<usize> = (0..).zip(&self.axes).filter(|(_, (_, n))| *n != 1).map(|(i, _)| i).collect();
        let sizes = self.axes.iter().map(|(_, size)| *size).filter(|size| *size != 1);
        let whole = self.groups.iter().all(|group| group.size == 0) && self.groups.len() == self.axes.len();
        if !whole || self.rows.is_some() || self.share.is_some() || !sizes.eq(axes.iter().map(|(n, _)| *n)) {
            return None;
        }
        let place = |axis| own.iter().position(|own| *own == axis);
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

    /// A matrix `[n, k]` whose columns are summed, as it is and in parts of K, in rows of K.
    #[test]
    fn a_matrix_and_its_parts_are_one() {
        let (n, k, parts) = (6, 8, 2);
        let elements = (0..n * k).map(|i| i as f32).collect();
        let whole = Constant::from_array(&Array::f32(&[n, k], elements));
        let (shape, steps) = (vec![parts, 1, n, k / parts], vec![k / parts, 1, k, 1]);
        let split = Constant { shape, strides: Some(steps), ..whole.clone() };
        let axes = [('N', n), ('K', k)];
        let split_axes = [('B', parts), ('N', n), ('K', k / parts)];
        let both = |preset: super::super::presets::Preset, tiles: &[(char, usize)]| {
            let of = |source, axes: &[(char, usize)]| preset.of(source, axes, tiles, DeviceType::F32);
            [of(&whole, &axes), of(&split, &split_axes)]
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
