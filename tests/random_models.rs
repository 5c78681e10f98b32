//! Compiles stored ONNX models with random changes. Each model must compile or be refused with a reason, without a panic.
//!
//! The program `fuzz-models` runs this test for any number of seeds, with limits on time and memory, and for other models.

use std::path::Path;

use drift_tests::random_model::Pool;
use drift_tests::random_model::outcome::{Class, compiled, drawn, profiles};
use drift_tests::settings;
use prost::Message;

const SEEDS: u64 = 500;

#[test]
fn changed_models_are_compiled_or_refused() {
    let suite = settings::onnx_node_data().join("node");
    let pool = Pool::new(&[suite.clone(), Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")]);
    assert!(pool.len() > 1000, "there are no ONNX operator tests in `{}`: run `make setup`", suite.display());
    let profiles = profiles().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut n_compiled = 0;
    for seed in 0..SEEDS {
        let Some((story, model)) = pool.model(seed) else { continue };
        let (class, message) = compiled(&model.encode_to_vec(), &[drawn(&profiles, seed)], folder.path());
        assert!(!class.is_defect(), "seed {seed}, {story}: {}: {message}", class.name());
        n_compiled += u64::from(class == Class::Compiled);
    }
    // If no changed model compiled, only the importer would be tested.
    assert!(n_compiled > SEEDS / 5, "only {n_compiled} of {SEEDS} changed models compile");
}

#[test]
fn a_seed_makes_one_model() {
    let pool = Pool::new(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")]);
    for seed in 0..20 {
        let made = || pool.model(seed).map(|(story, model)| (story, model.encode_to_vec()));
        assert_eq!(made(), made(), "seed {seed}");
    }
}
