//! Reading constants of few bits: the one place that writes how a shader makes elements of codes.
//!
//! Whatever a kernel reads through [`Shader::read`] works on codes as it does on elements: an element by itself, at some
//! cost. Kernels of products read four neighbours of a depth at a time ([`Shader::code_fours`]), or whole units of 16
//! bytes with the scales beside them ([`Shader::code_hooks`]).

use super::hooks::Shader;
use super::launch::Bound;
use super::pack::codes::{CodePanels, ROWS};
use crate::error::OpError;
use crate::ir::op::Constant;
use crate::ir::tensor::DeviceType;

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
        let code = match form.bits {
            4 => format!("extractBits({buffer}[base + k / 2u][k % 2u * 2u + lane / 8u], lane % 8u * 4u, 4u)"),
            _ => format!("extractBits({buffer}[base + k][lane / 4u], lane % 4u * 8u, 8u)"),
        };
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
        let codes = match form.bits {
            4 => format!(
                "    let word = {buffer}[base + k / 2u][k % 2u * 2u + q / 2u] >> (q % 2u * 16u);\n    let codes = (vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);\n"
            ),
            _ => format!(
                "    let word = {buffer}[base + k][q];\n    let codes = (vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);\n"
            ),
        };
        let bias = if form.bias.is_some() { format!(" + {name}_bias(base, g, q)") } else { String::new() };
        let params = "base: u32, g: u32, q: u32";
        self.extra += &format!(
            "fn {name}_scale({params}) -> vec4<f32> {{\n{}}}\nfn {name}_bias({params}) -> vec4<f32> {{\n{}}}\n",
            scales(&form, &buffer),
            biases(&form, &buffer)
        );
        self.extra += &format!(
            "fn {name}(r4: u32, k: u32) -> vec4<f32> {{\n    let base = r4 / 4u * {}u;\n    let q = r4 % 4u;\n    let g = k / {group}u;\n{codes}    return (vec4<f32>(codes) - {zero}.0) * {name}_scale(base, g, q){bias};\n}}\n",
            form.panel_units()
        );
        Ok(())
    }

    /// Binds operand `index`, which must lie as codes, as an array of units, and replaces the hooks
    /// `codes_scale(base, g, q)`, the scales of group `g` of rows `4 * q ..` of the panel that begins at unit `base`, and
    /// `codes_bias(base, g, q)`, zero where there are no biases. Returns the buffer's name.
    ///
    /// # Errors
    /// When the operand lies otherwise.
    pub fn code_hooks(&mut self, index: usize) -> Result<String, OpError> {
        let (form, buffer) = self.bind_codes(index)?;
        for (name, text) in [("codes_scale", scales(&form, &buffer)), ("codes_bias", biases(&form, &buffer))]
        {
            self.replace(name, format!("fn {name}(base: u32, g: u32, q: u32) -> vec4<f32> {{\n{text}}}\n"));
        }
        Ok(buffer)
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
