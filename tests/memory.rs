//! Compares the planned intermediate memory of well-known networks at their true size with published figures. No weights are
//! needed.
//!
//! `benches/memory.rs` prints the whole table and explains which tensors count. Nodes are not decomposed, because
//! decompositions trade memory for time.

use drift_models::builtin;
use driftc::compile::{Options, lower};
use driftc::ir::tensor::DType;
use driftc::plan::Alternatives;
use driftc::plan::memory::plan_by;
use driftc::target::TargetProfile;

const MIB: f64 = (1 << 20) as f64;

/// Architecture, and the smallest intermediate memory that the papers on TFLite GPU and ML Drift give for it, in MiB with f16.
const PUBLISHED: &[(&str, f64)] = &[
    ("mobilenet-v1", 2.3),
    ("mobilenet-v2", 3.8),
    ("deeplab-v3", 3.6),
    ("sd14-text-encoder", 2.0),
    ("sd14-unet", 65.0),
    ("sd14-vae-decoder", 320.0),
];

#[test]
fn plans_are_no_larger_than_published_ones_and_near_the_bound() {
    let target = TargetProfile::load("nvidia-hopper").unwrap();
    for (name, published) in PUBLISHED {
        let (graph, _) = builtin::find_builtin(name).unwrap().shapes(DType::F16).unwrap();
        let mut options = Options::default();
        options.plan.alternatives = Alternatives::Never;
        let plan = lower(&graph, &target, &options).unwrap().plan;
        let peak = plan.memory.peak as f64 / MIB;
        assert!(peak <= *published, "{name}: {peak:.2} MiB");
        assert!(plan.memory.gap() <= 0.02, "{name}: {:.3} above the bound", plan.memory.gap());
        let by_size = plan_by("greedy-by-size", &plan.live_ranges).unwrap();
        assert!(by_size.peak >= plan.memory.peak, "{name}");
        assert!(
            plan.live_ranges.iter().all(|r| r.first <= r.last && r.last < plan.dispatches.len()),
            "{name}"
        );
    }
}
