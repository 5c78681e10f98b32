//! Times every kernel that can compute each case of the kernels' own case lists, on the present device, and marks
//! the one the compiler picks: `cargo bench -p drift-benches --bench kernels [-- FILTER]`.
//!
//! Figures are sums of the medians of device timestamps of one case's dispatches; compare them within one run only.

use drift_benches::dispatch_medians;
use driftc::compile::{Model, Options, compile, lower};
use driftc::ir::text;
use driftc::kernels::KERNELS;
use driftc::target::TargetProfile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let target = TargetProfile::load(&name)?;
    let folder = std::env::temp_dir().join(format!("drift-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    println!("{:<16} {:>4}  {:<16} {:>12}", "case of", "no.", "kernel", "median µs");
    for owner in KERNELS {
        for (i, case) in owner.cases.iter().enumerate() {
            if !owner.name.contains(&filter) {
                continue;
            }
            let graph = text::parse(case)?;
            let picked = lower(&graph, &target, &Options::default())?;
            let picked: Vec<&str> = picked.plan.steps.iter().map(|s| s.launch.kernel).collect();
            for kernel in KERNELS {
                let mut options = Options::default();
                options.plan.prefer_kernel = Some(kernel.name.to_string());
                let used = lower(&graph, &target, &options)?
                    .plan
                    .steps
                    .iter()
                    .any(|s| s.launch.kernel == kernel.name);
                if !used {
                    continue;
                }
                let model = Model { graph: graph.clone(), ..Model::default() };
                let path = folder.join("case.drift");
                compile(&model, std::slice::from_ref(&target), &options, &path)?;
                let time: f64 = dispatch_medians(&path)?.iter().sum();
                let mark = if picked.contains(&kernel.name) { " <- picked" } else { "" };
                println!("{:<16} {i:>4}  {:<16} {time:>12.1}{mark}", owner.name, kernel.name);
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
