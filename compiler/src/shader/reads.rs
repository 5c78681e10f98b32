//! Generation of WGSL functions that read operands, at given coordinates or at the result's coordinates with
//! broadcasting.

use super::access::{Access, Coordinates, tensor_read_access};
use super::hooks::Shader;
use super::launch::Bound;
use super::value_type::ValueType;
use super::variable::BoundVariable;
use crate::error::OpError;
use crate::ir::dim::Dim;

impl Shader<'_> {
    /// Replaces hook `name` by a function that reads operand `index`. `params` are the hook's parameters, such as
    /// `batch: u32, row: u32`. The coordinates `at` may use the parameters and the variables of the statements in
    /// `prelude`. The function returns one value, or a vec4 if `at` covers 4 elements.
    pub fn read(&mut self, name: &str, params: &str, prelude: &str, index: usize, at: &Coordinates) {
        let text = self.read_fn(name, params, prelude, index, at, false);
        self.replacements.insert(name.to_string(), text);
    }

    /// Returns the WGSL of a function that reads an operand, without replacing a hook.
    pub fn read_fn(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        index: usize,
        at: &Coordinates,
        whole_groups: bool,
    ) -> String {
        let operand = self.problem.operands[index].clone();
        let value_type = ValueType::from_dtype(operand.dtype);
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let access = tensor_read_access(&mut self.sizes, &operand, at, whole_groups);
        let buffer = self.bind_tensor(&operand, Bound::Operand(index), &access, false);
        let ty = value_type.wgsl(lanes);
        let (before, value) = load_text(&access, &buffer, value_type, lanes, "r");
        let (closing, value) = self.closed(index, at, &access, value_type, value);
        format!("fn {name}({params}) -> {ty} {{\n{prelude}{before}{closing}    return {value};\n}}\n")
    }

    /// Replaces hook `name` by a function that reads operand `index` at the coordinates of a result element, with
    /// broadcasting.
    ///
    /// # Errors
    /// If the operand does not broadcast to the result (a defect of the graph).
    pub fn read_broadcast(
        &mut self,
        name: &str,
        params: &str,
        prelude: &str,
        index: usize,
        at: &Coordinates,
    ) -> Result<(), OpError> {
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let mut statements = String::new();
        let (value, value_type) = self.read_here(index, at, lanes, false, &mut statements)?;
        let ty = value_type.wgsl(lanes);
        let text = format!("fn {name}({params}) -> {ty} {{\n{prelude}{statements}    return {value};\n}}\n");
        self.replacements.insert(name.to_string(), text);
        Ok(())
    }

    /// Adds WGSL statements that read operand `index` at the coordinates of a result element, with broadcasting.
    /// Returns the name and the type of the variable that holds the value.
    pub(super) fn read_here(
        &mut self,
        index: usize,
        at: &Coordinates,
        lanes: u32,
        whole_groups: bool,
        statements: &mut String,
    ) -> Result<(String, ValueType), OpError> {
        let operand = self
            .problem
            .operands
            .get(index)
            .ok_or_else(|| OpError::new("a missing epilogue operand"))?
            .clone();
        let result = &self.problem.result;
        let skip = result
            .rank()
            .checked_sub(operand.rank())
            .ok_or_else(|| OpError::new("an epilogue operand has more dimensions than the result"))?;
        let mut here = at.clone();
        here.axes = at.axes[skip..].to_vec();
        here.lanes = at.lanes.and_then(|l| l.checked_sub(skip));
        let same = operand.shape == result.shape && operand.placement == result.placement;
        if !same {
            here.vec4_index = None;
        }
        let spatial = |shape: &[Dim]| {
            shape.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, d)| d.clone()).collect::<Vec<_>>()
        };
        if skip > 0 || spatial(&operand.shape) != spatial(&result.shape) {
            here.pixel = None;
        }
        let value_type = ValueType::from_dtype(operand.dtype);
        let name = format!("x{index}");
        let access = tensor_read_access(&mut self.sizes, &operand, &here, whole_groups);
        let buffer = self.bind_tensor(&operand, Bound::Operand(index), &access, false);
        // An operand without the lane axis has one value for all 4 lanes.
        let (before, value) = if lanes == 4 && here.lanes.is_none() {
            (String::new(), format!("{}({})", value_type.wgsl(4), scalar_text(&access, &buffer, value_type)))
        } else {
            load_text(&access, &buffer, value_type, lanes, &format!("l{index}"))
        };
        *statements += &format!("{before}    let {name} = {value};\n");
        Ok((name, value_type))
    }
}

/// Returns WGSL that converts a loaded value to the type in which the shader computes.
fn from_storage(text: &str, value_type: ValueType, lanes: u32) -> String {
    match value_type {
        ValueType::Bool => format!("({text} != {})", if lanes == 4 { "vec4<u32>(0u)" } else { "0u" }),
        _ => format!("{}({text})", value_type.wgsl(lanes)),
    }
}

fn scalar_text(access: &Access, buffer: &BoundVariable, value_type: ValueType) -> String {
    let raw = match access {
        Access::Scalar { index, lane: None } | Access::Splat { index } => buffer.load_element(index),
        Access::Scalar { index, lane: Some(lane) } => buffer.load_component(index, lane),
        Access::Vector { index } => format!("{}.x", buffer.load_vector(index)),
        Access::Scattered { indices, .. } => buffer.load_element(&indices[0]),
    };
    from_storage(&raw, value_type, 1)
}

/// Returns WGSL statements that load a value, and the expression of the value. The statements may declare the variable `name`.
fn load_text(
    access: &Access,
    buffer: &BoundVariable,
    value_type: ValueType,
    lanes: u32,
    name: &str,
) -> (String, String) {
    match access {
        Access::Vector { index } => (String::new(), from_storage(&buffer.load_vector(index), value_type, 4)),
        Access::Scalar { .. } if lanes == 1 => (String::new(), scalar_text(access, buffer, value_type)),
        Access::Scalar { .. } | Access::Splat { .. } => (
            String::new(),
            format!("{}({})", value_type.wgsl(lanes), scalar_text(access, buffer, value_type)),
        ),
        Access::Scattered { indices, lane, guard } => {
            let mut text = format!("    var {name}: {} = {};\n", value_type.wgsl(4), value_type.zero(4));
            for (j, index) in indices.iter().enumerate() {
                let component = ["x", "y", "z", "w"][j];
                let loaded = match lane {
                    Some(lane) => buffer.load_component(index, lane),
                    None => buffer.load_element(index),
                };
                let value = from_storage(&loaded, value_type, 1);
                text += &match guard {
                    Some((first, limit)) if j > 0 => {
                        format!("    if ({first} + {j}u < {limit}) {{ {name}.{component} = {value}; }}\n")
                    }
                    _ => format!("    {name}.{component} = {value};\n"),
                };
            }
            (text, name.to_string())
        }
    }
}
