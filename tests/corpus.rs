//! Compiles the models of `tests/corpus` with the program `driftc`, runs them on the device, and compares the outputs with stored
//! outputs.

use drift_tests::settings;
use std::path::{Path, PathBuf};
use std::process::Command;

use rayon::prelude::*;

/// Tolerance of an output's elements at one precision: a fraction of the expected element plus a fraction of the
/// largest expected element.
struct Tolerance {
    precision: &'static str,
    relative: f64,
    absolute: f64,
}

const PRECISIONS: [Tolerance; 2] = [
    Tolerance { precision: "f32", relative: 1e-3, absolute: 1e-4 },
    Tolerance { precision: "f16", relative: 2e-2, absolute: 1e-2 },
];

#[test]
fn distilbert_cls() {
    check("distilbert_cls");
}

#[test]
fn gpt2() {
    check("gpt2");
}

#[test]
fn grouped_query() {
    check("grouped_query");
}

#[test]
fn int4() {
    check("int4");
}

#[test]
fn matmulnbits() {
    check("matmulnbits");
}

#[test]
fn mobilenet_v1() {
    check("mobilenet_v1");
}

#[test]
fn selfie_seg_like() {
    check("selfie_seg_like");
}

#[test]
fn whisper_encoder() {
    check("whisper_encoder");
}

/// Compiles two image models for each profile of `tests/storages`. The profiles store tensors in buffers or in different kinds of
/// textures.
#[test]
fn storages() {
    let folder = root().join("tests/storages");
    let mut profiles: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    profiles.sort();
    assert!(profiles.len() > 4);
    let both = |profile| [("mobilenet_v1", profile), ("selfie_seg_like", profile)];
    let runs: Vec<(&str, &PathBuf)> = profiles.iter().flat_map(both).collect();
    runs.par_iter().for_each(|(name, profile)| check_on(name, profile.to_str().unwrap()));
}

#[test]
fn every_folder_is_tested() {
    let this = std::fs::read_to_string(root().join("tests/corpus.rs")).unwrap();
    for entry in std::fs::read_dir(root().join("tests/corpus")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let tested = this.contains(&format!("check(\"{name}\")"));
        assert!(tested || !entry.path().is_dir(), "{name} has no test");
    }
}

fn check(name: &str) {
    check_on(name, &settings::target_name());
}

fn check_on(name: &str, target: &str) {
    let folder = root().join("tests/corpus").join(name);
    for tolerance in PRECISIONS {
        let out = tempfile::tempdir().unwrap();
        let bundle = out.path().join("model.drift");
        let mut compile = driftc();
        compile.arg("compile").arg(folder.join("model.onnx")).arg("-o").arg(&bundle);
        succeed(compile.args(["-t", target, "--precision", tolerance.precision]));
        let mut run = driftc();
        run.arg("run").arg(&bundle).arg("--positional").arg("--output-dir").arg(out.path());
        for i in 0.. {
            let file = folder.join(format!("input_{i}.npy"));
            if !file.exists() {
                break;
            }
            run.arg("--input").arg(format!("{i}={}", file.display()));
        }
        succeed(&mut run);
        compare(&folder, out.path(), &tolerance);
    }
}

fn compare(expected: &Path, got: &Path, tolerance: &Tolerance) {
    let mut n = 0;
    while let Some((shape, want)) = floats(&expected.join(format!("output_{n}.npy"))) {
        let (got_shape, got) = floats(&got.join(format!("output_{n}.npy"))).unwrap();
        assert_eq!(got_shape, shape, "output {n} at {}", tolerance.precision);
        let largest = want.iter().fold(0f64, |m, v| m.max(v.abs()));
        for (i, (a, b)) in got.iter().zip(&want).enumerate() {
            let limit = tolerance.relative * b.abs() + tolerance.absolute * largest;
            let close = (a - b).abs() <= limit;
            assert!(
                close,
                "element {i} of output {n} at precision {} is {a} instead of {b}",
                tolerance.precision
            );
        }
        n += 1;
    }
    assert!(n > 0, "{} has no outputs", expected.display());
}

fn floats(file: &Path) -> Option<(Vec<u64>, Vec<f64>)> {
    let bytes = std::fs::read(file).ok()?;
    let array = npyz::NpyFile::new(&bytes[..]).unwrap();
    let shape = array.shape().to_vec();
    let values = array.into_vec::<f32>().unwrap();
    Some((shape, values.into_iter().map(f64::from).collect()))
}

fn driftc() -> Command {
    Command::new(env!("CARGO_BIN_EXE_driftc"))
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{errors}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
