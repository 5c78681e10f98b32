//! Targets on which no dispatch may read one part of a buffer and write another: plans keep to it, shaders are in WGSL,
//! and the native runtime says that such a bundle is not for it.

use drift_models::builtin;
use drift_runtime::format::ArtifactKind;
use drift_runtime::{Bundle, Session};
use drift_tests::emission::{MODELS, import, models};
use drift_tests::random_graph;
use driftc::compile::{Model, Options, compile, lower};
use driftc::functions::lower_all;
use driftc::ir::graph::Graph;
use driftc::ir::tensor::DType;
use driftc::passes::Precision;
use driftc::plan::{Home, Plan};
use driftc::target::TargetProfile;

/// How much larger all arenas may be than one.
const MOST: f64 = 1.3;

fn separate() -> TargetProfile {
    let target = TargetProfile::load("webgpu-f16").unwrap();
    assert!(target.limits.separate_read_write_buffers);
    target
}

/// The buffer that a home is a part of.
fn buffer(plan: &Plan, home: Home) -> Option<Home> {
    match home {
        Home::Arena(i) => Some(Home::Arena(plan.memory.arena(i))),
        Home::Image(i) => Some(Home::Image(plan.images.places[i])),
        Home::Input(_) | Home::Output(_) | Home::State(_) => Some(home),
        Home::Weight(_) | Home::Params => None,
    }
}

/// The first dispatch that reads and writes one buffer.
fn offender(plan: &Plan) -> Option<String> {
    let step = plan.steps.iter().find(|step| {
        let side = |writes: bool| {
            let bound = step.homes.iter().zip(&step.launch.bindings);
            bound.filter(move |(_, b)| b.writable == writes).filter_map(|(home, _)| buffer(plan, *home))
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
    assert!(several > 50 && offenders > 50, "{several} plans of several arenas, {offenders} that need them");
}

/// Whether a graph's plans keep buffers apart at little cost; returns that.
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
    assert!(ratio <= MOST, "{name}: the arenas take {ratio:.2} times as much as one");
    ratio
}

#[test]
fn arenas_of_models_take_little_more_than_one() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, path) in models(&MODELS.map(|name| folder.join(name))) {
        keeps_apart(&name, &import(&path).unwrap());
    }
    for name in ["mobilenet-v2", "deeplab-v3", "sd14-text-encoder"] {
        keeps_apart(name, &builtin::find(name).unwrap().shapes(DType::F16).unwrap().0);
    }
}

#[test]
fn a_bundle_for_browsers_holds_wgsl_and_is_refused_here() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.drift");
    let graph = random_graph::graph(3);
    let model = Model { graph, name: "model".into(), ..Model::default() };
    let targets = [separate(), TargetProfile::load("lavapipe").unwrap()];
    compile(&model, &targets, &Options::default(), &path).unwrap();
    let bundle = Bundle::open(&path).unwrap();
    let manifest = bundle.manifest();
    let languages: Vec<ArtifactKind> = manifest.variants.iter().map(|v| manifest.language(v)).collect();
    assert_eq!(languages, [ArtifactKind::Wgsl, ArtifactKind::Spirv]);
    // The one for Vulkan is the one that runs.
    let session = Session::from_bundle(bundle, &drift_runtime::Options::default()).unwrap();
    assert_eq!(session.variant().target, "lavapipe");
    let named = drift_runtime::Options { target: Some("webgpu-f16".into()), ..Default::default() };
    let refused = Session::load(&path, &named).err().unwrap().to_string();
    assert!(refused.contains("compiled for WebGPU") && refused.contains("for a Vulkan target"), "{refused}");
}
