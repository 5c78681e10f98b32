//! Workgroup tiles of small-M matmuls whose constants are packed into panels (blocks of columns).

use super::matmul_node::MatMulNode;
use crate::shader::problem::Problem;

/// Numbers of invocations per panel from which candidates are built.
const PANEL_THREADS: [u32; 4] = [64, 128, 256, 512];
/// Minimum number of invocations per panel. It is a candidate for every matmul, even if K is short.
const MIN_PANEL_THREADS: u32 = PANEL_THREADS[0];
/// Numbers of panels of each weight matrix per workgroup from which candidates are built. Several panels are useful
/// only if rows in workgroup memory serve all of them.
const PANELS: [u32; 3] = [1, 2, 4];
/// Maximum invocations per workgroup of a small-M matmul. More invocations leave too few registers for loads in flight.
const MAX_THREADS: u32 = 512;

/// Tile of a workgroup of a small-M matmul: number of invocations, of panels of each weight matrix, and of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PanelTile {
    pub(crate) threads: u32,
    pub(crate) panels: u32,
    pub(crate) rows: u32,
}

/// Workgroup memory that a tile uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileMemory {
    pub(crate) bytes: u32,
    /// Number of row items that the tile stores in workgroup memory; 0 if none. An item is an element, or the K
    /// positions of one packed word, depending on the kernel.
    pub(crate) stored_items: u32,
}

impl PanelTile {
    /// Returns all tiles within the target's limits, with their workgroup memory. `is_useful(n)` is true if K is long
    /// enough for `n` invocations per panel; `memory` returns the memory of a tile. Tiles of several panels are
    /// returned only if a tile of one row stores its row in workgroup memory, a condition that does not depend on the
    /// number of rows.
    pub(crate) fn enumerate(
        problem: &Problem<'_>,
        node: &MatMulNode<'_>,
        rows: u32,
        subgroup_lanes: Option<u32>,
        is_useful: impl Fn(u32) -> bool,
        memory: impl Fn(Self) -> Option<TileMemory>,
    ) -> Vec<(Self, TileMemory)> {
        let limits = &problem.target.limits;
        let max_threads = limits.max_workgroup_invocations.min(limits.max_workgroup_size[0]).min(MAX_THREADS);
        let pairs = PANEL_THREADS.into_iter().flat_map(|threads| PANELS.map(|panels| (threads, panels)));
        let tiles = pairs.filter_map(|(panel_threads, panels)| {
            let tile = Self { threads: panel_threads * node.matrices() as u32 * panels, panels, rows };
            let whole_subgroups = subgroup_lanes.is_none_or(|lanes| {
                panel_threads >= lanes && tile.threads / lanes <= limits.max_workgroup_subgroups
            });
            let fits = tile.threads <= max_threads
                && whole_subgroups
                && (panel_threads == MIN_PANEL_THREADS || is_useful(panel_threads));
            let reuses_rows = panels == 1
                || node.needs_panel_pairs()
                || memory(Self { rows: 1, ..tile }).is_some_and(|memory| memory.stored_items > 0);
            if !fits || !reuses_rows {
                return None;
            }
            // Rows with a residual take many reads, so they are computed once for all panels and stored.
            let memory =
                memory(tile).filter(|memory| memory.stored_items > 0 || node.residual().is_none())?;
            Some((tile, memory))
        });
        tiles.collect()
    }

    /// Returns the number of invocations per panel.
    pub(crate) fn panel_threads(self, node: &MatMulNode<'_>) -> u32 {
        self.threads / node.matrices() as u32 / self.panels
    }
}

impl TileMemory {
    /// Returns the workgroup memory for `sum_bytes` bytes of sums and `items` row items of `item_bytes` bytes each.
    /// Leaves the items out if the target has too little workgroup memory for them, and returns `None` if even the sums
    /// do not fit.
    pub(crate) fn choose(
        problem: &Problem<'_>,
        sum_bytes: u32,
        items: Option<u32>,
        item_bytes: u32,
    ) -> Option<Self> {
        let limit = problem.target.limits.max_workgroup_memory;
        let with_items = items.and_then(|stored_items| {
            Some(Self { bytes: stored_items.checked_mul(item_bytes)?.checked_add(sum_bytes)?, stored_items })
        });
        let fits = |memory: &Self| memory.bytes <= limit;
        with_items.filter(fits).or(Some(Self { bytes: sum_bytes, stored_items: 0 }).filter(fits))
    }
}
