//! Fits cost parameters to a profile's measurements: `cargo run -p drift-benches --bin fit -- PROFILE`.
//!
//! PROFILE is the name of a built-in profile: the measurements are read from `targets/measured/PROFILE.txt`, and the parameters
//! are written to `targets/costs/PROFILE.toml`. Or PROFILE is a path such as `mine.toml`: the measurements are read from
//! `measured/mine.txt` beside it, and the parameters are written to `costs/mine.toml` beside it.

use std::path::{Path, PathBuf};

use drift_benches::fit::{file, judge};
use driftc::plan::tuning::Database;
use driftc::target::TargetProfile;

/// Number of problems to print, largest regret first.
const SHOWN: usize = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(name) = std::env::args().nth(1) else {
        return Err(
            "usage: fit PROFILE, the name of a built-in target profile or the path of its TOML file".into()
        );
    };
    let profile = TargetProfile::load(&name)?;
    let path = Path::new(&name);
    let folder = match name.ends_with(".toml") {
        true => path.parent().unwrap_or(Path::new("")).to_owned(),
        false => PathBuf::from("targets"),
    };
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or(&profile.name);
    let stem = if name.ends_with(".toml") { stem } else { &profile.name };
    let measured = folder.join("measured").join(format!("{stem}.txt"));
    let before = judge(&profile, &Database::load(&measured)?)?;
    let (text, after) = file(&profile, &measured)?;
    for (what, judged) in [("before", &before), ("after", &after)] {
        println!(
            "accuracy {what} the fit: {:?}; {} selected candidates have no measurement",
            judged.fit, judged.unmeasured
        );
        let within = judged.regrets.iter().filter(|(regret, _)| *regret <= 1.15).count();
        println!(
            "  {within} of {} selected candidates are within 15 % of the fastest candidate",
            judged.regrets.len()
        );
    }
    for (regret, problem) in after.regrets.iter().take(SHOWN) {
        println!("{regret:.2}  {problem}");
    }
    let output = folder.join("costs").join(format!("{stem}.toml"));
    std::fs::create_dir_all(folder.join("costs"))?;
    std::fs::write(&output, text)?;
    println!("{} written from {} measurements", output.display(), after.measurements);
    Ok(())
}
