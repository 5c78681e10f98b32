//! What is emitted stays as it is, for the cases of all operators and some models on every built-in profile.
//!
//! `emission.txt` holds one row of hashes for each kernel and model, with a column for each profile. A change that is
//! meant to change what is emitted rewrites it with DRIFT_BLESS=1, and its diff names what changed. What exactly did is
//! told by `cargo run -p drift-tests --bin emission -- --text KERNEL PROFILE`, run before and after.

use std::path::Path;

use drift_tests::emission::{MODELS, import, kernels, model_hash, table};
use driftc::kernels::KERNELS;
use driftc::passes::Precision;
use driftc::target::{TargetProfile, names};
use rayon::prelude::*;

#[test]
fn what_is_emitted_is_what_was() {
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
            let of = |(name, graph, precision): &(String, _, Precision)| {
                model_hash(graph, target, *precision)
                    .unwrap_or_else(|e| panic!("{name} for {}: {e}", target.name))
            };
            (kernels(target).unwrap_or_else(fail), models.iter().map(of).collect())
        })
        .collect();
    let rows = KERNELS.iter().map(|kernel| kernel.name).chain(models.iter().map(|(name, ..)| name.as_str()));
    let got = table(rows, &targets, |row, column| {
        let (kernels, models) = &found[column];
        match KERNELS.get(row) {
            Some(kernel) => kernels.get(kernel.name).map_or("-", String::as_str).to_owned(),
            None => models[row - KERNELS.len()].clone(),
        }
    });
    let path = tests.join("emission.txt");
    if std::env::var_os("DRIFT_BLESS").is_some() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap();
    let changed: Vec<String> = got.lines().filter_map(|line| change(line, &want)).collect();
    let what =
        if changed.is_empty() { "rows or columns are gone, new or moved".into() } else { changed.join("\n") };
    assert!(got == want, "{what}\nDRIFT_BLESS=1 accepts it; --bin emission -- --text NAME PROFILE shows it");
}

/// How many cells of a row differ from those of the same name.
fn change(row: &str, table: &str) -> Option<String> {
    let name = |line: &str| line.get(..22).unwrap_or_default().trim_end().to_owned();
    let cells = |line: &str| -> Vec<String> {
        line.get(22..).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    let Some(before) = table.lines().find(|line| name(line) == name(row)) else {
        return Some(format!("{} is new", name(row)));
    };
    let columns = table.lines().next().map(cells).unwrap_or_default();
    let differ = cells(row).into_iter().zip(cells(before)).zip(columns).filter(|((a, b), _)| a != b);
    let names: Vec<String> = differ.map(|(_, column)| column).collect();
    (!names.is_empty()).then(|| format!("{} changed for {}", name(row), names.join(", ")))
}
