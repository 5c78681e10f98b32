//! Tests of `driftc audit`: the compilers of GPU drivers, which need no GPU (`make drivers`), compile the shaders of small models.
//! No driver may refuse, crash on, or take seconds for a shader, and no more shaders may spill than `tests/drivers/spills.txt`
//! lists. The table has the number of spilling shaders of each device and model.
//!
//! The quick scope takes one device of each driver and one model, the full scope all devices and models. Drivers in an emulator
//! compile for minutes, so the full scope takes one model with them. Without drivers all trials are ignored. `DRIFT_BLESS=1` writes the table for the trials that run.

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

/// Milliseconds that a driver in an emulator may take to compile a shader.
const MAX_EMULATED_COMPILE_MS: &str = "10000";

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let is_full = Scope::from_environment().is_full();
    let has_drivers = drivers().is_some();
    let mut trials = Vec::new();
    for Device { name: device, target, is_emulated } in devices() {
        for model in MODELS {
            let is_full = is_full && (!is_emulated || *model == MODELS[0]);
            let is_quick = QUICK_DEVICES.contains(&device.as_str()) && *model == MODELS[0];
            let (device, target) = (device.clone(), target.clone());
            let kind = match (has_drivers, is_full || is_quick) {
                (false, _) => "no drivers",
                (true, false) => "full scope",
                (true, true) => "",
            };
            let name = format!("{device}/{model}");
            let trial = Trial::test(name, move || audit(&device, &target, model, is_emulated));
            trials.push(trial.with_kind(kind).with_ignored_flag(!kind.is_empty()));
        }
    }
    for Device { name: device, .. } in devices().into_iter().filter(|device| !device.is_emulated) {
        let kind = match (has_drivers, is_full) {
            (false, _) => "no drivers",
            (true, false) => "full scope",
            (true, true) => "",
        };
        let trial = Trial::test(format!("{device}/probe"), move || probe(&device));
        trials.push(trial.with_kind(kind).with_ignored_flag(!kind.is_empty()));
    }
    for (name, test) in
        [("usage", usage as fn() -> Result<(), Failed>), ("static facts", static_facts), ("diff", diff)]
    {
        let kind = if has_drivers { "" } else { "no drivers" };
        trials.push(Trial::test(name, test).with_kind(kind).with_ignored_flag(!has_drivers));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A device of `targets/drivers/drivers.toml`.
struct Device {
    name: String,
    /// Profile that the tests compile for.
    target: String,
    /// True if the driver runs in an emulator.
    is_emulated: bool,
}

fn devices() -> Vec<Device> {
    let text = std::fs::read_to_string(root().join("targets/drivers/drivers.toml")).unwrap();
    let table: toml::Table = text.parse().unwrap();
    let list = |value: &toml::Value, key: &str| {
        value.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default()
    };
    let text = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let drivers = list(&table.into(), "driver");
    let devices = drivers.iter().flat_map(|driver| list(driver, "device"));
    devices
        .map(|device| Device {
            name: text(&device["name"]),
            target: text(&list(&device, "profiles")[0]),
            is_emulated: device
                .get("processor")
                .is_some_and(|processor| processor.as_str() != Some(std::env::consts::ARCH)),
        })
        .collect()
}

fn driftc() -> Command {
    Command::new(env!("CARGO_BIN_EXE_driftc"))
}

/// Compiles a model for a profile, audits it with a device's driver, and compares the number of spilling shaders.
fn audit(device: &str, target: &str, model: &str, is_emulated: bool) -> Result<(), Failed> {
    let path = root().join("tests/corpus").join(model).join("model.onnx");
    let mut command = driftc();
    command.arg("audit").arg(path).args(["-t", target, "--driver", device, "--precision", "f16"]);
    let limit = if is_emulated { MAX_EMULATED_COMPILE_MS } else { MAX_COMPILE_MS };
    command.args(["--max-compile-ms", limit, "--json"]);
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

/// Compares what the driver reports about a device with the stored probe, or writes the probe.
fn probe(device: &str) -> Result<(), Failed> {
    let drivers = drivers().ok_or("no drivers")?;
    let path = root().join("targets/drivers/probes").join(format!("{device}.toml"));
    let mut command = Command::new(Path::new(&drivers).join("run"));
    command.arg(device).arg(env!("CARGO_BIN_EXE_driftc")).args(["targets", "probe", "--name", device]);
    let output = command.env_remove("DRIFT_DEVICE").output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    if bless() {
        return Ok(std::fs::write(&path, &output.stdout)?);
    }
    let (stored, reported) = (std::fs::read_to_string(&path)?, String::from_utf8(output.stdout)?);
    let only = |of: &str, other: &str, sign: &str| -> String {
        let lines = of.lines().filter(|line| !other.lines().any(|known| known == *line));
        lines.map(|line| format!("\n{sign} {line}")).collect()
    };
    let difference = only(&stored, &reported, "-") + &only(&reported, &stored, "+");
    if difference.is_empty() {
        Ok(())
    } else {
        Err(format!("{} differs:{difference}", path.display()).into())
    }
}

fn json_output(arguments: &[&str]) -> Result<Value, Failed> {
    let output = driftc().args(arguments).output()?;
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout)?),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// `calibrate --static` writes facts, and compiles each kernel's source once.
fn static_facts() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("facts.toml").display().to_string();
    let arguments =
        ["calibrate", "--static", "-t", "intel-arc-a770", "--only", "softmax 1", "-o", &path, "--json"];
    let first = json_output(&arguments)?;
    let text = std::fs::read_to_string(&path)?;
    let facts: driftc::target::static_facts::StaticFacts = toml::from_str(&text)?;
    let compiled = facts.kernels.get("softmax").ok_or("no facts about softmax")?.shaders;
    if compiled == 0 || first["failed"] != 0 || first["shaders"] == 0 || !facts.device.contains("A770") {
        return Err(format!("{first}\n{text}").into());
    }
    let again = json_output(&arguments)?;
    if again["kernels"] != 0 || std::fs::read_to_string(&path)? != text {
        return Err(format!("the second run compiled kernels again: {again}").into());
    }
    Ok(())
}

/// `diff` compares two reports: the spills of the same model on two devices differ.
fn diff() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let model = root().join("tests/corpus/gpt2/model.onnx").display().to_string();
    let mut paths = Vec::new();
    for precision in ["f16", "f32"] {
        let report = json_output(&["audit", &model, "-t", "amd-rdna3", "--precision", precision, "--json"])?;
        let path = folder.path().join(format!("{precision}.json"));
        std::fs::write(&path, report.to_string())?;
        paths.push(path.display().to_string());
    }
    let [a, b] = [&paths[0], &paths[1]];
    let same = json_output(&["diff", a, a, "--json"])?;
    let different = json_output(&["diff", a, b, "--json"])?;
    let pipelines = |diff: &Value| diff["pipelines"].as_array().map_or(0, Vec::len);
    if pipelines(&same) != 0
        || pipelines(&different) == 0
        || different["compiled"] != Value::Array(Vec::new())
    {
        return Err(format!("{same}\n{different}").into());
    }
    Ok(())
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
