//! `driftc explain`: lists the selected kernel of each node with its estimated time. For one node or on request, shows
//! every candidate with its cost and reason, the layout and memory of the result, the dispatches, and the changes by
//! passes.

mod print;
mod report;
mod table;

use std::io::Write;

use clap::Args;
use driftc::compile::Lowered;

use crate::failure::{Failure, Result};
use crate::lowering::lower_all;
use crate::model_args::ModelArgs;
use crate::output::{Out, show_notes};
use crate::session::DeviceArgs;
use crate::specialize::SpecializeArgs;
use crate::target_args::load_target;
use crate::tuning::TuningArgs;
use print::{print, print_parameters};
use report::{Function, Report, function_report, parameter_sources};
use table::print_table;

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Compile for this target profile: a name or a TOML file
    #[arg(short, long, value_name = "TARGET")]
    target: String,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    specialize: SpecializeArgs,
    /// Show all candidates of the node with this name in the model
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Show all candidates of every node, in graph order
    #[arg(long, conflicts_with = "node")]
    all: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ExplainArgs, out: &mut Out) -> Result<()> {
    let target = load_target(&args.target, &DeviceArgs::default())?;
    let loaded = args.model.load()?;
    show_notes(&loaded.notes);
    let mut options = loaded.compile_options(&args.model.options, false)?;
    args.tuning.apply(&mut options, std::slice::from_ref(&target))?;
    args.specialize.apply(&mut options)?;
    let functions = lower_all(&args.model, &loaded, &target, &options)?;
    let mut reports: Vec<Function> =
        functions.iter().map(|f| function_report(f, args.node.as_deref())).collect();
    if let (Some(name), Some(general)) = (&args.node, functions.first())
        && reports.iter().all(|f| f.nodes.is_empty() && f.passes.is_empty())
    {
        return Err(unknown_node(name, general));
    }
    let parameters = parameter_sources(&functions, args.node.as_deref(), &target);
    if args.json {
        let specialized = reports.split_off(reports.len().min(1));
        let Some(function) = reports.pop() else { return Ok(()) };
        return out.json(&Report { target: target.name, function, specialized, parameters });
    }
    for report in &reports {
        if functions.len() > 1 {
            writeln!(out, "function {}", report.function)?;
        }
        match args.node.is_some() || args.all {
            true => print(report, args.node.is_some(), out)?,
            false => print_table(report, out)?,
        }
    }
    if args.node.is_none() && !args.all {
        writeln!(out, "\n--node NAME shows the candidates of a node, --all the candidates of every node")?;
    }
    print_parameters(&parameters, out)
}

/// Failure for a node that the model does not have. The help lists similar names.
fn unknown_node(name: &str, lowered: &Lowered) -> Failure {
    let wanted = name.to_lowercase();
    let mut close: Vec<&str> = lowered
        .plan
        .decisions
        .iter()
        .map(|d| d.name.as_str())
        .filter(|known| known.to_lowercase().contains(&wanted) || wanted.contains(&known.to_lowercase()))
        .collect();
    close.dedup();
    close.truncate(8);
    let help = match close.is_empty() {
        true => "omit --node to see all nodes".to_owned(),
        false => format!("similar names: {}", close.join(", ")),
    };
    Failure::usage(format!("no node is called `{name}`")).help(help)
}
