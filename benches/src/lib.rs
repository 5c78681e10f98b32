//! Measurements of driftc. `RESULTS.md` keeps figures with date, machine and command.

use std::collections::BTreeMap;
use std::path::Path;

use drift_runtime::{Array, Session};

/// How often a bundle is replayed.
const RUNS: usize = 20;

/// The median time of each dispatch of a bundle's `main` in microseconds, at the upper bounds of the symbols and with
/// inputs of zeros.
///
/// # Errors
/// When the bundle does not load or run.
pub fn dispatch_medians(path: &Path) -> Result<Vec<f64>, Box<dyn std::error::Error>> {
    let mut session = Session::load(path, &drift_runtime::Options::default())?;
    let function = session.function("main")?.clone();
    let symbols: Vec<i64> = function.symbols.iter().map(|s| s.max).collect();
    let mut inputs: BTreeMap<&str, Array> = BTreeMap::new();
    for port in &function.inputs {
        let shape = port.shape_at(&symbols)?;
        let shape: Vec<usize> = shape.into_iter().map(usize::try_from).collect::<Result<_, _>>()?;
        inputs.insert(&port.name, Array::zeros(port.host_type, &shape).ok_or("an input that does not fit")?);
    }
    let arrays: Vec<_> = inputs.iter().map(|(name, array)| (*name, array.as_ref())).collect();
    session.run("main", &arrays)?;
    let mut times: Vec<Vec<f64>> = Vec::new();
    for _ in 0..RUNS {
        for (i, dispatch) in session.replay_timed("main")?.iter().enumerate() {
            if times.len() == i {
                times.push(Vec::with_capacity(RUNS));
            }
            times[i].push((dispatch.end - dispatch.start) / 1e3);
        }
    }
    Ok(times
        .into_iter()
        .map(|mut times| {
            times.sort_by(f64::total_cmp);
            times.get(times.len() / 2).copied().unwrap_or(0.0)
        })
        .collect())
}
