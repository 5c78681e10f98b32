//! Lowering a model for a target; where only the assumed bounds stand in the way, the error says so.

use driftc::compile::{Lowered, Options};
use driftc::ir::graph::Graph;
use driftc::passes::Precision;
use driftc::target::TargetProfile;

use crate::failure::{Failure, Result};
use crate::model::{DimArg, Loaded, ModelArgs};

/// Lowers a model into one function. A failure that is gone once the symbols without bounds are fixed names the options
/// that fix them.
pub(crate) fn lower(
    args: &ModelArgs,
    loaded: &Loaded,
    target: &TargetProfile,
    options: &Options,
) -> Result<Lowered> {
    helped(args, loaded, |graph| driftc::compile::lower(graph, target, options))
}

/// Lowers a model into the functions of its bundle, with the same help.
pub(crate) fn lower_all(
    args: &ModelArgs,
    loaded: &Loaded,
    target: &TargetProfile,
    options: &Options,
) -> Result<Vec<Lowered>> {
    if !loaded.model.functions.is_empty() {
        return Ok(driftc::functions::lower_model(&loaded.model, target, options)?);
    }
    helped(args, loaded, |graph| driftc::functions::lower_all(graph, target, options))
}

/// What there is to say about functions whose target holds no f16.
pub(crate) fn widened(target: &TargetProfile, precision: Precision, functions: &[Lowered]) -> Option<String> {
    let passes = functions.iter().flat_map(|f| &f.passes).filter(|p| p.pass == "lower-precision");
    let held = passes.map(|p| p.changes.count).max().unwrap_or(0);
    if target.features.stores_f16() || (held == 0 && precision == Precision::F32) {
        return None;
    }
    Some(format!(
        "{} holds no f16: all floats are stored in f32 there, at twice the bytes; a target with f16 keeps them",
        target.name
    ))
}

fn helped<T>(args: &ModelArgs, loaded: &Loaded, lower: impl Fn(&Graph) -> driftc::Result<T>) -> Result<T> {
    let error = match lower(&loaded.model.graph) {
        Ok(lowered) => return Ok(lowered),
        Err(error) => error,
    };
    let mut fixed = args.clone();
    let usual = loaded.assumed.iter().map(|(name, n)| DimArg { name: name.clone(), low: *n, high: *n });
    fixed.given.dims.extend(usual);
    let helps = || lower(&fixed.load().ok()?.model.graph).ok();
    if loaded.assumed.is_empty() || helps().is_none() {
        return Err(error.into());
    }
    let said: Vec<String> = loaded.assumed.iter().map(|(name, n)| format!("--dim {name}={n}")).collect();
    Err(Failure::from(error).help(format!(
        "only the assumed bounds are at fault: with {} it compiles; other numbers do, too",
        said.join(" ")
    )))
}
