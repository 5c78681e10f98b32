//! Tests of links between functions: an encoder and decoders as ONNX files give the logits of transformers, and links that are
//! not possible are errors.
//!
//! `tests/linked/make.py` makes the files and the expected results.

use std::collections::BTreeSet;
use std::path::Path;

use drift_runtime::{Array, ArrayRef, Session};
use drift_tests::device;
use driftc::compile::{EntryPoint, Model, Options, compile};
use driftc::import::onnx::{self, DimSpec};
use driftc::ir::graph_text;
use driftc::link::{LinkPattern, link};
use driftc::pass::Precision;
use serde::Deserialize;

const FUNCTIONS: [&str; 3] = ["encoder_model", "decoder_model", "decoder_with_past_model"];
const PAST: &str = "past_decoder_sequence_length";
const LINKS: [&str; 3] = [
    "encoder_model.last_hidden_state=decoder_model.encoder_hidden_states",
    "decoder_model.present.*=decoder_with_past_model.past_key_values.*",
    "decoder_with_past_model.present.*=decoder_with_past_model.past_key_values.*",
];

#[derive(Debug, Deserialize)]
struct Expected {
    ids: Vec<i64>,
    tokens: Vec<i64>,
    /// Logits of each step.
    logits: Vec<Vec<f32>>,
}

/// Imports the three models and links them.
fn model() -> Model {
    let spec = |low, high| if low == high { DimSpec::Fixed(low) } else { DimSpec::Range(low, high) };
    let sizes = [
        ("batch_size", 1, 1),
        ("encoder_sequence_length", 1, 20),
        ("decoder_sequence_length", 1, 1),
        (PAST, 1, 30),
    ];
    let mut entry_points = Vec::new();
    for name in FUNCTIONS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("linked").join(format!("{name}.onnx"));
        let mut symbols = BTreeSet::new();
        let declared = onnx::inputs(&path).unwrap_or_else(|e| panic!("{e}"));
        declared.iter().flat_map(|input| input.shape.iter().flatten()).for_each(|d| d.symbols(&mut symbols));
        let known = sizes.iter().filter(|(name, ..)| symbols.contains(*name));
        let dims = known.map(|(name, low, high)| ((*name).to_owned(), spec(*low, *high))).collect();
        let options = onnx::Options { dims, ..onnx::Options::default() };
        let imported = onnx::load(&path, &options).unwrap_or_else(|e| panic!("{e}"));
        entry_points.push(EntryPoint::new(name, imported.graph));
    }
    connect(&mut entry_points, &LINKS).unwrap_or_else(|e| panic!("{e}"));
    Model { entry_points, name: "bart".to_owned(), ..Model::default() }
}

/// Links entry points by patterns.
fn connect(entry_points: &mut [EntryPoint], patterns: &[&str]) -> Result<(), String> {
    let mut links = Vec::new();
    for pattern in patterns {
        let pattern: LinkPattern = pattern.parse()?;
        links.extend(pattern.resolve(entry_points).map_err(|e| e.to_string())?);
    }
    link(entry_points, &links).map_err(|e| e.to_string())
}

fn open(precision: Precision, to: &Path) -> Session {
    let options = device::validated(&Options { precision, ..Options::default() });
    let path = to.join("model.drift");
    compile(&model(), &[device::target()], &options, &path).unwrap_or_else(|e| panic!("{e}"));
    Session::load(&path, &drift_runtime::Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn integers(values: &[i64]) -> Array {
    Array::from_i64(&[1, values.len()], values)
}

/// Runs a function; returns its logits.
fn logits(session: &mut Session, function: &str, inputs: &[(&str, ArrayRef<'_>)]) -> Vec<f32> {
    let outputs = session.run(function, inputs).unwrap_or_else(|e| panic!("{function}: {e}"));
    assert!(outputs.len() <= 1, "{function} returns linked outputs");
    outputs.iter().flat_map(Array::to_f64).map(|value| value as f32).collect()
}

/// Generates the tokens of the reference, and compares the logits of each step.
fn check(session: &mut Session, expected: &Expected, tolerance: f32) {
    let (ids, mask) = (integers(&expected.ids), integers(&vec![1; expected.ids.len()]));
    let inputs = [("input_ids", ids.as_ref()), ("attention_mask", mask.as_ref())];
    assert!(logits(session, FUNCTIONS[0], &inputs).is_empty());
    for (step, wanted) in expected.logits.iter().enumerate() {
        let token = integers(&expected.tokens[step..=step]);
        let inputs = [("encoder_attention_mask", mask.as_ref()), ("input_ids", token.as_ref())];
        let function = if step == 0 { FUNCTIONS[1] } else { FUNCTIONS[2] };
        if step > 0 {
            session.set_symbol(function, PAST, i64::try_from(step).unwrap()).unwrap();
        }
        let got = logits(session, function, &inputs);
        assert_eq!(got.len(), wanted.len());
        let error = got.iter().zip(wanted).fold(0.0f32, |error, (a, b)| error.max((a - b).abs()));
        assert!(error < tolerance, "step {step}: the logits differ by {error}");
    }
}

fn expected() -> Expected {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("linked/expected.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn linked_models_agree_with_transformers() {
    let to = tempfile::tempdir().unwrap();
    let mut session = open(Precision::F32, to.path());
    let names: Vec<&str> = session.functions().iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, FUNCTIONS);
    // A second text does not see the states of the first one.
    for _ in 0..2 {
        check(&mut session, &expected(), 1e-4);
    }
}

#[test]
fn linked_models_agree_in_f16() {
    let to = tempfile::tempdir().unwrap();
    check(&mut open(Precision::F16, to.path()), &expected(), 5e-2);
}

/// Entry points from texts of graphs.
fn entries(graphs: &[(&str, &str)]) -> Vec<EntryPoint> {
    let entry = |(name, text): &(&str, &str)| {
        EntryPoint::new(*name, graph_text::parse(text).unwrap_or_else(|e| panic!("{name}: {e}")))
    };
    graphs.iter().map(entry).collect()
}

const PRODUCER: &str = r#"
symbol n 1..8
%0 = input {"name":"x","dtype":"f32","shape":[1,"n",4]}
%1 = relu %0
output "y" %1
"#;
const CONSUMER: &str = r#"
symbol m 1..4
%0 = input {"name":"a","dtype":"f32","shape":[1,"m",4]}
%1 = exp %0
output "b" %1
"#;
const COUNTER: &str = r#"
%0 = input {"name":"old","dtype":"f32","shape":[2,3]}
%1 = input {"name":"x","dtype":"f32","shape":[2,3]}
%2 = add %0 %1
output "new" %2
output "sum" %2
"#;

#[test]
fn an_output_becomes_a_state_of_the_largest_size() {
    let mut entries = entries(&[("first", PRODUCER), ("second", CONSUMER)]);
    connect(&mut entries, &["first.y=second.a"]).unwrap();
    let texts: Vec<String> = entries.iter().map(|entry| graph_text::print(&entry.graph)).collect();
    let [first, second] = texts.as_slice() else { panic!("{texts:?}") };
    for part in [r#"state {"name":"second.a","dtype":"f32","shape":[1,8,4]}"#, "update", "store"] {
        assert!(first.contains(part), "no {part} in\n{first}");
    }
    assert!(!first.contains("output"), "{first}");
    for part in [r#"state {"name":"second.a","dtype":"f32","shape":[1,8,4]}"#, "slice", r#"output "b""#] {
        assert!(second.contains(part), "no {part} in\n{second}");
    }
    assert!(!second.contains("input"), "{second}");
}

#[test]
fn a_value_that_its_function_reads_is_replaced_after_the_run() {
    let mut entries = entries(&[("count", COUNTER)]);
    connect(&mut entries, &["count.new=count.old"]).unwrap();
    let model = Model { entry_points: entries, name: "count".to_owned(), ..Model::default() };
    let to = tempfile::tempdir().unwrap();
    let path = to.path().join("model.drift");
    let options = device::validated(&Options::default());
    compile(&model, &[device::target()], &options, &path).unwrap_or_else(|e| panic!("{e}"));
    let mut session = Session::load(&path, &drift_runtime::Options::default()).unwrap();
    let x = Array::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for run in 1..=3 {
        let outputs = session.run("count", &[("x", x.as_ref())]).unwrap();
        let wanted: Vec<f64> = x.to_f64().iter().map(|value| value * f64::from(run)).collect();
        assert_eq!(outputs[0].to_f64(), wanted, "run {run}");
    }
    session.reset_states().unwrap();
    assert_eq!(session.run("count", &[("x", x.as_ref())]).unwrap()[0].to_f64(), x.to_f64());
}

#[test]
fn links_that_are_not_possible_are_errors() {
    let other = CONSUMER.replace("f32", "i32").replace("exp", "neg");
    let two = r#"
symbol m 1..4
symbol n 1..8
%0 = input {"name":"x","dtype":"f32","shape":["n","m",4]}
%1 = relu %0
output "y" %1
"#;
    let graphs = [
        ("first", PRODUCER),
        ("second", CONSUMER),
        ("other", other.as_str()),
        ("two", two),
        ("count", COUNTER),
    ];
    let cases = [
        ("first.y", "FUNCTION.OUTPUT=FUNCTION.INPUT"),
        ("first.y=second", "FUNCTION.OUTPUT=FUNCTION.INPUT"),
        ("first.*=second.a", "FUNCTION.OUTPUT=FUNCTION.INPUT"),
        ("third.y=second.a", "names no function"),
        ("first.z=second.a", "the output `z`, which does not exist"),
        ("first.y=second.b", "the input `b`, which does not exist"),
        ("first.q*=second.a*", "matches no output and input"),
        ("first.y=other.a", "cannot be linked: f32[1, n, 4] and i32[1, m, 4]"),
        ("first.y=count.old", "cannot be linked: f32[1, n, 4] and f32[2, 3]"),
        ("two.y=two.x", "2 of its sizes vary"),
        ("first.y=first.x", "not the input with rows appended"),
    ];
    for (pattern, reason) in cases {
        let error = connect(&mut entries(&graphs), &[pattern]).expect_err(pattern);
        assert!(error.contains(reason), "{pattern}: {error}");
    }
}
