//! The functions of a bundle that a graph becomes: one for all sizes, and others for sizes at which its kernels would be
//! a poor choice.
//!
//! ```text
//! main [seq=1..256]                        matmul 64x64 tiles, ...
//! main [seq=1]                             matvec, ...
//! ```
//!
//! Kernels, layouts and alternatives of a function are chosen for the upper bounds of its symbols. A product of 256 rows
//! wants another kernel than one of a single row, so a model that takes both gets a function for each; the runtime
//! replays the last one whose bounds hold the sizes at hand. A function for known sizes is the same graph after the same
//! passes with these sizes put in, so functions share constants, and packed constants wherever that costs little.
//!
//! A further function is kept where the estimates say that it saves time: the kernels of the one that would run otherwise
//! are estimated anew for the smaller sizes. It must save more of it where each start compiles the shaders anew.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::compile::{Lowered, Model, Options, plan_function, run_passes};
use crate::error::{Error, Result};
use crate::ir::dim::{Bindings, Bounds};
use crate::ir::graph::Graph;
use crate::ir::verify::verify;
use crate::language::sample::SAMPLE;
use crate::language::{PREFILL, PREFILL_LONG};
use crate::passes::Precision;
use crate::plan::estimate::problem;
use crate::plan::select::candidates;
use crate::plan::tuning::configuration;
use crate::plan::{Dispatch, Location};
use crate::shader::pack::{Identity, Packed};
use crate::shader::share::share;
use crate::target::TargetProfile;

/// The name of the functions of a model that has one entry point.
pub const MAIN: &str = "main";

/// The name in errors.
const STAGE: &str = "functions";
/// Sizes this many times below the upper bound may get a function.
const SPAN: i64 = 4;
/// Most symbols that are specialised one by one too; more are specialised together only.
const ALONE: usize = 2;
/// How many times longer the general kernels must take by the estimates, which are not exact.
const WORTH: f64 = 1.15;
/// The same where the device compiles all pipelines of all functions at each start.
const WORTH_STARTING: f64 = 2.0;

/// Which sizes get a function of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Specialize {
    /// The lower bounds of symbols, where that is estimated to save time.
    #[default]
    Worthwhile,
    /// None: one function serves all sizes.
    Never,
    /// These, each with the values of some symbols.
    Sizes(Vec<Bindings>),
}

impl FromStr for Specialize {
    type Err = String;

    /// Parses `auto`, `never`, or values such as `seq=1` and `batch=1,seq=1`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Worthwhile),
            "never" => Ok(Self::Never),
            _ => {
                let mut values = Bindings::new();
                for part in text.split(',') {
                    let value = part.split_once('=').and_then(|(name, v)| Some((name, v.parse().ok()?)));
                    let (name, value) =
                        value.ok_or("write auto, never or NAME=N[,NAME=N], for example seq=1")?;
                    values.insert(name.to_string(), value);
                }
                Ok(Self::Sizes(vec![values]))
            }
        }
    }
}

impl fmt::Display for Specialize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worthwhile => f.write_str("auto"),
            Self::Never => f.write_str("never"),
            Self::Sizes(all) => {
                let one = |values: &Bindings| {
                    values.iter().map(|(name, v)| format!("{name}={v}")).collect::<Vec<_>>().join(",")
                };
                f.write_str(&all.iter().map(one).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// Lowers a model for one target: first the function for all sizes, then those for known sizes, each more special than
/// those before it.
///
/// # Errors
/// As [`crate::compile::lower`]; also a size that was asked for and lies outside its bounds.
pub fn lower_all(graph: &Graph, target: &TargetProfile, options: &Options) -> Result<Vec<Lowered>> {
    let mut functions = lower_entry(MAIN, graph, target, options, &mut BTreeSet::new())?;
    share_shaders(&mut functions, target);
    Ok(functions)
}

/// Lowers every entry point of a model for one target. The constants of the first are packed as suits it best, and those
/// of the others like them where that costs little.
///
/// # Errors
/// As [`lower_all`].
pub fn lower_model(model: &Model, target: &TargetProfile, options: &Options) -> Result<Vec<Lowered>> {
    if model.functions.is_empty() {
        return lower_all(&model.graph, target, options);
    }
    let mut packed = BTreeSet::new();
    let mut functions = Vec::new();
    // What draws is exact whatever the model is stored in, and of one size.
    let exact = Options { precision: Precision::F32, specialize: Specialize::Never, ..options.clone() };
    // What only saves time reads the constants of the others.
    let mut spare = options.clone();
    spare.plan.spare = true;
    for (name, graph) in &model.functions {
        let options = match name.as_str() {
            SAMPLE => &exact,
            PREFILL_LONG => &spare,
            _ => options,
        };
        if !model.spare.contains(name) {
            let mut lowered = lower_entry(name, graph, target, options, &mut packed)?;
            if let Some(bounds) = model.narrowed.get(name) {
                lowered.iter_mut().for_each(|function| function.plan.bounds.extend(bounds.clone()));
            }
            functions.extend(lowered);
            continue;
        }
        let mut more = packed.clone();
        let lowered = lower_entry(name, graph, target, options, &mut more);
        if let Some(kept) = worth_having(lowered, &functions, target)? {
            functions.extend(kept);
            packed = more;
        }
    }
    share_shaders(&mut functions, target);
    Ok(functions)
}

/// A function that only saves time, of the model's others so far, where it does: the target can compute it, and by the
/// estimates a token takes clearly less in it than in `prefill`.
fn worth_having(
    lowered: Result<Vec<Lowered>>,
    others: &[Lowered],
    target: &TargetProfile,
) -> Result<Option<Vec<Lowered>>> {
    let spare = match lowered {
        Ok(spare) => spare,
        // More tokens at a time take larger tensors than fewer, which the target need not have room for.
        Err(Error::Request { .. } | Error::Node { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (Some(long), Some(short)) = (spare.first(), others.iter().find(|f| f.name == PREFILL)) else {
        return Ok(None);
    };
    let worth = a_token(short) > least_gain(target) * a_token(long);
    Ok(worth.then_some(spare))
}

/// What the picked kernels of a function that takes ids take for each, in nanoseconds.
fn a_token(function: &Lowered) -> f64 {
    let tokens = function.plan.inputs.iter().find_map(|input| input.shape.last()?.as_known());
    picked(function) / tokens.unwrap_or(1) as f64
}

/// How many times longer what would run otherwise must take.
fn least_gain(target: &TargetProfile) -> f64 {
    if target.prefer.short_shaders { WORTH_STARTING } else { WORTH }
}

/// Makes one shader of those that differ in numbers alone, where each start compiles all of them anew.
fn share_shaders(functions: &mut [Lowered], target: &TargetProfile) {
    if !target.prefer.short_shaders {
        return;
    }
    let mut steps: Vec<&mut Dispatch> = functions.iter_mut().flat_map(|f| &mut f.plan.dispatches).collect();
    share(&mut steps.iter_mut().map(|step| &mut step.launch).collect::<Vec<_>>());
    for step in steps {
        if step.locations.len() < step.launch.bindings.len() {
            step.locations.push(Location::Params);
        }
    }
}

/// Lowers one entry point. `packed` are the constants of those before it, to which its own are added.
fn lower_entry(
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
    let asked = matches!(options.specialize, Specialize::Sizes(_));
    for values in sizes(&graph, &options.specialize)? {
        let mut special = graph.clone();
        special.substitute(&values);
        if let Err(error) = verify(&special, STAGE) {
            // Shape rules hope that sizes agree that they cannot compare. Where these do not, no run has them.
            if !asked {
                continue;
            }
            let reason = match error {
                Error::Internal { reason, .. } => reason,
                other => other.to_string(),
            };
            let wanted = Specialize::Sizes(vec![values]);
            return Err(Error::request(format!("no run can have {wanted}: {reason}"), "ask for other sizes"));
        }
        let mut special = plan_function(name, special, passes.clone(), target, &plan_options)?;
        let Some(general) = functions.first() else { continue };
        // Callers see the same inputs and outputs, of which they choose a smaller size.
        special.plan.inputs.clone_from(&general.plan.inputs);
        special.plan.outputs.clone_from(&general.plan.outputs);
        // What would run otherwise: the last function that takes these sizes.
        let other = functions.iter().rfind(|f| takes(&f.plan.bounds, &values)).unwrap_or(general);
        let least = least_gain(target);
        let worth = || estimate(other, &values, target, options) > least * picked(&special);
        if asked || worth() {
            functions.push(special);
        }
    }
    Ok(functions)
}

/// What a function is called in reports: its name, with the bounds of its symbols where there are any.
pub fn label(name: &str, bounds: &Bounds) -> String {
    let symbols: Vec<String> = bounds
        .iter()
        .map(|(symbol, (low, high))| match low == high {
            true => format!("{symbol}={low}"),
            false => format!("{symbol}={low}..{high}"),
        })
        .collect();
    if symbols.is_empty() { name.to_string() } else { format!("{name} [{}]", symbols.join(", ")) }
}

/// The sizes that may get a function, the least special ones first.
fn sizes(graph: &Graph, specialize: &Specialize) -> Result<Vec<Bindings>> {
    let bounds = &graph.bounds;
    match specialize {
        Specialize::Never => Ok(Vec::new()),
        Specialize::Sizes(all) => {
            for (name, value) in all.iter().flatten() {
                let (low, high) = bounds.get(name).copied().ok_or_else(|| {
                    let known: Vec<&str> = bounds.keys().map(String::as_str).collect();
                    let known = if known.is_empty() { "none".to_string() } else { known.join(", ") };
                    Error::request(
                        format!("there is no symbolic size `{name}` to specialise"),
                        format!("the symbolic sizes of the model are: {known}"),
                    )
                })?;
                if !(low..=high).contains(value) {
                    return Err(Error::request(
                        format!("`{name}={value}` lies outside of its bounds {low}..{high}"),
                        format!("widen them with --dim {name}=LOW..HIGH, or ask for another size"),
                    ));
                }
            }
            let mut all = all.clone();
            all.sort_by_key(Bindings::len);
            Ok(all)
        }
        Specialize::Worthwhile => {
            // What is no size of an input, such as the length of a cache, grows from run to run.
            let mut of_inputs = BTreeSet::new();
            for id in graph.inputs() {
                graph.tensor(*id).shape.iter().for_each(|dim| dim.symbols(&mut of_inputs));
            }
            let wide: Vec<(&String, i64)> = bounds
                .iter()
                .filter(|(name, (low, high))| {
                    of_inputs.contains(*name) && *high >= SPAN.saturating_mul((*low).max(1))
                })
                .map(|(name, (low, _))| (name, *low))
                .collect();
            let together: Bindings = wide.iter().map(|(name, low)| ((*name).clone(), *low)).collect();
            let mut all = Vec::new();
            if (2..=ALONE).contains(&wide.len()) {
                all.extend(wide.into_iter().map(|(name, low)| Bindings::from([(name.clone(), low)])));
            }
            if !together.is_empty() {
                all.push(together);
            }
            Ok(all)
        }
    }
}

/// Whether the bounds of a function's symbols hold some of their values.
fn takes(bounds: &Bounds, values: &Bindings) -> bool {
    values
        .iter()
        .all(|(name, value)| bounds.get(name).is_none_or(|(low, high)| (low..=high).contains(&value)))
}

/// What the picked kernels of a function take together by the estimates, in nanoseconds.
fn picked(function: &Lowered) -> f64 {
    function.plan.decisions.iter().filter_map(|d| Some(d.choices.first()?.candidate.cost)).sum()
}

/// What the kernels of a function would take with values for symbols. A kernel that is not offered for such sizes counts
/// as for its own.
fn estimate(function: &Lowered, values: &Bindings, target: &TargetProfile, options: &Options) -> f64 {
    let mut graph = function.graph.clone();
    graph.substitute(values);
    let tuning = options.plan.tuning.as_deref();
    let decisions = function.plan.decisions.iter();
    let picks = decisions.filter_map(|decision| Some((decision.node, decision.choices.first()?)));
    picks
        .map(|(node, pick)| {
            let wanted = configuration(pick);
            let offered = problem(&graph, node, target)
                .map(|problem| candidates(&problem, Some(pick.kernel.name), tuning))
                .unwrap_or_default();
            let same = offered.iter().find(|choice| configuration(choice) == wanted);
            same.unwrap_or(pick).candidate.cost
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::{MAIN, Specialize, label, lower_all};
    use crate::compile::{Lowered, Options};
    use crate::ir::text;
    use crate::plan::tuning::configuration;
    use crate::target::TargetProfile;

    /// A product with a weight matrix, of as many rows as a symbol says.
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
        lower_all(&text::parse(&graph).map_err(|e| e.to_string())?, &target, &options)
            .map_err(|e| e.to_string())
    }

    fn labels(functions: &[Lowered]) -> Vec<String> {
        functions.iter().map(|f| label(MAIN, &f.plan.bounds)).collect()
    }

    #[test]
    fn a_single_row_has_a_kernel_of_its_own() {
        let both = functions(1, 256, "auto").unwrap();
        assert_eq!(labels(&both), ["main [n=1..256]", "main [n=1]"]);
        let picks = both.iter().map(|f| f.plan.decisions.iter().find_map(|d| d.choices.first()).unwrap());
        let picks: Vec<String> = picks.map(configuration).collect();
        assert_ne!(picks[0], picks[1]);
        assert_eq!(both[0].plan.inputs, both[1].plan.inputs);
        assert_eq!(labels(&functions(1, 256, "never").unwrap()), ["main [n=1..256]"]);
    }

    #[test]
    fn sizes_that_differ_little_share_a_function() {
        assert_eq!(labels(&functions(200, 256, "auto").unwrap()), ["main [n=200..256]"]);
        assert_eq!(labels(&functions(7, 7, "auto").unwrap()), ["main [n=7]"]);
    }

    /// Only `n = 8` fits here, which the graph does not know.
    #[test]
    fn sizes_that_no_run_has_get_no_function() {
        let graph = r#"symbol n 1..64
%0 = input {"name":"x","dtype":"f32","shape":["n",2]}
%1 = input {"name":"z","dtype":"f32","shape":[8,2]}
%2 = concat %0 %1 {"axis":1}
output "y" %2
"#;
        let made = |specialize: &str| {
            let target = TargetProfile::load("vulkan-baseline").unwrap();
            let options = Options { specialize: specialize.parse().unwrap(), ..Options::default() };
            lower_all(&text::parse(graph).unwrap(), &target, &options).map_err(|e| e.to_string())
        };
        assert_eq!(labels(&made("auto").unwrap()), ["main [n=1..64]"]);
        assert_eq!(labels(&made("n=8").unwrap()), ["main [n=1..64]", "main [n=8]"]);
        let error = made("n=1").unwrap_err();
        assert!(error.contains("no run can have n=1") && error.contains("concat"), "{error}");
    }

    #[test]
    fn sizes_that_are_asked_for_are_made_or_refused() {
        assert_eq!(labels(&functions(1, 8, "n=5").unwrap()), ["main [n=1..8]", "main [n=5]"]);
        let error = functions(1, 8, "n=9").unwrap_err();
        assert!(error.contains("outside of its bounds 1..8"), "{error}");
        let error = functions(1, 8, "m=1").unwrap_err();
        assert!(error.contains("no symbolic size `m`"), "{error}");
        assert!("n".parse::<Specialize>().is_err());
    }
}
