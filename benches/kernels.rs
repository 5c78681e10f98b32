//! Times every candidate for the operators' test cases on this device, and compares the selected candidate with the fastest one.
//! `cargo bench -p drift-benches --bench kernels [-- FILTER]`; `DRIFT_TEST_TARGET` names the profile.
//!
//! A candidate's time is the sum of its dispatches' median times, from device timestamps. Compare times within one run only.

use drift_benches::{Measured, measure_candidates};
use driftc::ir::graph_text;
use driftc::kernels::cases::CASES;
use driftc::target::TargetProfile;

/// Maximum regret of a good selection: time of the selected candidate divided by the time of the fastest one.
const GOOD: f64 = 1.15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let target = TargetProfile::load(&name)?;
    let folder = std::env::temp_dir().join(format!("drift-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut all: Vec<(String, Measured)> = Vec::new();
    println!("{:<24} {:>10} {:>10} {:>7}  selected; fastest", "case", "selected µs", "best µs", "ratio");
    for cases in CASES.iter().filter(|cases| cases.operator.contains(&filter)) {
        for (i, case) in cases.graphs().enumerate() {
            let graph = graph_text::parse(case)?;
            for measured in measure_candidates(&graph, &target, &folder.join("case.drift"), |_| true)? {
                let case = format!("{} {i} {}", cases.operator, measured.operator);
                print(&case, &measured);
                all.push((case, measured));
            }
        }
    }
    std::fs::remove_dir_all(&folder)?;
    all.sort_by(|a, b| b.1.quality().total_cmp(&a.1.quality()));
    let good = all.iter().filter(|(_, m)| m.quality() <= GOOD).count();
    println!(
        "\n{good} of {} selected candidates are within {:.0} % of the fastest candidate",
        all.len(),
        (GOOD - 1.0) * 100.0
    );
    println!("the worst:");
    for (case, measured) in all.iter().take(10) {
        print(case, measured);
    }
    Ok(())
}

fn print(case: &str, measured: &Measured) {
    let Some((selected, time)) = measured.candidates.first() else { return };
    let Some((fastest, least)) = measured.candidates.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return;
    };
    let text = |choice: &driftc::plan::choice::Choice| {
        let knobs: Vec<String> = choice.candidate.knobs.iter().map(|(n, v)| format!("{n}={v}")).collect();
        format!("{} {}", choice.kernel.name, knobs.join(" "))
    };
    println!(
        "{case:<24} {time:>10.1} {least:>10.1} {:>7.2}  {}; {}",
        measured.quality(),
        text(selected),
        text(fastest)
    );
}
