//! Transposed convolution of `x [N, C, spatial..]` with weights `[C, O / group, kernel..]` and an optional bias `[O]`.
//!
//! Output extent: `(in - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - pads_begin - pads_end`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::blocked_matmul::{MatMulSize, Matrix, blocked_matmul};
use super::check;
use super::conv::init_with_bias;
use super::window::{Attributes, Window, windows};
use crate::error::OpError;
use crate::ir::array::{Array, Data, count, unravel};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Transposed convolution of `x [N, C, spatial..]` with weights `[C, O / group, kernel..]` and an optional bias `[O]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConvTranspose {
    /// Strides of the transposed convolution, per spatial axis.
    pub strides: Vec<usize>,
    /// Dilations of the transposed convolution, per spatial axis.
    pub dilations: Vec<usize>,
    /// Number of output positions that are cropped at the start, per spatial axis.
    pub pads_begin: Vec<usize>,
    /// Number of output positions that are cropped at the end, per spatial axis.
    pub pads_end: Vec<usize>,
    /// Number of output positions that are added at the end, per spatial axis.
    pub output_padding: Vec<usize>,
    /// Number of channel groups of the transposed convolution.
    pub group: usize,
}

impl ConvTranspose {
    /// Returns the transposed convolution's window along each spatial axis; checks ranks and kernel extents.
    fn windows(&self, x: &TensorDesc, w: &TensorDesc) -> Result<Vec<Window>, OpError> {
        if x.rank() < 3 || w.rank() != x.rank() {
            return Err(OpError::new(format!(
                "the input and the filters must have the same rank, at least three, found {x} and {w}"
            )));
        }
        let kernel: Option<Vec<usize>> =
            w.shape[2..].iter().map(|d| usize::try_from(d.as_known()?).ok()).collect();
        let kernel =
            kernel.ok_or_else(|| OpError::new(format!("the kernel extents of {w} must be known")))?;
        let spatial = x.rank() - 2;
        if self.output_padding.len() != spatial {
            return Err(OpError::new(format!(
                "output_padding has {} values for {spatial} spatial axes",
                self.output_padding.len()
            )));
        }
        let attributes = Attributes {
            kernel: &kernel,
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
        };
        windows(&attributes, spatial)
    }
}

impl Operation for ConvTranspose {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 2..=3)?;
        let w = inputs[1];
        check::float(x, "the input")?;
        check::same_type(inputs)?;
        let windows = self.windows(x, w)?;
        let ([batch, channels, spatial @ ..], [filters, per_group, ..]) =
            (x.shape.as_slice(), w.shape.as_slice())
        else {
            return Err(OpError::new(format!("{x} and {w} cannot be an input and filters of a convolution")));
        };
        let group = check::checked_attribute(self.group, "group")?;
        if group == 0 {
            return Err(OpError::new("group must not be 0"));
        }
        let channels = check::equal_sizes(channels, filters, "channels of the input and of the filters")?;
        if channels.as_known().is_some_and(|c| c % group != 0) {
            return Err(OpError::new(format!("{channels} channels do not divide into {group} groups")));
        }
        let outputs = per_group.scale(group);
        if let Some(bias) = inputs.get(2) {
            check::vector(bias, &outputs, "the bias")?;
        }
        let mut shape = vec![batch.clone(), outputs];
        for ((d, window), extra) in spatial.iter().zip(&windows).zip(&self.output_padding) {
            let extra = check::checked_attribute(*extra, "output padding")?;
            let rest = window.extent() + extra - window.begin - window.end;
            let size = d.plus(-1).scale(window.stride).plus(rest);
            if size.as_known().is_some_and(|n| n <= 0) {
                return Err(OpError::new(format!("the padding crops the whole output of {x}")));
            }
            shape.push(size);
        }
        Ok(TensorDesc::new(x.dtype, shape))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::Convolution, PrecisionClass::MatMul, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let (x, w) = (inputs[0], inputs[1]);
            let descs =
                [TensorDesc::from_sizes(x.dtype, &x.shape), TensorDesc::from_sizes(w.dtype, &w.shape)];
            let windows = self.windows(&descs[0], &descs[1])?;
            let im2col = TransposedIm2Col {
                windows: &windows,
                input: &x.shape[2..],
                output: &out[2..],
                kernel: &w.shape[2..],
            };
            let (channels, outputs) = (x.shape[1] / self.group, w.shape[1]);
            let (plane, taps) = (count(im2col.input), count(im2col.kernel));
            let (x, w, group) = (x.floats()?, filters_first(w, self.group)?, self.group);
            let k = channels * taps;
            let mut y = init_with_bias(out, inputs.get(2).map(|b| b.floats()).transpose()?);
            blocked_matmul(
                &mut y,
                MatMulSize { m: outputs, n: count(im2col.output), k },
                |i| Matrix { values: &w[i % group * outputs * k..], row: k, column: 1 },
                |i, depth, columns, tile| {
                    im2col.fill(&x[i * channels * plane..], depth, columns, tile);
                },
            );
            Ok(Data::Float(y))
        })
    }
}

/// Reorders the filters `[C, O / group, kernel..]` to `[group, O / group, C / group, kernel..]`.
fn filters_first(w: &Array, group: usize) -> Result<Vec<f32>, OpError> {
    let (channels, outputs) = (w.shape[0] / group, w.shape[1]);
    let taps = count(&w.shape[2..]);
    let values = w.floats()?;
    let mut out = Vec::with_capacity(values.len());
    for g in 0..group {
        for o in 0..outputs {
            for c in 0..channels {
                out.extend_from_slice(&values[((g * channels + c) * outputs + o) * taps..][..taps]);
            }
        }
    }
    Ok(out)
}

/// The im2col matrix of a transposed convolution: one row per channel and tap, one column per output position. An
/// element is zero if its tap moves no input element to its output position. The result is the matmul of the filters
/// with the matrix.
struct TransposedIm2Col<'a> {
    windows: &'a [Window],
    input: &'a [usize],
    output: &'a [usize],
    kernel: &'a [usize],
}

impl TransposedIm2Col<'_> {
    /// Writes the rows `depth` and columns `columns` of the im2col matrix to `tile`. `x` starts at the first channel of
    /// the filters' group.
    fn fill(&self, x: &[f32], depth: Range<usize>, columns: Range<usize>, tile: &mut [f32]) {
        let last = self.input.len() - 1;
        let (taps, plane) = (count(self.kernel), count(self.input));
        let mut tap = vec![0; last + 1];
        let mut at = vec![0; last];
        for (l, row) in depth.zip(tile.chunks_mut(columns.len())) {
            unravel(l % taps, self.kernel, &mut tap);
            let x = &x[l / taps * plane..][..plane];
            let mut rest = row;
            let mut column = columns.start;
            while !rest.is_empty() {
                // Columns of the tile in one output line.
                let (line, first) = (column / self.output[last], column % self.output[last]);
                let length = rest.len().min(self.output[last] - first);
                let (columns, more) = rest.split_at_mut(length);
                columns.fill(0.0);
                unravel(line, &self.output[..last], &mut at);
                if let Some(line) = self.line(&at, &tap) {
                    let x = &x[line * self.input[last]..][..self.input[last]];
                    let window = self.windows[last];
                    scatter_line(x, columns, distance(window, first, tap[last]), window.stride);
                }
                rest = more;
                column += length;
            }
        }
    }

    /// Returns the index of the input line (along the last spatial axis) that a filter tap moves to an output line;
    /// `None` if the tap moves no input line there.
    fn line(&self, at: &[usize], tap: &[usize]) -> Option<usize> {
        at.iter().zip(tap).zip(self.windows).zip(self.input).try_fold(
            0,
            |line, (((at, tap), window), size)| {
                let distance = distance(*window, *at, *tap);
                let source = usize::try_from(distance / window.stride).ok()?;
                (distance >= 0 && distance % window.stride == 0 && source < *size)
                    .then_some(line * size + source)
            },
        )
    }
}

/// Returns the output position `at` minus the output position to which the filter tap moves input element 0.
fn distance(window: Window, at: usize, tap: usize) -> i64 {
    at as i64 + window.begin - tap as i64 * window.dilation
}

/// Writes the elements of an input line to `out`, `stride` positions apart. Element 0 goes to index `-distance`;
/// elements outside `out` are skipped.
fn scatter_line(line: &[f32], out: &mut [f32], distance: i64, stride: i64) {
    let (skip, source) = if distance < 0 {
        (-distance, 0)
    } else {
        let source = (distance + stride - 1) / stride;
        (source * stride - distance, source)
    };
    let (Ok(skip), Ok(source)) = (usize::try_from(skip), usize::try_from(source)) else { return };
    let values = line.get(source..).unwrap_or(&[]);
    for (out, value) in out.iter_mut().skip(skip).step_by(stride as usize).zip(values) {
        *out = *value;
    }
}

#[cfg(test)]
mod tests {
    use super::ConvTranspose;
    use crate::ir::array::Array;
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::{Conv, Operation};
    use crate::ir::ops::constant::random;
    use crate::ir::tensor::{DType, TensorDesc};

    fn dot(a: &Array, b: &Array) -> f64 {
        let pairs = a.floats().unwrap().iter().zip(b.floats().unwrap());
        pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
    }

    /// Checks that transposed convolution is the adjoint of convolution: `<conv(x), y> == <x, conv_transpose(y)>` for
    /// the same filters and geometry.
    #[test]
    fn is_the_adjoint_of_conv() {
        let case = |x: &[usize], w: &[usize], stride: &[usize], dilation: &[usize], pad: &[usize], group| {
            let conv = Conv {
                strides: stride.to_vec(),
                dilations: dilation.to_vec(),
                pads_begin: pad.to_vec(),
                pads_end: pad.iter().rev().copied().collect(),
                group,
                zero_point: 0,
            };
            let (x, w) = (random(DType::F32, x, 1), random(DType::F32, w, 2));
            let descs =
                [TensorDesc::from_sizes(x.dtype, &x.shape), TensorDesc::from_sizes(w.dtype, &w.shape)];
            let out = conv.infer(&[&descs[0], &descs[1]]).unwrap().known_shape().unwrap();
            let y = random(DType::F32, &out, 3);
            let mut transposed = ConvTranspose {
                strides: conv.strides.clone(),
                dilations: conv.dilations.clone(),
                pads_begin: conv.pads_begin.clone(),
                pads_end: conv.pads_end.clone(),
                output_padding: vec![0; stride.len()],
                group,
            };
            let back = transposed.infer(&[&TensorDesc::from_sizes(DType::F32, &out), &descs[1]]).unwrap();
            for (i, size) in back.known_shape().unwrap()[2..].iter().enumerate() {
                transposed.output_padding[i] = x.shape[i + 2] - size;
            }
            let forward = conv.eval(&[&x, &w], &out, &Bindings::new()).unwrap();
            let back = transposed.eval(&[&y, &w], &x.shape, &Bindings::new()).unwrap();
            let (a, b) = (dot(&forward, &y), dot(&x, &back));
            assert!((a - b).abs() < 1e-3, "{a} is not {b} in {transposed:?}");
        };
        case(&[2, 6, 9], &[4, 3, 3], &[2], &[2], &[1], 2);
        case(&[1, 3, 16, 19], &[70, 3, 3, 5], &[1, 3], &[1, 1], &[1, 2], 1);
        case(&[2, 8, 7, 8], &[8, 1, 3, 3], &[2, 1], &[1, 2], &[0, 3], 8);
        case(&[1, 2, 4, 5, 6], &[3, 2, 2, 3, 1], &[1, 2, 3], &[2, 1, 1], &[1, 0, 0], 1);
    }

    #[test]
    fn strides_and_bias() {
        let x = Array::f32(&[1, 1, 3], vec![1.0, 2.0, 3.0]);
        let w = Array::f32(&[1, 2, 2], vec![1.0, 10.0, 0.0, 1.0]);
        let bias = Array::f32(&[2], vec![0.5, 0.0]);
        let op = ConvTranspose {
            strides: vec![2],
            dilations: vec![1],
            pads_begin: vec![1],
            pads_end: vec![0],
            output_padding: vec![1],
            group: 1,
        };
        let y = op.eval(&[&x, &w, &bias], &[1, 2, 6], &Bindings::new()).unwrap();
        let expected = [10.5, 2.5, 20.5, 3.5, 30.5, 0.5, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0];
        assert_eq!(y.floats().unwrap(), expected);
    }

    #[test]
    fn shapes() {
        let mut op = ConvTranspose {
            strides: vec![2],
            dilations: vec![1],
            pads_begin: vec![1],
            pads_end: vec![1],
            output_padding: vec![0],
            group: 2,
        };
        let x = TensorDesc::new(DType::F32, vec![Dim::known(1), Dim::known(4), Dim::symbol("n")]);
        let w = TensorDesc::from_sizes(DType::F32, &[4, 3, 4]);
        assert_eq!(op.infer(&[&x, &w]).unwrap().to_string(), "f32[1, 6, 2*n]");
        assert!(op.infer(&[&x, &TensorDesc::from_sizes(DType::F32, &[5, 3, 4])]).is_err());
        op.pads_begin = vec![40];
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::F32, &[1, 4, 3]), &w]).is_err());
        op.output_padding = vec![usize::MAX];
        assert!(op.infer(&[&x, &w]).is_err());
        op.output_padding = vec![];
        assert!(op.infer(&[&x, &w]).is_err());
    }
}
