//! The parameters of every profile that was measured are what its measurements give, and pick as well as is asked for.
//!
//! No device takes part. DRIFT_BLESS=1 writes the files anew, after a change of an estimate or of the standing set.

use std::path::Path;

use drift_benches::fit::file;
use driftc::plan::tuning::Database;
use driftc::target::{COSTS, TargetProfile};
use rayon::prelude::*;

/// How many times as long as the fastest candidate picks may take at the 95th percentile.
const REGRET: f64 = 1.3;
/// The same for profiles whose picks are better than that.
const OWN_REGRET: &[(&str, f64)] = &[("nvidia-hopper", 1.25)];

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
        assert!(text == kept, "{} is not what `fit {name}` gives; DRIFT_BLESS=1 writes it", path.display());
        let regret = fitted.fit.regret;
        let most = OWN_REGRET.iter().find(|(own, _)| own == name).map_or(REGRET, |(_, most)| *most);
        assert!(regret <= most, "{name}: picks take {regret} times the fastest at the 95th percentile");
    });
}

#[test]
fn measurements_are_of_their_profile_and_canonical() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../targets/measured");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap().to_owned();
        let database = Database::load(&path).unwrap();
        assert!(database.problems(&name) > 0, "{}: nothing is of target {name}", path.display());
        assert_eq!(
            database.text(),
            std::fs::read_to_string(&path).unwrap(),
            "{} is not canonical",
            path.display()
        );
    }
}
