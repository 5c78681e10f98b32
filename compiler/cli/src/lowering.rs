//! Lowering of a model for a target. If lowering fails only because of assumed bounds of symbols, the error names the
//! options that help.

use std::collections::BTreeSet;

use driftc::compile::{Lowered, Options};
use driftc::ir::graph::Graph;
use driftc::passes::Precision;
use driftc::target::TargetProfile;

use crate::failure::{Failure, Result};
use crate::model::Loaded;
use crate::model_args::{DimArg, ModelArgs};

/// Lowers a model into one function.
///
/// # Errors
/// If lowering fails. If lowering would succeed with known sizes in place of symbolic dimensions whose bounds were assumed, the
/// help text names the options that set these sizes.
pub(crate) fn lower(
    args: &ModelArgs,
    loaded: &Loaded,
    target: &TargetProfile,
    options: &Options,
) -> Result<Lowered> {
    with_dim_help(args, loaded, |graph| driftc::compile::lower(graph, target, options))
}

/// Lowers a model into the functions of its bundle.
///
/// # Errors
/// If lowering fails. The help text names the same options as for [`lower`].
pub(crate) fn lower_all(
    args: &ModelArgs,
    loaded: &Loaded,
    target: &TargetProfile,
    options: &Options,
) -> Result<Vec<Lowered>> {
    if !loaded.model.entry_points.is_empty() {
        return Ok(driftc::lowering::lower_model(&loaded.model, target, options)?);
    }
    with_dim_help(args, loaded, |graph| driftc::lowering::lower_all(graph, target, options))
}

/// Distinct shaders of functions in order of first use, as (kernel name, WGSL source).
pub(crate) fn distinct_shaders(functions: &[Lowered]) -> Vec<(&'static str, &str)> {
    let mut seen = BTreeSet::new();
    let launches = functions.iter().flat_map(|f| &f.plan.dispatches).map(|step| &step.launch);
    launches.filter(|l| seen.insert(l.wgsl.as_str())).map(|l| (l.kernel, l.wgsl.as_str())).collect()
}

/// Returns a note for the user if the target has no f16 storage and therefore stores the model's f16 values as f32.
pub(crate) fn f16_widening_note(
    target: &TargetProfile,
    precision: Precision,
    functions: &[Lowered],
) -> Option<String> {
    let passes = functions.iter().flat_map(|f| &f.passes).filter(|p| p.pass == "lower-precision");
    let widened = passes.map(|p| p.changes.count).max().unwrap_or(0);
    if target.features.stores_f16() || (widened == 0 && precision == Precision::F32) {
        return None;
    }
    Some(format!(
        "target {} does not store f16: its floats are all stored as f32 and take twice the bytes",
        target.name
    ))
}

fn with_dim_help<T>(
    args: &ModelArgs,
    loaded: &Loaded,
    lower: impl Fn(&Graph) -> driftc::Result<T>,
) -> Result<T> {
    let error = match lower(&loaded.model.graph) {
        Ok(lowered) => return Ok(lowered),
        Err(error) => error,
    };
    let mut fixed = args.clone();
    let typical = loaded.assumed.iter().map(|(name, n)| DimArg { name: name.clone(), low: *n, high: *n });
    fixed.options.dims.extend(typical);
    let lower_fixed = || lower(&fixed.load().ok()?.model.graph).ok();
    if loaded.assumed.is_empty() || lower_fixed().is_none() {
        return Err(error.into());
    }
    let dims: Vec<String> = loaded.assumed.iter().map(|(name, n)| format!("--dim {name}={n}")).collect();
    Err(Failure::from(error)
        .help(format!("the assumed bounds cause this error: add {} or other fixed sizes", dims.join(" "))))
}
