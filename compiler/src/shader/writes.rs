//! Generation of WGSL functions that apply the fused epilogue and store results.

use super::access::{Access, Coordinates, tensor_access};
use super::element_functions;
use super::hooks::Shader;
use super::launch::Bound;
use super::problem::{Operand, Placement};
use super::resource::Resource;
use super::value_type::ValueType;
use super::variable::BoundVariable;
use crate::error::OpError;
use crate::ir::storage::Storage;
use crate::ir::tensor::DeviceType;

impl Shader<'_> {
    /// Replaces hook `name` by a function that applies the node's epilogue to its last parameter `v` and stores the
    /// result at coordinates `at`.
    ///
    /// # Errors
    /// If the epilogue is malformed (a defect of the graph).
    pub fn write(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        at: &Coordinates,
    ) -> Result<(), OpError> {
        let text = self.write_fn(name, params, prelude, at, false)?;
        self.replacements.insert(name.to_string(), text);
        Ok(())
    }

    /// Returns the WGSL of a function that applies the epilogue and stores the result, without replacing a hook.
    ///
    /// # Errors
    /// If the epilogue is malformed (a defect of the graph).
    pub fn write_fn(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        at: &Coordinates,
        whole_groups: bool,
    ) -> Result<String, OpError> {
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let computed = self.problem.computed;
        let value_type = ValueType::from_dtype(computed);
        let start = (element_functions::narrow("v", computed, lanes), value_type);
        let (statements, value, last) =
            self.epilogue_statements(self.problem.epilogue, Some(start), at, lanes, whole_groups)?;
        let store = self.store_text(&value, last, at, whole_groups);
        let comma = if params.is_empty() { "" } else { ", " };
        Ok(format!(
            "fn {name}({params}{comma}v: {}) {{\n{prelude}{statements}{store}}}\n",
            value_type.wgsl(lanes)
        ))
    }

    /// Returns the WGSL of a function that applies the epilogue to its parameter `v`, one f32, and returns the result, as
    /// it is stored. The result must be a float.
    ///
    /// # Errors
    /// If the epilogue is malformed (a defect of the graph).
    pub fn element_fn(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        at: &Coordinates,
    ) -> Result<String, OpError> {
        let (statements, value, value_type) = self.element_epilogue(at)?;
        if value_type != ValueType::Float {
            return Err(OpError::new("the result of a matrix of floats is not a float"));
        }
        let half = self.problem.result.dtype.on_device() == DeviceType::F16;
        // SPIR-V leaves the conversion of finite numbers beyond the range of f16 undefined.
        let value = if half { element_functions::clamp_to_f16(&value, 1) } else { value };
        Ok(format!("fn {name}({params}) -> f32 {{\n{prelude}{statements}    return {value};\n}}\n"))
    }

    /// Returns the WGSL of a function that applies the epilogue to its parameter `v`, one f32, stores the result, and
    /// returns `v`.
    ///
    /// # Errors
    /// If the epilogue is malformed (a defect of the graph).
    pub fn storing_element_fn(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        at: &Coordinates,
    ) -> Result<String, OpError> {
        let (statements, value, value_type) = self.element_epilogue(at)?;
        let store = self.store_text(&value, value_type, at, false);
        Ok(format!("fn {name}({params}) -> f32 {{\n{prelude}{statements}{store}    return v;\n}}\n"))
    }

    /// Returns the WGSL statements, the value and its type of the epilogue of one f32, `v`.
    fn element_epilogue(&mut self, at: &Coordinates) -> Result<(String, String, ValueType), OpError> {
        let start = ("v".to_string(), ValueType::Float);
        self.epilogue_statements(self.problem.epilogue, Some(start), at, 1, false)
    }

    /// Returns WGSL statements that store `value` at coordinates of the result.
    fn store_text(
        &mut self,
        value: &str,
        value_type: ValueType,
        at: &Coordinates,
        whole_groups: bool,
    ) -> String {
        let result = self.problem.result.clone();
        self.store_to(&result, Bound::Result, value, value_type, at, whole_groups)
    }

    /// Returns WGSL statements that store `value` at coordinates of a tensor.
    pub fn store_to(
        &mut self,
        tensor: &Operand<'_>,
        bound: Bound,
        value: &str,
        value_type: ValueType,
        at: &Coordinates,
        whole_groups: bool,
    ) -> String {
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let mut access = tensor_access(&mut self.sizes, tensor, at, whole_groups);
        let mut tensor = tensor.clone();
        if tensor.in_texture() && !matches!(access, Access::Vector { .. }) {
            // Single components of texels cannot be written.
            self.partial_texels = true;
            tensor.storage = Storage::Buffer;
            access = tensor_access(&mut self.sizes, &tensor, at, whole_groups);
        }
        let tensor = &tensor;
        let device = tensor.dtype.on_device();
        let buffer = self.bind_tensor(tensor, bound, &access, true);
        let scalar = if buffer.resource == Resource::Buffer { device.wgsl() } else { device.texel() };
        // Narrow integers wrap. A texture would saturate them; a store to a buffer drops the upper bits.
        let wrapped = match buffer.resource {
            Resource::Buffer => value.to_string(),
            _ => element_functions::narrow(value, tensor.dtype, lanes),
        };
        let stored = to_storage(&wrapped, value_type, device, scalar, lanes);
        match access {
            Access::Vector { index } => {
                let mut text = format!("    var w = {stored};\n");
                if tensor.placement == Placement::Slices4 && !tensor.shape[1].is_multiple_of(4) {
                    // Lanes past the last channel are stored as zero.
                    let channels = self.sizes.dim(&tensor.shape[1]);
                    let slice = &at.axes[1];
                    for (j, lane) in ["y", "z", "w"].iter().enumerate() {
                        text += &format!(
                            "    if (({slice}) * 4u + {}u >= {channels}) {{ w.{lane} = {scalar}(0); }}\n",
                            j + 1
                        );
                    }
                }
                text + &buffer.store_vector(&index, "w")
            }
            Access::Scalar { index, lane: None } | Access::Splat { index } => {
                let stored = if lanes == 4 { format!("({stored}).x") } else { stored };
                format!("    {}\n", buffer.store_element(&index, &stored))
            }
            Access::Scalar { index, lane: Some(lane) } => {
                let padding = self.padding(tensor, at, &buffer, &index);
                let stored = if lanes == 4 { format!("({stored}).x") } else { stored };
                format!("    {}\n{padding}", buffer.store_component(&index, &lane, &stored))
            }
            Access::Scattered { indices, lane, guard } => {
                let mut text = format!("    let w = {stored};\n");
                for (j, index) in indices.iter().enumerate() {
                    let component = ["x", "y", "z", "w"][j];
                    let value = format!("w.{component}");
                    let store = match &lane {
                        Some(lane) => {
                            let padding = self.padding(tensor, at, &buffer, index);
                            format!("{}\n{padding}", buffer.store_component(index, lane, &value))
                        }
                        None => buffer.store_element(index, &value),
                    };
                    text += &match &guard {
                        Some((first, limit)) if j > 0 => {
                            format!("    if ({first} + {j}u < {limit}) {{ {store} }}\n")
                        }
                        _ => format!("    {store}\n"),
                    };
                }
                text
            }
        }
    }

    /// Returns WGSL statements for a store of the tensor's last channel: they set the components after this channel, which are
    /// padding of its slice of 4 channels, to zero in the vec4 at `index`. For other channels, the statements change nothing.
    fn padding(
        &mut self,
        tensor: &Operand<'_>,
        at: &Coordinates,
        buffer: &BoundVariable,
        index: &str,
    ) -> String {
        if tensor.shape[1].is_multiple_of(4) {
            return String::new();
        }
        let channel = &at.axes[1];
        let channels = self.sizes.dim(&tensor.shape[1]);
        let scalar = tensor.dtype.on_device().wgsl();
        let lanes = (1..4).map(|lane| {
            let store = buffer.store_component(index, &format!("{lane}"), &format!("{scalar}(0)"));
            format!("    if (({channel}) + 1u == {channels} && ({channel}) % 4u < {lane}u) {{ {store} }}\n")
        });
        lanes.collect()
    }
}

/// Returns WGSL that converts a computed value to the type in memory, `scalar`.
fn to_storage(text: &str, value_type: ValueType, device: DeviceType, scalar: &str, lanes: u32) -> String {
    let ty = if lanes == 4 { format!("vec4<{scalar}>") } else { scalar.to_string() };
    if value_type == ValueType::Float && device == DeviceType::F16 {
        // SPIR-V leaves the conversion of finite numbers beyond the range of f16 undefined.
        let kept = element_functions::clamp_to_f16(text, lanes);
        // Devices may round texels toward zero. Values that are exact in f16 are not rounded.
        return if scalar == "f16" { format!("{ty}({kept})") } else { format!("quantizeToF16({kept})") };
    }
    format!("{ty}({text})")
}
