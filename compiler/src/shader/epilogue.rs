//! WGSL statements for sequences of elementwise functions: a fused epilogue, or a function that combines two values.

use std::collections::BTreeMap;

use super::access::Coordinates;
use super::element_functions::element_expression;
use super::hooks::Shader;
use super::value_type::ValueType;
use crate::error::OpError;
use crate::ir::element::{Arg, EpilogueStep};
use crate::ir::tensor::DeviceType;

/// A WGSL expression and the type of its value.
type Text = (String, ValueType);

impl Shader<'_> {
    /// Returns the WGSL statements of an epilogue, the expression of its result, and the result's type. Operands of the
    /// epilogue are read at the result's coordinates `at`, with broadcasting.
    ///
    /// # Errors
    /// If the epilogue is malformed (a defect of the graph).
    pub fn epilogue_statements(
        &mut self,
        steps: &[EpilogueStep],
        start: Option<(String, ValueType)>,
        at: &Coordinates,
        lanes: u32,
        whole_groups: bool,
    ) -> Result<(String, String, ValueType), OpError> {
        self.steps_text(steps, start, lanes, |shader, index, statements| {
            shader.read_here(index as usize, at, lanes, whole_groups, statements)
        })
    }

    /// Returns the WGSL statements and the result of elementwise functions of two float vec4s. In the text of the functions, `#0`
    /// stands for the vector `first`, and every operand `@k` stands for the vector `second`.
    ///
    /// # Errors
    /// If a step names a missing value or the result is not a float.
    pub fn combine_statements(
        &mut self,
        steps: &[EpilogueStep],
        first: &str,
        second: &str,
    ) -> Result<(String, String), OpError> {
        let start = Some((first.to_string(), ValueType::Float));
        let (statements, value, value_type) =
            self.steps_text(steps, start, 4, |_, _, _| Ok((second.to_string(), ValueType::Float)))?;
        if value_type != ValueType::Float {
            return Err(OpError::new("the elementwise steps do not return a float"));
        }
        Ok((statements, value))
    }

    /// Generates the WGSL of elementwise steps. `start`, if present, is the value `#0` of the steps. `read` is called
    /// once per operand and may add statements.
    fn steps_text(
        &mut self,
        steps: &[EpilogueStep],
        start: Option<Text>,
        lanes: u32,
        mut read: impl FnMut(&mut Self, u32, &mut String) -> Result<Text, OpError>,
    ) -> Result<(String, String, ValueType), OpError> {
        let mut statements = String::new();
        let mut reads: BTreeMap<u32, Text> = BTreeMap::new();
        let mut values: Vec<Text> = start.into_iter().collect();
        let based = values.len();
        let half = self.problem.result.dtype.on_device() == DeviceType::F16;
        for step in steps {
            for arg in &step.args {
                if let Arg::Input(k) = arg
                    && !reads.contains_key(k)
                {
                    let value = read(self, *k, &mut statements)?;
                    reads.insert(*k, value);
                }
            }
            let operands: Option<Vec<Text>> = step
                .args
                .iter()
                .map(|arg| match *arg {
                    Arg::Input(k) => reads.get(&k).cloned(),
                    Arg::Step(s) => (s as usize + based).checked_sub(1).and_then(|i| values.get(i)).cloned(),
                })
                .collect();
            let operands = operands.ok_or_else(|| OpError::new("an epilogue step names a missing value"))?;
            let (text, value_type, elementary) = element_expression(step.element, &operands, lanes, half)?;
            if elementary {
                self.elementary = Some(lanes);
            }
            let name = format!("s{}", values.len());
            statements += &format!("    let {name} = {text};\n");
            values.push((name, value_type));
        }
        let (value, value_type) = values.pop().ok_or_else(|| OpError::new("the epilogue has no steps"))?;
        Ok((statements, value, value_type))
    }
}
