//! Reading constants of few bits: the one place that writes how a shader makes elements of codes.
//!
//! Whatever a kernel reads through [`Shader::read`] works on codes as it does on elements: an element by itself, at some
//! cost. Kernels of products read one depth of four rows at a time ([`Shader::code_fours`]), eight depths of a row
//! ([`Shader::code_eights`]), or whole units of 16 bytes with the scales beside them ([`Shader::code_hooks`]).

use super::halves;
use super::hooks::Shader;
use super::launch::{Bound, Need};
use super::pack::codes::{CodePanels, ROWS};
use crate::error::OpError;
use crate::ir::op::Constant;
use crate::ir::tensor::DeviceType;
use crate::target::TargetProfile;

/// From how many operations for each conversion of an integer on codes become halves instead.
const SLOW_CONVERSION: f64 = 8.0;

/// In place of a word of codes that nothing reads.
const NO_WORD: &str = "0u";

/// Whether eight neighbours of a row share a scale wherever they begin at a multiple of eight.
pub fn eights(form: &CodePanels) -> bool {
    form.groups() <= 1 || form.group.is_multiple_of(8)
}

/// An operand that lies as codes.
#[derive(Debug, Clone, Copy)]
pub struct Coded<'a> {
    /// The constant, which may be seen through views.
    pub source: &'a Constant,
    /// How it lies.
    pub form: CodePanels,
}

impl<'a> Coded<'a> {
    /// Of a constant; none where its elements lie as they are.
    pub fn of(source: &'a Constant) -> Option<Self> {
        CodePanels::of(source).map(|form| Self { source, form })
    }
}

/// Whether codes become floats as the last bits of halves, because integers take far longer than other numbers.
pub fn as_halves(target: &TargetProfile) -> bool {
    let peak = &target.machine.peak;
    peak.int_to_float.unwrap_or(peak.f32) * SLOW_CONVERSION <= peak.f32
}

/// Whether the device also computes with such halves.
pub fn as_pairs(target: &TargetProfile) -> bool {
    as_halves(target) && target.features.f16
}

impl Shader<'_> {
    /// Binds operand `index`, which lies as codes, in units of 16 bytes, and returns its form and the buffer's name.
    ///
    /// # Errors
    /// When the operand lies otherwise.
    fn bind_codes(&mut self, index: usize) -> Result<(CodePanels, String), OpError> {
        let coded = self.problem.operands.get(index).and_then(|operand| operand.codes);
        let form = coded.ok_or_else(|| OpError::new("an operand of codes is needed"))?.form;
        Ok((form, self.bind(Bound::Operand(index), "vec4<u32>", false)))
    }

    /// Adds the function `NAME_element(i)`: element `i` of a constant of codes in buffer `NAME`.
    pub(super) fn element_of_codes(&mut self, form: &CodePanels, buffer: &str) {
        let head = format!("fn {buffer}_element(i: u32) -> f32 {{");
        if self.extra.contains(&head) {
            return;
        }
        let CodePanels { depth, inner, group, zero, .. } = *form;
        let place = match inner {
            1 => format!("    let row = i / {depth}u;\n    let k = i % {depth}u;\n"),
            _ => format!(
                "    let row = i / {}u * {inner}u + i % {inner}u;\n    let k = i / {inner}u % {depth}u;\n",
                inner * depth
            ),
        };
        let (bits, of_word) = (form.bits, form.of_word());
        let code = format!(
            "extractBits({buffer}[base + k / {of_word}u * 4u + lane / 4u][lane % 4u], k % {of_word}u * {bits}u, {bits}u)"
        );
        let one = |device: DeviceType, first: String, units: usize| match device {
            DeviceType::F16 => {
                format!(
                    "unpack2x16float({buffer}[{first} + g * {units}u + lane / 8u][lane / 2u % 4u])[lane % 2u]"
                )
            }
            _ => format!("bitcast<f32>({buffer}[{first} + g * {units}u + lane / 4u][lane % 4u])"),
        };
        let [scales, biases] = form.scale_units();
        let scale = one(form.scale, format!("base + {}u", form.code_units()), scales);
        let bias = form.bias.map_or(String::new(), |device| {
            let first = form.code_units() + form.groups() * scales;
            format!(" + {}", one(device, format!("base + {first}u"), biases))
        });
        self.extra += &format!(
            "{head}\n{place}    let base = row / {ROWS}u * {}u;\n    let lane = row % {ROWS}u;\n    let g = k / {group}u;\n    let code = {code};\n    return (f32(code) - {zero}.0) * {scale}{bias};\n}}\n",
            form.panel_units()
        );
    }

    /// Adds the functions `NAME(r4, k)`, elements `k` of the four rows from `4 * r4` on of operand `index`, which must lie
    /// as codes. `k` must be within a row, `r4` within a panel.
    ///
    /// # Errors
    /// When the operand lies otherwise.
    pub fn code_fours(&mut self, name: &str, index: usize) -> Result<(), OpError> {
        let (form, buffer) = self.bind_codes(index)?;
        let CodePanels { group, zero, .. } = form;
        let (bits, of_word) = (form.bits, form.of_word());
        let codes = format!(
            "    let codes = ({buffer}[base + k / {of_word}u * 4u + q] >> vec4<u32>(k % {of_word}u * {bits}u)) & vec4<u32>({}u);\n",
            (1u32 << bits) - 1
        );
        let bias = if form.bias.is_some() { format!(" + {name}_bias(base, g, q)") } else { String::new() };
        self.scales_and_biases(name, &form, &buffer);
        self.extra += &format!(
            "fn {name}(r4: u32, k: u32) -> vec4<f32> {{\n    let base = r4 / 4u * {}u;\n    let q = r4 % 4u;\n    let g = k / {group}u;\n{codes}    return (vec4<f32>(codes) - {zero}.0) * {name}_scale(base, g, q){bias};\n}}\n",
            form.panel_units()
        );
        Ok(())
    }

    fn scales_and_biases(&mut self, name: &str, form: &CodePanels, buffer: &str) {
        let params = "base: u32, g: u32, q: u32";
        self.extra += &format!(
            "fn {name}_scale({params}) -> vec4<f32> {{\n{}}}\nfn {name}_bias({params}) -> vec4<f32> {{\n{}}}\n",
            scales(form, buffer),
            biases(form, buffer)
        );
    }

    /// Adds the function `NAME(row, k8) -> vec4<u32>`: elements `8 * k8 ..` of row `row` of operand `index` in f16, two in a
    /// word. The operand must lie as codes whose groups hold whole eights ([`eights`]); both must be within the operand.
    ///
    /// # Errors
    /// When the operand lies otherwise.
    pub fn code_eights(&mut self, name: &str, index: usize) -> Result<(), OpError> {
        let (form, words) = self.words_of_eights(name, index)?;
        let bias = if form.bias.is_some() { format!("{name}_bias(base, g, q)[lane]") } else { "0.0".into() };
        self.extra += &format!(
            "fn {name}(row: u32, k8: u32) -> vec4<u32> {{
    let base = row / {ROWS}u * {}u;
    let q = row / 4u % 4u;
    let lane = row % 4u;
    let g = k8 * 8u / {}u;
    return {name}_of({}, {name}_scale(base, g, q)[lane], {bias});
}}
",
            form.panel_units(),
            form.group,
            words.map(|word| if word == NO_WORD { word } else { format!("{word}[lane]") }).join(", ")
        );
        Ok(())
    }

    /// Adds the function `NAME(r4, k8) -> array<vec4<u32>, 4>`: the same elements of each of the four rows from `4 * r4` on.
    /// Rows past the last one, up to the end of a panel, are zero.
    ///
    /// # Errors
    /// As [`Shader::code_eights`].
    pub fn code_eights_of_fours(&mut self, name: &str, index: usize) -> Result<(), OpError> {
        let (form, [first, second]) = self.words_of_eights(name, index)?;
        let second = if second == NO_WORD { "vec4<u32>(0u)".into() } else { second };
        let one =
            |lane: usize| format!("{name}_of(first[{lane}], second[{lane}], scale[{lane}], bias[{lane}])");
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
            form.panel_units(),
            form.group,
            [0, 1, 2, 3].map(one).join(", ")
        );
        Ok(())
    }

    /// Adds the function `NAME_of(first, second, scale, bias) -> vec4<u32>`, eight elements of the words that hold their
    /// codes, with `NAME_scale` and `NAME_bias`. Returns the units of these words, in terms of `base`, `k8` and `q`; where
    /// one word holds eight codes, the second is [`NO_WORD`].
    fn words_of_eights(&mut self, name: &str, index: usize) -> Result<(CodePanels, [String; 2]), OpError> {
        let (form, buffer) = self.bind_codes(index)?;
        if !eights(&form) {
            return Err(OpError::new("codes whose groups hold whole eights are needed"));
        }
        let words = form.words();
        let unit = |at: &str| format!("{buffer}[base + {at} * 4u + q]");
        let units = match form.bits {
            4 => [unit("k8"), NO_WORD.to_string()],
            _ if words.is_multiple_of(2) => [unit("k8 * 2u"), unit("(k8 * 2u + 1u)")],
            _ => [unit("k8 * 2u"), unit(&format!("min(k8 * 2u + 1u, {}u)", words.saturating_sub(1)))],
        };
        self.scales_and_biases(name, &form, &buffer);
        let body = match as_pairs(self.problem.target) {
            true => {
                self.pairs(&form);
                halves::eight_elements(&form)
            }
            false => {
                let words = "pack2x16float(low.xy), pack2x16float(low.zw), pack2x16float(high.xy), pack2x16float(high.zw)";
                format!(
                    "{}    return vec4<u32>({words});\n",
                    low_and_high(&form, as_halves(self.problem.target))
                )
            }
        };
        self.extra += &format!(
            "fn {name}_of(first: u32, second: u32, scale: f32, bias: f32) -> vec4<u32> {{\n{body}}}\n"
        );
        Ok((form, units))
    }

    /// As [`Shader::code_hooks`], with the function `NAME_of(first, second, scale, bias) -> vec4<u32>`: eight elements in f16,
    /// two in a word, of the words that hold their codes; one word that holds them all is both.
    ///
    /// # Errors
    /// As [`Shader::code_eights`].
    pub fn code_words(&mut self, name: &str, index: usize) -> Result<String, OpError> {
        self.words_of_eights(name, index)?;
        Ok(self.bind_codes(index)?.1)
    }

    /// Adds the functions of pairs of halves.
    pub fn pairs(&mut self, form: &CodePanels) {
        let functions = halves::functions(form);
        if !self.extra.contains(&functions) {
            self.extra += &functions;
        }
        self.needs(&[Need::F16]);
    }

    /// Binds operand `index`, which must lie as codes, as an array of units, and adds the functions `NAME_scale(base, g, q)`,
    /// the scales of group `g` of rows `4 * q ..` of the panel that begins at unit `base`, and `NAME_bias(base, g, q)`, zero
    /// where there are no biases. Returns the buffer's name.
    ///
    /// # Errors
    /// When the operand lies otherwise.
    pub fn code_hooks(&mut self, name: &str, index: usize) -> Result<String, OpError> {
        let (form, buffer) = self.bind_codes(index)?;
        self.scales_and_biases(name, &form, &buffer);
        Ok(buffer)
    }
}

/// Statements that make `low` and `high`, four elements each, of the codes in the words `first` and `second`; as the last
/// bits of halves, where integers take too long to convert.
fn low_and_high(form: &CodePanels, halves: bool) -> String {
    let zero = u32::from(form.zero);
    match (form.bits, halves) {
        // Pairs of codes are the last bits of halves from 1024 on, in steps of 1 or of 16.
        (4, true) => format!(
            "    let a = unpack2x16float((first & 0x000f000fu) | 0x64006400u);
    let b = unpack2x16float((first & 0x00f000f0u) | 0x64006400u);
    let c = unpack2x16float(((first >> 8u) & 0x000f000fu) | 0x64006400u);
    let d = unpack2x16float(((first >> 8u) & 0x00f000f0u) | 0x64006400u);
    let by = vec4<f32>(scale, scale * 0.0625, scale, scale * 0.0625);
    let more = vec4<f32>(bias) - scale * vec4<f32>({0}.0, {1}.0, {0}.0, {1}.0);
    let low = fma(vec4<f32>(a.x, b.x, c.x, d.x), by, more);
    let high = fma(vec4<f32>(a.y, b.y, c.y, d.y), by, more);
",
            1024 + zero,
            64 + zero
        ),
        (4, false) => format!(
            "    let shifts = vec4<u32>(0u, 4u, 8u, 12u);
    let low = fma(vec4<f32>((vec4<u32>(first) >> shifts) & vec4<u32>(15u)) - {zero}.0, vec4<f32>(scale), vec4<f32>(bias));
    let high = fma(vec4<f32>((vec4<u32>(first >> 16u) >> shifts) & vec4<u32>(15u)) - {zero}.0, vec4<f32>(scale), vec4<f32>(bias));
"
        ),
        _ => {
            let codes = |word: &str| match halves {
                true => format!(
                    "vec4<f32>(unpack2x16float(({word} & 0x00ff00ffu) | 0x64006400u), unpack2x16float((({word} >> 8u) & 0x00ff00ffu) | 0x64006400u)).xzyw - {}.0",
                    1024 + zero
                ),
                false => format!(
                    "vec4<f32>((vec4<u32>({word}) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)) - {zero}.0"
                ),
            };
            format!(
                "    let low = fma({}, vec4<f32>(scale), vec4<f32>(bias));
    let high = fma({}, vec4<f32>(scale), vec4<f32>(bias));
",
                codes("first"),
                codes("second")
            )
        }
    }
}

/// Four scales, as the body of a function of the panel's first unit `base`, the group `g` and the four rows `q`.
fn scales(form: &CodePanels, buffer: &str) -> String {
    four(buffer, form.scale, form.code_units(), form.scale_units()[0])
}

/// The same for biases.
fn biases(form: &CodePanels, buffer: &str) -> String {
    let [scales, biases] = form.scale_units();
    match form.bias {
        Some(device) => four(buffer, device, form.code_units() + form.groups() * scales, biases),
        None => "    return vec4<f32>(0.0);\n".into(),
    }
}

/// Four of the floats that begin at unit `first` of a panel, with so many units for a group.
fn four(buffer: &str, device: DeviceType, first: usize, units: usize) -> String {
    match device {
        DeviceType::F16 => format!(
            "    let unit = {buffer}[base + {first}u + g * {units}u + q / 2u];\n    let pair = select(unit.xy, unit.zw, q % 2u == 1u);\n    return vec4<f32>(unpack2x16float(pair.x), unpack2x16float(pair.y));\n"
        ),
        _ => format!("    return bitcast<vec4<f32>>({buffer}[base + {first}u + g * {units}u + q]);\n"),
    }
}
