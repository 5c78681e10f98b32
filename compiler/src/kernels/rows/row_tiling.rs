//! Tiling of rows: the knobs of the row kernels, their valid values and the estimate.

use serde::Deserialize;

use crate::ir::dim::Dim;
use crate::kernels::cost::barriers;
use crate::kernels::kernel::{Candidate, Configuration, config};
use crate::shader::problem::Problem;
use crate::shader::row_view::RowView;
use crate::shader::{Grid, Shader};

/// Cost parameters of a row kernel. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Loads in flight per invocation, for the occupancy of the memory system.
    concurrent_loads: f64,
    /// Memory traffic of each further pass over a row, as a fraction of the first pass. 0 to 1.
    extra_pass_traffic_fraction: f64,
    /// Fixed time of the first load and the last store, as a number of steps.
    fixed_steps: f64,
    /// Barriers in addition to one per level of the reduction tree.
    extra_barriers: f64,
    /// Neighboring elements that must be read together to use all bytes of a cache line.
    cache_line_elements: f64,
    /// Memory latencies per step. Below 1 if the loads of consecutive steps overlap.
    step_latencies: f64,
}

impl Params {
    /// Returns the nanoseconds per step.
    fn step_ns(&self, problem: &Problem<'_>) -> f64 {
        problem.target.machine.memory_latency_ns * self.step_latencies
    }
}

config! {
    /// Configuration of row kernels: `LANES` invocations compute each of the `ROWS` rows of a workgroup.
    pub(super) struct RowTiling {
        /// Invocations per row, a power of two.
        LANES => lanes: u32,
        /// Rows per workgroup.
        ROWS => rows: u32,
    }
}

config! {
    /// A [`RowTiling`] whose rows may be split among workgroups.
    pub(super) struct SplitRowTiling {
        /// Invocations per row, a power of two.
        LANES => lanes: u32,
        /// Rows per workgroup.
        ROWS => rows: u32,
        /// Workgroups per row; absent if rows are not split.
        SPLIT => split: Option<u32>,
    }
}

impl SplitRowTiling {
    /// Returns the configuration of each part of a row.
    pub(super) fn tiling(self) -> RowTiling {
        RowTiling { lanes: self.lanes, rows: self.rows }
    }
}

impl RowTiling {
    /// Returns all configurations within the device's limits. `memory` is the bytes of workgroup memory per invocation.
    pub(super) fn configurations(problem: &Problem<'_>, rows: &RowView, memory: u32) -> Vec<Self> {
        let limits = &problem.target.limits;
        let max_threads = limits.max_workgroup_invocations.min(limits.max_workgroup_memory / memory.max(1));
        let preferred = problem.target.prefer.workgroup_invocations.min(max_threads).max(1);
        let length = problem.max(&rows.length()).clamp(1, 1 << 20) as u32;
        [1u32, 8, 32, 64, 128, 256, 512, 1024]
            .into_iter()
            .filter(|lanes| *lanes <= max_threads && *lanes <= length.next_power_of_two())
            .map(|lanes| Self { lanes, rows: (preferred / lanes).max(1) })
            .collect()
    }

    /// Invocations per workgroup.
    pub(super) fn threads(self) -> u32 {
        self.lanes * self.rows
    }

    /// Returns the candidate of a kernel that reads operand 0 in `passes` passes, with `loads` loads in flight per
    /// invocation.
    pub(super) fn candidate(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &RowView,
        passes: f64,
        loads: u32,
    ) -> Candidate {
        let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
        self.estimate(p, problem, rows, (count, length, passes), loads)
    }

    /// Returns the candidate that splits each row into `split` parts, which a second launch combines.
    pub(super) fn split_candidate(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &RowView,
        split: u32,
        loads: u32,
    ) -> Candidate {
        let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
        let parts = f64::from(split);
        let mut candidate =
            self.estimate(p, problem, rows, (count * parts, (length / parts).ceil(), 1.0), loads);
        candidate.knobs = SplitRowTiling { lanes: self.lanes, rows: self.rows, split: Some(split) }.knobs();
        candidate.cost += problem.target.machine.launch_us * 1e3 + p.fixed_steps * p.step_ns(problem);
        candidate.reason += &format!(", rows split in {split} parts, with a second launch");
        candidate
    }

    fn estimate(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &RowView,
        (count, length, passes): (f64, f64, f64),
        loads: u32,
    ) -> Candidate {
        let machine = &problem.target.machine;
        let lanes = f64::from(self.lanes);
        let steps = (length / (lanes * f64::from(loads))).ceil();
        let passes = if steps <= 1.0 { 1.0 } else { passes };
        // If neighboring invocations do not read neighboring elements, only a part of each cache line is used.
        let neighbors = if rows.contiguous() { lanes } else { f64::from(self.rows) };
        let waste = (p.cache_line_elements / (neighbors * f64::from(rows.lanes.count()))).clamp(1.0, 4.0);
        let resident = machine.invocations();
        let occupancy = (p.concurrent_loads * count * lanes / resident).clamp(1e-3, 1.0);
        let traffic =
            problem.traffic() as f64 * waste * (1.0 + p.extra_pass_traffic_fraction * (passes - 1.0));
        let streaming = traffic / (machine.bandwidth_gb_s.max(1e-3) * occupancy);
        let waves = (count * lanes / resident).ceil().max(1.0);
        // One barrier per level of the reduction tree.
        let levels = if self.lanes > 1 { lanes.log2() + p.extra_barriers } else { 0.0 };
        let waiting = waves * steps * passes * p.step_ns(problem) + barriers(problem, count * lanes, levels);
        // No other load or store overlaps with the first load and the last store.
        let fixed_ns = p.fixed_steps * p.step_ns(problem);
        Candidate {
            knobs: self.knobs(),
            cost: streaming.max(waiting) + fixed_ns + machine.launch_us * 1e3,
            reason: format!(
                "{} invocations for each of {count} rows of {length} elements or vec4s, {} rows per workgroup",
                self.lanes, self.rows
            ),
        }
    }

    /// Declares what [`Self::declare_rows`] declares, and the constants LOADS and ROW_IN_REGISTERS.
    pub(super) fn declare_cached_rows(
        self,
        shader: &mut Shader<'_>,
        problem: &Problem<'_>,
        rows: &RowView,
        loads: u32,
    ) {
        self.declare_rows(shader, rows);
        let in_registers = problem.max(&rows.length()) <= i64::from(self.lanes) * i64::from(loads);
        let length = problem.max(&rows.length()).clamp(1, i64::from(u32::MAX)) as u32;
        shader.knob("LOADS", loads.min(length.div_ceil(self.lanes)));
        shader.constant("ROW_IN_REGISTERS", in_registers);
    }

    /// Declares the constants LANES, ROWS and ROWS_FIRST and the sizes of a row kernel.
    pub(super) fn declare_rows(self, shader: &mut Shader<'_>, rows: &RowView) {
        self.declare(shader);
        shader.constant("ROWS_FIRST", !rows.contiguous());
        shader.size("rows", &rows.rows());
        shader.size("length", &rows.length());
        shader.iterations(rows.length().ceil_div(i64::from(self.lanes)));
    }

    /// Returns the grid with one workgroup per `ROWS` of `rows`.
    pub(super) fn grid(self, problem: &Problem<'_>, rows: &Dim) -> Grid {
        let groups = Grid::linear(rows, self.rows, problem.bounds).groups;
        Grid { groups, workgroup: [self.threads(), 1, 1] }
    }
}
