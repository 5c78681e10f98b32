//! Advice for models that the importer refuses: options with which the model compiles. Every suggested set of options
//! was tried: the model is imported with them, and the passes run.

use std::path::Path;

use driftc::Error;
use driftc::import::onnx::{self, Remedy};
use driftc::pass::{Context, Precision};
use driftc::passes::run_pipeline;
use driftc::target::TargetProfile;

use crate::failure::Failure;

/// Profile for which the passes run when a set of options is tried.
const TRIED_TARGET: &str = "vulkan-baseline";

/// Failure for a refused model. The help names the options with which the model compiles, if such options are found.
pub(crate) fn with_remedies(error: Error, path: &Path, options: &onnx::Options) -> Failure {
    let refused = matches!(error, Error::Unsupported { .. });
    let failure = Failure::from(error);
    if !refused {
        return failure;
    }
    let found = onnx::remedies(path, options).unwrap_or_default();
    if found.list.is_empty() {
        return failure;
    }
    let flags = flags(&found.list);
    if found.left > 0 {
        return failure.help(format!(
            "no options were found with which the model compiles: with {flags}, {} of these nodes remain unsupported; \
             `driftc ops` lists the supported operators",
            found.left
        ));
    }
    match complete(path, options, found.list) {
        Ok((list, rest)) => failure.help(format!("add {} to compile the model{rest}", self::flags(&list))),
        Err(reason) => failure.help(format!(
            "no options were found with which the model compiles: with {flags} it is imported, but then: {reason}"
        )),
    }
}

/// Tries a set of options, and then the set with typical sizes for the symbols whose bounds were assumed. Returns the
/// set with which the model compiles, and a text about the bounds that the importer assumes with it.
///
/// # Errors
/// The reason why the model does not compile with the first set.
fn complete(
    path: &Path,
    options: &onnx::Options,
    list: Vec<Remedy>,
) -> Result<(Vec<Remedy>, String), String> {
    let first = attempt(path, options, &list);
    let sizes = match first {
        Ok(assumed) => return Ok((list, bounds_text(&assumed))),
        Err((_, ref sizes)) => sizes.clone(),
    };
    let with_sizes: Vec<Remedy> = list.into_iter().chain(sizes).collect();
    match attempt(path, options, &with_sizes) {
        Ok(assumed) => Ok((with_sizes, bounds_text(&assumed))),
        Err(_) => Err(first.err().map_or_else(String::new, |(reason, _)| reason)),
    }
}

/// Imports a model with a set of options and runs the passes. Returns the assumed bounds as options.
///
/// # Errors
/// The reason of the failure, and typical sizes for the symbols whose bounds were assumed.
fn attempt(
    path: &Path,
    options: &onnx::Options,
    list: &[Remedy],
) -> Result<Vec<Remedy>, (String, Vec<Remedy>)> {
    let failed = |error: Error| (Failure::from(error).text(), Vec::new());
    let imported = onnx::load(path, &options.with_remedies(list)).map_err(failed)?;
    let size = |symbol: &String, low: i64, high: i64| Remedy::size(symbol, low, high);
    let typical = || imported.assumed.iter().map(|(symbol, n)| size(symbol, *n, *n)).collect();
    let failed = |error: Error| (Failure::from(error).text(), typical());
    let target = TargetProfile::load(TRIED_TARGET).map_err(|error| failed(error.into()))?;
    let mut graph = imported.graph.clone();
    let context = Context { target: &target, precision: Precision::F32 };
    run_pipeline(&mut graph, &context, driftc::passes::Options::default()).map_err(failed)?;
    let bounds = imported.assumed.keys().filter_map(|symbol| {
        let (low, high) = imported.graph.bounds.get(symbol)?;
        Some(size(symbol, *low, *high))
    });
    Ok(bounds.collect())
}

fn bounds_text(assumed: &[Remedy]) -> String {
    match assumed {
        [] => String::new(),
        assumed => format!("; other sizes are then assumed as with {}", flags(assumed)),
    }
}

fn flags(list: &[Remedy]) -> String {
    list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
