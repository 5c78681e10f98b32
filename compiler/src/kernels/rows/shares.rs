//! How rows are shared among invocations: the knobs that every row kernel has, their legal values and their cost.

use serde::Deserialize;

use crate::ir::dim::Dim;
use crate::kernels::cost::barriers;
use crate::kernels::kernel::Candidate;
use crate::shader::problem::Problem;
use crate::shader::rows::Rows;
use crate::shader::{Grid, Shader};

/// Parameters of the estimate of a row kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Wait for a load, in latencies of memory; loads of one step overlap a little.
    wait: f64,
    /// Loads that an invocation has in flight.
    abreast: f64,
    /// Elements side by side that make good use of what is fetched together.
    line: f64,
    /// Part of the traffic that reading a row once more takes.
    again: f64,
    /// Barriers beside those of the levels of a tree: writing the shares and reading the result.
    level_ends: f64,
    /// Waits of the first load and the last store, which have nothing beside them.
    ends: f64,
}

impl Params {
    /// Nanoseconds until loaded data arrives.
    fn latency(&self, problem: &Problem<'_>) -> f64 {
        problem.target.machine.memory_latency_ns * self.wait
    }
}

/// LANES invocations for each of ROWS rows per workgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    /// Invocations per row; a power of two.
    pub(super) lanes: u32,
    /// Rows per workgroup.
    pub(super) rows: u32,
}

impl Shares {
    /// Every configuration that fits the device; `memory` is the bytes of workgroup memory per invocation.
    pub(super) fn all(problem: &Problem<'_>, rows: &Rows, memory: u32) -> Vec<Self> {
        let limits = &problem.target.limits;
        let most = limits.max_workgroup_invocations.min(limits.max_workgroup_memory / memory.max(1));
        let usual = problem.target.prefer.workgroup_invocations.min(most).max(1);
        let length = problem.max(&rows.length()).clamp(1, 1 << 20) as u32;
        [1u32, 8, 32, 64, 128, 256, 512, 1024]
            .into_iter()
            .filter(|lanes| *lanes <= most && *lanes <= length.next_power_of_two())
            .map(|lanes| Self { lanes, rows: (usual / lanes).max(1) })
            .collect()
    }

    /// The knobs of a candidate.
    pub(super) fn of(candidate: &Candidate) -> Self {
        Self { lanes: candidate.knob("LANES").max(1), rows: candidate.knob("ROWS").max(1) }
    }

    /// Invocations per workgroup.
    pub(super) fn threads(self) -> u32 {
        self.lanes * self.rows
    }

    /// The candidate with its cost: `passes` times over operand 0, `keep` loads in flight per invocation.
    pub(super) fn candidate(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &Rows,
        passes: f64,
        keep: u32,
    ) -> Candidate {
        let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
        self.cost(p, problem, rows, (count, length, passes), keep)
    }

    /// The candidate that cuts each row into `pieces`, to be combined by a second launch.
    pub(super) fn pieces(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &Rows,
        pieces: u32,
        keep: u32,
    ) -> Candidate {
        let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
        let cut = (count * f64::from(pieces), (length / f64::from(pieces)).ceil());
        let mut candidate = self.cost(p, problem, rows, (cut.0, cut.1, 1.0), keep);
        candidate.cost += problem.target.machine.launch_us * 1e3 + p.ends * p.latency(problem);
        candidate.reason += &format!(", each row in {pieces} pieces and a second launch");
        candidate
    }

    fn cost(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &Rows,
        (count, length, passes): (f64, f64, f64),
        keep: u32,
    ) -> Candidate {
        let machine = &problem.target.machine;
        let lanes = f64::from(self.lanes);
        let steps = (length / (lanes * f64::from(keep))).ceil();
        let passes = if steps <= 1.0 { 1.0 } else { passes };
        // Invocations side by side must read side by side, or whole cache lines are fetched for a part of each.
        let side = match rows.contiguous() {
            true => lanes,
            false => f64::from(self.rows),
        };
        let waste = (p.line / (side * f64::from(rows.lanes.count()))).clamp(1.0, 4.0);
        let room = machine.invocations();
        let occupancy = (p.abreast * count * lanes / room).clamp(1e-3, 1.0);
        let traffic = problem.traffic() as f64 * waste * (1.0 + p.again * (passes - 1.0));
        let streaming = traffic / (machine.bandwidth_gb_s.max(1e-3) * occupancy);
        let waves = (count * lanes / room).ceil().max(1.0);
        // A barrier for each level of a tree.
        let levels = if self.lanes > 1 { lanes.log2() + p.level_ends } else { 0.0 };
        let waiting = waves * steps * passes * p.latency(problem) + barriers(problem, count * lanes, levels);
        // The first load and the last store have nothing beside them.
        let ends = p.ends * p.latency(problem);
        Candidate {
            knobs: vec![("LANES", self.lanes), ("ROWS", self.rows)],
            cost: streaming.max(waiting) + ends + machine.launch_us * 1e3,
            reason: format!(
                "{} invocations for each of {count} rows of {length} units, {} rows a workgroup",
                self.lanes, self.rows
            ),
        }
    }

    /// Sets the knobs LANES, ROWS, ROWS_FIRST, KEEP and HELD and the sizes of a row kernel.
    pub(super) fn knobs(self, shader: &mut Shader<'_>, problem: &Problem<'_>, rows: &Rows, keep: u32) {
        self.split(shader, rows);
        let held = problem.max(&rows.length()) <= i64::from(self.lanes) * i64::from(keep);
        let length = problem.max(&rows.length()).clamp(1, i64::from(u32::MAX)) as u32;
        shader.knob("KEEP", keep.min(length.div_ceil(self.lanes)));
        shader.constant("HELD", held);
    }

    /// Sets the knobs LANES, ROWS and ROWS_FIRST and the sizes of a row kernel.
    pub(super) fn split(self, shader: &mut Shader<'_>, rows: &Rows) {
        shader.knob("LANES", self.lanes);
        shader.knob("ROWS", self.rows);
        shader.constant("ROWS_FIRST", !rows.contiguous());
        shader.size("rows", &rows.rows());
        shader.size("length", &rows.length());
        shader.iterations(rows.length().ceil_div(i64::from(self.lanes)));
    }

    /// The grid with a workgroup for every ROWS of `rows`.
    pub(super) fn grid(self, problem: &Problem<'_>, rows: &Dim) -> Grid {
        let groups = Grid::linear(rows, self.rows, problem.bounds).groups;
        Grid { groups, workgroup: [self.threads(), 1, 1] }
    }
}
