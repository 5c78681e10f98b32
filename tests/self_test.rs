//! Tests of self-test vectors: a model passes on the device, and a changed weight or a hostile vector is an error.

use std::path::{Path, PathBuf};

use drift_runtime::format::self_test::{ATTACHMENT, SelfTest, VECTOR_LIMIT};
use drift_runtime::{Bundle, Error, Session};
use drift_tests::device;
use drift_tests::tested_bundle::{write_edited, write_tested};
use driftc::compile::{Model, Options};
use driftc::ir::graph_text;
use driftc::lowering::lower_model;
use driftc::pass::Precision;
use driftc::self_test::{References, self_test};

/// Only `product` depends on the constant.
const GRAPH: &str = r#"symbol n 1..16
%0 = input {"name":"x","dtype":"f32","shape":["n",96]}
%1 = constant {"dtype":"f32","shape":[96,160],"random":1}
%2 = relu %0
%3 = matmul %0 %1 {"trans_a":false,"trans_b":false}
output "plain" %2
output "product" %3
"#;

/// Writes the bundle of a graph with its self-test. Returns the path of the bundle.
fn bundle(folder: &Path, name: &str, graph: &str, options: &Options, n_vectors: Option<u16>) -> PathBuf {
    let path = folder.join(name);
    write_tested(&path, graph, &device::target(), &device::validated(options), n_vectors);
    path
}

fn load(path: &Path) -> Session {
    Session::load(path, &drift_runtime::Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn a_model_passes_in_every_precision() {
    let folder = tempfile::tempdir().unwrap();
    for precision in [Precision::F32, Precision::F16] {
        let options = Options { precision, ..Options::default() };
        let path = bundle(folder.path(), "passes.drift", GRAPH, &options, Some(3));
        let mut session = load(&path);
        assert_eq!(session.self_test().unwrap_or_else(|e| panic!("{precision}: {e}")), 3);
        assert_eq!(session.self_test().unwrap(), 3);
    }
}

#[test]
fn vectors_are_small_and_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::default();
    let first = bundle(folder.path(), "a.drift", GRAPH, &options, None);
    let second = bundle(folder.path(), "b.drift", GRAPH, &options, Some(1));
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(second).unwrap());
    let opened = Bundle::open(&first).unwrap();
    let bytes = opened.attachment(ATTACHMENT).unwrap().unwrap();
    assert!(bytes.len() < VECTOR_LIMIT, "{} bytes", bytes.len());
    let none = bundle(folder.path(), "none.drift", GRAPH, &options, Some(0));
    assert_eq!(Bundle::open(&none).unwrap().attachment(ATTACHMENT).unwrap(), None);
    assert_eq!(load(&none).self_test().unwrap(), 0);
    // Many outputs share the bytes of a vector.
    let outputs: String = (0..60).map(|i| format!("output \"output number {i}\" %0\n")).collect();
    let many =
        format!("%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[4,96]}}\n%1 = relu %0\n{outputs}")
            .replace("\" %0\n", "\" %1\n");
    let many = bundle(folder.path(), "many.drift", &many, &options, Some(1));
    let opened = Bundle::open(&many).unwrap();
    assert!(opened.attachment(ATTACHMENT).unwrap().unwrap().len() < VECTOR_LIMIT);
    assert_eq!(load(&many).self_test().unwrap(), 1);
}

/// The cost of the model decides, not the clock.
#[test]
fn expensive_models_have_vectors_only_on_request() {
    let graph = GRAPH.replace("96,160", "96,600000").replace("symbol n 1..16", "symbol n 1..2");
    let model = Model { graph: graph_text::parse(&graph).unwrap(), ..Model::default() };
    let options = Options::default();
    let functions = lower_model(&model, &device::target(), &options).unwrap();
    assert_eq!(self_test(&model, &functions, &options, None, &References::default()).unwrap(), None);
}

#[test]
fn a_changed_weight_fails_and_the_error_names_the_output() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::default();
    let path = bundle(folder.path(), "good.drift", GRAPH, &options, Some(1));
    let opened = Bundle::open(&path).unwrap();
    let changed = folder.path().join("changed.drift");
    write_edited(&opened, &changed, &|_, _| ());
    assert_eq!(load(&changed).self_test().unwrap(), 1);
    // The highest byte of a weight: its sign and exponent. Places are spread over the weights.
    for place in [0, 1001, 7777, 15359] {
        write_edited(&opened, &changed, &|weights, _| weights[4 * place + 3] ^= 0x7f);
        Bundle::open(&changed).unwrap().verify().unwrap();
        let error = load(&changed).self_test().expect_err("a weight is wrong");
        assert!(matches!(error, Error::SelfTest { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains("output `product` of function `main` differs"), "{message}");
        assert!(!message.contains("`plain`"), "{message}");
    }
}

#[test]
fn hostile_vectors_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path(), "good.drift", GRAPH, &Options::default(), Some(1));
    let opened = Bundle::open(&path).unwrap();
    let hostile = folder.path().join("hostile.drift");
    type Edit = (&'static str, fn(&mut SelfTest));
    let edits: &[Edit] = &[
        ("no function `other`", |test| test.vectors[0].function = "other".to_owned()),
        ("the function has no such input", |test| test.vectors[0].inputs[0].name = "z".to_owned()),
        ("lacks a value", |test| test.vectors[0].inputs.clear()),
        ("the shape is too large", |test| test.vectors[0].inputs[0].shape = vec![1 << 40, 96]),
        ("the shape is too large", |test| test.vectors[0].inputs[0].shape = vec![u64::MAX; 3]),
        ("shape", |test| test.vectors[0].inputs[0].shape = vec![3, 95]),
        ("has no output `w`", |test| test.vectors[0].outputs[0].name = "w".to_owned()),
        ("elements instead of", |test| test.vectors[0].outputs[0].elements = u64::MAX),
        ("no symbol", |test| test.vectors[0].symbols = vec![("q".to_owned(), 3)]),
        ("n", |test| test.vectors[0].symbols = vec![("n".to_owned(), i64::MAX)]),
        ("differs", |test| test.vectors[0].outputs[0].samples = vec![f64::NAN; 9]),
        ("differs", |test| test.vectors[0].outputs[0].samples = vec![5.0; 100_000]),
    ];
    for (part, edit) in edits {
        write_edited(&opened, &hostile, &|_, test| edit(test));
        let message = load(&hostile).self_test().expect_err(part).to_string();
        assert!(message.contains(part), "`{part}` in {message}");
    }
}
