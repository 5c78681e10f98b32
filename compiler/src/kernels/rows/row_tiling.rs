//! Tiling of row kernels, which compute along the rows of a tensor: their knobs, the valid values of the knobs, and the
//! estimate.

use serde::Deserialize;

use crate::ir::dim::Dim;
use crate::kernels::cost::{Estimate, barriers};
use crate::kernels::kernel::{Candidate, Configuration, config};
use crate::shader::problem::Problem;
use crate::shader::row_view::RowView;
use crate::shader::{Grid, Shader};

/// Cost parameters of a kernel that computes along rows. All are positive.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {
    /// Number of loads that an invocation has in flight. With more loads in flight, fewer invocations saturate the
    /// memory system.
    concurrent_loads: f64,
    /// Memory traffic of each further pass over a row, as a fraction of the first pass. 0 to 1.
    extra_pass_traffic_fraction: f64,
    /// Fixed time of the first load and the last store, as a number of steps along a row.
    fixed_steps: f64,
    /// Number of barriers in the reduction of a row, in addition to one barrier per level of the reduction tree.
    extra_barriers: f64,
    /// Number of neighboring elements that invocations must read together to use all bytes of a cache line.
    cache_line_elements: f64,
    /// Time of a step along a row, in which every invocation loads its next elements, in memory latencies. Below 1 if
    /// the loads of consecutive steps overlap.
    step_latencies: f64,
}

impl Params {
    /// Returns the time of a step along a row, in nanoseconds.
    fn step_ns(&self, problem: &Problem<'_>) -> f64 {
        problem.target.machine.memory_latency_ns * self.step_latencies
    }
}

config! {
    /// Configuration of kernels that compute along rows: a workgroup computes `ROWS` rows, each with `LANES`
    /// invocations.
    pub(super) struct RowTiling {
        /// Invocations per row, a power of two.
        LANES => lanes: u32,
        /// Rows per workgroup.
        ROWS => rows: u32,
    }
}

config! {
    /// Configuration of kernels that may split a row among several workgroups; otherwise like [`RowTiling`].
    pub(super) struct SplitRowTiling {
        /// Invocations per row, a power of two.
        LANES => lanes: u32,
        /// Rows per workgroup.
        ROWS => rows: u32,
        /// Number of workgroups among which a row is split; absent if rows are not split.
        SPLIT => split: Option<u32>,
    }
}

impl SplitRowTiling {
    /// Returns the configuration with which a workgroup computes its part of a row.
    pub(super) fn tiling(self) -> RowTiling {
        RowTiling { lanes: self.lanes, rows: self.rows }
    }
}

impl RowTiling {
    /// Returns all row tilings within the device's limits. `memory` is the workgroup memory per invocation, in bytes.
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

    /// Returns the candidate of a row kernel with this tiling. The kernel reads operand 0 in `passes` passes; an
    /// invocation has `loads` loads in flight.
    pub(super) fn candidate(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &RowView,
        passes: f64,
        loads: u32,
    ) -> Candidate {
        let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
        let estimate = self.estimate(p, problem, rows, (count, length, passes), loads);
        Candidate::new(&self, estimate, self.reason(count, length))
    }

    /// Returns the candidate of a row kernel that splits each row into `split` parts. A second launch combines the
    /// results of the parts.
    pub(super) fn split_candidate(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &RowView,
        split: u32,
        loads: u32,
    ) -> Candidate {
        let (count, length) = (problem.max(&rows.rows()) as f64, problem.max(&rows.length()) as f64);
        let (count, length) = (count * f64::from(split), (length / f64::from(split)).ceil());
        let parts = self.estimate(p, problem, rows, (count, length, 1.0), loads);
        // The second launch has its own first load and last store.
        let estimate = Estimate { fixed: 2.0 * parts.fixed, launch: 2.0 * parts.launch, ..parts };
        let reason = self.reason(count, length)
            + &format!(", rows split into {split} parts, with a second launch that combines the parts");
        let config = SplitRowTiling { lanes: self.lanes, rows: self.rows, split: Some(split) };
        Candidate::new(&config, estimate, reason)
    }

    fn reason(self, count: f64, length: f64) -> String {
        format!(
            "{} invocations for each of {count} rows of {length} elements or vec4s, {} rows per workgroup",
            self.lanes, self.rows
        )
    }

    fn estimate(
        self,
        p: &Params,
        problem: &Problem<'_>,
        rows: &RowView,
        (count, length, passes): (f64, f64, f64),
        loads: u32,
    ) -> Estimate {
        let machine = &problem.target.machine;
        let lanes = f64::from(self.lanes);
        let steps = (length / (lanes * f64::from(loads))).ceil();
        let passes = if steps <= 1.0 { 1.0 } else { passes };
        // If neighboring invocations do not read neighboring elements, only a part of each cache line is used.
        let neighbors = if rows.contiguous() { lanes } else { f64::from(self.rows) };
        let waste = (p.cache_line_elements / (neighbors * f64::from(rows.lanes.count()))).clamp(1.0, 4.0);
        let occupancy = (p.concurrent_loads * count * lanes / machine.invocations()).clamp(1e-3, 1.0);
        let traffic =
            problem.traffic() as f64 * waste * (1.0 + p.extra_pass_traffic_fraction * (passes - 1.0));
        // One barrier per level of the reduction tree.
        let levels = if self.lanes > 1 { libm::log2(lanes) + p.extra_barriers } else { 0.0 };
        Estimate {
            memory: traffic / (machine.bandwidth_gb_s.max(1e-3) * occupancy),
            latency: machine.rounds(count * lanes) * steps * passes * p.step_ns(problem)
                + barriers(problem, count * lanes, levels),
            fixed: p.fixed_steps * p.step_ns(problem),
            ..Estimate::for_dispatches(problem, 1.0)
        }
    }

    /// Like [`Self::declare_rows`], and also declares the constants LOADS (loads in flight) and ROW_IN_REGISTERS (true
    /// if a row stays in registers).
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

    /// Declares the constants of a row kernel (LANES, ROWS, ROWS_FIRST), its number of rows and their length.
    pub(super) fn declare_rows(self, shader: &mut Shader<'_>, rows: &RowView) {
        self.declare(shader);
        shader.constant("ROWS_FIRST", !rows.contiguous());
        shader.size("rows", &rows.rows());
        shader.size("length", &rows.length());
        shader.iterations(rows.length().ceil_div(i64::from(self.lanes)));
    }

    /// Returns the dispatch grid for `rows` rows: one workgroup per `ROWS` rows.
    pub(super) fn grid(self, problem: &Problem<'_>, rows: &Dim) -> Grid {
        let groups = Grid::linear(rows, self.rows, problem.bounds).groups;
        Grid { groups, workgroup: [self.threads(), 1, 1] }
    }
}
