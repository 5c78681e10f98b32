//! `fill.wgsl`: computes tensors that have no operands: ranges, and tensors of sizes (as from ONNX Shape).

use serde::Deserialize;

use crate::error::OpError;
use crate::ir::dim::Dim;
use crate::ir::op::Op;
use crate::kernels::cost::{Estimate, Parameters};
use crate::kernels::kernel::{Candidate, Configuration, Group, InPlace, Kernel, ThreadsConfig};
use crate::shader::problem::{Placement, Problem};
use crate::shader::row_view::RowView;
use crate::shader::{Grid, LaunchDraft, Shader, ValueType};

pub(crate) const KERNEL: Kernel = Kernel {
    name: "fill",
    wgsl: include_str!("fill.wgsl"),
    candidates,
    launches: |problem, candidate| launches(problem, candidate.config()?),
    matrices: None,
    params: &[Group::from_parameters::<Params>()],
    in_place: InPlace::Nothing,
};

/// Cost parameters of the kernel `fill`. All are between 0 and 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Fraction of the memory bandwidth that the kernel reaches.
    bandwidth_fraction: f64,
}

impl Parameters for Params {
    const GROUP: &str = "fill";
}

fn candidates(problem: &Problem<'_>) -> Vec<Candidate> {
    if !matches!(problem.op, Op::Range(_) | Op::ShapeValues(_)) {
        return Vec::new();
    }
    let Some(p) = Params::from_problem(problem) else { return Vec::new() };
    let estimate = Estimate::roofline(problem, 0.0, problem.traffic() as f64 / p.bandwidth_fraction, 1.0);
    let config = ThreadsConfig { threads: problem.threads() };
    vec![Candidate::new(&config, estimate, "one invocation per element")]
}

/// Consecutive elements whose values form an arithmetic sequence.
#[derive(Debug, PartialEq)]
struct Run {
    /// Index of the first element.
    first: usize,
    /// Index after the last element.
    end: usize,
    /// Value of the first element.
    start: Dim,
    /// Difference between neighboring values.
    step: i64,
}

impl Run {
    /// Returns the WGSL expression of the value of element `unit`. `start` is the expression of the first value. Integers wrap
    /// around, so a negative step is added as an unsigned number.
    fn value(&self, start: &str) -> String {
        let step = self.step as u32;
        match (step, self.first) {
            (0, _) => format!("E({start})"),
            (_, 0) => format!("E({start}) + E(unit) * E({step}u)"),
            (_, first) => format!("E({start}) + E(unit - {first}u) * E({step}u)"),
        }
    }

    /// True if element `i` with this value is the next element of the sequence. A second element always is, if its distance
    /// from the first one is known.
    fn continues(&self, i: usize, value: &Dim) -> bool {
        let Some(difference) = value.sub(&self.start).as_known() else { return false };
        let distance = i64::try_from(i - self.first).unwrap_or(i64::MAX);
        distance == 1 || distance.checked_mul(self.step) == Some(difference)
    }
}

/// Splits values into arithmetic sequences, each as long as possible. A list of positions, which some models have as
/// thousands of single values, is one sequence.
fn runs(values: &[Dim]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (i, value) in values.iter().enumerate() {
        let last = runs.last_mut().filter(|run| run.continues(i, value));
        match last {
            Some(run) => {
                if i == run.first + 1 {
                    run.step = value.sub(&run.start).as_known().unwrap_or(0);
                }
                run.end = i + 1;
            }
            None => runs.push(Run { first: i, end: i + 1, start: value.clone(), step: 0 }),
        }
    }
    runs
}

fn launches(problem: &Problem<'_>, config: ThreadsConfig) -> Result<Vec<LaunchDraft>, OpError> {
    let mut shader = Shader::new(problem);
    let class = ValueType::from_dtype(problem.computed);
    let body = match problem.op {
        Op::Range(op) => {
            let start = shader.dim(&op.start);
            format!("    return E({start}) + E(unit) * E({}u);\n", op.step as u32)
        }
        Op::ShapeValues(op) => {
            let runs = runs(&op.values);
            let mut text = String::new();
            for (i, run) in runs.iter().enumerate() {
                let value = run.value(&shader.dim(&run.start));
                text += &match i + 1 < runs.len() {
                    true => format!("    if (unit < {}u) {{ return {value}; }}\n", run.end),
                    false => format!("    return {value};\n"),
                };
            }
            text
        }
        _ => return Err(OpError::new("the operator has operands")),
    };
    // Elements are numbered in row-major order for every layout of the result.
    let mut result = problem.result.clone();
    result.placement = Placement::dense(&result.shape);
    let rows = RowView::new(&result, &[]).with_scalar_lanes();
    let ThreadsConfig { threads } = config;
    config.declare(&mut shader);
    shader.alias("E", class.scalar());
    shader.size("units", &rows.rows());
    shader.replace("value", format!("fn value(unit: u32) -> E {{\n{body}}}"));
    let (prelude, at) = rows.unit(&mut shader);
    shader.write("store", "unit: u32", &prelude, &at)?;
    let grid = Grid::linear(&rows.rows(), threads, problem.bounds);
    Ok(vec![shader.finish("fill", KERNEL.wgsl, grid, problem.result.elements())])
}

#[cfg(test)]
mod tests {
    use super::{Run, runs};
    use crate::ir::dim::Dim;

    #[test]
    fn values_are_split_into_arithmetic_sequences() {
        let n = Dim::symbol("n");
        let positions: Vec<Dim> = (0..1000).map(|i| n.plus(i)).collect();
        assert_eq!(runs(&positions), [Run { first: 0, end: 1000, start: n.clone(), step: 1 }]);
        let values = [7, 7, 7, 5, 3, 1].map(Dim::known);
        let sevens = Run { first: 0, end: 3, start: Dim::known(7), step: 0 };
        assert_eq!(runs(&values), [sevens, Run { first: 3, end: 6, start: Dim::known(5), step: -2 }]);
        let values = [n.clone(), Dim::known(4), n.scale(2)];
        assert_eq!(runs(&values).iter().map(|run| run.end).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn a_sequence_is_arithmetic_on_the_position() {
        let run = Run { first: 2, end: 9, start: Dim::known(5), step: -3 };
        assert_eq!(run.value("5"), "E(5) + E(unit - 2u) * E(4294967293u)");
    }
}
