//! Trace of a run's dispatches in the format of chrome://tracing and ui.perfetto.dev.

use std::path::Path;

use drift_runtime::{DispatchTime, Session};
use serde_json::json;

use crate::failure::Result;
use crate::output::write_file;

/// Writes the dispatch times of a run in microseconds, all in one row.
pub(crate) fn write_trace(
    path: &Path,
    session: &Session,
    function: &str,
    times: &[DispatchTime],
) -> Result<()> {
    let described = session.last_replayed(function)?;
    let variant = session.variant();
    let events = times.iter().filter_map(|t| {
        let dispatch = described.dispatches.get(t.dispatch)?;
        let kernel = variant.pipelines.get(dispatch.pipeline as usize).map_or("", |p| p.name.as_str());
        Some(json!({
            "name": dispatch.label, "cat": kernel, "ph": "X", "pid": 1, "tid": 1,
            "ts": t.start / 1e3, "dur": (t.end - t.start) / 1e3,
            "args": { "kernel": kernel, "dispatch": t.dispatch, "barrier": dispatch.barrier_before },
        }))
    });
    let device = &session.device().name;
    let document = json!({
        "traceEvents": events.collect::<Vec<_>>(),
        "displayTimeUnit": "ns",
        "otherData": { "device": device, "function": function, "target": variant.target },
    });
    write_file(path, |file| {
        serde_json::to_writer(&mut *file, &document)?;
        writeln!(file)
    })
}
