//! How the work of a product that streams constants in panels is cut into workgroups.

use super::fused::Fused;
use crate::kernels::kernel::Candidate;
use crate::shader::problem::Problem;

/// Invocations that take a panel of a constant; any product may have the fewest.
const TEAMS: [u32; 4] = [64, 128, 256, 512];
const SMALLEST: u32 = TEAMS[0];
/// Panels that a workgroup takes at once; several where rows are stored, which they then share.
const PANELS: [u32; 3] = [1, 2, 4];
/// Most invocations of a workgroup: more of them leave too few registers for units in flight.
const MOST_THREADS: u32 = 512;

/// Invocations, and panels and rows of each workgroup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) threads: u32,
    pub(crate) panels: u32,
    pub(crate) rows: u32,
}

/// Bytes of workgroup memory, and how many parts of rows are stored there; none where nothing is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) bytes: u32,
    pub(crate) stored: u32,
}

impl Cut {
    /// Of a candidate's knobs.
    pub(crate) fn of(candidate: &Candidate) -> Self {
        let [threads, panels, rows] = ["THREADS", "PANELS", "ROWS"].map(|name| candidate.knob(name).max(1));
        Self { threads, panels, rows }
    }

    /// All that workgroups of the target can have. `useful` tells whether a product occupies a team of so many; `memory`
    /// tells what a cut needs. Several panels are worth it where they share stored rows: whether they do follows from one
    /// row, so that it does not follow from how many there are.
    pub(crate) fn all(
        problem: &Problem<'_>,
        fused: &Fused<'_>,
        rows: u32,
        lanes: Option<u32>,
        useful: impl Fn(u32) -> bool,
        memory: impl Fn(Self) -> Option<Memory>,
    ) -> Vec<(Self, Memory)> {
        let limits = &problem.target.limits;
        let most = limits.max_workgroup_invocations.min(limits.max_workgroup_size[0]).min(MOST_THREADS);
        let pairs = TEAMS.into_iter().flat_map(|team| PANELS.map(|panels| (team, panels)));
        let cuts = pairs.filter_map(|(team, panels)| {
            let cut = Self { threads: team * fused.matrices() as u32 * panels, panels, rows };
            let whole = lanes
                .is_none_or(|lanes| team >= lanes && cut.threads / lanes <= limits.max_workgroup_subgroups);
            let fits = cut.threads <= most && whole && (team == SMALLEST || useful(team));
            let shares = panels == 1
                || fused.pairs_panels()
                || memory(Self { rows: 1, ..cut }).is_some_and(|memory| memory.stored > 0);
            if !fits || !shares {
                return None;
            }
            // Rows that are sums with a residual take many reads, so that they are made once for all panels.
            let memory = memory(cut).filter(|memory| memory.stored > 0 || fused.residual().is_none())?;
            Some((cut, memory))
        });
        cuts.collect()
    }

    /// Invocations of a workgroup that take a panel of a constant.
    pub(crate) fn team(self, fused: &Fused<'_>) -> u32 {
        self.threads / fused.matrices() as u32 / self.panels
    }
}

impl Memory {
    /// The larger of two that the target has: `sums` bytes, and as many more as storing `parts` of `each` bytes takes.
    pub(crate) fn of(problem: &Problem<'_>, sums: u32, parts: Option<u32>, each: u32) -> Option<Self> {
        let most = problem.target.limits.max_workgroup_memory;
        let stored = parts
            .and_then(|stored| Some(Self { bytes: stored.checked_mul(each)?.checked_add(sums)?, stored }));
        let fits = |memory: &Self| memory.bytes <= most;
        stored.filter(fits).or(Some(Self { bytes: sums, stored: 0 }).filter(fits))
    }
}
