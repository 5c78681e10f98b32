//! Compiles emitted HLSL shaders with Microsoft's compiler to SPIR-V, runs that on the test device in f32, and compares the
//! results with the CPU reference. `DRIFT_TEST_SCOPE=full` takes every test case of every operator.
//!
//! `tests/setup.sh` installs the compiler where a package for the machine exists, and sets `DRIFT_DXC`. Without the compiler,
//! the test is listed as ignored.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, ExitCode};

use drift_runtime::codec::{BundleWriter, section};
use drift_runtime::format::ApiVersion;
use drift_runtime::{Bundle, Session};
use drift_tests::compare::{Tolerance, compare};
use drift_tests::settings::{self, Scope};
use drift_tests::{device, random_graph};
use driftc::compile::{Model, Options, compile};
use driftc::ir::array::Array;
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::Op;
use driftc::ir::tensor::DType;
use driftc::ir::{eval, graph_text};
use driftc::kernels::cases::CASES;
use driftc::passes::Precision;
use driftc::target::TargetProfile;
use libtest_mimic::{Arguments, Failed, Trial};
use rayon::prelude::*;

const TARGET: &str = "nvidia-ada-directx12";

struct Case {
    name: String,
    graph: Graph,
    inputs: BTreeMap<String, Array>,
    bundle: Bundle,
    precision: Precision,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let compiler = settings::hlsl_compiler();
    // Without a compiler the test is listed as ignored.
    let ignored = compiler.is_none();
    let run = move || {
        let compiler =
            compiler.ok_or("DRIFT_DXC, the path of the HLSL compiler, is not set: run `make setup`")?;
        compile_and_run(&compiler).map_err(Failed::from)
    };
    let trial = Trial::test("hlsl_gives_the_results_of_the_reference", run).with_ignored_flag(ignored);
    libtest_mimic::run(&arguments, vec![trial]).exit_code()
}

/// Compiles the HLSL shaders of test cases to SPIR-V, runs them on the device, and compares the results with the CPU reference.
fn compile_and_run(library: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let cases = cases(folder.path());
    let mut shaders = BTreeMap::new();
    for case in &cases {
        for artifact in &case.bundle.manifest().artifacts {
            let bytes = section(case.bundle.bytes(), artifact.offset, artifact.size).unwrap();
            shaders.insert(artifact.hash, bytes.to_vec());
        }
    }
    for (hash, bytes) in &shaders {
        std::fs::write(folder.path().join(format!("{hash}.hlsl")), bytes).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hlsl.py");
    let done = Command::new(settings::python()).arg(script).arg(library).arg(folder.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let without_f16: Vec<&Case> = cases.iter().filter(|case| !stores_f16(case)).collect();
    let failed: Vec<String> =
        without_f16.par_iter().filter_map(|case| run(case, for_vulkan(case, folder.path())).err()).collect();
    settings::report_ran(
        without_f16.len(),
        cases.len(),
        "HLSL cases on the device, with shaders that Microsoft's compiler translated",
    );
    assert!(without_f16.len() > 50);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// True if a case stores f16 elements. For Vulkan, Microsoft's compiler writes a single f16 as a word, which overwrites the
/// neighboring element.
fn stores_f16(case: &Case) -> bool {
    let f16 = |id: NodeId| {
        let is_computed = !matches!(case.graph.op(id), Op::Input(_) | Op::Constant(_));
        is_computed && case.graph.tensor(id).dtype == DType::F16
    };
    case.precision == Precision::F16 || case.graph.ids().into_iter().any(f16)
}

/// Compiles test cases of all operators to bundles with HLSL shaders.
fn cases(folder: &Path) -> Vec<Case> {
    let mut target = TargetProfile::load(TARGET).unwrap();
    target.limits.max_loop_iterations = device::target().limits.max_loop_iterations;
    let step = if Scope::from_environment().is_full() { 1 } else { 4 };
    let all = CASES.iter().flat_map(|c| c.graphs().enumerate().map(|(i, case)| (c.operator, i, case)));
    let both = |case| [(case, Precision::F32), (case, Precision::F16)];
    let total = all.clone().count();
    let chosen: Vec<_> = all.step_by(step).flat_map(both).collect();
    settings::report_ran(chosen.len(), 2 * total, "cases of operators");
    let made = chosen.into_par_iter().map(|((operator, i, case), precision)| {
        let name = format!("{operator}-{i}-{precision}");
        let graph = graph_text::parse(case).unwrap();
        let path = folder.join(format!("{name}.drift"));
        let model = Model { graph: graph.clone(), name: name.clone(), ..Model::default() };
        let options = Options { precision, ..Options::default() };
        compile(&model, std::slice::from_ref(&target), &options, &path).unwrap();
        let (inputs, bundle) = (random_graph::inputs(&graph, 7), Bundle::open(&path).unwrap());
        Case { name, graph, inputs, bundle, precision }
    });
    made.collect()
}

/// Returns the bundle of a case for Vulkan: its HLSL shaders are replaced by the SPIR-V that Microsoft's compiler made of them.
fn for_vulkan(case: &Case, folder: &Path) -> Bundle {
    let manifest = case.bundle.manifest();
    let path = folder.join(format!("{}-vulkan.drift", case.name));
    let mut writer = BundleWriter::create(&path).unwrap();
    for chunk in &manifest.chunks {
        let bytes = section(case.bundle.bytes(), chunk.offset, chunk.size).unwrap();
        writer.chunk(|out| out.write_all(bytes)).unwrap();
    }
    let mut variants = manifest.variants.clone();
    for variant in &mut variants {
        variant.requirements.api_version = ApiVersion { major: 1, minor: 1 };
        for pipeline in &mut variant.pipelines {
            let hash = manifest.artifacts[pipeline.artifact as usize].hash;
            let bytes = std::fs::read(folder.join(format!("{hash}.spv"))).unwrap();
            let words: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
            pipeline.artifact = writer.spirv(&words).unwrap();
        }
    }
    writer.finish(manifest.provenance.clone(), variants).unwrap();
    Bundle::open(&path).unwrap()
}

/// Runs a bundle and compares the results with the CPU reference.
fn run(case: &Case, bundle: Bundle) -> Result<(), String> {
    let fail = |e: String| format!("{}: {e}", case.name);
    let want = eval::eval(&case.graph, &case.inputs).map_err(|e| fail(e.to_string()))?;
    let session = Session::from_bundle(bundle, &drift_runtime::Options::default());
    let mut session = session.map_err(|e| fail(e.to_string()))?;
    let got = device::run_session(&mut session, &case.inputs).map_err(fail)?;
    if got.len() != want.len() {
        return Err(fail("the number of outputs differs from the reference".into()));
    }
    let mut pairs = want.iter().zip(&got);
    pairs.try_for_each(|((name, want), (_, got))| compare(name, got, want, Tolerance::F32)).map_err(fail)
}
