//! Lowers entry points to functions: runs the passes, selects layouts, fusion and decompositions by cost, and plans.
//!
//! ```text
//! main [seq=1..256]                        matmul 64x64 tiles, ...
//! main [seq=1]                             matvec, ...
//! ```
//!
//! Kernels, layouts and decompositions of a function are selected for the upper bounds of its symbols. A matmul of 256
//! rows needs another kernel than a matmul of one row, so a model with both gets a specialized function for one row.
//! The runtime replays the last function whose bounds contain the sizes of a run. A specialized function is the same
//! graph after the same passes with sizes put in, so functions share constants, and packed constants wherever that
//! costs little.
//!
//! By default, a function is specialized for the size 1 of a symbol, but not for sides of pictures
//! (`specialized_sizes`). A specialized function is kept only if it is estimated to save time. The estimate compares it
//! with the function that would run otherwise, whose kernels are estimated again for the smaller sizes. The saving must
//! be larger on targets that compile all shaders at each start.

mod specialized_sizes;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::decompose;
use crate::entry_points::{EntryPoint, Lowered, MAIN, Model, Options, Specialize};
use crate::error::{Error, Result};
use crate::fusion;
use crate::ir::dim::{Bindings, Bounds};
use crate::ir::graph::Graph;
use crate::ir::verify::verify;
use crate::layouts;
use crate::pass::{Context, PassReport};
use crate::passes;
use crate::plan::estimate::{Costs, problem};
use crate::plan::params::Params;
use crate::plan::select::candidates;
use crate::plan::tuning::configuration;
use crate::plan::{self, Dispatch, Location};
use crate::shader::merge_shaders::merge_shaders;
use crate::shader::pack::{Identity, Packed};
use crate::target::TargetProfile;
use specialized_sizes::specialized_sizes;

/// Name, in errors, of the step that adds specialized functions.
const STAGE: &str = "specialize";

/// Lowers a graph to one function for all sizes within their bounds.
///
/// # Errors
/// If a pass makes the graph invalid, no kernel computes a node, or a limit of the target is exceeded.
pub fn lower(graph: &Graph, target: &TargetProfile, options: &Options) -> Result<Lowered> {
    let (graph, passes) = run_passes(graph, target, options)?;
    plan_function(MAIN, graph, passes, target, &options.plan)
}

/// Lowers a graph to the function for all sizes, followed by specialized functions, the most specialized ones last.
///
/// # Errors
/// If [`lower`] fails, or a requested size is outside of its bounds.
pub fn lower_all(graph: &Graph, target: &TargetProfile, options: &Options) -> Result<Vec<Lowered>> {
    let mut functions = lower_entry_point(MAIN, graph, target, options, &mut BTreeSet::new())?;
    deduplicate_shaders(&mut functions, target);
    Ok(functions)
}

/// Lowers every entry point of a model. Constants are packed as the first entry point needs them; other entry points
/// reuse them where that costs little.
///
/// # Errors
/// If [`lower_all`] fails for an entry point.
pub fn lower_model(model: &Model, target: &TargetProfile, options: &Options) -> Result<Vec<Lowered>> {
    if model.entry_points.is_empty() {
        return lower_all(&model.graph, target, options);
    }
    let mut packed = BTreeSet::new();
    let mut functions = Vec::new();
    for entry in &model.entry_points {
        let options = entry_point_options(entry, options);
        let Some(reference) = &entry.keep_if_faster_than else {
            let mut lowered = lower_entry_point(&entry.name, &entry.graph, target, &options, &mut packed)?;
            lowered.iter_mut().for_each(|function| function.plan.bounds.extend(entry.bounds.clone()));
            functions.extend(lowered);
            continue;
        };
        let mut packed_with_entry = packed.clone();
        let lowered = lower_entry_point(&entry.name, &entry.graph, target, &options, &mut packed_with_entry);
        let reference = functions.iter().find(|f: &&Lowered| f.name == *reference);
        if let Some(kept) = if_faster(lowered, reference, target)? {
            functions.extend(kept);
            packed = packed_with_entry;
        }
    }
    deduplicate_shaders(&mut functions, target);
    Ok(functions)
}

/// Returns the options for lowering one entry point of a model.
fn entry_point_options(entry: &EntryPoint, options: &Options) -> Options {
    let mut options = options.clone();
    if let Some(precision) = entry.precision {
        options.precision = precision;
    }
    if entry.fixed_size {
        options.specialize = Specialize::Never;
    }
    options.plan.avoid_weight_copies |= entry.reuse_weights;
    options
}

/// Returns the functions of an optional entry point if the target can compute them and a token takes clearly less time
/// in them than in `reference`, by the estimates. Returns `None` otherwise.
fn if_faster(
    lowered: Result<Vec<Lowered>>,
    reference: Option<&Lowered>,
    target: &TargetProfile,
) -> Result<Option<Vec<Lowered>>> {
    let functions = match lowered {
        Ok(functions) => functions,
        // More tokens per run need larger tensors, which may exceed a limit of the target.
        Err(Error::Request { .. } | Error::TooLarge { .. } | Error::Node { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (Some(first), Some(reference)) = (functions.first(), reference) else { return Ok(None) };
    let faster = ns_per_token(reference) > min_speedup(target)? * ns_per_token(first);
    Ok(faster.then_some(functions))
}

/// Estimated time of a function per token of its input, in nanoseconds.
fn ns_per_token(function: &Lowered) -> f64 {
    let tokens = function.plan.inputs.iter().find_map(|input| input.shape.last()?.as_known());
    estimated_ns(function) / tokens.unwrap_or(1) as f64
}

/// Minimum speedup, a ratio of times, for which a specialized function is kept beside the function that would run
/// otherwise.
fn min_speedup(target: &TargetProfile) -> Result<f64> {
    let params = Params::for_stage(target, STAGE)?;
    Ok(match target.prefer.short_shaders {
        true => params.min_function_speedup_ratio_compiled_at_start,
        false => params.min_function_speedup_ratio,
    })
}

/// Merges shaders that differ only in literal numbers, on targets that compile all shaders at each start.
fn deduplicate_shaders(functions: &mut [Lowered], target: &TargetProfile) {
    if !target.prefer.short_shaders {
        return;
    }
    let mut dispatches: Vec<&mut Dispatch> =
        functions.iter_mut().flat_map(|f| &mut f.plan.dispatches).collect();
    merge_shaders(&mut dispatches.iter_mut().map(|dispatch| &mut dispatch.launch).collect::<Vec<_>>());
    for dispatch in dispatches {
        if dispatch.locations.len() < dispatch.launch.bindings.len() {
            dispatch.locations.push(Location::Params);
        }
    }
}

/// Runs the passes. Returns the rewritten graph and the report of each pass.
pub(crate) fn run_passes(
    graph: &Graph,
    target: &TargetProfile,
    options: &Options,
) -> Result<(Graph, Vec<PassReport>)> {
    let mut graph = graph.clone();
    let context = Context { target, precision: options.precision };
    let reports =
        passes::run_pipeline(&mut graph, &context, passes::Options { timings: true, ..Default::default() })?;
    Ok((graph, reports))
}

/// Plans a function from a graph after the passes: selects layouts, fusion and decompositions by cost.
pub(crate) fn plan_function(
    name: &str,
    mut graph: Graph,
    mut passes: Vec<PassReport>,
    target: &TargetProfile,
    options: &plan::Options,
) -> Result<Lowered> {
    let mut costs = Costs::new(target, options.tuning.as_deref());
    passes.push(layouts::weigh::run(&mut graph, &mut costs, options)?);
    passes.push(fusion::run(&mut graph, &mut costs, options)?);
    passes.push(decompose::run(&mut graph, &mut costs, options)?);
    let plan = plan::build(&graph, target, options)?;
    Ok(Lowered { name: name.to_string(), graph, passes, plan })
}

/// Lowers one entry point to its functions. `packed` are the packed constants of earlier entry points; the packed
/// constants of this entry point are added.
fn lower_entry_point(
    name: &str,
    graph: &Graph,
    target: &TargetProfile,
    options: &Options,
    packed: &mut BTreeSet<Identity>,
) -> Result<Vec<Lowered>> {
    let (graph, passes) = run_passes(graph, target, options)?;
    let mut plan_options = options.plan.clone();
    plan_options.packed = (!packed.is_empty()).then(|| Arc::new(packed.clone()));
    let general = plan_function(name, graph.clone(), passes.clone(), target, &plan_options)?;
    packed.extend(general.plan.weights.iter().map(Packed::identity));
    plan_options.packed = Some(Arc::new(packed.clone()));
    let mut functions = vec![general];
    let requested = matches!(options.specialize, Specialize::Sizes(_));
    let min_speedup = min_speedup(target)?;
    for values in specialized_sizes(&graph, &options.specialize)? {
        let mut specialized = graph.clone();
        specialized.substitute(&values);
        if let Err(error) = verify(&specialized, STAGE) {
            // Shape rules assume that symbolic sizes agree if they cannot compare them. If these values contradict
            // that, no run has them.
            if !requested {
                continue;
            }
            let reason = match error {
                Error::Internal { reason, .. } => reason,
                other => other.to_string(),
            };
            let wanted = Specialize::Sizes(vec![values]);
            return Err(Error::request(
                format!("no run can have the sizes {wanted}: {reason}"),
                "give other sizes to --specialize",
            ));
        }
        let mut specialized = plan_function(name, specialized, passes.clone(), target, &plan_options)?;
        let Some(general) = functions.first() else { continue };
        // Callers see the same inputs and outputs in all functions and choose a smaller size of them.
        specialized.plan.inputs.clone_from(&general.plan.inputs);
        specialized.plan.outputs.clone_from(&general.plan.outputs);
        // The runtime would otherwise replay the last function that accepts these sizes.
        let other = functions.iter().rfind(|f| accepts(&f.plan.bounds, &values)).unwrap_or(general);
        let faster =
            || estimated_ns_at(other, &values, target, options) > min_speedup * estimated_ns(&specialized);
        if requested || faster() {
            functions.push(specialized);
        }
    }
    Ok(functions)
}

/// True if the bounds of a function's symbols contain the given values.
fn accepts(bounds: &Bounds, values: &Bindings) -> bool {
    values
        .iter()
        .all(|(name, value)| bounds.get(name).is_none_or(|(low, high)| (low..=high).contains(&value)))
}

/// Estimated time of the selected kernels of a function, in nanoseconds.
fn estimated_ns(function: &Lowered) -> f64 {
    function.plan.decisions.iter().filter_map(|d| Some(d.choices.first()?.candidate.cost)).sum()
}

/// Estimated time of the selected kernels of a function for given sizes, in nanoseconds. If a kernel does not offer the
/// selected candidate for these sizes, the candidate's estimate for the function's own sizes is used.
fn estimated_ns_at(function: &Lowered, values: &Bindings, target: &TargetProfile, options: &Options) -> f64 {
    let mut graph = function.graph.clone();
    graph.substitute(values);
    let tuning = options.plan.tuning.as_deref();
    let decisions = function.plan.decisions.iter();
    let selected = decisions.filter_map(|decision| Some((decision.node, decision.choices.first()?)));
    selected
        .map(|(node, selected)| {
            let wanted = configuration(selected);
            let offered = problem(&graph, node, target)
                .map(|problem| candidates(&problem, Some(selected.kernel.name), tuning))
                .unwrap_or_default();
            let same = offered.iter().find(|choice| configuration(choice) == wanted);
            same.unwrap_or(selected).candidate.cost
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::lower_all;
    use crate::entry_points::{Lowered, MAIN, Options, Specialize, function_label};
    use crate::ir::graph_text;
    use crate::plan::tuning::configuration;
    use crate::target::TargetProfile;

    /// Lowers a matmul with constant weights and `low..high` rows; returns its functions.
    fn functions(low: i64, high: i64, specialize: &str) -> Result<Vec<Lowered>, String> {
        let graph = format!(
            r#"symbol n {low}..{high}
%0 = input {{"name":"x","dtype":"f32","shape":["n",512]}}
%1 = constant {{"dtype":"f32","shape":[512,768],"random":1}}
%2 = matmul %0 %1 {{"trans_a":false,"trans_b":false}}
output "y" %2
"#
        );
        let target = TargetProfile::load("vulkan-baseline").unwrap();
        let options = Options { specialize: specialize.parse::<Specialize>()?, ..Options::default() };
        lower_all(&graph_text::parse(&graph).map_err(|e| e.to_string())?, &target, &options)
            .map_err(|e| e.to_string())
    }

    fn labels(functions: &[Lowered]) -> Vec<String> {
        functions.iter().map(|f| function_label(MAIN, &f.plan.bounds)).collect()
    }

    #[test]
    fn one_row_gets_its_own_function_and_kernel() {
        let both = functions(1, 256, "auto").unwrap();
        assert_eq!(labels(&both), ["main [n=1..256]", "main [n=1]"]);
        let selected = both.iter().map(|f| f.plan.decisions.iter().find_map(|d| d.choices.first()).unwrap());
        let selected: Vec<String> = selected.map(configuration).collect();
        assert_ne!(selected[0], selected[1]);
        assert_eq!(both[0].plan.inputs, both[1].plan.inputs);
        assert_eq!(labels(&functions(1, 256, "never").unwrap()), ["main [n=1..256]"]);
    }

    #[test]
    fn narrow_bounds_are_not_specialized() {
        assert_eq!(labels(&functions(200, 256, "auto").unwrap()), ["main [n=200..256]"]);
        assert_eq!(labels(&functions(7, 7, "auto").unwrap()), ["main [n=7]"]);
        assert_eq!(labels(&functions(2, 256, "auto").unwrap()), ["main [n=2..256]"]);
    }

    /// In this test, only `n = 8` is valid, but the bounds of the graph allow more.
    #[test]
    fn impossible_sizes_get_no_function() {
        let graph = r#"symbol n 1..64
%0 = input {"name":"x","dtype":"f32","shape":["n",2]}
%1 = input {"name":"z","dtype":"f32","shape":[8,2]}
%2 = concat %0 %1 {"axis":1}
output "y" %2
"#;
        let lowered = |specialize: &str| {
            let target = TargetProfile::load("vulkan-baseline").unwrap();
            let options = Options { specialize: specialize.parse().unwrap(), ..Options::default() };
            lower_all(&graph_text::parse(graph).unwrap(), &target, &options).map_err(|e| e.to_string())
        };
        assert_eq!(labels(&lowered("auto").unwrap()), ["main [n=1..64]"]);
        assert_eq!(labels(&lowered("n=8").unwrap()), ["main [n=1..64]", "main [n=8]"]);
        let error = lowered("n=1").unwrap_err();
        assert!(error.contains("no run can have the sizes n=1") && error.contains("concat"), "{error}");
    }

    #[test]
    fn requested_sizes_are_specialized_or_refused() {
        assert_eq!(labels(&functions(1, 8, "n=5").unwrap()), ["main [n=1..8]", "main [n=5]"]);
        let error = functions(1, 8, "n=9").unwrap_err();
        assert!(error.contains("outside of its bounds 1..8"), "{error}");
        let error = functions(1, 8, "m=1").unwrap_err();
        assert!(error.contains("no symbolic size `m`"), "{error}");
        assert!("n".parse::<Specialize>().is_err());
    }
}
