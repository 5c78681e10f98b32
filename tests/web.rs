//! Tests of the browser runtime. WebGPU bundles run in Chromium and in Deno and are compared with the CPU reference.
//! The tests also cover faulty bundles and servers, the demo page, and the size of the package. With
//! `DRIFT_TEST_SCOPE=full` they run every case of every kernel.
//!
//! `tests/setup.sh` installs Chromium and the packages that `runtime/web/package.json` names.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use drift_models::Dims;
use drift_runtime::Bundle;
use drift_runtime::format::self_test::SelfTest;
use drift_tests::emission::MODELS;
use drift_tests::settings::{self, Scope};
use drift_tests::signed::sign;
use drift_tests::tested_bundle::{write_edited, write_tested};
use drift_tests::web::{Candidates, Job, index};
use driftc::compile::{Model, Options, compile};
use driftc::import::onnx;
use driftc::ir::graph_text;
use driftc::passes::Precision;
use driftc::target::TargetProfile;

/// Maximum bytes of the browser runtime's JavaScript after compression with gzip. Metadata and the progress of pipelines take
/// about 110 bytes of them.
const MOST: u64 = 15 * 1024 + 512;

/// Builds the package `runtime/web` once, and returns its folder.
fn built() -> PathBuf {
    static ONCE: Once = Once::new();
    let web = Path::new(env!("CARGO_MANIFEST_DIR")).join("../runtime/web");
    let installed = web.join("node_modules/esbuild").is_dir();
    assert!(installed, "the packages of runtime/web are not installed; run `make setup`");
    ONCE.call_once(|| run(&web, "npm", &["run", "--silent", "build"]));
    web
}

#[test]
fn in_chromium() {
    let web = built();
    let folder = tempfile::tempdir().unwrap();
    size(&web, folder.path());
    faults(folder.path());
    run(&web, "node", &["test/faults.mjs", folder.path().to_str().unwrap()]);
    let profile = TargetProfile::load("webgpu-baseline").unwrap();
    let out = cases(folder.path(), &profile, Precision::F32);
    run(&web, "node", &["test/run-chromium.mjs", &out]);
    // With the browser's shader checks, as users have it.
    run(&web, "node", &["test/run-chromium.mjs", &out, "--checked", "--only", "selfie_seg_like"]);
}

#[test]
fn in_deno() {
    let web = built();
    let folder = tempfile::tempdir().unwrap();
    let mut profile = TargetProfile::load("webgpu-f16").unwrap();
    // Deno runs on the software driver, which ends long loops without an error.
    profile.limits.max_loop_iterations = TargetProfile::load("lavapipe").unwrap().limits.max_loop_iterations;
    let out = cases(folder.path(), &profile, Precision::F16);
    run(&web, "node_modules/.bin/deno", &["run", "-A", "test/run-deno.mjs", &out]);
}

/// Writes bundles of kernel cases and of models to a folder, with inputs and expected outputs. Returns the path of the folder.
fn cases(folder: &Path, target: &TargetProfile, precision: Precision) -> String {
    let out = folder.join(&target.name);
    std::fs::create_dir(&out).unwrap();
    let corpus: Vec<PathBuf> =
        MODELS.iter().map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)).collect();
    let all = Scope::from_environment().is_full();
    let which = if all { Candidates::All } else { Candidates::CheapestOf(9) };
    let job = Job { out: &out, target, precision };
    let mut entries = job.kernels(which).unwrap_or_else(|e| panic!("{e}"));
    entries.extend(job.models(&corpus).unwrap_or_else(|e| panic!("{e}")));
    index(&out, &entries).unwrap();
    out.to_str().unwrap().to_owned()
}

/// Runs a program in the folder of the package. If the program fails, the test fails and shows its output.
#[track_caller]
fn run(web: &Path, program: &str, arguments: &[&str]) {
    let local = web.join(program);
    let program = if local.is_file() { local } else { PathBuf::from(program) };
    let output = Command::new(&program).args(arguments).current_dir(web).output();
    let output = output.unwrap_or_else(|e| panic!("{}: {e}; run `make setup`", program.display()));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{} {arguments:?}\n{said}{}",
        program.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{said}");
}

fn size(web: &Path, folder: &Path) {
    let copy = folder.join("index.js");
    std::fs::copy(web.join("dist/index.js"), &copy).unwrap();
    run(web, "gzip", &["-9", copy.to_str().unwrap()]);
    let bytes = std::fs::metadata(folder.join("index.js.gz")).unwrap().len();
    assert!(bytes <= MOST, "the browser runtime takes {bytes} bytes compressed; the maximum is {MOST}");
    assert!(
        web.join("dist/index.d.ts").is_file(),
        "the build of runtime/web made no type declarations, dist/index.d.ts"
    );
}

#[test]
fn the_demo_page() {
    let web = built();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    run(&web, "demo/page.sh", &[out]);
    for (name, model) in models() {
        let target = TargetProfile::load("webgpu-baseline").unwrap();
        compile(&model, &[target], &Options::default(), &folder.path().join(name))
            .unwrap_or_else(|e| panic!("{e}"));
    }
    run(&web, "node", &["test/demo.mjs", out]);
}

/// Returns the models of the demo page, with the names of their bundles.
fn models() -> [(&'static str, Model); 2] {
    let sizes = Dims::from([("seq".into(), (1, 64))]);
    let (sentences, _) =
        drift_models::load(&settings::sentence_model(), &sizes).unwrap_or_else(|e| panic!("{e}"));
    let input_shapes = [("x".to_string(), vec![1, 3, 256, 512])].into();
    let options = onnx::Options { input_shapes, ..onnx::Options::default() };
    let imported = onnx::load(&settings::text_detector(), &options).unwrap_or_else(|e| panic!("{e}"));
    let text = Model { graph: imported.graph, name: "text".into(), hash: imported.hash, ..Model::default() };
    [("minilm.drift", sentences), ("text.drift", text)]
}

/// Returns the graph text of a model with two weights. The seed changes only the smaller weight, as in a new version of the
/// model.
fn version(seed: u32) -> String {
    format!(
        r#"
%0 = input {{"name":"x","dtype":"f32","shape":[4,64]}}
%1 = constant {{"dtype":"f32","shape":[64,512],"random":1}}
%2 = matmul %0 %1 {{"trans_a":false,"trans_b":false}}
%3 = relu %2
%4 = constant {{"dtype":"f32","shape":[512,16],"random":{seed}}}
%5 = matmul %3 %4 {{"trans_a":false,"trans_b":false}}
output "y" %5
"#
    )
}

/// Graph with inputs of several types. Only `product` depends on the constant.
const TESTED: &str = r#"
symbol n 1..16
%0 = input {"name":"x","dtype":"f32","shape":["n",96]}
%1 = constant {"dtype":"f32","shape":[96,160],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = input {"name":"half","dtype":"f16","shape":["n",7]}
%4 = neg %3
%5 = input {"name":"ids","dtype":"i64","shape":[5]}
%6 = add %5 %5
%7 = input {"name":"mask","dtype":"bool","shape":[5]}
%8 = cast %7 {"to":"f32"}
output "negative" %4
output "twice" %6
output "mask as float" %8
output "product" %2
"#;

/// Writes bundles for the self-test: a correct one, one with a changed weight, and ones with hostile vectors.
fn tested(folder: &Path) {
    let target = TargetProfile::load("webgpu-baseline").unwrap();
    let path = folder.join("tested.drift");
    write_tested(&path, TESTED, &target, &Options::default(), Some(2));
    let good = Bundle::open(&path).unwrap();
    type Edit = fn(&mut Vec<u8>, &mut SelfTest);
    let edits: [(&str, Edit); 5] = [
        ("weight", |weights, _| weights[4 * 7777 + 3] ^= 0x7f),
        ("function", |_, test| test.vectors[0].function = "other".to_owned()),
        ("shape", |_, test| test.vectors[0].inputs[0].shape = vec![1 << 40, 96]),
        ("elements", |_, test| test.vectors[0].outputs[0].elements = u64::MAX),
        ("samples", |_, test| test.vectors[0].outputs[0].samples = vec![f64::NAN; 9]),
    ];
    for (name, edit) in edits {
        write_edited(&good, &folder.join(format!("tested-{name}.drift")), &edit);
    }
}

/// Writes bundles for tests of faults: two versions of a model, the number of bytes of the chunks in which the versions differ, a
/// version with a damaged chunk, and a bundle for another API.
fn faults(folder: &Path) {
    let write = |name: &str, seed: u32, target: &str| {
        let path = folder.join(name);
        let model = Model {
            graph: graph_text::parse(&version(seed)).unwrap(),
            name: "model".into(),
            metadata: [("labels".to_owned(), "cat\ndog".to_owned())].into(),
            ..Model::default()
        };
        let target = TargetProfile::load(target).unwrap();
        compile(&model, std::slice::from_ref(&target), &Options::default(), &path)
            .unwrap_or_else(|e| panic!("{e}"));
        path
    };
    let first = write("first.drift", 2, "webgpu-baseline");
    let second = write("second.drift", 3, "webgpu-baseline");
    write("native.drift", 2, "lavapipe");
    let chunks = |path: &Path| Bundle::open(path).unwrap().manifest().chunks.clone();
    let before = chunks(&first);
    let changed: u64 =
        chunks(&second).iter().filter(|c| before.iter().all(|b| b.hash != c.hash)).map(|c| c.size).sum();
    assert!(changed > 0 && changed < before.iter().map(|c| c.size).sum::<u64>() / 2);
    std::fs::write(folder.join("changed.json"), format!("{{\"chunks\":{changed}}}")).unwrap();
    let mut bytes = std::fs::read(&first).unwrap();
    let at = usize::try_from(before.last().unwrap().offset).unwrap();
    bytes[at + 5] ^= 4;
    std::fs::write(folder.join("damaged.drift"), bytes).unwrap();
    tested(folder);
    let signed = folder.join("signed.drift");
    std::fs::copy(&first, &signed).unwrap();
    let key = sign(&signed).to_box().unwrap().into_string();
    std::fs::write(folder.join("key.pub"), key).unwrap();
}
