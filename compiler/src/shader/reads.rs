//! Functions of a shader that read operands: at coordinates of their own, or broadcast from the result's.

use super::access::{Access, Coordinates, reading};
use super::class::Class;
use super::hooks::Shader;
use super::launch::Bound;
use super::resource::Held;
use crate::error::OpError;
use crate::ir::dim::Dim;

impl Shader<'_> {
    /// Replaces hook `name` by a function that reads operand `index` at coordinates written in terms of the hook's
    /// parameters (`params`, as in `batch: u32, row: u32`), after the statements in `prelude`.
    /// The function returns one value or, with a lane axis, four.
    pub fn read(&mut self, name: &str, params: &str, prelude: &str, index: usize, at: &Coordinates) {
        let text = self.read_fn(name, params, prelude, index, at, false);
        self.replacements.insert(name.to_string(), text);
    }

    /// The text of a reading function, without registering it under a hook.
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
        let class = Class::of(operand.dtype);
        let lanes = if at.lanes.is_some() { 4 } else { 1 };
        let how = reading(&mut self.words, &operand, at, whole_groups);
        let buffer = self.hold(&operand, Bound::Operand(index), &how, false);
        let ty = class.wgsl(lanes);
        let (before, value) = load_text(&how, &buffer, class, lanes, "r");
        let (closing, value) = self.closed(index, at, &how, class, value);
        format!("fn {name}({params}) -> {ty} {{\n{prelude}{before}{closing}    return {value};\n}}\n")
    }

    /// Replaces hook `name` by a function that reads operand `index` at coordinates of the result, broadcasting.
    ///
    /// # Errors
    /// When the operand does not broadcast to the result (a defect of the graph).
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
        let (value, class) = self.read_here(index, at, lanes, false, &mut statements)?;
        let ty = class.wgsl(lanes);
        let text = format!("fn {name}({params}) -> {ty} {{\n{prelude}{statements}    return {value};\n}}\n");
        self.replacements.insert(name.to_string(), text);
        Ok(())
    }

    /// Reads operand `index` at the result's coordinates, broadcasting; adds the statements that do so.
    pub(super) fn read_here(
        &mut self,
        index: usize,
        at: &Coordinates,
        lanes: u32,
        whole_groups: bool,
        statements: &mut String,
    ) -> Result<(String, Class), OpError> {
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
            .ok_or_else(|| OpError::new("a epilogue operand has more dimensions than the result"))?;
        let mut here = at.clone();
        here.axes = at.axes[skip..].to_vec();
        here.lanes = at.lanes.and_then(|l| l.checked_sub(skip));
        let same = operand.shape == result.shape && operand.placement == result.placement;
        if !same {
            here.unit = None;
        }
        let spatial = |shape: &[Dim]| {
            shape.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, d)| d.clone()).collect::<Vec<_>>()
        };
        if skip > 0 || spatial(&operand.shape) != spatial(&result.shape) {
            here.pixel = None;
        }
        let class = Class::of(operand.dtype);
        let name = format!("x{index}");
        let how = reading(&mut self.words, &operand, &here, whole_groups);
        let buffer = self.hold(&operand, Bound::Operand(index), &how, false);
        // An operand without the lane axis has one value for all four lanes.
        let (before, value) = if lanes == 4 && here.lanes.is_none() {
            (String::new(), format!("{}({})", class.wgsl(4), scalar_text(&how, &buffer, class)))
        } else {
            load_text(&how, &buffer, class, lanes, &format!("l{index}"))
        };
        *statements += &format!("{before}    let {name} = {value};\n");
        Ok((name, class))
    }
}

/// A loaded value as its class.
fn from_storage(text: &str, class: Class, lanes: u32) -> String {
    match class {
        Class::Bool => format!("({text} != {})", if lanes == 4 { "vec4<u32>(0u)" } else { "0u" }),
        _ => format!("{}({text})", class.wgsl(lanes)),
    }
}

fn scalar_text(how: &Access, buffer: &Held, class: Class) -> String {
    let raw = match how {
        Access::Scalar { index, lane: None } | Access::Splat { index } => buffer.load(index),
        Access::Scalar { index, lane: Some(lane) } => format!("{}[{lane}]", buffer.load(index)),
        Access::Vector { index } => format!("{}.x", buffer.load(index)),
        Access::Scattered { indices, .. } => buffer.load(&indices[0]),
    };
    from_storage(&raw, class, 1)
}

/// Statements and the expression of a loaded value; `name` is free for a variable.
fn load_text(how: &Access, buffer: &Held, class: Class, lanes: u32, name: &str) -> (String, String) {
    match how {
        Access::Vector { index } => (String::new(), from_storage(&buffer.load(index), class, 4)),
        Access::Scalar { .. } if lanes == 1 => (String::new(), scalar_text(how, buffer, class)),
        Access::Scalar { .. } | Access::Splat { .. } => {
            (String::new(), format!("{}({})", class.wgsl(lanes), scalar_text(how, buffer, class)))
        }
        Access::Scattered { indices, lane, guard } => {
            let mut text = format!("    var {name}: {} = {};\n", class.wgsl(4), class.zero(4));
            for (j, index) in indices.iter().enumerate() {
                let component = ["x", "y", "z", "w"][j];
                let lane = lane.as_ref().map_or(String::new(), |l| format!("[{l}]"));
                let value = from_storage(&format!("{}{lane}", buffer.load(index)), class, 1);
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
