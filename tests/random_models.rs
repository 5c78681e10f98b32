//! Stored models changed at random: each is compiled or refused with a reason, and nothing panics.
//!
//! `fuzz-models` does the same for as many seeds as wanted, with limits of time and memory, and over other models.

use std::path::{Path, PathBuf};

use drift_tests::random_model::Pool;
use drift_tests::random_model::outcome::{Class, compiled, drawn, profiles};
use prost::Message;

const SEEDS: u64 = 500;

#[test]
fn changed_models_are_compiled_or_refused() {
    let suite = PathBuf::from(std::env::var("DRIFT_ONNX_NODE_DATA").unwrap_or_default()).join("node");
    let pool = Pool::new(&[suite.clone(), Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")]);
    assert!(pool.len() > 1000, "no tests in `{}`: run `make setup`", suite.display());
    let profiles = profiles().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut n_compiled = 0;
    for seed in 0..SEEDS {
        let Some((story, model)) = pool.model(seed) else { continue };
        let (class, message) = compiled(&model.encode_to_vec(), &[drawn(&profiles, seed)], folder.path());
        assert!(!class.is_defect(), "seed {seed}, {story}: {}: {message}", class.name());
        n_compiled += u64::from(class == Class::Compiled);
    }
    // Changes that nothing survives would test the importer alone.
    assert!(n_compiled > SEEDS / 5, "{n_compiled} of {SEEDS} models compile");
}

#[test]
fn a_seed_makes_one_model() {
    let pool = Pool::new(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")]);
    for seed in 0..20 {
        let made = || pool.model(seed).map(|(story, model)| (story, model.encode_to_vec()));
        assert_eq!(made(), made(), "seed {seed}");
    }
}
