//! Tests of `driftc audit`: the compilers of GPU drivers, which need no GPU (`make drivers`), compile the shaders of small models.
//! No driver may refuse, crash on, or take seconds for a shader, and no more shaders may spill than `tests/drivers/spills.txt`
//! lists. The table has the number of spilling shaders of each device and model.
//!
//! The quick scope takes one device of each driver and one model, the full scope all devices and models. Without drivers all
//! trials are ignored. `DRIFT_BLESS=1` writes the table for the trials that run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;

use drift_tests::settings::{Scope, bless, drivers};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

/// Models of `tests/corpus`.
const MODELS: &[&str] = &[
    "gpt2",
    "distilbert_cls",
    "grouped_query",
    "int4",
    "matmulnbits",
    "mobilenet_v1",
    "selfie_seg_like",
    "whisper_encoder",
];

/// Devices of the quick scope: one of each driver.
const QUICK_DEVICES: &[&str] = &["b580", "navi31", "adreno-740", "m1", "nvk-ampere"];

/// Milliseconds that a driver may take to compile a shader. Drivers take a few; a second is a fault of the shader.
const MAX_COMPILE_MS: &str = "2000";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_full = Scope::from_environment().is_full();
    let has_drivers = drivers().is_some();
    let mut trials = Vec::new();
    for (device, target) in devices() {
        for model in MODELS {
            let is_quick = QUICK_DEVICES.contains(&device.as_str()) && *model == MODELS[0];
            let (device, target) = (device.clone(), target.clone());
            let kind = match (has_drivers, is_full || is_quick) {
                (false, _) => "no drivers",
                (true, false) => "full scope",
                (true, true) => "",
            };
            let name = format!("{device}/{model}");
            let trial = Trial::test(name, move || audit(&device, &target, model));
            trials.push(trial.with_kind(kind).with_ignored_flag(!kind.is_empty()));
        }
    }
    let usage = Trial::test("usage", usage);
    trials.push(usage.with_kind(if has_drivers { "" } else { "no drivers" }).with_ignored_flag(!has_drivers));
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Devices of `targets/drivers/drivers.toml` with the profile that the tests compile for.
fn devices() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(root().join("targets/drivers/drivers.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let list = |value: &toml::Value, key: &str| {
        value.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default()
    };
    let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let drivers = list(&table.into(), "driver");
    let devices = drivers.iter().flat_map(|driver| list(driver, "device"));
    devices.map(|device| (text(&device["name"]), text(&list(&device, "profiles")[0]))).collect()
}

fn driftc() -> Command {
    Command::new(env!("CARGO_BIN_EXE_driftc"))
}

/// Compiles a model for a profile, audits it with a device's driver, and compares the number of spilling shaders.
fn audit(device: &str, target: &str, model: &str) -> Result<(), Failed> {
    let path = root().join("tests/corpus").join(model).join("model.onnx");
    let mut command = driftc();
    command.arg("audit").arg(path).args(["-t", target, "--driver", device, "--precision", "f16"]);
    command.args(["--max-compile-ms", MAX_COMPILE_MS, "--json"]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let count = |what: &str| report["totals"][what].as_u64().unwrap_or(u64::MAX);
    if count("pipelines") == 0 || report["statistics"] != Value::Bool(true) {
        return Err("the driver reports nothing".into());
    }
    if count("emulated") > 0 {
        return Err(
            format!("{} shaders lack the instructions they are written for", count("emulated")).into()
        );
    }
    compare(&format!("{device} {model}"), count("spilling"))
}

/// Compares a number of spilling shaders with the table, or writes it there.
fn compare(key: &str, spilling: u64) -> Result<(), Failed> {
    static TABLE: Mutex<()> = Mutex::new(());
    let _guard = TABLE.lock()?;
    let path = root().join("tests/drivers/spills.txt");
    let text = std::fs::read_to_string(&path)?;
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let mut table: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, count) in lines {
        table.insert(key, count.parse()?);
    }
    let listed = table.get(key).copied();
    if bless() && listed != Some(spilling) {
        table.insert(key, spilling);
        let lines: String = table.iter().map(|(key, count)| format!("{key} {count}\n")).collect();
        std::fs::write(&path, lines)?;
        return Ok(());
    }
    match listed {
        Some(listed) if spilling <= listed => Ok(()),
        Some(listed) => Err(format!("{spilling} shaders spill, {listed} are listed").into()),
        None => Err(format!("{} has no line `{key}`", path.display()).into()),
    }
}

/// Wrong uses are refused, and limits fail.
fn usage() -> Result<(), Failed> {
    let model = root().join("tests/corpus/gpt2/model.onnx");
    for (arguments, expected) in [
        (&["--driver", "navi31"][..], "a model needs a target"),
        (&["-t", "amd-rdna3", "--driver", "navi99"], "there is no driver for a device `navi99`"),
        (&["-t", "vulkan-baseline"], "no driver is listed for the target vulkan-baseline"),
        (&["-t", "amd-rdna3", "--min-occupancy", "999"], "less than 999 subgroups of occupancy"),
    ] {
        let output = driftc().arg("audit").arg(&model).args(arguments).output()?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() || !error.contains(expected) {
            return Err(format!("{arguments:?}: `{expected}` is expected, not\n{error}").into());
        }
    }
    Ok(())
}
