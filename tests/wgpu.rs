//! Tests of the runtime's wgpu backend, on the adapter that wgpu prefers: WebGPU bundles compared with the CPU reference,
//! language models, tensors that stay on the device, and faults.

use std::path::{Path, PathBuf};

use drift_models::Dims;
use drift_runtime::codec::BundleWriter;
use drift_runtime::format::{
    ArtifactKind, Binding, BindingKind, DeviceType, Dispatch, Expr, Function, HostType, Pipeline, Port,
    Provenance, Slot, SlotKind, Variant,
};
use drift_runtime::{Array, ArrayRef, Backend, Bundle, Draft, Error, Generator, Options, Request, Session};
use drift_tests::compare::{Tolerance, compare, quantizes_rows};
use drift_tests::stored::npy;
use drift_tests::{device, emission};
use driftc::compile::{self, lower};
use driftc::entry_points::Specialize;
use driftc::import::onnx;
use driftc::ir::dim::Bindings;
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::Op;
use driftc::ir::tensor::DType;
use driftc::ir::{eval, graph_text};
use driftc::kernels::cases::CASES;
use driftc::lowering::{lower_all, lower_model};
use driftc::passes::Precision;
use driftc::plan::estimate::Costs;
use driftc::target::TargetProfile;
use rayon::prelude::*;

/// Every `STEP`-th test case of the operators runs.
const STEP: usize = 18;

fn on_wgpu() -> Options {
    Options { backend: Backend::Wgpu, ..Options::default() }
}

/// Returns a built-in profile, limited to the loop iterations of the software driver on which wgpu runs in tests. That driver
/// ends longer loops without an error.
fn target(name: &str) -> TargetProfile {
    let mut target = TargetProfile::load(name).unwrap();
    target.limits.max_loop_iterations = TargetProfile::load("lavapipe").unwrap().limits.max_loop_iterations;
    target
}

fn options(precision: Precision) -> compile::Options {
    compile::Options { precision, ..compile::Options::default() }
}

/// True if a kernel of the target computes each fused matmul of a graph. The compiler fuses only where a kernel exists, but a
/// test case may contain a fused matmul that needs more workgroup memory than the target has.
fn fused_nodes_have_kernels(graph: &Graph, target: &TargetProfile) -> bool {
    let mut costs = Costs::new(target, None);
    let fused = |id: &NodeId| matches!(graph.node(*id).op, Op::FusedMatMul(_));
    graph.ids().into_iter().filter(fused).all(|id| costs.node(graph, id).estimated.is_some())
}

/// Runs a test case through wgpu, at the bounds and in the middle of its symbols, and compares the results. Returns false if
/// the case cannot be compared.
fn agrees(case: &str, target: &TargetProfile, precision: Precision) -> Result<bool, String> {
    let graph = graph_text::parse(case).map_err(|e| e.to_string())?;
    let half = graph.ids().into_iter().any(|id| graph.tensor(id).dtype == DType::F16);
    if half && !target.features.stores_f16() {
        return Ok(false);
    }
    if precision == Precision::F16 && quantizes_rows(&graph) {
        return Ok(false);
    }
    if !fused_nodes_have_kernels(&graph, target) {
        return Ok(false);
    }
    let options = options(precision);
    let lowered = lower(&graph, target, &options).map_err(|e| e.to_string())?;
    let bundle = device::bundle(target, &[lowered], &options)?;
    let mut session = Session::from_bundle(bundle, &on_wgpu()).map_err(|e| e.to_string())?;
    let tolerance = if precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 };
    for symbols in device::sizes(&graph) {
        let inputs = device::random_inputs(&graph, &symbols)?;
        let want = eval::eval(&graph, &inputs).map_err(|e| e.to_string())?;
        let got = device::run_session(&mut session, &inputs)?;
        want.iter().zip(&got).try_for_each(|((name, want), (_, got))| compare(name, got, want, tolerance))?;
    }
    Ok(true)
}

#[test]
fn cases_of_kernels() {
    let cases: Vec<(String, &str)> = CASES
        .iter()
        .flat_map(|c| c.graphs().enumerate().map(|(i, case)| (format!("{}/{i}", c.operator), case)))
        .collect();
    for (name, precision) in [("webgpu-baseline", Precision::F32), ("webgpu-f16", Precision::F16)] {
        let target = target(name);
        let chosen: Vec<_> = cases.iter().step_by(STEP).collect();
        let results = chosen.par_iter().map(|(case, graph)| {
            agrees(graph, &target, precision).map_err(|e| format!("{case} for {name}: {e}"))
        });
        let results: Vec<Result<bool, String>> = results.collect();
        let failures: Vec<&String> = results.iter().filter_map(|r| r.as_ref().err()).collect();
        assert!(failures.is_empty(), "{failures:#?}");
        let compared = results.iter().filter(|r| matches!(r, Ok(true))).count();
        assert!(
            compared * 10 > chosen.len() * 9,
            "only {compared} of {} cases could be compared with the reference",
            chosen.len()
        );
    }
}

#[test]
fn networks() {
    let target = target("webgpu-baseline");
    let corpus: Vec<PathBuf> = ["distilbert_cls", "gpt2", "selfie_seg_like", "matmulnbits"]
        .iter()
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name))
        .collect();
    for (name, path) in emission::models(&corpus) {
        let graph =
            onnx::load(&path, &onnx::Options::default()).unwrap_or_else(|e| panic!("{name}: {e}")).graph;
        let options = options(Precision::F32);
        let functions = lower_all(&graph, &target, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        let bundle = device::bundle(&target, &functions, &options).unwrap();
        let mut session = Session::from_bundle(bundle, &on_wgpu()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let stored = |kind: &str, i: usize| npy(&path.with_file_name(format!("{kind}_{i}.npy"))).unwrap();
        let names = graph.inputs().iter().filter_map(|id| graph.input(*id)).map(|input| input.name.clone());
        let inputs = names.enumerate().map(|(i, name)| (name, stored("input", i))).collect();
        let before = session.stats();
        for (i, (output, got)) in device::run_session(&mut session, &inputs).unwrap().iter().enumerate() {
            compare(&format!("{name}, {output}"), got, &stored("output", i), Tolerance::F32).unwrap();
        }
        let after = session.stats();
        assert_eq!((before.pipelines, before.allocations), (after.pipelines, after.allocations), "{name}");
    }
}

#[test]
fn functions_for_some_sizes() {
    let graph = r#"
symbol seq 1..40
%0 = input {"name":"x","dtype":"f32","shape":["seq",64]}
%1 = constant {"dtype":"f32","shape":[64,96],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = softmax %2 {"axis":1,"log":false}
output "y" %3
"#;
    let graph = graph_text::parse(graph).unwrap();
    let sizes = vec![Bindings::from([("seq".to_owned(), 1)]), Bindings::from([("seq".to_owned(), 17)])];
    let options = compile::Options { specialize: Specialize::Sizes(sizes), ..compile::Options::default() };
    let target = target("webgpu-baseline");
    let functions = lower_all(&graph, &target, &options).unwrap();
    assert_eq!(functions.len(), 3);
    let bundle = device::bundle(&target, &functions, &options).unwrap();
    let mut session = Session::from_bundle(bundle, &on_wgpu()).unwrap();
    let mut ran = Vec::new();
    for seq in [17, 1, 40, 2, 17] {
        let symbols = Bindings::from([("seq".to_owned(), seq)]);
        let inputs = device::random_inputs(&graph, &symbols).unwrap();
        let want = eval::eval(&graph, &inputs).unwrap();
        let got = device::run_session(&mut session, &inputs).unwrap();
        compare("y", &got[0].1, &want[0].1, Tolerance::F32).unwrap();
        ran.push(session.last_replayed("main").unwrap().symbols[0].max);
    }
    assert_eq!(ran, [17, 1, 40, 40, 17]);
}

/// Compiles a language model of `tests/language` for WebGPU and loads it with this number of frames.
fn language_model(frames: usize) -> Generator {
    let dims = Dims::from([("context".into(), (64, 64)), ("chunk".into(), (16, 16))]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("language/llama");
    let (model, _) = drift_models::load(&path, &dims).unwrap_or_else(|e| panic!("{e}"));
    let (target, options) = (target("webgpu-baseline"), options(Precision::F32));
    let functions = lower_model(&model, &target, &options).unwrap_or_else(|e| panic!("{e}"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.drift");
    compile::write(&model, &[target], &[&functions], &options, &file).unwrap_or_else(|e| panic!("{e}"));
    let session = Session::load(&file, &Options { frames, conversations: 2, ..on_wgpu() })
        .unwrap_or_else(|e| panic!("{e}"));
    Generator::new(session).unwrap()
}

fn generate(generator: &mut Generator, draft: &mut Draft, n: usize) -> Vec<u32> {
    let request = Request { max_tokens: n, ..Request::default() };
    generator.generate(&request, draft, &mut |_| true).unwrap_or_else(|e| panic!("{e}"));
    generator.tokens().to_vec()
}

#[test]
fn a_language_model() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("language/llama");
    let values = |name: &str| npy(&folder.join(name)).unwrap();
    let (ids, logits) = (values("ids.npy"), values("logits.npy"));
    let length = *ids.shape.last().unwrap();
    let ids: Vec<u32> = ids.ints().unwrap()[..length].iter().map(|id| *id as u32).collect();
    let mut generator = language_model(3);
    let logits = logits.floats().unwrap();
    let mut worst = 0.0f32;
    let (mut row, vocabulary) = (0, generator.vocabulary_size());
    let each = &mut |found: &[f32]| {
        for (i, value) in found.iter().enumerate() {
            let error = (value - logits[row * vocabulary + i]).abs();
            worst = if error.is_nan() { f32::INFINITY } else { worst.max(error) };
        }
        row += 1;
        Ok(())
    };
    generator.logits(&ids[..40], each).unwrap();
    assert_eq!(row, 40);
    assert!(worst < 2e-4, "logits differ by {worst}");

    // In one run, with draft tokens, with one frame, and half of it from a saved file in another conversation.
    generator.truncate(0);
    generator.append(&ids[..37]).unwrap();
    let expected = generate(&mut generator, &mut Draft::None, 20);
    assert_eq!(expected.len(), 57);
    generator.truncate(0);
    generator.append(&ids[..37]).unwrap();
    assert_eq!(generate(&mut generator, &mut Draft::NGram, 20), expected);
    let mut single = language_model(1);
    single.append(&ids[..37]).unwrap();
    assert_eq!(generate(&mut single, &mut Draft::None, 20), expected);
    generator.truncate(0);
    generator.append(&ids[..37]).unwrap();
    generate(&mut generator, &mut Draft::None, 10);
    let saved = tempfile::tempdir().unwrap();
    let saved = saved.path().join("saved");
    generator.save(&saved).unwrap();
    generator.choose_conversation(1).unwrap();
    generator.restore(&saved).unwrap();
    assert_eq!(generate(&mut generator, &mut Draft::None, 10), expected);
}

const TWICE: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = 2.0 * x[id.x]; }
";

/// Writes a bundle with one shader, which maps four numbers to four numbers, after `edit` has changed its variant.
fn written(kind: ArtifactKind, shader: &[u8], edit: impl Fn(&mut Variant)) -> Bundle {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice.drift");
    let mut writer = BundleWriter::create(&path).unwrap();
    let artifact = writer.artifact(kind, shader).unwrap();
    let port = |name: &str, slot| Port {
        name: name.to_owned(),
        host_type: HostType::F32,
        device_type: DeviceType::F32,
        shape: vec![Expr::constant(4)],
        slot,
        offset: 0,
    };
    let whole = |slot| Binding { slot, offset: 0, size: 16 };
    let dispatch = Dispatch {
        pipeline: 0,
        bindings: vec![whole(0), whole(1)],
        grid: [1, 1, 1].map(Expr::constant),
        params: Vec::new(),
        params_offset: 0,
        barrier_before: false,
        label: "twice".to_owned(),
        flops: Expr::constant(0),
        bytes: Expr::constant(0),
    };
    let function = Function {
        name: "main".to_owned(),
        inputs: vec![port("x", 0)],
        outputs: vec![port("y", 1)],
        slots: [SlotKind::Input(0), SlotKind::Output(0)].map(|kind| Slot { kind, size: 16 }).to_vec(),
        dispatches: vec![dispatch],
        ..Function::default()
    };
    let pipeline = Pipeline {
        name: "twice".to_owned(),
        artifact,
        entry: "main".to_owned(),
        bindings: vec![BindingKind::StorageRead, BindingKind::StorageReadWrite],
        required_subgroup_size: None,
        workgroup_size: [4, 1, 1],
        workgroup_memory: 0,
    };
    let mut variant = Variant {
        target: "any".to_owned(),
        pipelines: vec![pipeline],
        functions: vec![function],
        ..Variant::default()
    };
    variant.requirements.limits.storage_alignment = 256;
    variant.requirements.limits.uniform_alignment = 256;
    variant.requirements.limits = variant.needed_limits();
    edit(&mut variant);
    writer.finish(Provenance::default(), vec![variant]).unwrap();
    Bundle::from_vec(std::fs::read(path).unwrap()).unwrap()
}

fn twice() -> Bundle {
    written(ArtifactKind::Wgsl, TWICE.as_bytes(), |_| ())
}

#[test]
fn runs_in_flight_and_chains_on_the_device() {
    let options = Options { frames: 3, ..on_wgpu() };
    let mut sessions = Session::load_together(vec![twice(), twice()], &options).unwrap();
    let (mut second, mut first) = (sessions.pop().unwrap(), sessions.pop().unwrap());
    let array = |start: f32| Array::from_f32(&[4], &[start, start + 1.0, 0.5, -1.0]);
    let mut tickets = Vec::new();
    for run in 0..3 {
        first.write_input("main", "x", array(run as f32).as_ref()).unwrap();
        tickets.push(first.submit("main", &["y"]).unwrap());
    }
    let mut got = Array::from_f32(&[0], &[]);
    for (run, ticket) in tickets.iter().enumerate() {
        first.collect(*ticket, "y", &mut got).unwrap();
        assert_eq!(got.to_f64(), array(run as f32).to_f64().iter().map(|v| 2.0 * v).collect::<Vec<_>>());
    }
    let between = first.device_output_of(tickets[2], "y").unwrap();
    second.feed("main", "x", &between).unwrap();
    second.replay("main").unwrap();
    assert_eq!(second.read_output("main", "y").unwrap().to_f64(), [8.0, 12.0, 2.0, -4.0]);
    first.submit("main", &[]).unwrap();
    assert!(matches!(first.collect(tickets[0], "y", &mut got), Err(Error::Overwritten)));
    // Saved states of another device, and of another backend.
    let mut apart = Session::from_bundle(twice(), &on_wgpu()).unwrap();
    assert!(matches!(apart.feed("main", "x", &between), Err(Error::OtherDevice { .. })));
}

#[test]
fn what_goes_wrong_is_told() {
    let refused = |bundle: Bundle, options: &Options| match Session::from_bundle(bundle, options) {
        Ok(_) => panic!("the bundle was loaded"),
        Err(error) => error,
    };
    // For another API, both ways.
    let spirv = {
        let graph = graph_text::parse(
            "%0 = input {\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[8]}\n%1 = relu %0\noutput \"y\" %1\n",
        );
        let (graph, options) = (graph.unwrap(), options(Precision::F32));
        let native = TargetProfile::load("lavapipe").unwrap();
        let lowered = lower(&graph, &native, &options).unwrap();
        device::bundle(&native, &[lowered], &options).unwrap()
    };
    let error = refused(spirv, &on_wgpu()).to_string();
    assert!(
        error.contains(
            "the variant is compiled for Vulkan, but this runtime drives WebGPU; compile the model for a WebGPU target"
        ),
        "{error}"
    );
    let error = refused(twice(), &Options::default()).to_string();
    assert!(error.contains("the variant is compiled for WebGPU, but this runtime drives Vulkan"), "{error}");
    // Limits and features that no adapter has.
    let huge = written(ArtifactKind::Wgsl, TWICE.as_bytes(), |variant| {
        variant.requirements.limits.max_workgroup_memory = u32::MAX;
        variant.requirements.features = [drift_runtime::format::Feature::ShaderF64].into_iter().collect();
    });
    let error = refused(huge, &on_wgpu()).to_string();
    assert!(
        error.contains("max_workgroup_memory is") && error.contains("feature shader_f64 is missing"),
        "{error}"
    );
    // Shaders that do not compile, or do not match their pipeline.
    let broken = TWICE.replace("2.0 *", "2u *");
    let error = refused(written(ArtifactKind::Wgsl, broken.as_bytes(), |_| ()), &on_wgpu());
    assert!(matches!(&error, Error::Driver { code, .. } if code.contains("twice")), "{error}");
    let error = refused(written(ArtifactKind::Wgsl, b"\xff\xfe", |_| ()), &on_wgpu());
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    let other = |variant: &mut Variant| variant.pipelines[0].entry = "start".to_owned();
    let error = refused(written(ArtifactKind::Wgsl, TWICE.as_bytes(), other), &on_wgpu());
    assert!(matches!(&error, Error::Driver { code, .. } if code.contains("start")), "{error}");
    let error = refused(twice(), &Options { device: Some("no such adapter".into()), ..on_wgpu() });
    assert!(matches!(&error, Error::NoAdapter { found, .. } if !found.is_empty()), "{error}");
    // Requests.
    let mut session = Session::from_bundle(twice(), &on_wgpu()).unwrap();
    let integers = Array::from_i64(&[4], &[1, 2, 3, 4]);
    assert!(matches!(session.run("main", &[("x", integers.as_ref())]), Err(Error::WrongType { .. })));
    let short = Array::from_f32(&[3], &[1.0; 3]);
    assert!(matches!(session.run("main", &[("x", short.as_ref())]), Err(Error::WrongShape { .. })));
    let cut = ArrayRef { dtype: HostType::F32, shape: &[4], bytes: &[0; 12] };
    assert!(matches!(session.run("main", &[("x", cut)]), Err(Error::WrongLength { .. })));
    assert!(matches!(session.read_output("main", "y"), Err(Error::NotRun(_))));
    let right = Array::from_f32(&[4], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(session.run("main", &[("x", right.as_ref())]).unwrap()[0].to_f64(), [2.0, 4.0, 6.0, 8.0]);
    assert!(matches!(session.replay_timed("main"), Err(Error::NoTimestamps)));
    #[cfg(unix)]
    assert!(matches!(session.export_memory(DeviceType::F32, &[4]), Err(Error::Driver { .. })));
}
