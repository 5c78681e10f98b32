//! Reads of quantized constants. This module and `packed_f16` generate all WGSL that dequantizes in a kernel.
//!
//! [`Shader::read`] works on quantized constants as on others: it dequantizes one element per read, which is slow.
//! Matmul kernels read more elements at once: one K position of 4 rows ([`Shader::add_dequantize_vec4`]), 8 K positions
//! of a row ([`Shader::add_dequantize_vec8`]), or packed words and their scales ([`Shader::add_scale_functions`]).

use super::hooks::Shader;
use super::launch::{Bound, Need};
use super::pack::quantized_panels::{QuantizedPanels, ROWS};
use super::packed_f16;
use crate::error::OpError;
use crate::ir::tensor::DeviceType;
use crate::target::TargetProfile;

pub use super::quantized_constant::QuantizedConstant;

/// Minimum time of an integer-to-float conversion, in f32 operations, at which values are dequantized through f16 bit patterns
/// instead.
const SLOW_CONVERSION: f64 = 8.0;

/// Placeholder WGSL expression for a second packed word that the shader does not read.
const UNUSED_WORD: &str = "0u";

/// True if elements `8 * i` to `8 * i + 7` of a quantized row share a scale for every `i`.
pub fn vec8_shares_scale(panels: &QuantizedPanels) -> bool {
    panels.groups_per_row() <= 1 || panels.group_size.is_multiple_of(8)
}

/// True if quantized values are dequantized through f16 bit patterns, because integer conversions are slow on the
/// target.
pub fn dequantizes_by_f16_bits(target: &TargetProfile) -> bool {
    let peak = &target.machine.peak;
    peak.int_to_float.unwrap_or(peak.f32) * SLOW_CONVERSION <= peak.f32
}

/// True if values are dequantized through f16 bit patterns ([`dequantizes_by_f16_bits`]) and the target also has f16
/// arithmetic.
pub fn dequantizes_in_f16(target: &TargetProfile) -> bool {
    dequantizes_by_f16_bits(target) && target.features.f16
}

impl Shader<'_> {
    /// Binds quantized operand `index` as an array of `vec4<u32>`. Returns the operand's packed form and the name of
    /// the buffer in WGSL.
    ///
    /// # Errors
    /// If the operand is not quantized.
    fn bind_quantized(&mut self, index: usize) -> Result<(QuantizedPanels, String), OpError> {
        let quantized = self.problem.operands.get(index).and_then(|operand| operand.quantized);
        let panels = quantized
            .ok_or_else(|| OpError::new(format!("operand {index} is not a quantized constant")))?
            .panels;
        Ok((panels, self.bind(Bound::Operand(index), "vec4<u32>", false)))
    }

    /// Adds the WGSL function `BUFFER_element(i)`, which dequantizes element `i` of the quantized constant in `buffer`.
    pub(super) fn add_element_function(&mut self, panels: &QuantizedPanels, buffer: &str) {
        let head = format!("fn {buffer}_element(i: u32) -> f32 {{");
        if self.extra.contains(&head) {
            return;
        }
        let QuantizedPanels { depth, k_stride, taps, group_size, zero_point, .. } = *panels;
        let position = match k_stride {
            1 if taps > 1 => format!(
                "    let row = i / {depth}u;\n    let k = i % {taps}u * {}u + i % {depth}u / {taps}u;\n",
                depth / taps as usize
            ),
            1 => format!("    let row = i / {depth}u;\n    let k = i % {depth}u;\n"),
            _ => format!(
                "    let row = i / {}u * {k_stride}u + i % {k_stride}u;\n    let k = i / {k_stride}u % {depth}u;\n",
                k_stride * depth
            ),
        };
        let (bits, per_word) = (panels.bits, panels.values_per_word());
        let value = format!(
            "extractBits({buffer}[base + k / {per_word}u * 4u + lane / 4u][lane % 4u], k % {per_word}u * {bits}u, {bits}u)"
        );
        let load_one = |device: DeviceType, first: String, vec4s_per_group: usize| match device {
            DeviceType::F16 => {
                format!(
                    "unpack2x16float({buffer}[{first} + g * {vec4s_per_group}u + lane / 8u][lane / 2u % 4u])[lane % 2u]"
                )
            }
            _ => format!("bitcast<f32>({buffer}[{first} + g * {vec4s_per_group}u + lane / 4u][lane % 4u])"),
        };
        let [scales, biases] = panels.scale_vec4s();
        let scale = load_one(panels.scale_type, format!("base + {}u", panels.quantized_vec4s()), scales);
        let bias = panels.bias_type.map_or(String::new(), |device| {
            let first = panels.quantized_vec4s() + panels.groups_per_row() * scales;
            format!(" + {}", load_one(device, format!("base + {first}u"), biases))
        });
        self.extra += &format!(
            "{head}\n{position}    let base = row / {ROWS}u * {}u;\n    let lane = row % {ROWS}u;\n    let g = k / {group_size}u;\n    let quantized = {value};\n    return (f32(quantized) - {zero_point}.0) * {scale}{bias};\n}}\n",
            panels.panel_vec4s()
        );
    }

    /// Adds the WGSL function `NAME(r4, k) -> vec4<f32>`, which dequantizes element `k` of rows `4 * r4` to `4 * r4 +
    /// 3` of quantized operand `index`. `k` must be less than the row length. The rows may be padding of the last panel.
    ///
    /// # Errors
    /// If the operand is not quantized.
    pub fn add_dequantize_vec4(&mut self, name: &str, index: usize) -> Result<(), OpError> {
        let (panels, buffer) = self.bind_quantized(index)?;
        let QuantizedPanels { group_size, zero_point, .. } = panels;
        let (bits, per_word) = (panels.bits, panels.values_per_word());
        let unpack = format!(
            "    let quantized = ({buffer}[base + k / {per_word}u * 4u + q] >> vec4<u32>(k % {per_word}u * {bits}u)) & vec4<u32>({}u);\n",
            (1u32 << bits) - 1
        );
        let bias =
            if panels.bias_type.is_some() { format!(" + {name}_bias(base, g, q)") } else { String::new() };
        self.add_scale_and_bias_functions(name, &panels, &buffer);
        self.extra += &format!(
            "fn {name}(r4: u32, k: u32) -> vec4<f32> {{\n    let base = r4 / 4u * {}u;\n    let q = r4 % 4u;\n    let g = k / {group_size}u;\n{unpack}    return (vec4<f32>(quantized) - {zero_point}.0) * {name}_scale(base, g, q){bias};\n}}\n",
            panels.panel_vec4s()
        );
        Ok(())
    }

    /// Adds the WGSL function `NAME(r4, k4) -> mat4x4<f32>`, which dequantizes elements `4 * k4` to `4 * k4 + 3` of rows
    /// `4 * r4` to `4 * r4 + 3` of quantized operand `index`. Column `i` of the result is element `4 * k4 + i` of the four
    /// rows. The rows may be padding of the last panel. [`vec8_shares_scale`] must hold for the operand.
    ///
    /// # Errors
    /// If the operand is not quantized.
    pub fn add_dequantize_4x4(&mut self, name: &str, index: usize) -> Result<(), OpError> {
        let (panels, buffer) = self.bind_quantized(index)?;
        let QuantizedPanels { group_size, zero_point, bits, .. } = panels;
        let word = match bits {
            4 => format!("{buffer}[base + k4 / 2u * 4u + q] >> vec4<u32>(k4 % 2u * 16u)"),
            _ => format!("{buffer}[base + k4 * 4u + q]"),
        };
        let bias = if panels.bias_type.is_some() { " + bias" } else { "" };
        let column = |i: usize| {
            let shift = i * bits;
            let mask = (1u32 << bits) - 1;
            format!(
                "(vec4<f32>((words >> vec4<u32>({shift}u)) & vec4<u32>({mask}u)) - {zero_point}.0) * scale{bias}"
            )
        };
        self.add_scale_and_bias_functions(name, &panels, &buffer);
        self.extra += &format!(
            "fn {name}(r4: u32, k4: u32) -> mat4x4<f32> {{
    let base = r4 / 4u * {}u;
    let q = r4 % 4u;
    let g = k4 * 4u / {group_size}u;
    let words = {word};
    let scale = {name}_scale(base, g, q);
    let bias = {name}_bias(base, g, q);
    return mat4x4<f32>({});
}}
",
            panels.panel_vec4s(),
            [0, 1, 2, 3].map(column).join(", ")
        );
        Ok(())
    }

    fn add_scale_and_bias_functions(&mut self, name: &str, panels: &QuantizedPanels, buffer: &str) {
        let params = "base: u32, g: u32, q: u32";
        self.extra += &format!(
            "fn {name}_scale({params}) -> vec4<f32> {{\n{}}}\nfn {name}_bias({params}) -> vec4<f32> {{\n{}}}\n",
            load_scales_body(panels, buffer),
            load_biases_body(panels, buffer)
        );
    }

    /// Adds the WGSL function `NAME(row, k8) -> vec4<u32>`, which dequantizes elements `8 * k8` to `8 * k8 + 7` of a
    /// row of quantized operand `index` to packed f16. [`vec8_shares_scale`] must hold for the operand, and both
    /// arguments must be in range.
    ///
    /// # Errors
    /// If the operand is not quantized or [`vec8_shares_scale`] does not hold.
    pub fn add_dequantize_vec8(&mut self, name: &str, index: usize) -> Result<(), OpError> {
        let (panels, words) = self.add_dequantize_packed_words(name, index)?;
        let bias =
            if panels.bias_type.is_some() { format!("{name}_bias(base, g, q)[lane]") } else { "0.0".into() };
        self.extra += &format!(
            "fn {name}(row: u32, k8: u32) -> vec4<u32> {{
    let base = row / {ROWS}u * {}u;
    let q = row / 4u % 4u;
    let lane = row % 4u;
    let g = k8 * 8u / {}u;
    return {name}_from_words({}, {name}_scale(base, g, q)[lane], {bias});
}}
",
            panels.panel_vec4s(),
            panels.group_size,
            words.map(|word| if word == UNUSED_WORD { word } else { format!("{word}[lane]") }).join(", ")
        );
        Ok(())
    }

    /// Adds the WGSL function `NAME(r4, k8) -> array<vec4<u32>, 4>`, which dequantizes quantized operand `index` to
    /// packed f16. Array element `i` of the result is row `4 * r4 + i`, elements `8 * k8` to `8 * k8 + 7`. Padding rows
    /// of the last panel are zero.
    ///
    /// # Errors
    /// If the operand is not quantized or [`vec8_shares_scale`] does not hold.
    pub fn add_dequantize_vec8_of_4_rows(&mut self, name: &str, index: usize) -> Result<(), OpError> {
        let (panels, [first, second]) = self.add_dequantize_packed_words(name, index)?;
        let second = if second == UNUSED_WORD { "vec4<u32>(0u)".into() } else { second };
        let row = |lane: usize| {
            format!("{name}_from_words(first[{lane}], second[{lane}], scale[{lane}], bias[{lane}])")
        };
        self.extra += &format!(
            "fn {name}(r4: u32, k8: u32) -> array<vec4<u32>, 4> {{
    let base = r4 / 4u * {}u;
    let q = r4 % 4u;
    let g = k8 * 8u / {}u;
    let first = {first};
    let second = {second};
    let scale = {name}_scale(base, g, q);
    let bias = {name}_bias(base, g, q);
    return array<vec4<u32>, 4>({});
}}
",
            panels.panel_vec4s(),
            panels.group_size,
            [0, 1, 2, 3].map(row).join(", ")
        );
        Ok(())
    }

    /// Adds the WGSL functions `NAME_scale`, `NAME_bias` and `NAME_from_words(first, second, scale, bias) ->
    /// vec4<u32>`. The last function dequantizes 8 elements of one or two packed words to packed f16. Returns the
    /// operand's packed form and two WGSL expressions in the variables `base`, `k8` and `q`, for the `vec4<u32>` that
    /// hold the first and second words of 4 rows. If one word holds 8 values, the second expression is [`UNUSED_WORD`].
    fn add_dequantize_packed_words(
        &mut self,
        name: &str,
        index: usize,
    ) -> Result<(QuantizedPanels, [String; 2]), OpError> {
        let (panels, buffer) = self.bind_quantized(index)?;
        if !vec8_shares_scale(&panels) {
            return Err(OpError::new(format!(
                "operand {index} has scale groups of {} elements; the kernel needs a multiple of 8",
                panels.group_size
            )));
        }
        let words = panels.words_per_row();
        let vec4 = |at: &str| format!("{buffer}[base + {at} * 4u + q]");
        let vec4s = match panels.bits {
            4 => [vec4("k8"), UNUSED_WORD.to_string()],
            _ if words.is_multiple_of(2) => [vec4("k8 * 2u"), vec4("(k8 * 2u + 1u)")],
            _ => [vec4("k8 * 2u"), vec4(&format!("min(k8 * 2u + 1u, {}u)", words.saturating_sub(1)))],
        };
        self.add_scale_and_bias_functions(name, &panels, &buffer);
        let body = match dequantizes_in_f16(self.problem.target) {
            true => {
                self.add_f16_pair_functions(&panels);
                packed_f16::dequantize_vec8_body(&panels)
            }
            false => {
                let words = "pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw)";
                format!(
                    "{}    return vec4<u32>({words});\n",
                    dequantize_low_and_high(&panels, dequantizes_by_f16_bits(self.problem.target))
                )
            }
        };
        self.extra += &format!(
            "fn {name}_from_words(first: u32, second: u32, scale: f32, bias: f32) -> vec4<u32> {{\n{body}}}\n"
        );
        Ok((panels, vec4s))
    }

    /// Like [`Shader::add_scale_functions`], and also adds the WGSL function `NAME_from_words(first, second, scale,
    /// bias) -> vec4<u32>`, which dequantizes 8 elements of packed words to packed f16. If one word holds 8 values,
    /// `second` is ignored.
    ///
    /// # Errors
    /// If the operand is not quantized or [`vec8_shares_scale`] does not hold.
    pub fn add_dequantize_words(&mut self, name: &str, index: usize) -> Result<String, OpError> {
        self.add_dequantize_packed_words(name, index)?;
        Ok(self.bind_quantized(index)?.1)
    }

    /// Adds the WGSL functions that dequantize packed words to pairs of f16.
    pub fn add_f16_pair_functions(&mut self, panels: &QuantizedPanels) {
        let functions = packed_f16::pair_functions(panels);
        if !self.extra.contains(&functions) {
            self.extra += &functions;
        }
        self.needs(&[Need::F16]);
    }

    /// Binds quantized operand `index` as an array of `vec4<u32>`, and returns the name of the buffer. Adds the WGSL
    /// functions `NAME_scale(base, g, q)` and `NAME_bias(base, g, q)`, which load scales and biases of group `g`. They
    /// are for rows `4 * q` to `4 * q + 3` of the panel that begins at vector `base`. Without biases `NAME_bias`
    /// returns zero.
    ///
    /// # Errors
    /// If the operand is not quantized.
    pub fn add_scale_functions(&mut self, name: &str, index: usize) -> Result<String, OpError> {
        let (panels, buffer) = self.bind_quantized(index)?;
        self.add_scale_and_bias_functions(name, &panels, &buffer);
        Ok(buffer)
    }
}

/// Returns WGSL statements that dequantize the packed words `first` and `second` into the vec4s `low` and `high`. With
/// `by_f16_bits`, the statements use f16 bit patterns instead of integer conversions.
fn dequantize_low_and_high(panels: &QuantizedPanels, by_f16_bits: bool) -> String {
    let zero_point = u32::from(panels.zero_point);
    match (panels.bits, by_f16_bits) {
        // `0x6400 | v` is the f16 1024 + v, and `0x6400 | v << 4` is 1024 + 16 * v.
        (4, true) => format!(
            "    let a = unpack2x16float((first & 0x000f000fu) | 0x64006400u);
    let b = unpack2x16float((first & 0x00f000f0u) | 0x64006400u);
    let c = unpack2x16float(((first >> 8u) & 0x000f000fu) | 0x64006400u);
    let d = unpack2x16float(((first >> 8u) & 0x00f000f0u) | 0x64006400u);
    let factor = vec4<f32>(scale, scale * 0.0625, scale, scale * 0.0625);
    let offset = vec4<f32>(bias) - scale * vec4<f32>({0}.0, {1}.0, {0}.0, {1}.0);
    let low = fma(vec4<f32>(a.x, b.x, c.x, d.x), factor, offset);
    let high = fma(vec4<f32>(a.y, b.y, c.y, d.y), factor, offset);
",
            1024 + zero_point,
            64 + zero_point
        ),
        (4, false) => format!(
            "    let shifts = vec4<u32>(0u, 4u, 8u, 12u);
    let low = fma(vec4<f32>((vec4<u32>(first) >> shifts) & vec4<u32>(15u)) - {zero_point}.0, vec4<f32>(scale), vec4<f32>(bias));
    let high = fma(vec4<f32>((vec4<u32>(first >> 16u) >> shifts) & vec4<u32>(15u)) - {zero_point}.0, vec4<f32>(scale), vec4<f32>(bias));
"
        ),
        _ => {
            let dequantize = |word: &str| match by_f16_bits {
                true => format!(
                    "vec4<f32>(unpack2x16float(({word} & 0x00ff00ffu) | 0x64006400u), unpack2x16float((({word} >> 8u) & 0x00ff00ffu) | 0x64006400u)).xzyw - {}.0",
                    1024 + zero_point
                ),
                false => format!(
                    "vec4<f32>((vec4<u32>({word}) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)) - {zero_point}.0"
                ),
            };
            format!(
                "    let low = fma({}, vec4<f32>(scale), vec4<f32>(bias));
    let high = fma({}, vec4<f32>(scale), vec4<f32>(bias));
",
                dequantize("first"),
                dequantize("second")
            )
        }
    }
}

/// Returns the body of a WGSL function of `base`, `g` and `q` that loads the scales of 4 rows.
fn load_scales_body(panels: &QuantizedPanels, buffer: &str) -> String {
    load_vec4_body(buffer, panels.scale_type, panels.quantized_vec4s(), panels.scale_vec4s()[0])
}

/// Returns the body of a WGSL function of `base`, `g` and `q` that loads the biases of 4 rows.
fn load_biases_body(panels: &QuantizedPanels, buffer: &str) -> String {
    let [scales, biases] = panels.scale_vec4s();
    match panels.bias_type {
        Some(device) => load_vec4_body(
            buffer,
            device,
            panels.quantized_vec4s() + panels.groups_per_row() * scales,
            biases,
        ),
        None => "    return vec4<f32>(0.0);\n".into(),
    }
}

/// Returns the body of a WGSL function that loads 4 floats from a section of a panel: its scales or its biases. The
/// section begins at vector `first` and has `vec4s_per_group` vectors per group.
fn load_vec4_body(buffer: &str, device: DeviceType, first: usize, vec4s_per_group: usize) -> String {
    match device {
        DeviceType::F16 => format!(
            "    let halves = {buffer}[base + {first}u + g * {vec4s_per_group}u + q / 2u];\n    let pair = select(halves.xy, halves.zw, q % 2u == 1u);\n    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));\n"
        ),
        _ => format!(
            "    return bitcast<vec4<f32>>({buffer}[base + {first}u + g * {vec4s_per_group}u + q]);\n"
        ),
    }
}
