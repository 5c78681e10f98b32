//! Report of `driftc bench` for a function.

use std::time::Duration;

use drift_runtime::Session;
use serde::Serialize;

use super::opened::Size;
use crate::output::milliseconds;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) device: String,
    pub(super) driver: String,
    pub(super) target: String,
    pub(super) function: String,
    /// Values of the symbols of the function that ran.
    pub(super) symbols: Vec<(String, i64)>,
    /// Sizes of the measured run, also of symbols that the model was compiled without, and their origins.
    pub(super) sizes: Vec<Size>,
    pub(super) load: Load,
    /// Times of whole runs, including conversion and copies of inputs and outputs.
    pub(super) with_copies: Times,
    /// Times of the dispatches alone, from submission to completion, without copies of inputs and outputs.
    pub(super) without_copies: Times,
    /// Sum of the dispatch times in milliseconds, by the device's clock. `None` if the device has no timestamps.
    pub(super) device_ms: Option<f64>,
    /// Name of the target profile whose machine numbers give the rooflines.
    pub(super) profile: Option<String>,
    /// Sum of the rooflines of all dispatches, in milliseconds.
    #[serde(rename = "floor_ms")]
    pub(super) roofline_ms: Option<f64>,
    pub(super) dispatches: Vec<DispatchReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct Load {
    pub(super) total_ms: f64,
    pub(super) open_ms: f64,
    pub(super) device_ms: f64,
    pub(super) prepare_ms: f64,
    pub(super) pipelines: u32,
    pub(super) allocations: u32,
    pub(super) allocated_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Times {
    pub(super) runs: usize,
    pub(super) min_ms: f64,
    pub(super) median_ms: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct DispatchReport {
    pub(super) index: usize,
    pub(super) kernel: String,
    pub(super) node: String,
    pub(super) ns: f64,
    /// Time of this dispatch as a fraction of the time of all dispatches.
    pub(super) share: f64,
    pub(super) flops: i64,
    pub(super) bytes: i64,
    pub(super) gflop_s: f64,
    pub(super) gb_s: f64,
    /// Roofline of the dispatch: minimum time in nanoseconds by the profile's machine numbers.
    #[serde(rename = "floor_ns")]
    pub(super) roofline_ns: Option<f64>,
    /// Resource that limits the roofline: `memory` for bandwidth, `arithmetic` for peak throughput.
    pub(super) bound: Option<&'static str>,
    /// Measured time of the dispatch divided by its roofline.
    pub(super) ratio: Option<f64>,
}

impl Load {
    /// Time and allocations of loading a session, which took `total`.
    pub(super) fn from_session(session: &Session, total: Duration) -> Self {
        let stats = session.stats();
        Self {
            total_ms: milliseconds(total),
            open_ms: milliseconds(stats.open_time),
            device_ms: milliseconds(stats.device_time),
            prepare_ms: milliseconds(stats.prepare_time),
            pipelines: stats.pipelines,
            allocations: stats.allocations,
            allocated_bytes: stats.allocated_bytes,
        }
    }
}
