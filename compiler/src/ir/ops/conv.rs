//! Convolution of `x [N, C, spatial..]` with weights `[O, C / group, kernel..]` and an optional bias `[O]`.
//! 8-bit integers of any signedness give sums in i32, with an i32 bias. Positions outside the image are zero.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::blocked_matmul::{MatMulSize, Matrix, Scalar, blocked_matmul};
use super::check;
use super::window::{Attributes, Window, windows};
use crate::error::OpError;
use crate::ir::array::{Array, Data, count, unravel};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::{DType, TensorDesc};

/// Convolution of `x [N, C, spatial..]` with weights `[O, C / group, kernel..]` and an optional bias `[O]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conv {
    /// Strides of the convolution, per spatial axis.
    pub strides: Vec<usize>,
    /// Dilations of the convolution, per spatial axis.
    pub dilations: Vec<usize>,
    /// Zero padding before the input, per spatial axis.
    pub pads_begin: Vec<usize>,
    /// Zero padding after the input, per spatial axis.
    pub pads_end: Vec<usize>,
    /// Number of channel groups of the convolution.
    pub group: usize,
    /// Zero point of the input: the number that is subtracted from its elements before the convolution. 0 for floats.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub zero_point: i64,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Conv {
    /// Returns the convolution's window along each spatial axis; checks ranks and kernel extents.
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
        let attributes = Attributes {
            kernel: &kernel,
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
        };
        windows(&attributes, x.rank() - 2)
    }
}

impl Conv {
    /// Fails unless the zero point is a number of the input's type, which must then be an 8-bit integer.
    fn check_zero_point(&self, x: &TensorDesc) -> Result<(), OpError> {
        let range = match x.dtype {
            DType::I8 => -128..=127,
            DType::U8 => 0..=255,
            _ => 0..=0,
        };
        if range.contains(&self.zero_point) {
            return Ok(());
        }
        Err(OpError::new(format!("{} is not a zero point of the input {x}", self.zero_point)))
    }
}

impl Operation for Conv {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 2..=3)?;
        let w = inputs[1];
        let dtype = check::matmul_type(x, w)?;
        if dtype == x.dtype {
            check::float(x, "the input")?;
        }
        self.check_zero_point(x)?;
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
        check::equal_sizes(channels, &per_group.scale(group), "channels of the input and of the filters")?;
        if filters.as_known().is_some_and(|o| o % group != 0) {
            return Err(OpError::new(format!("{filters} filters do not divide into {group} groups")));
        }
        if let Some(bias) = inputs.get(2) {
            check::same_type(&[&TensorDesc::new(dtype, Vec::new()), bias])?;
            check::vector(bias, filters, "the bias")?;
        }
        let mut shape = vec![batch.clone(), filters.clone()];
        for (d, window) in spatial.iter().zip(&windows) {
            shape.push(window.count(d, false)?);
        }
        Ok(TensorDesc::new(dtype, shape))
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
            let (x, w, bias) = (inputs[0], inputs[1], inputs.get(2));
            Ok(match (&x.data, &w.data) {
                (Data::Float(xs), Data::Float(ws)) => {
                    let bias = bias.map(|b| b.floats()).transpose()?;
                    Data::Float(self.convolve((x, xs), (w, ws), bias, out)?)
                }
                _ => {
                    let bias = bias.map(|b| b.ints()).transpose()?;
                    let centered: Vec<i64> = x.ints()?.iter().map(|v| v - self.zero_point).collect();
                    Data::Int(self.convolve((x, &centered), (w, w.ints()?), bias, out)?)
                }
            })
        })
    }
}

impl Conv {
    /// Computes the convolution of the input `x` with the filters `w`. `xs` and `ws` are the elements of these arrays.
    fn convolve<T: Scalar>(
        &self,
        (x, xs): (&Array, &[T]),
        (w, ws): (&Array, &[T]),
        bias: Option<&[T]>,
        out: &[usize],
    ) -> Result<Vec<T>, OpError> {
        let descs = [TensorDesc::from_sizes(x.dtype, &x.shape), TensorDesc::from_sizes(w.dtype, &w.shape)];
        let windows = self.windows(&descs[0], &descs[1])?;
        let im2col =
            Im2Col { windows: &windows, input: &x.shape[2..], output: &out[2..], kernel: &w.shape[2..] };
        let group = self.group;
        let (filters, per_group) = (out[1] / group, w.shape[1]);
        let k = per_group * count(im2col.kernel);
        let plane = count(im2col.input);
        let mut y = init_with_bias(out, bias);
        blocked_matmul(
            &mut y,
            MatMulSize { m: filters, n: count(im2col.output), k },
            |i| Matrix { values: &ws[i % group * filters * k..], row: k, column: 1 },
            |i, depth, columns, tile| {
                im2col.fill(&xs[i * per_group * plane..], depth, columns, tile);
            },
        );
        Ok(y)
    }
}

/// Returns a result of shape `[N, C, spatial..]` filled with the bias of each channel, or with zeros if there is no
/// bias.
pub(crate) fn init_with_bias<T: Scalar>(out: &[usize], bias: Option<&[T]>) -> Vec<T> {
    let mut y = vec![T::default(); count(out)];
    if let Some(bias) = bias {
        let plane = count(&out[2..]);
        for (i, y) in y.chunks_mut(plane).enumerate() {
            y.fill(bias[i % bias.len()]);
        }
    }
    y
}

/// The im2col matrix: one row per channel and tap, one column per output position. The convolution is the matmul of the
/// filters with the im2col matrix.
struct Im2Col<'a> {
    windows: &'a [Window],
    input: &'a [usize],
    output: &'a [usize],
    kernel: &'a [usize],
}

impl Im2Col<'_> {
    /// Writes the rows `depth` and columns `columns` of the im2col matrix to `tile`. `x` starts at the first channel of
    /// the filters' group.
    fn fill<T: Scalar>(&self, x: &[T], depth: Range<usize>, columns: Range<usize>, tile: &mut [T]) {
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
                unravel(line, &self.output[..last], &mut at);
                match self.line(&at, &tap) {
                    Some(line) => {
                        let x = &x[line * self.input[last]..][..self.input[last]];
                        copy_line(
                            x,
                            columns,
                            self.windows[last].position(first, tap[last]),
                            self.windows[last].stride,
                        );
                    }
                    None => columns.fill(T::default()),
                }
                rest = more;
                column += length;
            }
        }
    }

    /// Returns the index of the input line (along the last spatial axis) that a filter tap reads for an output line;
    /// `None` if the tap is in the padding.
    fn line(&self, at: &[usize], tap: &[usize]) -> Option<usize> {
        at.iter().zip(tap).zip(self.windows).zip(self.input).try_fold(
            0,
            |line, (((at, tap), window), size)| {
                let position = usize::try_from(window.position(*at, *tap)).ok()?;
                (position < *size).then_some(line * size + position)
            },
        )
    }
}

/// Copies every `stride`-th element of `line` to `out`, from index `position` on; elements outside the line are zero.
fn copy_line<T: Scalar>(line: &[T], out: &mut [T], position: i64, stride: i64) {
    let before = if position < 0 { (-position + stride - 1) / stride } else { 0 };
    let before = usize::try_from(before).map_or(out.len(), |b| b.min(out.len()));
    let (zeros, rest) = out.split_at_mut(before);
    zeros.fill(T::default());
    let first = usize::try_from(position + before as i64 * stride).unwrap_or(line.len()).min(line.len());
    let mut source = line[first..].iter().step_by(stride as usize);
    for out in rest {
        *out = source.next().copied().unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::Conv;
    use crate::ir::array::{Array, count, unravel};
    use crate::ir::dim::{Bindings, Dim};
    use crate::ir::op::Operation;
    use crate::ir::ops::constant::random;
    use crate::ir::tensor::{DType, TensorDesc};

    /// Computes a convolution by its definition, one output element at a time.
    fn naive(conv: &Conv, x: &Array, w: &Array, bias: &[f32], out: &[usize]) -> Vec<f32> {
        let (xv, wv) = (x.floats().unwrap(), w.floats().unwrap());
        let filter = count(&w.shape[1..]);
        let mut at = vec![0; out.len()];
        let mut tap = vec![0; out.len()];
        let element = |i: usize| {
            unravel(i, out, &mut at);
            let first = at[1] / (out[1] / conv.group) * w.shape[1];
            let mut sum = f64::from(bias[at[1]]);
            for j in 0..filter {
                unravel(j, &w.shape[1..], &mut tap[1..]);
                let mut from = Some(at[0] * x.shape[1] + first + tap[1]);
                for a in 0..out.len() - 2 {
                    let position = at[a + 2] * conv.strides[a] + tap[a + 2] * conv.dilations[a];
                    let inside = position.checked_sub(conv.pads_begin[a]).filter(|p| *p < x.shape[a + 2]);
                    from = from.zip(inside).map(|(from, p)| from * x.shape[a + 2] + p);
                }
                let value = from.map_or(0.0, |from| xv[from]);
                sum += f64::from(value) * f64::from(wv[at[1] * filter + j]);
            }
            sum as f32
        };
        (0..count(out)).map(element).collect()
    }

    #[test]
    fn agrees_with_the_definition() {
        let case =
            |x: &[usize], w: &[usize], strides: &[usize], dilations: &[usize], begin: &[usize], group| {
                let conv = Conv {
                    strides: strides.to_vec(),
                    dilations: dilations.to_vec(),
                    pads_begin: begin.to_vec(),
                    pads_end: begin.iter().map(|p| p + 1).collect(),
                    group,
                    zero_point: 0,
                };
                let (x, w) = (random(DType::F32, x, 1), random(DType::F32, w, 2));
                let bias = random(DType::F32, &w.shape[..1], 3);
                let operands = [&x, &w, &bias];
                let descs = operands.map(|a| TensorDesc::from_sizes(a.dtype, &a.shape));
                let out = conv.infer(&[&descs[0], &descs[1], &descs[2]]).unwrap().known_shape().unwrap();
                let y = conv.eval(&operands, &out, &Bindings::new()).unwrap();
                let expected = naive(&conv, &x, &w, bias.floats().unwrap(), &out);
                for (y, e) in y.floats().unwrap().iter().zip(&expected) {
                    assert!((y - e).abs() < 1e-4, "{y} is not {e} in {conv:?}");
                }
            };
        case(&[2, 6, 9], &[4, 3, 3], &[2], &[2], &[1], 2);
        case(&[1, 3, 17, 19], &[70, 3, 3, 5], &[1, 1], &[1, 1], &[1, 2], 1);
        case(&[2, 8, 7, 8], &[8, 1, 3, 3], &[2, 1], &[1, 2], &[0, 3], 8);
        case(&[1, 40, 6, 6], &[5, 40, 2, 2], &[3, 2], &[1, 1], &[4, 0], 1);
        case(&[1, 2, 4, 5, 6], &[3, 2, 2, 3, 1], &[1, 2, 3], &[2, 1, 1], &[1, 0, 2], 1);
    }

    #[test]
    fn bytes_are_summed_in_32_bits() {
        let ints = |dtype, shape: &[usize], values: &[i64]| Array::int(dtype, shape, values.to_vec());
        let x = ints(DType::U8, &[1, 1, 4], &[255, 0, 255, 255]);
        let w = ints(DType::I8, &[2, 1, 3], &[-128, 5, -128, 127, 127, 127]);
        let bias = ints(DType::I32, &[2], &[1000, -1000]);
        let conv = Conv {
            strides: vec![1],
            dilations: vec![1],
            pads_begin: vec![1],
            pads_end: vec![0],
            group: 1,
            zero_point: 0,
        };
        let y = conv.eval(&[&x, &w, &bias], &[1, 2, 3], &Bindings::new()).unwrap();
        assert_eq!(y.dtype, DType::I32);
        assert_eq!(y.ints().unwrap(), [2275, -64280, -30365, 31385, 63770, 63770]);
        // Padding is zero after the zero point is subtracted.
        let conv = Conv { zero_point: 255, ..conv };
        let y = conv.eval(&[&x, &w, &bias], &[1, 2, 3], &Bindings::new()).unwrap();
        assert_eq!(y.ints().unwrap(), [1000 + 255 * 128, -275, 33640, -33385, -33385, -33385]);
    }

    fn conv(stride: usize, group: usize) -> Conv {
        Conv {
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads_begin: vec![1; 2],
            pads_end: vec![1; 2],
            group,
            zero_point: 0,
        }
    }

    #[test]
    fn symbolic_extents() {
        let dims = vec![Dim::symbol("batch"), Dim::known(3), Dim::symbol("h"), Dim::known(224)];
        let x = TensorDesc::new(DType::F32, dims);
        let w = TensorDesc::from_sizes(DType::F32, &[64, 3, 3, 3]);
        let y = conv(2, 1).infer(&[&x, &w]).unwrap();
        assert_eq!(y.to_string(), "f32[batch, 64, (h+1)//2, 112]");
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::from_sizes(DType::F32, &[1, 4, 5, 5]);
        let infer = |conv: Conv, w: &[usize]| {
            conv.infer(&[&x, &TensorDesc::from_sizes(DType::F32, w)]).map_err(|e| e.to_string())
        };
        assert!(infer(conv(1, 1), &[8, 4, 3, 3]).is_ok());
        assert_eq!(infer(conv(0, 1), &[8, 4, 3, 3]), Err("stride must not be 0".into()));
        assert_eq!(infer(conv(1, 0), &[8, 4, 3, 3]), Err("group must not be 0".into()));
        assert_eq!(
            infer(conv(1, 2), &[8, 4, 3, 3]),
            Err("channels of the input and of the filters differ: 4 and 8".into())
        );
        assert_eq!(infer(conv(1, 2), &[7, 2, 3, 3]), Err("7 filters do not divide into 2 groups".into()));
        assert_eq!(
            infer(conv(1, 1), &[8, 4, 8, 3]),
            Err("a kernel that spans 8 elements does not fit an input of 5 elements with padding 1 and 1"
                .into())
        );
        assert!(infer(conv(1, 1), &[8, 4, 0, 3]).is_err());
        assert!(infer(conv(1, 1), &[8, 4, 3]).is_err());
        assert!(infer(conv(usize::MAX, usize::MAX), &[8, 4, 3, 3]).is_err());
        let (w, bias) =
            (TensorDesc::from_sizes(DType::F32, &[8, 4, 1, 1]), TensorDesc::from_sizes(DType::F32, &[7]));
        assert!(conv(1, 1).infer(&[&x, &w, &bias]).is_err());
        assert!(conv(1, 1).infer(&[&x, &TensorDesc::from_sizes(DType::I64, &[8, 4, 1, 1])]).is_err());
        assert!(conv(1, 1).infer(&[&x, &w, &bias, &bias]).is_err());
    }
}
