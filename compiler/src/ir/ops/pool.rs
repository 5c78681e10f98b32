//! Pooling over the spatial axes of `x [N, C, spatial..]`.

use std::cmp::Ordering;

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSliceMut};
use serde::{Deserialize, Serialize};

use super::window::{Attributes, Window, windows};
use super::{check, lanes};
use crate::error::OpError;
use crate::ir::array::{Array, Data, count, strides, unravel};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

/// Function that pooling computes of each window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolKind {
    /// Maximum of the window; padding is ignored.
    Max,
    /// Flat index in the input tensor of the window's maximum, as i64.
    MaxIndex {
        /// True if the flat index counts the first spatial axis fastest (column-major).
        column_major: bool,
    },
    /// Mean.
    Average {
        /// True if the divisor of the average counts padding elements.
        count_include_pad: bool,
    },
    /// `(sum |x|^p)^(1/p)`.
    Lp {
        /// The exponent.
        p: u32,
    },
}

/// Pooling over the spatial axes of `x [N, C, spatial..]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Function that pooling computes of each window.
    pub kind: PoolKind,
    /// Extents of the pooling window, per spatial axis.
    pub kernel: Vec<usize>,
    /// Strides of the pooling window, per spatial axis.
    pub strides: Vec<usize>,
    /// Dilations of the pooling window, per spatial axis.
    pub dilations: Vec<usize>,
    /// Padding before the input, per spatial axis.
    pub pads_begin: Vec<usize>,
    /// Padding after the input, per spatial axis.
    pub pads_end: Vec<usize>,
    /// True if output extents of pooling round up; a window that would start in the end padding is dropped.
    pub ceil: bool,
}

impl Pool {
    /// Returns the pooling window along each spatial axis.
    fn windows(&self, spatial: usize) -> Result<Vec<Window>, OpError> {
        if spatial == 0 {
            return Err(OpError::new("the input must have rank three or more"));
        }
        let attributes = Attributes {
            kernel: &self.kernel,
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
        };
        windows(&attributes, spatial)
    }
}

impl Operation for Pool {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        match self.kind {
            PoolKind::Max | PoolKind::MaxIndex { .. } => check::numeric(x, "the input")?,
            PoolKind::Average { .. } => check::float(x, "the input")?,
            PoolKind::Lp { p: 0 } => return Err(OpError::new("the exponent p of Lp pooling must not be 0")),
            PoolKind::Lp { .. } => check::float(x, "the input")?,
        }
        let [batch, channels, spatial @ ..] = x.shape.as_slice() else {
            return Err(OpError::new(format!("the input must have rank three or more, found {x}")));
        };
        let windows = self.windows(spatial.len())?;
        let mut shape = vec![batch.clone(), channels.clone()];
        for (d, window) in spatial.iter().zip(&windows) {
            shape.push(window.count(d, self.ceil)?);
        }
        let dtype = if matches!(self.kind, PoolKind::MaxIndex { .. }) { DType::I64 } else { x.dtype };
        Ok(TensorDesc::new(dtype, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::ImageSlices, PrecisionClass::MovesValues, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let x = inputs[0];
            let sizes = &x.shape[2..];
            let windows = self.windows(sizes.len())?;
            let pool_windows =
                PoolWindows { windows: &windows, planes: out[0] * out[1], sizes, output: &out[2..] };
            let int_order = |a, b| lanes::int_order(x.dtype, a, b);
            Ok(match (self.kind, &x.data) {
                (PoolKind::Max, Data::Float(v)) => Data::Float(pool_windows.map(v, |view| {
                    view.argmax(lanes::float_order).map_or(f32::NEG_INFINITY, |at| view.plane[at])
                })),
                (PoolKind::Max, Data::Int(v)) => {
                    let least = lanes::int_range(x.dtype).0;
                    Data::Int(
                        pool_windows.map(v, |view| view.argmax(int_order).map_or(least, |at| view.plane[at])),
                    )
                }
                (PoolKind::MaxIndex { column_major }, Data::Float(v)) => {
                    Data::Int(pool_windows.map(v, |view| view.index(lanes::float_order, column_major, sizes)))
                }
                (PoolKind::MaxIndex { column_major }, Data::Int(v)) => {
                    Data::Int(pool_windows.map(v, |view| view.index(int_order, column_major, sizes)))
                }
                (PoolKind::Average { count_include_pad }, _) => {
                    Data::Float(pool_windows.map(x.floats()?, |view| {
                        let n = if count_include_pad { view.padded } else { view.taps.len() };
                        (view.sum(|v| v) / n as f64) as f32
                    }))
                }
                (PoolKind::Lp { p }, _) => {
                    let p = f64::from(p);
                    Data::Float(pool_windows.map(x.floats()?, |view| {
                        libm::pow(view.sum(|v| libm::pow(v.abs(), p)), p.recip()) as f32
                    }))
                }
            })
        })
    }
}

/// Pooling windows over the planes of a tensor. A plane holds the spatial axes of one image and channel.
struct PoolWindows<'a> {
    windows: &'a [Window],
    planes: usize,
    sizes: &'a [usize],
    output: &'a [usize],
}

/// One position of the pooling window on one plane, which holds the spatial axes of one image and channel.
struct WindowView<'a, T> {
    /// Offset, in elements, of the plane (the spatial axes of one image and channel) in the tensor.
    start: usize,
    plane: &'a [T],
    /// Offsets of the elements that the window covers, in row-major order. They count from the start of the plane.
    taps: &'a [usize],
    /// Number of elements that the window covers, including elements of the padding.
    padded: usize,
}

impl PoolWindows<'_> {
    /// Applies `f` to every position of the pooling window on every plane. A plane holds the spatial axes of one image
    /// and channel.
    fn map<T: Sync, U: Copy + Default + Send>(
        &self,
        x: &[T],
        f: impl Fn(&WindowView<'_, T>) -> U + Sync,
    ) -> Vec<U> {
        let (plane, length) = (count(self.sizes), count(self.output));
        let mut y = vec![U::default(); self.planes * length];
        y.par_chunks_mut(length).enumerate().for_each(|(i, y)| {
            let mut at = vec![0; self.output.len()];
            let mut taps = Vec::new();
            for (j, y) in y.iter_mut().enumerate() {
                unravel(j, self.output, &mut at);
                let padded = self.taps(&at, &mut taps);
                let start = i * plane;
                *y = f(&WindowView { start, plane: &x[start..start + plane], taps: &taps, padded });
            }
        });
        y
    }

    /// Stores the offsets of the input elements that a window covers in `taps`. Returns the number of elements that the
    /// window covers, including elements of the padding.
    fn taps(&self, at: &[usize], taps: &mut Vec<usize>) -> usize {
        let (mut first, mut padded) = (0, 1usize);
        let (mut lengths, mut steps) = (Vec::new(), Vec::new());
        let axes = self.windows.iter().zip(at).zip(self.sizes.iter().zip(strides(self.sizes)));
        for ((window, at), (size, stride)) in axes {
            let range = window.taps(*at, *size);
            if !range.is_empty() {
                first += window.position(*at, range.start) as usize * stride;
            }
            steps.push((window.dilation as usize).saturating_mul(stride));
            lengths.push(range.len());
            padded = padded.saturating_mul(window.padded_taps(*at, *size));
        }
        taps.clear();
        taps.extend(lanes::strided_offsets(&lengths, &steps).map(|o| first + o));
        padded
    }
}

impl<T: Copy> WindowView<'_, T> {
    /// Returns the offset of the window's first maximum in its plane (the spatial axes of one image and channel);
    /// `None` if the whole window lies in the padding.
    fn argmax(&self, order: impl Fn(T, T) -> Ordering) -> Option<usize> {
        self.taps
            .iter()
            .copied()
            .reduce(|best, at| if order(self.plane[at], self.plane[best]).is_gt() { at } else { best })
    }

    /// Returns the flat index in the tensor of the window's first maximum; -1 if the whole window lies in the padding.
    fn index(&self, order: impl Fn(T, T) -> Ordering, column_major: bool, sizes: &[usize]) -> i64 {
        let Some(mut offset) = self.argmax(order) else { return -1 };
        if column_major {
            let mut at = vec![0; sizes.len()];
            unravel(offset, sizes, &mut at);
            offset = at.iter().zip(sizes).rev().fold(0, |index, (at, size)| index * size + at);
        }
        (self.start + offset) as i64
    }
}

impl WindowView<'_, f32> {
    fn sum(&self, f: impl Fn(f64) -> f64) -> f64 {
        self.taps.iter().map(|at| f(f64::from(self.plane[*at]))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::{Pool, PoolKind};
    use crate::ir::array::{Array, Data};
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    fn pool(kind: PoolKind, kernel: &[usize], stride: usize, pad: usize) -> Pool {
        Pool {
            kind,
            kernel: kernel.to_vec(),
            strides: vec![stride; kernel.len()],
            dilations: vec![1; kernel.len()],
            pads_begin: vec![pad; kernel.len()],
            pads_end: vec![pad; kernel.len()],
            ceil: false,
        }
    }

    fn eval(op: &Pool, x: &Array) -> Array {
        let out = op.infer(&[&TensorDesc::from_sizes(x.dtype, &x.shape)]).unwrap().known_shape().unwrap();
        op.eval(&[x], &out, &Bindings::new()).unwrap()
    }

    fn counted(shape: &[usize]) -> Array {
        Array::f32(shape, (1..=shape.iter().product::<usize>()).map(|v| v as f32).collect())
    }

    #[test]
    fn maximum_and_its_index() {
        let x = counted(&[1, 2, 2, 3]);
        assert_eq!(eval(&pool(PoolKind::Max, &[2, 2], 1, 0), &x).floats().unwrap(), [5.0, 6.0, 11.0, 12.0]);
        let rows = pool(PoolKind::MaxIndex { column_major: false }, &[2, 2], 1, 0);
        assert_eq!(eval(&rows, &x).data, Data::Int(vec![4, 5, 10, 11]));
        let columns = pool(PoolKind::MaxIndex { column_major: true }, &[2, 2], 1, 0);
        assert_eq!(eval(&columns, &x).data, Data::Int(vec![3, 5, 9, 11]));
        let bytes = Array::int(DType::I8, &[1, 1, 3], vec![-7, -9, -8]);
        assert_eq!(eval(&pool(PoolKind::Max, &[2], 1, 1), &bytes).data, Data::Int(vec![-7, -7, -8, -8]));
    }

    #[test]
    fn padding_in_averages() {
        let x = Array::f32(&[1, 1, 3], vec![2.0, 4.0, 6.0]);
        let with = pool(PoolKind::Average { count_include_pad: true }, &[2], 1, 1);
        assert_eq!(eval(&with, &x).floats().unwrap(), [1.0, 3.0, 5.0, 3.0]);
        let without = pool(PoolKind::Average { count_include_pad: false }, &[2], 1, 1);
        assert_eq!(eval(&without, &x).floats().unwrap(), [2.0, 3.0, 5.0, 6.0]);
    }

    /// Checks that average pooling does not count positions after the end padding. A window covers such positions if
    /// output extents round up.
    #[test]
    fn averages_with_ceil() {
        let x = Array::f32(&[1, 1, 4], vec![1.0, 2.0, 3.0, 4.0]);
        let mut op = pool(PoolKind::Average { count_include_pad: true }, &[3], 2, 0);
        op.ceil = true;
        assert_eq!(eval(&op, &x).floats().unwrap(), [2.0, 3.5]);
        op.pads_begin = vec![1];
        op.pads_end = vec![1];
        // Windows start at -1, 1 and 3. The last one has the element 4, one padding, and one position after the
        // padding.
        assert_eq!(eval(&op, &x).floats().unwrap(), [1.0, 3.0, 2.0]);
    }

    #[test]
    fn lp_and_dilation() {
        let x = Array::f32(&[1, 1, 4], vec![3.0, 0.0, -4.0, 1.0]);
        let mut op = pool(PoolKind::Lp { p: 2 }, &[2], 1, 0);
        op.dilations = vec![2];
        assert_eq!(eval(&op, &x).floats().unwrap(), [5.0, 1.0]);
    }

    #[test]
    fn windows_in_the_padding() {
        let x = Array::f32(&[1, 1, 1], vec![3.0]);
        let op = pool(PoolKind::MaxIndex { column_major: false }, &[1], 1, 1);
        assert_eq!(eval(&op, &x).data, Data::Int(vec![-1, 0, -1]));
        let op = pool(PoolKind::Max, &[1], 1, 1);
        assert_eq!(eval(&op, &x).floats().unwrap(), [f32::NEG_INFINITY, 3.0, f32::NEG_INFINITY]);
    }

    #[test]
    fn extreme_attributes() {
        let empty = Array::f32(&[1, 1, 0], vec![]);
        assert_eq!(eval(&pool(PoolKind::Max, &[1], 1, 1), &empty).floats().unwrap(), [f32::NEG_INFINITY; 2]);
        let huge = i32::MAX as usize;
        let mut op = pool(PoolKind::Average { count_include_pad: true }, &[huge], huge, huge);
        let x = Array::f32(&[1, 1, 1], vec![3.0]);
        assert_eq!(eval(&op, &x).floats().unwrap(), [0.0, 3.0 / huge as f32]);
        op.dilations = vec![usize::MAX];
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::F32, &[1, 1, 1])]).is_err());
    }

    #[test]
    fn three_axes() {
        let x = counted(&[1, 1, 2, 2, 2]);
        let op = pool(PoolKind::Average { count_include_pad: false }, &[2, 2, 2], 1, 0);
        assert_eq!(eval(&op, &x).floats().unwrap(), [4.5]);
    }

    #[test]
    fn shapes_and_refusals() {
        let x =
            TensorDesc::new(DType::F32, vec![Dim::known(1), Dim::known(4), Dim::symbol("n"), Dim::known(7)]);
        let mut op = pool(PoolKind::Max, &[3, 3], 2, 1);
        assert_eq!(op.infer(&[&x]).unwrap().to_string(), "f32[1, 4, (n+1)//2, 4]");
        op.ceil = true;
        assert_eq!(op.infer(&[&x]).unwrap().to_string(), "f32[1, 4, (n)//2+1, 4]");
        assert!(pool(PoolKind::Max, &[3], 1, 0).infer(&[&x]).is_err());
        assert!(pool(PoolKind::Max, &[3, 8], 1, 0).infer(&[&x]).is_err());
        assert!(pool(PoolKind::Max, &[3, 3], 0, 0).infer(&[&x]).is_err());
        assert!(pool(PoolKind::Lp { p: 0 }, &[3, 3], 1, 0).infer(&[&x]).is_err());
        let ints = TensorDesc::from_sizes(DType::I32, &[1, 1, 4]);
        assert!(pool(PoolKind::Average { count_include_pad: true }, &[2], 1, 0).infer(&[&ints]).is_err());
        assert!(
            pool(PoolKind::Max, &[], 1, 0).infer(&[&TensorDesc::from_sizes(DType::F32, &[1, 1])]).is_err()
        );
    }
}
