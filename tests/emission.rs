//! What is emitted stays as it is, for every kernel's cases and some models on every built-in profile.
//!
//! `emission.txt` holds one row of hashes for each kernel and model, with a column for each profile. A change that is
//! meant to change what is emitted rewrites it with DRIFT_BLESS=1, and its diff names what changed. What exactly did is
//! told by `cargo run -p drift-tests --bin emission -- --text KERNEL PROFILE`, run before and after.

use std::path::Path;

use drift_tests::emission::{MODELS, Subject, import, table};
use driftc::kernels::KERNELS;
use driftc::passes::Precision;
use driftc::target::{TargetProfile, names};

#[test]
fn what_is_emitted_is_what_was() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let targets: Vec<TargetProfile> = names().map(|name| TargetProfile::load(name).unwrap()).collect();
    let mut subjects: Vec<(String, Subject)> =
        KERNELS.iter().map(|kernel| (kernel.name.to_owned(), Subject::Kernel(kernel))).collect();
    for name in MODELS {
        let graph = import(&tests.join("corpus").join(name).join("model.onnx")).unwrap();
        for precision in [Precision::F32, Precision::F16] {
            subjects.push((format!("{name} {precision}"), Subject::Model(graph.clone(), precision)));
        }
    }
    let (got, failures) = table(&subjects, &targets);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
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
