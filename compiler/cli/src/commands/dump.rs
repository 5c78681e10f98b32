//! `driftc dump`: prints a model at a compile stage.

use std::io::Write;

use clap::{Args, ValueEnum};
use driftc::compile::Lowered;
use driftc::plan::{Location, Plan};

use crate::failure::Result;
use crate::lowering::{distinct_shaders, lower};
use crate::model_args::ModelArgs;
use crate::output::{Out, bytes, show_notes};
use crate::session::DeviceArgs;
use crate::target_args::load_target;

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Print the model at this stage
    #[arg(long, value_enum)]
    stage: Stage,
    /// Compile for this target profile: a name or a TOML file
    #[arg(short, long, value_name = "TARGET", default_value = "vulkan-baseline")]
    target: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stage {
    /// Graph after import
    Import,
    /// Graph after the passes
    Passes,
    /// Plan: dispatches, bindings and memory
    Plan,
    /// Specialized shaders
    Wgsl,
}

pub(crate) fn run(args: &DumpArgs, out: &mut Out) -> Result<()> {
    let target = load_target(&args.target, &DeviceArgs::default())?;
    let loaded = args.model.load()?;
    show_notes(&loaded.notes);
    if args.stage == Stage::Import {
        return Ok(write!(out, "{}", driftc::ir::graph_text::print(&loaded.model.graph))?);
    }
    let options = loaded.compile_options(&args.model.options, false)?;
    let lowered = lower(&args.model, &loaded, &target, &options)?;
    match args.stage {
        Stage::Import | Stage::Passes => {
            Ok(write!(out, "{}", driftc::ir::graph_text::print(&lowered.graph))?)
        }
        Stage::Plan => plan(&lowered.plan, out),
        Stage::Wgsl => wgsl(&lowered, out),
    }
}

fn plan(plan: &Plan, out: &mut Out) -> Result<()> {
    for (name, (low, high)) in &plan.bounds {
        writeln!(out, "symbol {name} {low}..{high}")?;
    }
    for (kind, ports) in [("input", &plan.inputs), ("output", &plan.outputs)] {
        for (i, port) in ports.iter().enumerate() {
            writeln!(out, "{kind} {i} \"{}\" {}{}", port.name, port.dtype.name(), list(&port.shape))?;
        }
    }
    for (i, weight) in plan.weights.iter().enumerate() {
        writeln!(out, "weight {i} {} B, {weight}", weight.bytes())?;
    }
    for (i, step) in plan.dispatches.iter().enumerate() {
        if step.barrier {
            writeln!(out, "barrier")?;
        }
        let locations = step.locations.iter().zip(&step.launch.bindings).map(|(location, binding)| {
            let place = match *location {
                Location::Arena(t) => {
                    let (size, offset) = (plan.tensors.get(t), plan.memory.offsets.get(t));
                    let arena = plan.memory.arena(t);
                    let number = if arena > 0 { arena.to_string() } else { String::new() };
                    format!(
                        "arena{number}+{} ({} B)",
                        offset.copied().unwrap_or(0),
                        size.copied().unwrap_or(0)
                    )
                }
                Location::Image(t) => {
                    let object = plan.images.texture_of.get(t).copied().unwrap_or(t);
                    let image = plan.images.textures.get(object);
                    let extent = image.map_or_else(String::new, |i| {
                        let [x, y, z] = i.extent;
                        format!(" ({} {x} x {y} x {z})", i.storage.name())
                    });
                    format!("texture {object}{extent}")
                }
                Location::Input(i) => format!("input {i}"),
                Location::Output(i) => format!("output {i}"),
                Location::State(i) => format!("state {i}"),
                Location::Weight(i) => format!("weight {i}"),
                Location::Params => "params".to_owned(),
            };
            if binding.writable { format!("-> {place}") } else { place }
        });
        let launch = &step.launch;
        let locations = locations.collect::<Vec<_>>().join(", ");
        writeln!(out, "{i}: {} grid {} \"{}\": {locations}", launch.kernel, list(&launch.grid), step.label)?;
    }
    let m = plan.footprint();
    let (peak, bound, naive) = (bytes(m.peak), bytes(m.lower_bound), bytes(m.naive));
    writeln!(
        out,
        "memory {peak} peak, lower bound {bound}, {naive} without reuse, strategy {}",
        plan.memory.strategy
    )?;
    Ok(())
}

fn list(dims: &[driftc::ir::dim::Dim]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(", "))
}

fn wgsl(lowered: &Lowered, out: &mut Out) -> Result<()> {
    for (i, (kernel, wgsl)) in distinct_shaders(std::slice::from_ref(lowered)).into_iter().enumerate() {
        let uses = lowered.plan.dispatches.iter().filter(|s| s.launch.wgsl == wgsl);
        let labels: Vec<&str> = uses.map(|s| s.label.as_str()).collect();
        writeln!(out, "// ---- {i:03} {kernel}, for {}\n{wgsl}", labels.join(", "))?;
    }
    Ok(())
}
