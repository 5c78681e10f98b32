//! Lowering of a model for a target. If lowering fails only because of the bounds of symbols, the error names options
//! with which it succeeds.

use std::collections::BTreeSet;

use driftc::bundle::check_limits;
use driftc::compile::{Lowered, Model, Options};
use driftc::entry_points::Specialize;
use driftc::error::{Error, Within};
use driftc::ir::graph::Graph;
use driftc::passes::Precision;
use driftc::target::TargetProfile;

use crate::failure::{Failure, Result};
use crate::model::Loaded;
use crate::model_args::{DimArg, ModelArgs};

/// Maximum number of times that a model is lowered with other bounds to find options with which it compiles.
const TRIES: usize = 6;

/// Lowers a model into one function.
///
/// # Errors
/// If lowering fails. If lowering would succeed with other bounds of symbolic dimensions, the help text names the
/// options that set these bounds.
pub(crate) fn lower(
    args: &ModelArgs,
    loaded: &Loaded,
    target: &TargetProfile,
    options: &Options,
) -> Result<Lowered> {
    with_dim_help(args, loaded, |graph| {
        let lowered = driftc::compile::lower(graph, target, options)?;
        check_limits(&lowered.plan, target)?;
        Ok(lowered)
    })
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
        if let Specialize::Sizes(_) = &options.specialize {
            let reason = format!(
                "--specialize {} has no effect on the functions that generate text",
                options.specialize
            );
            return Err(Failure::usage(reason)
                .help("leave out --specialize: each function is compiled for its own number of tokens"));
        }
        return driftc::lowering::lower_model(&loaded.model, target, options)
            .map_err(|error| model_failure(error, &loaded.model));
    }
    with_dim_help(args, loaded, |graph| {
        let functions = driftc::lowering::lower_all(graph, target, options)?;
        functions.iter().try_for_each(|function| check_limits(&function.plan, target))?;
        Ok(functions)
    })
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
    if let Error::TooLarge { remedies, .. } = &error {
        let found = fitting_bounds(loaded, remedies, &lower);
        let otherwise = "choose a target with a larger limit";
        let help = match found.as_slice() {
            [] if remedies.is_empty() => {
                format!("no bounds of symbols help: make the inputs smaller, or {otherwise}")
            }
            [] => format!(
                "no bounds were found for which every tensor fits: make the inputs smaller, or {otherwise}"
            ),
            found => format!("lower the upper bounds with {}, or {otherwise}", found.join(" or ")),
        };
        return Err(Failure::from(error).help(help));
    }
    let mut fixed = args.clone();
    let typical = loaded.assumed.iter().map(|(name, n)| DimArg { name: name.clone(), low: *n, high: *n });
    fixed.options.dims.extend(typical);
    let lower_fixed = || lower(&fixed.options.load(&fixed.path, &loaded.samples).ok()?.model.graph).ok();
    if loaded.assumed.is_empty() || lower_fixed().is_none() {
        return Err(error.into());
    }
    let dims: Vec<String> = loaded.assumed.iter().map(|(name, n)| format!("--dim {name}={n}")).collect();
    Err(Failure::from(error)
        .help(format!("the assumed bounds cause this error: add {} or other fixed sizes", dims.join(" "))))
}

/// Returns sets of options. The model can be lowered with any one of them; each set was tried. A set also
/// has the assumed bounds of other symbols, so that the importer assumes no other bounds when it is used.
fn fitting_bounds<T>(
    loaded: &Loaded,
    remedies: &[Vec<Within>],
    lower: &impl Fn(&Graph) -> driftc::Result<T>,
) -> Vec<String> {
    let mut found = Vec::new();
    let mut tries = TRIES;
    for first in remedies {
        let mut graph = loaded.model.graph.clone();
        let mut changed: BTreeSet<String> = loaded.assumed.keys().cloned().collect();
        let mut remedy = Some(first.clone());
        while let Some(bounds) = remedy.filter(|_| tries > 0) {
            tries -= 1;
            for Within { symbol, low, high } in bounds {
                graph.bounds.insert(symbol.clone(), (low, high));
                changed.insert(symbol);
            }
            remedy = match lower(&graph) {
                Ok(_) => {
                    found.push(options(&graph, &changed));
                    None
                }
                Err(Error::TooLarge { remedies, .. }) => remedies.into_iter().next(),
                Err(_) => None,
            };
        }
    }
    found.dedup();
    found
}

/// Returns the options that set the bounds of symbols.
fn options(graph: &Graph, symbols: &BTreeSet<String>) -> String {
    let bounds = graph.bounds.iter().filter(|(symbol, _)| symbols.contains(*symbol));
    let options = bounds
        .map(|(symbol, (low, high))| Within { symbol: symbol.clone(), low: *low, high: *high }.to_string());
    options.collect::<Vec<_>>().join(" ")
}

/// Failure of lowering a model with several functions. The advice names the options that set its sizes.
fn model_failure(error: Error, model: &Model) -> Failure {
    let too_large = matches!(error, Error::TooLarge { .. });
    let failure = Failure::from(error);
    let has = |name: &str| model.entry_points.iter().any(|entry| entry.name == name);
    match too_large {
        true if has("prefill") => failure.help(
            "a shorter context length (--dim context=N) or fewer tokens per run (--dim chunk=N) make tensors smaller; \
             or choose a target with a larger limit",
        ),
        true if has("denoise_unguided") => failure.help(
            "smaller pictures (--dim width=W, --dim height=H) make tensors smaller; or choose a target with a larger limit",
        ),
        true => failure.help("smaller sizes (--dim NAME=N) make tensors smaller; or choose a target with a larger limit"),
        false => failure,
    }
}
