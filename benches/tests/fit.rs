//! Tests that the cost parameters of every fitted profile are the result of a fit to its measurements, and that the regret of the
//! selected candidates is within a bound.
//!
//! The tests need no device. DRIFT_BLESS=1 rewrites the files of `targets/costs/` after a change of an estimate or of the
//! calibration suite.

use std::path::Path;

use drift_benches::fit::file;
use driftc::plan::tuning::Database;
use driftc::target::{COSTS, TargetProfile};
use rayon::prelude::*;

/// Maximum regret of the selected candidates at the 95th percentile, for profiles that [`REGRET_OF_PROFILE`] does not list.
const REGRET: f64 = 1.3;
/// Maximum regret at the 95th percentile of single profiles. It is below [`REGRET`], because their selections are better.
const REGRET_OF_PROFILE: &[(&str, f64)] = &[("nvidia-hopper", 1.27)];

#[test]
fn parameters_are_what_measurements_give() {
    let targets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets");
    COSTS.par_iter().for_each(|(name, _)| {
        let profile = TargetProfile::load(name).unwrap();
        let measured = targets.join("measured").join(format!("{name}.txt"));
        let (text, fitted) = file(&profile, &measured).unwrap_or_else(|e| panic!("{name}: {e}"));
        let path = targets.join("costs").join(format!("{name}.toml"));
        if std::env::var_os("DRIFT_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap();
        assert!(
            text == kept,
            "{} differs from the file that `fit {name}` writes; DRIFT_BLESS=1 rewrites it",
            path.display()
        );
        let regret = fitted.fit.regret;
        let limit =
            REGRET_OF_PROFILE.iter().find(|(profile, _)| profile == name).map_or(REGRET, |(_, limit)| *limit);
        assert!(
            regret <= limit,
            "profile {name}: the regret at the 95th percentile is {regret}; the limit is {limit}"
        );
    });
}

#[test]
fn measurements_are_of_their_profile_and_canonical() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets/measured");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap().to_owned();
        let database = Database::load(&path).unwrap();
        assert!(
            database.problems(&name) > 0,
            "{}: the file has no measurements for target {name}",
            path.display()
        );
        assert_eq!(
            database.text(),
            std::fs::read_to_string(&path).unwrap(),
            "{} is not canonical",
            path.display()
        );
    }
}
