//! Compares emitted shaders with golden files: one shader of each kernel as text, for three targets, so that a change shows as
//! a diff.
//!
//! `shaders/KERNEL.TARGET.wgsl` has the shader of the kernel's cheapest candidate for the first test case that the
//! kernel can compute. Kernels on matrix units also have `shaders/KERNEL.TARGET.spvasm`, since WGSL cannot express
//! their matrices. DRIFT_BLESS=1 rewrites the files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use drift_tests::emission::after_passes;
use drift_tests::settings;
use driftc::emit::spirv;
use driftc::kernels::cases::CASES;
use driftc::kernels::{KERNELS, Kernel};
use driftc::passes::Precision;
use driftc::plan::choice::Choice;
use driftc::plan::estimate::problem;
use driftc::plan::select::candidates;
use driftc::plan::tuning::configuration;
use driftc::shader::Launch;
use driftc::shader::problem::Problem;
use driftc::target::TargetProfile;
use libtest_mimic::{Arguments, Failed, Trial};

/// Targets of the golden shaders: a phone with textures, a GPU with matrix units, and a browser.
const TARGETS: [&str; 3] = ["adreno-750", "nvidia-hopper", "webgpu-baseline"];

/// Kernels that no target of [`TARGETS`] uses, each with a target that uses it.
const OTHERS: [(&str, &str); 1] = [("matmul_broadcast", "lavapipe")];

/// Texts of golden files by file name.
type Texts = BTreeMap<String, String>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let disassembler = Command::new("spirv-dis").arg("--version").output().is_ok();
    let mut trials: Vec<Trial> = TARGETS
        .into_iter()
        .chain(OTHERS.map(|(_, target)| target))
        .map(|name| Trial::test(format!("wgsl_for_{name}"), move || check(name, "wgsl")))
        .collect();
    // Without a disassembler the SPIR-V is not compared.
    let spirv = Trial::test("spirv_of_kernels_on_matrix_units", || check("nvidia-hopper", "spvasm"));
    trials.push(spirv.with_ignored_flag(!disassembler));
    trials.push(Trial::test("every_kernel_has_a_golden_shader", every_kernel_has_one));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Compares the golden files of a target with the file ending `wgsl` or `spvasm` to the emitted shaders. DRIFT_BLESS=1 rewrites
/// the files instead.
fn check(target: &str, ending: &str) -> Result<(), Failed> {
    let found = if ending == "wgsl" { wgsl_texts(target)? } else { spirv_texts(target)? };
    let suffix = format!(".{target}.{ending}");
    let stored = stored_names()?.into_iter().filter(|name| name.ends_with(&suffix)).collect::<BTreeSet<_>>();
    let mut faults = Vec::new();
    for (name, text) in &found {
        let path = folder().join(name);
        if settings::bless() {
            std::fs::write(&path, text)?;
        } else if std::fs::read_to_string(&path).ok().as_ref() != Some(text) {
            faults.push(format!("golden file {name} differs from the emitted shader"));
        }
    }
    for name in stored.iter().filter(|name| !found.contains_key(*name)) {
        if settings::bless() {
            std::fs::remove_file(folder().join(name))?;
        } else {
            faults
                .push(format!("golden file {name} belongs to no kernel that has a candidate for the target"));
        }
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(format!("{}\nDRIFT_BLESS=1 rewrites the golden files; read their diff", faults.join("\n")).into())
}

/// Fails if a kernel has no golden shader for any target.
fn every_kernel_has_one() -> Result<(), Failed> {
    let names = stored_names()?;
    let has_one = |kernel: &&Kernel| names.iter().any(|name| name.starts_with(&format!("{}.", kernel.name)));
    let missing: Vec<&str> =
        KERNELS.iter().filter(|kernel| !has_one(kernel)).map(|kernel| kernel.name).collect();
    if missing.is_empty() || settings::bless() { Ok(()) } else { Err(missing.join(", ").into()) }
}

/// Returns the WGSL of the first candidate of each kernel. The first line marks the golden file as generated, so that tests of
/// style ignore it.
fn wgsl_texts(target: &str) -> Result<Texts, String> {
    let mut texts = Texts::new();
    first_launches(target, &mut |kernel, place, launches| {
        let shaders: Vec<&str> = launches.iter().map(|launch| launch.wgsl.trim_end()).collect();
        texts.insert(
            format!("{}.{target}.wgsl", kernel.name),
            format!("// @generated for {place}\n{}\n", shaders.join("\n\n")),
        );
        Ok(())
    })?;
    if let Some((kernel, _)) = OTHERS.iter().find(|(_, other)| *other == target) {
        texts.retain(|name, _| name.starts_with(&format!("{kernel}.")));
    }
    Ok(texts)
}

/// Returns the SPIR-V assembly of the first candidate of each kernel that uses matrix units.
fn spirv_texts(target: &str) -> Result<Texts, String> {
    let mut texts = Texts::new();
    first_launches(target, &mut |kernel, place, launches| {
        let launch = launches.iter().find(|launch| launch.matrix.is_some());
        if let Some(launch) = launch {
            let text = format!("; {place}\n{}", disassembled(launch)?);
            texts.insert(format!("{}.{target}.spvasm", kernel.name), text);
        }
        Ok(())
    })?;
    Ok(texts)
}

/// Callback that receives a kernel, a line with the case and configuration of its launches, and the launches.
type Visit<'a> = dyn FnMut(&Kernel, &str, &[Launch]) -> Result<(), String> + 'a;

/// Calls `visit` for each kernel, with the launches of its cheapest candidate for the first test case that the kernel
/// can compute.
fn first_launches(target: &str, visit: &mut Visit<'_>) -> Result<(), String> {
    let target = TargetProfile::load(target).map_err(|e| e.to_string())?;
    let mut seen = BTreeSet::new();
    for cases in CASES {
        for (i, case) in cases.graphs().enumerate() {
            for precision in [Precision::F32, Precision::F16] {
                let name = format!("{}/{i} {precision}", cases.operator);
                let graph = after_passes(case, &target, precision).map_err(|e| format!("{name}: {e}"))?;
                for problem in graph.topological().into_iter().filter_map(|id| problem(&graph, id, &target)) {
                    for choice in candidates(&problem, None, None) {
                        if seen.insert(choice.kernel.name) {
                            let launches = launches(&problem, &choice)?;
                            visit(choice.kernel, &format!("{name}: {}", configuration(&choice)), &launches)?;
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn launches(problem: &Problem<'_>, choice: &Choice) -> Result<Vec<Launch>, String> {
    choice.kernel.specialized(problem, &choice.candidate).map_err(|e| format!("{}: {e}", choice.kernel.name))
}

/// Returns the SPIR-V assembly of a launch's shader, without header and with plain numbers as ids.
fn disassembled(launch: &Launch) -> Result<String, String> {
    let matrix = spirv::Matrix::from_launch(launch);
    let words = spirv::emit(&launch.wgsl, spirv::Options { finish: None, matrix })?;
    let file = tempfile::NamedTempFile::new().map_err(|e| e.to_string())?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    std::fs::write(file.path(), bytes).map_err(|e| e.to_string())?;
    let arguments = ["--raw-id", "--no-header", "--no-color", "--no-indent"];
    let done =
        Command::new("spirv-dis").args(arguments).arg(file.path()).output().map_err(|e| e.to_string())?;
    if !done.status.success() {
        return Err(format!("spirv-dis: {}", String::from_utf8_lossy(&done.stderr)));
    }
    String::from_utf8(done.stdout).map_err(|e| e.to_string())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders")
}

fn stored_names() -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder()).map_err(|e| format!("tests/shaders: {e}"))?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}
