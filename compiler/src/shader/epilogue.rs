//! Chains of element functions as statements of a shader: fused behind a node's result, or joining two values.

use std::collections::BTreeMap;

use super::access::Coordinates;
use super::class::Class;
use super::functions::element_text;
use super::hooks::Shader;
use crate::error::OpError;
use crate::ir::element::{Arg, EpilogueStep};

/// An expression and its class.
type Text = (String, Class);

impl Shader<'_> {
    /// Statements that apply an epilogue at coordinates, the expression of its result and its class.
    /// Operands are read at coordinates broadcast from the result's.
    ///
    /// # Errors
    /// When the epilogue does not fit (a defect of the graph).
    pub fn epilogue_text(
        &mut self,
        steps: &[EpilogueStep],
        start: Option<(String, Class)>,
        at: &Coordinates,
        lanes: u32,
        whole_groups: bool,
    ) -> Result<(String, String, Class), OpError> {
        self.steps_text(steps, start, lanes, |shader, index, statements| {
            shader.read_here(index as usize, at, lanes, whole_groups, statements)
        })
    }

    /// Statements and the value of element functions on two values of four floats: `#0`, and `@k` for any `k`.
    ///
    /// # Errors
    /// When a step names something else.
    pub fn pair_text(
        &mut self,
        steps: &[EpilogueStep],
        first: &str,
        second: &str,
    ) -> Result<(String, String), OpError> {
        let start = Some((first.to_string(), Class::Float));
        let (statements, value, class) =
            self.steps_text(steps, start, 4, |_, _, _| Ok((second.to_string(), Class::Float)))?;
        if class != Class::Float {
            return Err(OpError::new("the steps make no float"));
        }
        Ok((statements, value))
    }

    /// The steps after a value that is `#0`, if there is one; `read` gives operand k, once, and may add statements.
    fn steps_text(
        &mut self,
        steps: &[EpilogueStep],
        start: Option<Text>,
        lanes: u32,
        mut read: impl FnMut(&mut Self, u32, &mut String) -> Result<Text, OpError>,
    ) -> Result<(String, String, Class), OpError> {
        let mut statements = String::new();
        let mut reads: BTreeMap<u32, Text> = BTreeMap::new();
        let mut values: Vec<Text> = start.into_iter().collect();
        let based = values.len();
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
            let operands = operands.ok_or_else(|| OpError::new("a epilogue step names a missing value"))?;
            let (text, class, elementary) = element_text(step.element, &operands, lanes)?;
            if elementary {
                self.elementary = Some(lanes);
            }
            let name = format!("s{}", values.len());
            statements += &format!("    let {name} = {text};\n");
            values.push((name, class));
        }
        let (value, class) = values.pop().ok_or_else(|| OpError::new("an empty chain"))?;
        Ok((statements, value, class))
    }
}
