//! Tests that emitted shaders and plans do not change by accident. The tests compare hashes of the shaders and plans, for the
//! cases of all operators and for some models, for every built-in profile.
//!
//! `emission.txt` has one hash for each kernel or model and profile. DRIFT_BLESS=1 rewrites the file after an intended change,
//! and its diff names the changed kernels. `cargo run -p drift-tests --bin emission -- --text KERNEL PROFILE`, run before and
//! after a change, shows the difference of the shaders. `shaders/` has one shader of each kernel as text.

use std::collections::BTreeSet;
use std::path::Path;

use drift_tests::emission::{MODELS, import, kernels, lines, model_hash};
use drift_tests::settings;
use driftc::kernels::KERNELS;
use driftc::passes::Precision;
use driftc::target::{TargetProfile, names};
use rayon::prelude::*;

#[test]
fn emitted_shaders_and_plans_are_unchanged() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let targets: Vec<TargetProfile> = names().map(|name| TargetProfile::load(name).unwrap()).collect();
    let mut models = Vec::new();
    for name in MODELS {
        let graph = import(&tests.join("corpus").join(name).join("model.onnx")).unwrap();
        for precision in [Precision::F32, Precision::F16] {
            models.push((format!("{name} {precision}"), graph.clone(), precision));
        }
    }
    let found: Vec<(_, Vec<String>)> = targets
        .par_iter()
        .map(|target| {
            let fail = |e: String| panic!("{}: {e}", target.name);
            let hash = |(name, graph, precision): &(String, _, Precision)| {
                model_hash(graph, target, *precision)
                    .unwrap_or_else(|e| panic!("{name} for {}: {e}", target.name))
            };
            (kernels(target).unwrap_or_else(fail), models.iter().map(hash).collect())
        })
        .collect();
    let rows = KERNELS.iter().map(|kernel| kernel.name).chain(models.iter().map(|(name, ..)| name.as_str()));
    let got = lines(rows, &targets, |row, column| {
        let (kernels, models) = &found[column];
        match KERNELS.get(row) {
            Some(kernel) => kernels.get(kernel.name).cloned(),
            None => Some(models[row - KERNELS.len()].clone()),
        }
    });
    let path = tests.join("emission.txt");
    if settings::bless() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap();
    let (before, after): (BTreeSet<&str>, BTreeSet<&str>) = (want.lines().collect(), got.lines().collect());
    let removed = before.difference(&after).map(|line| format!("-{line}"));
    let added = after.difference(&before).map(|line| format!("+{line}"));
    let changes: Vec<String> = removed.chain(added).collect();
    assert!(
        got == want,
        "hashes of emitted shaders or plans changed:\n{}\nDRIFT_BLESS=1 accepts the new hashes; `cargo run -p drift-tests --bin emission -- --text NAME PROFILE` prints the shaders or the plan of NAME",
        changes.join("\n")
    );
}
