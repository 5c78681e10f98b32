//! Prints the intermediate memory of well-known networks at their true size by strategy, beside published figures:
//! `cargo bench -p drift-benches --bench memory -- [TARGET]`. No weights are needed and nothing is timed.
//!
//! The tensors are all f16 tensors that one dispatch writes for a later one. Channels are padded to slices of
//! four if the layout has slices, and sizes are rounded up to the target's alignment. Inputs, outputs and weights do not count.
//! The papers' megabytes are 2^20 bytes, since only in this unit their figure without memory reuse ("naive") for MobileNet v1
//! equals driftc's. Nodes are not decomposed, because decompositions trade memory for time.

use drift_models::builtin;
use driftc::compile::{Options, lower};
use driftc::ir::tensor::DType;
use driftc::plan::Alternatives;
use driftc::plan::memory::{LiveRange, bounds, plan_by};
use driftc::target::TargetProfile;

/// Published intermediate memory of TFLite GPU (Lee et al., table 3): architecture, and MiB without reuse, by its greedy strategy
/// and by min-cost flow.
const MOBILE: &[(&str, [f64; 3])] = &[
    ("mobilenet-v1", [9.6, 2.3, 2.7]),
    ("mobilenet-v2", [13.2, 4.0, 3.8]),
    ("deeplab-v3", [24.3, 3.6, 4.2]),
];
/// Published intermediate memory of ML Drift (its paper on large generative models): architecture, and MiB without reuse and by
/// the strategy greedy by size.
const DIFFUSION: &[(&str, [f64; 2])] = &[
    ("sd14-text-encoder", [62.0, 2.0]),
    ("sd14-unet", [2075.0, 65.0]),
    ("sd14-vae-decoder", [2274.0, 320.0]),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name =
        std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_else(|| "nvidia-hopper".into());
    let target = TargetProfile::load(&name)?;
    println!("MiB of intermediate tensors in f16, planned for {name}; TFLite GPU's figures in brackets\n");
    println!(
        "| network | without reuse | greedy in order | min-cost flow | greedy by size | best strategy | lower bound | excess of the best strategy over the lower bound |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, [naive, greedy, flow]) in MOBILE {
        let row = Row::plan(name, &target)?;
        println!(
            "| {name} | {} ({naive}) | {} ({greedy}) | {} ({flow}) | {} | {} ({}) | {} | {:.1} % |",
            mib(row.naive),
            mib(row.by("greedy-in-order")?),
            mib(row.by("min-cost-flow")?),
            mib(row.by("greedy-by-size")?),
            mib(row.peak),
            row.strategy,
            mib(row.bound),
            row.gap * 100.0,
        );
    }
    println!(
        "\nMiB of intermediate tensors in f16, planned for {}; ML Drift's figures in brackets\n",
        target.name
    );
    println!(
        "| network | without reuse | greedy by size | best strategy | lower bound | excess of the best strategy over the lower bound | greedy by size, each tensor in a whole buffer | lower bound, each tensor in a whole buffer |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (name, [naive, greedy]) in DIFFUSION {
        let row = Row::plan(name, &target)?;
        println!(
            "| {name} | {} ({naive}) | {} ({greedy}) | {} ({}) | {} | {:.1} % | {} | {} |",
            mib(row.naive),
            mib(row.by("greedy-by-size")?),
            mib(row.peak),
            row.strategy,
            mib(row.bound),
            row.gap * 100.0,
            mib(row.by("greedy-by-size-objects")?),
            mib(bounds::objects(&row.live_ranges)),
        );
    }
    Ok(())
}

/// A planned network.
struct Row {
    live_ranges: Vec<LiveRange>,
    naive: u64,
    peak: u64,
    bound: u64,
    gap: f64,
    strategy: &'static str,
}

impl Row {
    fn plan(name: &str, target: &TargetProfile) -> Result<Self, Box<dyn std::error::Error>> {
        let (graph, _) = builtin::find_builtin(name)?.shapes(DType::F16)?;
        let mut options = Options::default();
        options.plan.alternatives = Alternatives::Never;
        let plan = lower(&graph, target, &options)?.plan;
        let memory = &plan.memory;
        Ok(Self {
            naive: memory.naive,
            peak: memory.peak,
            bound: memory.lower_bound,
            gap: memory.gap(),
            strategy: memory.strategy,
            live_ranges: plan.live_ranges,
        })
    }

    /// Bytes of intermediate memory by the planning strategy of this name.
    fn by(&self, strategy: &str) -> Result<u64, String> {
        let plan = plan_by(strategy, &self.live_ranges).ok_or_else(|| format!("no strategy {strategy}"))?;
        Ok(plan.peak)
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 20))
}
