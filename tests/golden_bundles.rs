//! Tests of golden bundles: this version of the reader loads and runs the bundles of every version of the format, and older
//! and newer readers accept or refuse them as docs/COMPATIBILITY.md promises.
//!
//! DRIFT_BLESS=1 writes the bundles of the present version if their folder does not exist. Existing bundles never change.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use drift_models::Dims;
use drift_runtime::codec::{VERSION_MAJOR, VERSION_MINOR, read_header, read_manifest, read_manifest_as};
use drift_runtime::format::ArtifactKind;
use drift_runtime::format::self_test::ATTACHMENT;
use drift_runtime::{Backend, Bundle, Error};
use drift_tests::golden::{self, Facts, Golden, Run, Tensor};
use drift_tests::signed::sign;
use drift_tests::{settings, word_model};
use driftc::compile::{Model, Options, write};
use driftc::entry_points::Specialize;
use driftc::ir::array::Array;
use driftc::ir::dim::Bindings;
use driftc::ir::graph::Graph;
use driftc::ir::ops::constant::random;
use driftc::ir::tensor::DType;
use driftc::ir::{eval, graph_text};
use driftc::lowering::lower_model;
use driftc::self_test::{References, self_test};
use driftc::target::TargetProfile;

/// Maximum size of all golden bundles of a version with their facts, in bytes.
const MOST: u64 = 300_000;

const CONVOLUTION: &str = r#"
%0 = input {"name":"image","dtype":"f32","shape":[1,3,9,7]}
%1 = constant {"dtype":"f32","shape":[8,3,3,3],"random":1}
%2 = constant {"dtype":"f32","shape":[8],"random":2}
%3 = conv %0 %1 %2 {"strides":[2,2],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%4 = relu %3
%5 = constant {"dtype":"f32","shape":[4,8,1,1],"random":3}
%6 = conv %4 %5 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
output "y" %6
"#;
const SOFTMAX: &str = r#"
symbol batch 1..3
symbol seq 1..20
%0 = input {"name":"x","dtype":"f32","shape":["batch","seq",16]}
%1 = constant {"dtype":"f32","shape":[16,12],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = softmax %2 {"axis":2,"log":false}
output "y" %3
"#;
const MATMUL: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,8]}
%1 = constant {"dtype":"f32","shape":[8,6],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = relu %2
output "y" %3
"#;
/// An input, a weight and an output of 8-bit integers. The output has rows of 3, so it is stored byte by byte.
const BYTES: &str = r#"
%0 = input {"name":"x","dtype":"u8","shape":[2,3,4]}
%1 = constant {"dtype":"i8","shape":[4,3],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = cast %2 {"to":"i8"}
output "y" %3
"#;

/// A golden bundle to write.
struct Spec {
    name: &'static str,
    model: Model,
    targets: Vec<TargetProfile>,
    specialize: Specialize,
    calls: Vec<Call>,
    needs_minor: u16,
    signed: bool,
}

/// A run whose expected outputs the CPU reference computes.
struct Call {
    function: &'static str,
    symbols: Bindings,
    inputs: BTreeMap<String, Array>,
}

fn specs(folder: &Path) -> Vec<Spec> {
    let images = golden::root().join("../storages/four-textures.toml");
    let profile = |name: &str| {
        let mut profile = TargetProfile::load(name).unwrap_or_else(|e| panic!("{e}"));
        profile.prefer.short_shaders = true;
        profile
    };
    let spec = |name, graph: &str, targets: &[&str], shapes: &[&[usize]], needs_minor| Spec {
        name,
        model: model(name, graph),
        targets: targets.iter().map(|target| profile(target)).collect(),
        specialize: Specialize::Never,
        calls: shapes.iter().map(|shape| call(graph, shape)).collect(),
        needs_minor,
        signed: false,
    };
    let apis = ["lavapipe", "webgpu-baseline", "apple-m4-metal", "nvidia-ada-directx12"];
    let symbolic =
        spec("symbolic_shapes", SOFTMAX, &["lavapipe"], &[&[2, 7, 16], &[3, 5, 16], &[1, 1, 16]], 2);
    let one_row = Bindings::from([("seq".to_owned(), 1)]);
    vec![
        spec("bytes", BYTES, &apis, &[&[2, 3, 4]], 6),
        spec("four_apis", MATMUL, &apis, &[&[2, 8]], 4),
        spec("images", CONVOLUTION, &[images.to_str().unwrap()], &[&[1, 3, 9, 7]], 1),
        language_model(folder, profile("lavapipe")),
        Spec { signed: true, ..spec("signed", MATMUL, &["lavapipe"], &[&[2, 8]], 5) },
        Spec { specialize: Specialize::Sizes(vec![one_row]), ..symbolic },
    ]
}

fn model(name: &str, graph: &str) -> Model {
    Model { name: name.to_owned(), graph: graph_text::parse(graph).unwrap(), ..Model::default() }
}

fn call(graph: &str, shape: &[usize]) -> Call {
    let graph = graph_text::parse(graph).unwrap();
    let input = graph.input(graph.inputs()[0]).unwrap();
    let inputs = [(input.name.clone(), random(input.dtype, shape, 7))].into();
    Call { function: "main", symbols: Bindings::new(), inputs }
}

/// A language model that reads a prompt and decodes two tokens, the second one from the state `token`.
fn language_model(folder: &Path, target: TargetProfile) -> Spec {
    let path = folder.join("words");
    word_model::write(&path, 32);
    let dims: Dims = [("context", 32), ("chunk", 4)].map(|(name, size)| (name.into(), (size, size))).into();
    let (mut model, _) = drift_models::load(&path, &dims).unwrap_or_else(|e| panic!("{e}"));
    model.entry_points.retain(|entry| ["prefill", "decode"].contains(&entry.name.as_str()));
    let call = |function, ids: &[i64], symbols: &[(&str, i64)]| Call {
        function,
        symbols: symbols.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        inputs: [("ids".to_owned(), Array::int(DType::I32, &[1, ids.len()], ids.to_vec()))].into(),
    };
    Spec {
        name: "language_model",
        model,
        targets: vec![target],
        specialize: Specialize::Never,
        calls: vec![
            call("prefill", &[0, 1, 2, 0], &[("past", 0), ("count", 3)]),
            call("decode", &[3], &[("past", 3)]),
            call("decode", &[-1], &[("past", 4)]),
        ],
        needs_minor: 0,
        signed: false,
    }
}

/// Writes a golden bundle with its facts.
fn write_golden(folder: &Path, mut spec: Spec) {
    let options = Options {
        specialize: spec.specialize.clone(),
        finish: Some(drift_spirv_tools::optimize),
        ..Options::default()
    };
    let lowered: Vec<_> = spec
        .targets
        .iter()
        .map(|target| lower_model(&spec.model, target, &options).unwrap_or_else(|e| panic!("{e}")))
        .collect();
    let test = self_test(&spec.model, &lowered[0], &options, Some(1), &References::default());
    let test = test.unwrap_or_else(|e| panic!("{e}")).unwrap().encode().unwrap();
    spec.model.attachments.push((ATTACHMENT.to_owned(), test));
    let functions: Vec<_> = lowered.iter().map(Vec::as_slice).collect();
    let path = folder.join(spec.name).with_extension("drift");
    write(&spec.model, &spec.targets, &functions, &options, &path).unwrap_or_else(|e| panic!("{e}"));
    let mut states = eval::States::new();
    let runs = spec.calls.iter().map(|call| expected(&spec.model, call, &mut states)).collect();
    let key = spec.signed.then(|| sign(&path).to_base64());
    let facts = Facts { needs_minor: spec.needs_minor, key, runs };
    let text = serde_json::to_string(&facts).unwrap() + "\n";
    fs::write(path.with_extension("json"), text).unwrap();
}

fn graph<'a>(model: &'a Model, function: &str) -> &'a Graph {
    model.entry_point_index(function).map_or(&model.graph, |index| &model.entry_points[index].graph)
}

fn expected(model: &Model, call: &Call, states: &mut eval::States) -> Run {
    let graph = graph(model, call.function);
    let outputs = eval::eval_with(graph, &call.inputs, &call.symbols, states).unwrap();
    Run {
        function: call.function.to_owned(),
        symbols: call.symbols.clone(),
        inputs: call.inputs.iter().map(|(name, array)| (name.clone(), Tensor::new(array))).collect(),
        outputs: outputs.iter().map(|(name, array)| (name.clone(), Tensor::new(array))).collect(),
    }
}

fn goldens() -> Vec<Golden> {
    let goldens = golden::read_all().unwrap_or_else(|e| panic!("{e}"));
    assert!(!goldens.is_empty(), "there are no golden bundles");
    goldens
}

#[test]
fn this_version_has_golden_bundles() {
    let folder = golden::root().join(format!("{VERSION_MAJOR}.{VERSION_MINOR}"));
    if !folder.exists() && settings::bless() {
        let models = tempfile::tempdir().unwrap();
        // Other tests must not see an incomplete folder.
        let written = tempfile::tempdir_in(golden::root()).unwrap();
        specs(models.path()).into_iter().for_each(|spec| write_golden(written.path(), spec));
        fs::rename(written.keep(), &folder).unwrap();
    }
    assert!(
        folder.is_dir(),
        "format {VERSION_MAJOR}.{VERSION_MINOR} has no golden bundles: run \
         `DRIFT_BLESS=1 cargo test -p drift-tests --test golden_bundles`, and commit {}",
        folder.display()
    );
    let sizes = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let bytes: u64 = sizes.sum();
    assert!(bytes <= MOST, "{} has {bytes} bytes, the maximum is {MOST}", folder.display());
}

#[test]
fn bundles_of_every_version_run() {
    for golden in goldens() {
        let name = golden.bundle.display();
        let file = fs::read(&golden.bundle).unwrap();
        assert_eq!(read_header(&file).unwrap().minor, golden.minor, "{name}");
        if !settings::on_software_driver() {
            continue;
        }
        let manifest = read_manifest(&file).unwrap();
        let has = |kind| manifest.variants.iter().any(|variant| manifest.language(variant) == kind);
        for (shaders, backend) in
            [(ArtifactKind::Spirv, Backend::Vulkan), (ArtifactKind::Wgsl, Backend::Wgpu)]
        {
            if has(shaders) {
                let vectors = golden.check(backend).unwrap_or_else(|e| panic!("{name}: {e}"));
                assert!(vectors > 0 || golden.minor < 5, "{name} has no self-test");
            }
        }
    }
}

/// Older and newer readers read every bundle whose contents they know, and refuse all other bundles with an error that names
/// the versions.
#[test]
fn readers_of_every_version_read_what_they_know() {
    for golden in goldens() {
        let file = fs::read(&golden.bundle).unwrap();
        let today = Bundle::open(&golden.bundle).unwrap();
        for known in 0..=VERSION_MINOR + 1 {
            let read = read_manifest_as(&file, known);
            let place = format!("{} read by 1.{known}", golden.bundle.display());
            if known >= golden.facts.needs_minor {
                assert_eq!(&read.unwrap_or_else(|e| panic!("{place}: {e}")), today.manifest(), "{place}");
                continue;
            }
            let error = read.map(|_| ()).expect_err(&place);
            assert!(matches!(error, Error::Version { .. }), "{place}: {error}");
            let message = error.to_string();
            let versions =
                format!("needs format version 1.{}, but this runtime knows version 1.{known}", golden.minor);
            assert!(message.contains(&versions), "{place}: {message}");
        }
    }
}
