//! Packed form of quantized constants on the device. All encodings are packed into one form, so that all kernels read the same
//! bytes.
//!
//! The constant is seen as a matrix with one list of scales per row; a row's length is K. 16 rows form a panel. The
//! bytes of a panel are contiguous:
//!
//! | section | order | entry |
//! |---|---|---|
//! | values | by word along K; a vec4 has a word of each of 4 rows | packed word: 4 values of 8 bits or 8 of 4, low bits first |
//! | scales | by group, 16 rows each | f16 or f32 |
//! | biases, if any | like scales | f16 or f32 |
//!
//! Each section is padded to 16 bytes. Values of 2 bits are widened to 4 bits, values of 5 and 6 bits to 8 bits. No
//! value changes. A word holds neighbors in a row, so that one vec4 load of a matmul's other operand and one scale
//! serve a whole word.

use half::f16;

use crate::ir::array::strides;
use crate::ir::encoding::QuantFormat;
use crate::ir::op::Constant;
use crate::ir::tensor::{DType, DeviceType};

/// Number of rows per panel.
pub const ROWS: usize = 16;
/// Size of a `vec4<u32>` in bytes.
const VEC4_BYTES: usize = 16;

/// Packed form of a quantized constant on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuantizedPanels {
    /// Bits per packed value: 4 or 8.
    pub bits: usize,
    /// Number of rows of the constant, seen as a matrix. The rows follow one another in the order of the constant's elements.
    pub rows: usize,
    /// Number of elements per row (K).
    pub depth: usize,
    /// Distance between neighbors of a row in the constant, in elements. 1 if rows are contiguous.
    pub k_stride: usize,
    /// Number of taps of convolution filters `[O, I, taps..]`, 1 for other constants. A row of filters has O as its
    /// index and is contiguous in the constant. In the packed form its elements are in the order tap, input channel;
    /// in the constant they are in the order input channel, tap.
    pub taps: u32,
    /// Number of neighboring elements of a row that share a scale.
    pub group_size: usize,
    /// Zero point, which is equal for all values.
    pub zero_point: u8,
    /// Type of the scales in memory.
    pub scale_type: DeviceType,
    /// Type of the biases in memory; `None` without biases.
    pub bias_type: Option<DeviceType>,
}

impl QuantizedPanels {
    /// Returns the packed form of a constant. Returns `None` if the constant is not quantized, or if it is a view that
    /// splits the rows.
    pub fn from_constant(constant: &Constant) -> Option<Self> {
        let quant_format = constant.encoding.quant_format()?;
        let element_strides = constant.strides.clone().unwrap_or_else(|| strides(&constant.shape));
        let axis = depth_axis(constant, &element_strides)?;
        if let Some(taps) = filter_taps(constant, &element_strides) {
            let rows = *constant.shape.first()?;
            let size = [rows, constant.elements() / rows.max(1)];
            return constant.dtype.is_float().then(|| Self::from_format(&quant_format, size, 1, taps));
        }
        let depth = *constant.shape.get(axis)?;
        let whole = match quant_format.row_length {
            Some(row) => depth == row,
            None => depth.is_multiple_of(quant_format.group_size),
        };
        let others = constant.shape.iter().zip(&element_strides).enumerate();
        let rows_apart = others
            .filter(|(i, (size, _))| *i != axis && **size > 1)
            .all(|(_, (_, stride))| stride.is_multiple_of(depth));
        let k_stride = constant.shape.iter().skip(axis + 1).product();
        (whole && rows_apart && depth > 0 && constant.dtype.is_float())
            .then(|| Self::from_format(&quant_format, [constant.elements() / depth, depth], k_stride, 1))
    }

    fn from_format(format: &QuantFormat, [rows, depth]: [usize; 2], k_stride: usize, taps: u32) -> Self {
        let device = |dtype| if dtype == DType::F16 { DeviceType::F16 } else { DeviceType::F32 };
        Self {
            bits: if format.bits <= 4 { 4 } else { 8 },
            rows,
            depth,
            k_stride,
            taps,
            group_size: format.group_size.clamp(1, depth),
            zero_point: format.zero_point,
            scale_type: device(format.scale_dtype),
            bias_type: format.bias_dtype.map(device),
        }
    }

    /// True if a matmul can multiply the quantized values of this matrix as signed integers: they are symmetric, and each
    /// column has one scale. `shape` is `[K, N]`, or `[N, K]` if the matmul reads the matrix transposed.
    pub fn has_column_scales(&self, shape: [usize; 2], transposed: bool) -> bool {
        let (depth, k_stride) = if transposed { (shape[1], 1) } else { (shape[0], shape[1]) };
        let along_k = self.depth == depth && self.k_stride == k_stride && self.taps == 1;
        let symmetric = matches!((self.bits, self.zero_point), (8, 128) | (4, 8)) && self.bias_type.is_none();
        along_k && symmetric && self.groups_per_row() == 1
    }

    /// Returns the number of groups of values per row that have a common scale.
    pub fn groups_per_row(&self) -> usize {
        self.depth.div_ceil(self.group_size)
    }

    /// Returns the number of panels.
    pub fn panels(&self) -> usize {
        self.rows.div_ceil(ROWS)
    }

    /// Returns the number of quantized values per packed word.
    pub fn values_per_word(&self) -> usize {
        32 / self.bits.max(1)
    }

    /// Returns the number of packed words per row.
    pub fn words_per_row(&self) -> usize {
        self.depth.div_ceil(self.values_per_word())
    }

    /// Returns the number of `vec4<u32>` with quantized values in a panel.
    pub fn quantized_vec4s(&self) -> usize {
        self.words_per_row() * ROWS / 4
    }

    /// Returns how many `vec4<u32>` hold the scales, and how many hold the biases, of one scale group in a panel.
    pub fn scale_vec4s(&self) -> [usize; 2] {
        let vec4s = |device: DeviceType| device.bytes().unsigned_abs() as usize * ROWS / VEC4_BYTES;
        [vec4s(self.scale_type), self.bias_type.map_or(0, vec4s)]
    }

    /// Returns the number of `vec4<u32>` in a panel.
    pub fn panel_vec4s(&self) -> usize {
        let [scales, biases] = self.scale_vec4s();
        self.quantized_vec4s() + self.groups_per_row() * (scales + biases)
    }

    /// Returns the total size of all panels in bytes.
    pub fn bytes(&self) -> u64 {
        (self.panels() as u64).saturating_mul((self.panel_vec4s() * VEC4_BYTES) as u64)
    }
}

/// Returns the axis of a quantized constant that becomes K (the position in a row) in the packed form: the axis along which
/// elements are contiguous in the source.
fn depth_axis(constant: &Constant, strides: &[usize]) -> Option<usize> {
    let sizes = constant.shape.iter().zip(strides);
    let mut found =
        sizes.enumerate().filter(|(_, (size, stride))| **size > 1 && **stride == 1).map(|(i, _)| i);
    found.next_back().or_else(|| constant.shape.len().checked_sub(1))
}

/// Returns the number of taps of convolution filters `[O, I, taps..]` whose quantized rows have the order tap, input
/// channel. Returns `None` for other constants, and for filters of one tap, which are matrices.
fn filter_taps(constant: &Constant, strides: &[usize]) -> Option<u32> {
    let ([_, inputs, taps @ ..], [row, 1, rest @ ..]) = (constant.shape.as_slice(), strides) else {
        return None;
    };
    let mut expected = *inputs;
    for (size, stride) in taps.iter().zip(rest).rev() {
        if *size > 1 && *stride != expected {
            return None;
        }
        expected *= size;
    }
    let count: usize = taps.iter().product();
    let whole_rows = *row == expected && constant.encoding.quant_format()?.row_length == Some(expected);
    u32::try_from(count).ok().filter(|taps| *taps > 1 && *inputs > 1 && whole_rows)
}

/// Returns a view of a quantized constant with K as its last axis and with the encoding's element type. Constants that
/// have equal bytes on the device have equal views.
pub(super) fn with_k_last(constant: &Constant) -> Option<Constant> {
    let element_strides = constant.strides.clone().unwrap_or_else(|| strides(&constant.shape));
    if filter_taps(constant, &element_strides).is_some() {
        return with_k_last(&constant.as_filter_matrix()?);
    }
    let axis = depth_axis(constant, &element_strides)?;
    let perm: Vec<usize> = (0..constant.shape.len()).filter(|i| *i != axis).chain([axis]).collect();
    let seen = constant.transposed(&perm)?;
    Some(Constant { dtype: seen.encoding.element_type(), ..seen })
}

/// Writes the bytes of panels to `out`, from the panel with index `first` on. `out` holds whole panels. `source` is the result of
/// [`with_k_last`].
pub(super) fn fill(source: &Constant, panels: &QuantizedPanels, first: usize, out: &mut [u8]) {
    let element_strides = source.strides.clone().unwrap_or_else(|| strides(&source.shape));
    let size = panels.panel_vec4s() * VEC4_BYTES;
    // The last word of a row may have unused values, which stay zero.
    let mut row = vec![0; panels.words_per_row() * panels.values_per_word()];
    for (panel, out) in (first..).zip(out.chunks_mut(size.max(1))) {
        out.fill(0);
        let (values, scales) = out.split_at_mut((panels.quantized_vec4s() * VEC4_BYTES).min(out.len()));
        let (scales, biases) = scales
            .split_at_mut((panels.groups_per_row() * panels.scale_vec4s()[0] * VEC4_BYTES).min(scales.len()));
        for lane in 0..ROWS.min(panels.rows.saturating_sub(panel * ROWS)) {
            let begin = first_element(panel * ROWS + lane, &source.shape, &element_strides);
            source.encoding.quantized_values(&source.bytes, begin, &mut row[..panels.depth]);
            let words = values.as_chunks_mut::<4>().0.iter_mut().skip(lane).step_by(ROWS);
            if panels.bits == 4 {
                for (word, values) in words.zip(row.as_chunks::<8>().0) {
                    *word = std::array::from_fn(|i| values[2 * i] | values[2 * i + 1] << 4);
                }
            } else {
                words.zip(row.as_chunks().0).for_each(|(word, values)| *word = *values);
            }
            for group in 0..panels.groups_per_row() {
                let [scale, bias] =
                    source.encoding.scale_and_bias(&source.bytes, begin + group * panels.group_size);
                store_float(scales, group * ROWS + lane, panels.scale_type, scale);
                if let Some(device) = panels.bias_type {
                    store_float(biases, group * ROWS + lane, device, bias);
                }
            }
        }
    }
}

/// Returns the index of a row's first element in the source constant.
fn first_element(mut row: usize, shape: &[usize], strides: &[usize]) -> usize {
    let mut at = 0;
    for (size, stride) in shape.iter().zip(strides).rev().skip(1) {
        at += row % size.max(&1) * stride;
        row /= size.max(&1);
    }
    at
}

fn store_float(out: &mut [u8], at: usize, device: DeviceType, value: f32) {
    let half = f16::from_f32(value).to_le_bytes();
    let whole = value.to_le_bytes();
    let bytes: &[u8] = if device == DeviceType::F16 { &half } else { &whole };
    if let Some(out) = out.get_mut(at * bytes.len()..(at + 1) * bytes.len()) {
        out.copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::{QuantizedPanels, ROWS, VEC4_BYTES};
    use crate::ir::encoding::BlockKind;
    use crate::ir::graph_text;
    use crate::ir::op::Constant;
    use crate::ir::tensor::DeviceType;
    use crate::shader::pack::{Packed, pack};

    fn constant(shape: [usize; 2], encoding: &str) -> Constant {
        let graph = format!(
            "%0 = constant {{\"dtype\":\"f32\",\"shape\":{shape:?},\"encoding\":\"{encoding}\",\"random\":3}}\noutput \"y\" %0\n"
        );
        let graph = graph_text::parse(&graph).unwrap();
        graph.constant(graph.outputs()[0].node).unwrap().clone()
    }

    /// Dequantizes element `k` of a row from packed bytes, with the formula that the kernels use.
    fn dequantize_packed(bytes: &[u8], panels: &QuantizedPanels, row: usize, k: usize) -> f32 {
        let panel = &bytes[row / ROWS * panels.panel_vec4s() * VEC4_BYTES..];
        let lane = row % ROWS;
        let value = match panels.bits {
            4 => panel[(k / 8 * ROWS + lane) * 4 + k % 8 / 2] >> (k % 2 * 4) & 15,
            _ => panel[(k / 4 * ROWS + lane) * 4 + k % 4],
        };
        let float = |vec4: usize, device: DeviceType| {
            let at = (k / panels.group_size) * ROWS + lane;
            match device {
                DeviceType::F16 => {
                    half::f16::from_le_bytes([0, 1].map(|i| panel[vec4 * VEC4_BYTES + at * 2 + i])).to_f32()
                }
                _ => f32::from_le_bytes([0, 1, 2, 3].map(|i| panel[vec4 * VEC4_BYTES + at * 4 + i])),
            }
        };
        let biases = panels.quantized_vec4s() + panels.groups_per_row() * panels.scale_vec4s()[0];
        let bias = panels.bias_type.map_or(0.0, |device| float(biases, device));
        (f32::from(value) - f32::from(panels.zero_point)) * float(panels.quantized_vec4s(), panels.scale_type)
            + bias
    }

    #[test]
    fn panels_hold_all_elements() {
        let kinds = BlockKind::ALL.map(|kind| kind.name().to_string()).into_iter();
        let others = ["u2 in groups of 16", "u4 in groups of 40 with zeros", "u8 in groups of 1000"];
        for encoding in kinds.chain(others.map(str::to_string)) {
            let source = constant([37, 512], &encoding);
            let elements = source.to_array().unwrap();
            let elements = elements.floats().unwrap();
            let across = source.transposed(&[1, 0]).unwrap();
            let packed = Packed::dense(&source);
            let panels = QuantizedPanels::from_constant(&source).unwrap();
            assert_eq!(
                QuantizedPanels::from_constant(&across).unwrap(),
                QuantizedPanels { k_stride: 37, ..panels }
            );
            assert_eq!(packed.identity(), Packed::dense(&across).identity(), "{encoding}");
            let bytes = pack(&packed).unwrap();
            assert_eq!(bytes.len() as u64, packed.bytes());
            for (i, want) in elements.iter().enumerate() {
                let got = dequantize_packed(&bytes, &panels, i / 512, i % 512);
                assert!((got - want).abs() <= 1e-6 + want.abs() * 1e-6, "{encoding} at {i}: {got}, {want}");
            }
        }
    }

    #[test]
    fn views_that_split_rows_are_not_quantized() {
        let source = constant([6, 512], "u4 in groups of 128");
        let split_rows = source.reshaped(&[6, 2, 256]).unwrap();
        assert_eq!(QuantizedPanels::from_constant(&split_rows), None);
        let heads = source.reshaped(&[2, 3, 512]).unwrap().transposed(&[1, 0, 2]).unwrap();
        let panels = QuantizedPanels::from_constant(&heads).unwrap();
        assert_eq!((panels.rows, panels.depth, panels.k_stride), (6, 512, 1));
        let bytes = pack(&Packed::dense(&heads)).unwrap();
        let elements = heads.to_array().unwrap();
        for (i, want) in elements.floats().unwrap().iter().enumerate() {
            let got = dequantize_packed(&bytes, &panels, i / 512, i % 512);
            assert!((got - want).abs() <= 1e-6 + want.abs() * 1e-6, "{i}: {got}, {want}");
        }
    }
}
