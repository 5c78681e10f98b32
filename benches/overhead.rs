//! Times the overhead of a run, from Rust and from Python, with a bundle of one small dispatch, one input and one output.
//! `cargo bench -p drift-benches --bench overhead`; `DRIFT_TEST_TARGET` names the profile. The Python package runs from its
//! sources with the library of `make library`: `DRIFT_LIBRARY` names its file, `DRIFT_PYTHON` the Python interpreter.
//!
//! Timed runs from Rust and from Python alternate, because the load of the machine changes from second to second.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use drift_runtime::{Array, Options, Session};
use driftc::compile::{Model, Options as CompileOptions, compile};
use driftc::ir::graph_text;
use driftc::target::TargetProfile;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const GRAPH: &str =
    "%0 = input {\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[4,3]}\n%1 = neg %0\noutput \"y\" %1\n";
const RUNS: usize = 5000;
const TURNS: usize = 5;

fn main() -> Result<()> {
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let target = TargetProfile::load(&name)?;
    let folder = std::env::temp_dir().join(format!("drift-overhead-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("small.drift");
    let model = Model { graph: graph_text::parse(GRAPH)?, ..Model::default() };
    let done = compile(&model, &[target], &CompileOptions::default(), &path).map_err(Into::into);
    let done = done.and_then(|_| turns(&path));
    std::fs::remove_dir_all(&folder)?;
    done
}

fn turns(path: &Path) -> Result<()> {
    println!("| repetition | us per run, Rust | us per run, Python | us more in Python |\n|---|---|---|---|");
    let mut differences = Vec::new();
    for turn in 1..=TURNS {
        let (rust, python) = (from_rust(path)?, from_python(path)?);
        println!("| {turn} | {rust:.1} | {python:.1} | {:.1} |", python - rust);
        differences.push(python - rust);
    }
    differences.sort_by(f64::total_cmp);
    println!("median extra time of a run in Python: {:.1} us", differences.get(TURNS / 2).ok_or("no turn")?);
    Ok(())
}

/// Median time of a run in this Rust process, in microseconds.
fn from_rust(path: &Path) -> Result<f64> {
    let mut session = Session::load(path, &Options::default())?;
    let x = Array::from_f32(&[4, 3], &[0.5; 12]);
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        let outputs = session.run("main", &[("x", x.as_ref())])?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
        if outputs.len() != 1 {
            return Err("one output".into());
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(*times.get(RUNS / 2).ok_or("no run")?)
}

/// Median time of a run in a Python process, in microseconds.
fn from_python(path: &Path) -> Result<f64> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let library = std::env::var_os("DRIFT_LIBRARY")
        .ok_or("DRIFT_LIBRARY is not set to the path of libdrift.so; `make library` builds that file")?;
    let output = Command::new(std::env::var("DRIFT_PYTHON").unwrap_or_else(|_| "python3".to_owned()))
        .arg(root.join("benches/overhead.py"))
        .args([path.as_os_str(), RUNS.to_string().as_ref()])
        .env("PYTHONPATH", root.join("runtime/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("DRIFT_LIBRARY", library)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    said.trim().parse().map_err(|_| format!("{said}{}", String::from_utf8_lossy(&output.stderr)).into())
}
