//! Tests of targets that forbid a dispatch to read one range of a buffer and write another (WebGPU): plans respect the rule.
//! Also tests that one bundle can hold variants for four APIs; the native runtime selects the Vulkan variant.

use drift_models::builtin;
use drift_runtime::format::ArtifactKind;
use drift_runtime::{Bundle, Session};
use drift_tests::compare::{Tolerance, compare};
use drift_tests::emission::{MODELS, import, models};
use drift_tests::{device, random_graph};
use driftc::compile::{Model, Options, compile, lower};
use driftc::ir::eval::eval;
use driftc::ir::graph::Graph;
use driftc::ir::graph_text;
use driftc::ir::tensor::DType;
use driftc::lowering::lower_all;
use driftc::passes::Precision;
use driftc::plan::{Location, Plan};
use driftc::target::TargetProfile;

/// Maximum bytes of all arenas of a plan that separates read and written buffers, relative to the bytes of a plan with one arena.
const MOST: f64 = 1.3;

fn separate() -> TargetProfile {
    let target = TargetProfile::load("webgpu-f16").unwrap();
    assert!(target.limits.separate_read_write_buffers);
    target
}

/// Returns the buffer or texture that holds a tensor, or `None` for weights and parameters.
fn buffer(plan: &Plan, location: Location) -> Option<Location> {
    match location {
        Location::Arena(i) => Some(Location::Arena(plan.memory.arena(i))),
        Location::Image(i) => Some(Location::Image(plan.images.texture_of[i])),
        Location::Input(_) | Location::Output(_) | Location::State(_) => Some(location),
        Location::Weight(_) | Location::Params => None,
    }
}

/// Returns the first dispatch that reads and writes the same buffer through different bindings, or `None` if there is none.
fn offender(plan: &Plan) -> Option<String> {
    let step = plan.dispatches.iter().find(|step| {
        let side = |writes: bool| {
            let bound = step.locations.iter().zip(&step.launch.bindings);
            bound
                .filter(move |(_, b)| b.writable == writes)
                .filter_map(|(location, _)| buffer(plan, *location))
        };
        side(true).any(|written| side(false).any(|read| read == written))
    })?;
    Some(format!("{} for `{}`", step.launch.kernel, step.label))
}

#[test]
fn no_dispatch_reads_what_it_writes_in_random_graphs() {
    let target = separate();
    let (mut several, mut offenders) = (0, 0);
    for seed in 0..150 {
        let graph = random_graph::graph(seed);
        for precision in [Precision::F32, Precision::F16] {
            let options = Options { precision, ..Options::default() };
            let plan = lower(&graph, &target, &options).unwrap_or_else(|e| panic!("seed {seed}: {e}")).plan;
            assert_eq!(offender(&plan), None, "seed {seed}");
            several += usize::from(plan.memory.arenas.len() > 1);
        }
        let mut joined = target.clone();
        joined.limits.separate_read_write_buffers = false;
        offenders +=
            usize::from(offender(&lower(&graph, &joined, &Options::default()).unwrap().plan).is_some());
    }
    assert!(
        several > 50 && offenders > 50,
        "only {several} plans have several arenas, and only {offenders} plans with one arena break the rule; each number must be above 50"
    );
}

/// Checks that no dispatch of a graph's plans reads and writes the same buffer. Returns the bytes of the separate
/// arenas divided by the bytes that a plan with one arena needs.
#[track_caller]
fn keeps_apart(name: &str, graph: &Graph) -> f64 {
    let target = separate();
    let mut joined = target.clone();
    joined.limits.separate_read_write_buffers = false;
    let options = Options { precision: Precision::F16, ..Options::default() };
    let peak = |target: &TargetProfile| {
        let functions = lower_all(graph, target, &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        let apart = target.limits.separate_read_write_buffers;
        let broken = functions.iter().filter(|_| apart).find_map(|f| offender(&f.plan));
        assert_eq!(broken, None, "{name}");
        functions.iter().map(|f| f.plan.footprint().peak).max().unwrap_or(0) as f64
    };
    let ratio = peak(&target) / peak(&joined).max(1.0);
    assert!(
        ratio <= MOST,
        "{name}: the separate arenas take {ratio:.2} times the bytes of one arena; the limit is {MOST}"
    );
    ratio
}

#[test]
fn arenas_of_models_take_little_more_than_one() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, path) in models(&MODELS.map(|name| folder.join(name))) {
        keeps_apart(&name, &import(&path).unwrap());
    }
    for name in ["mobilenet-v2", "deeplab-v3", "sd14-text-encoder"] {
        keeps_apart(name, &builtin::find_builtin(name).unwrap().shapes(DType::F16).unwrap().0);
    }
}

/// Target, shader language and API of the four variants in a bundle for all APIs.
const FAT: [(&str, ArtifactKind, &str); 4] = [
    ("apple-m4-metal", ArtifactKind::Msl, "Metal"),
    ("nvidia-ada-directx12", ArtifactKind::Hlsl, "DirectX 12"),
    ("webgpu-f16", ArtifactKind::Wgsl, "WebGPU"),
    ("lavapipe", ArtifactKind::Spirv, "Vulkan"),
];

#[test]
fn one_bundle_serves_all_interfaces_with_one_set_of_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.drift");
    let text = r#"
%0 = input {"name":"x","dtype":"f32","shape":[4,64]}
%1 = constant {"dtype":"f32","shape":[64,512],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = softmax %2 {"axis":1,"log":false}
%4 = constant {"dtype":"f32","shape":[4,512],"random":2}
%5 = add %3 %4
output "y" %5
"#;
    let graph = graph_text::parse(text).unwrap();
    let model = Model { graph: graph.clone(), name: "model".into(), ..Model::default() };
    let targets = FAT.map(|(name, ..)| TargetProfile::load(name).unwrap());
    compile(&model, &targets, &device::validated(&Options::default()), &path).unwrap();
    let bundle = Bundle::open(&path).unwrap();
    let manifest = bundle.manifest();
    for (variant, (_, language, _)) in manifest.variants.iter().zip(FAT) {
        assert_eq!(manifest.language(variant), language, "{}", variant.target);
        let entry = if language == ArtifactKind::Msl { "main_" } else { "main" };
        assert!(variant.pipelines.iter().all(|p| p.entry == entry), "{}", variant.target);
    }
    let everywhere = (0..).zip(&manifest.chunks).filter(|(chunk, _)| {
        manifest.variants.iter().all(|variant| variant.placements.iter().any(|p| p.chunk == *chunk))
    });
    assert!(everywhere.map(|(_, chunk)| chunk.size).sum::<u64>() >= 4 * 512 * 4, "no weights are shared");
    // The variant for Vulkan runs.
    let mut session = Session::from_bundle(bundle, &drift_runtime::Options::default()).unwrap();
    assert_eq!(session.variant().target, "lavapipe");
    let inputs = random_graph::inputs(&graph, 5);
    let got = device::run_session(&mut session, &inputs).unwrap();
    let (name, want) = eval(&graph, &inputs).unwrap().remove(0);
    compare(&name, &got[0].1, &want, Tolerance::F32).unwrap();
    for (target, language, interface) in FAT {
        let named = drift_runtime::Options { target: Some(target.into()), ..Default::default() };
        match Session::load(&path, &named) {
            Ok(_) => assert_eq!(language, ArtifactKind::Spirv, "{target}"),
            Err(e) => {
                let refused = e.to_string();
                assert!(refused.contains(&format!("compiled for {interface}, but")), "{refused}");
                assert!(refused.contains("for a Vulkan target"), "{refused}");
            }
        }
    }
}
