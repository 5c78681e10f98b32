//! How fast products of a few rows stream their constants: independent products with constants of their own, more in all
//! than the device caches, so that none waits for another. The time of one is what twice as many take longer.
//! `cargo bench -p drift-benches --bench streams -- [FILTER]`; `DRIFT_TEST_TARGET` names the profile, `DRIFT_BENCH_MIB` how
//! much there is to stream for each line.

use std::path::Path;

use drift_benches::shortest_run;
use drift_runtime::Session;
use driftc::compile::{Model, Options, compile, lower};
use driftc::ir::text;
use driftc::passes::Precision;
use driftc::plan::Alternatives;
use driftc::target::TargetProfile;

/// Columns and depth.
const SIZES: &[[u64; 2]] =
    &[[2048, 2048], [3072, 8192], [8192, 3072], [4096, 4096], [14336, 4096], [4096, 14336], [8192, 2048]];
const ROWS: &[u64] = &[1, 2, 4, 8, 16];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let mib: u64 = std::env::var("DRIFT_BENCH_MIB").ok().and_then(|s| s.parse().ok()).unwrap_or(256);
    let target = TargetProfile::load(&name)?;
    let folder = std::env::temp_dir().join(format!("drift-streams-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    println!("| rows x N x K | weights | us a product | GB/s | kernel |\n|---|---|---|---|---|");
    for [n, k] in SIZES {
        for m in ROWS {
            for transposed in [false, true] {
                let name = format!("{m} x {n} x {k}");
                let order = if transposed { "[N, K]" } else { "[K, N]" };
                // Both orders of one row: which one a file has must not matter.
                if !format!("{name} {order}").contains(&filter) || transposed && *m > 1 {
                    continue;
                }
                let bytes = n * k * 2;
                let count = (mib << 20).div_ceil(bytes).max(4);
                let path = folder.join("m.drift");
                let (half, _) = run([*m, *n, *k], transposed, count, &target, &path)?;
                let (whole, kernel) = run([*m, *n, *k], transposed, 2 * count, &target, &path)?;
                let us = (whole - half) / count as f64;
                println!("| {name} | {order} f16 | {us:.2} | {:.0} | {kernel} |", bytes as f64 / us / 1e3);
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Microseconds that `count` products take with what a run takes beside them, and the kernel that computes them.
fn run(
    [m, n, k]: [u64; 3],
    transposed: bool,
    count: u64,
    target: &TargetProfile,
    path: &Path,
) -> Result<(f64, String), Box<dyn std::error::Error>> {
    let shape = if transposed { [n, k] } else { [k, n] };
    let mut graph =
        format!("%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[{m},{k}]}}\n%1 = neg %0\n");
    for i in 0..count {
        let (constant, product) = (2 + 2 * i, 3 + 2 * i);
        graph += &format!(
            "%{constant} = constant {{\"dtype\":\"f32\",\"shape\":[{},{}],\"random\":{i}}}\n\
             %{product} = matmul %1 %{constant} {{\"trans_a\":false,\"trans_b\":{transposed}}}\n",
            shape[0], shape[1]
        );
    }
    for i in 0..count {
        graph += &format!("output \"y{i}\" %{}\n", 3 + 2 * i);
    }
    let graph = text::parse(&graph)?;
    let mut options = Options { precision: Precision::F16, ..Options::default() };
    options.plan.alternatives = Alternatives::Never;
    let steps = lower(&graph, target, &options)?.plan.steps;
    compile(&Model { graph, ..Model::default() }, std::slice::from_ref(target), &options, path)?;
    let mut session = Session::load(path, &drift_runtime::Options::default())?;
    let kernels = steps.iter().map(|s| s.launch.kernel);
    let kernel = kernels.into_iter().find(|k| k.starts_with("mat")).unwrap_or("none");
    Ok((shortest_run(&mut session)?, kernel.to_string()))
}
