//! Tests of the functions of language models (`prefill`, `decode` and so on): every division of a text into runs gives the stored
//! logits, as the graph of the whole text does.
//!
//! The CPU reference evaluates every function. The device runs some models with their KV caches, each in one precision, because a
//! software driver needs many seconds to compile the shaders of one model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use drift_models::Dims;
use drift_runtime::{ArrayRef, Session, format::HostType};
use drift_tests::compare::{Tolerance, compare};
use drift_tests::{device, random_graph};
use driftc::compile::{self, EntryPoint, Model, Options};
use driftc::ir::array::Array;
use driftc::ir::dim::Bindings;
use driftc::ir::graph::Graph;
use driftc::ir::tensor::DType;
use driftc::ir::{eval, graph_text};
use driftc::language;
use driftc::lowering::{lower_all, lower_model};
use driftc::passes::Precision;
use driftc::quantize::caches;
use driftc::target::TargetProfile;
use rayon::prelude::*;

/// Number of tokens of the stored texts that the tests use.
const TEXT: usize = 40;
/// Number of tokens in one run of `prefill` on the device. It equals the number for `verify`, so that both functions use the same
/// shaders.
const CHUNK: i64 = 16;
/// Maximum absolute error of a logit in f32.
const F32: f32 = 2e-4;
/// Maximum accepted error of a logit if the model runs in f16, in standard deviations of the logits.
const F16: f32 = 3e-2;
/// Maximum error of a logit with an 8-bit KV cache, in standard deviations of the logits.
const CODES: f32 = 1e-1;

/// Compiles the functions of a model and loads them on the test device.
fn open(model: &Model, options: &Options) -> Machine {
    open_for(device::target(), model, options)
}

/// Compiles the functions of a model for a target, and loads them on the test device, which must fit the target.
fn open_for(target: TargetProfile, model: &Model, options: &Options) -> Machine {
    let functions = lower_model(model, &target, options).unwrap_or_else(|e| panic!("{e}"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.drift");
    let written = compile::write(model, &[target], &[&functions], &device::validated(options), &path);
    written.unwrap_or_else(|e| panic!("{e}"));
    let session = Session::load(&path, &drift_runtime::Options::default()).unwrap_or_else(|e| panic!("{e}"));
    Machine::Device(Box::new(session))
}

/// Returns all language models of `tests/language`, each with the first row of its stored token ids and their logits.
fn models() -> Vec<(PathBuf, Vec<i32>, Array)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("language");
    let mut models: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|e| e == "gguf"))
        .collect();
    models.sort();
    assert!(models.len() > 16);
    models.into_iter().map(with_stored).collect()
}

fn with_stored(path: PathBuf) -> (PathBuf, Vec<i32>, Array) {
    let beside = |name: &str| if path.is_dir() { path.join(name) } else { path.with_extension(name) };
    let npy = |name| npyz::NpyFile::new(std::io::Cursor::new(fs::read(beside(name)).unwrap())).unwrap();
    let ids = npy("ids.npy");
    let length = *ids.shape().last().unwrap() as usize;
    let ids = ids.into_vec::<i64>().unwrap().into_iter().take(length).map(|id| id as i32).collect();
    let logits = npy("logits.npy");
    let vocab = *logits.shape().last().unwrap() as usize;
    let rows = logits.into_vec::<f32>().unwrap().into_iter().take(length * vocab).collect();
    (path, ids, Array::f32(&[length, vocab], rows))
}

fn load(path: &Path, context: i64, chunk: i64) -> Model {
    load_with(path, &[("context", context), ("chunk", chunk)])
}

fn load_with(path: &Path, sizes: &[(&str, i64)]) -> Model {
    let dims: Dims = sizes.iter().map(|(name, size)| ((*name).into(), (*size, *size))).collect();
    if path.extension().is_some_and(|e| e == "onnx") {
        let found = language::onnx::load(path, &dims, None).unwrap_or_else(|e| panic!("{e}"));
        let language = found.unwrap_or_else(|| panic!("{} is no language model", path.display()));
        return Model {
            graph: language.whole.graph,
            entry_points: language.entry_points,
            ..Model::default()
        };
    }
    drift_models::load(path, &dims).unwrap_or_else(|e| panic!("{e}")).0
}

/// Place where the functions of a model run, with their states: the CPU reference or the device.
enum Machine {
    Device(Box<Session>),
    Reference(Vec<EntryPoint>, eval::States),
}

impl Machine {
    /// Returns the bounds of a function's symbol, if the function has the symbol.
    fn bounds(&self, function: &str, symbol: &str) -> Option<(i64, i64)> {
        match self {
            Self::Device(session) => {
                let symbols = &session.function(function).unwrap().symbols;
                symbols.iter().find(|s| s.name == symbol).map(|s| (s.min, s.max))
            }
            Self::Reference(functions, _) => graph(functions, function).bounds.get(symbol).copied(),
        }
    }

    /// Returns the number of token ids that one run of a function takes.
    fn rows(&self, function: &str) -> usize {
        let rows = match self {
            Self::Device(session) => session.inputs(function).unwrap()[0].shape[1].as_constant(),
            Self::Reference(functions, _) => {
                let graph = graph(functions, function);
                graph.input(graph.inputs()[0]).unwrap().shape[1].as_known()
            }
        };
        rows.unwrap() as usize
    }

    /// Runs a function of the model; returns its outputs `logits` and `next`.
    fn run(&mut self, function: &str, ids: &[i32], symbols: &Bindings) -> (Vec<f32>, Vec<i32>) {
        match self {
            Self::Device(session) => {
                let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
                let array = ArrayRef { dtype: HostType::I32, shape: &[1, ids.len()], bytes: &bytes };
                session.write_input(function, "ids", array).unwrap();
                for (symbol, value) in symbols {
                    session.set_symbol(function, symbol, *value).unwrap();
                }
                session.replay(function).unwrap();
                let words =
                    |name| session.read_output(function, name).unwrap().bytes.as_chunks::<4>().0.to_vec();
                let logits = words("logits").into_iter().map(f32::from_le_bytes).collect();
                (logits, words("next").into_iter().map(i32::from_le_bytes).collect())
            }
            Self::Reference(functions, states) => {
                let ids =
                    Array::int(DType::I32, &[1, ids.len()], ids.iter().map(|id| i64::from(*id)).collect());
                let inputs = BTreeMap::from([("ids".to_owned(), ids)]);
                let outputs = eval::eval_with(graph(functions, function), &inputs, symbols, states).unwrap();
                let outputs: BTreeMap<String, Array> = outputs.into_iter().collect();
                let next = outputs["next"].ints().unwrap().iter().map(|id| *id as i32).collect();
                (outputs["logits"].floats().unwrap().to_vec(), next)
            }
        }
    }

    fn reset(&mut self) {
        match self {
            Self::Device(session) => session.reset_states().unwrap(),
            Self::Reference(_, states) => states.clear(),
        }
    }
}

fn graph<'a>(entry_points: &'a [EntryPoint], name: &str) -> &'a Graph {
    &entry_points.iter().find(|entry| entry.name == name).unwrap().graph
}

/// Runs a function on token ids after the `past` ids in the KV cache; returns the rows of logits and the next tokens.
fn step(machine: &mut Machine, function: &str, past: usize, ids: &[i32]) -> (Vec<f32>, Vec<i32>) {
    let mut padded = ids.to_vec();
    // The padding ids must have no effect.
    padded.resize(machine.rows(function), 3);
    let mut symbols = Bindings::from([("past".to_owned(), past as i64)]);
    if function != "decode" {
        symbols.insert("count".to_owned(), ids.len() as i64);
    }
    if let Some((least, _)) = machine.bounds(function, "length") {
        symbols.insert("length".to_owned(), least.max(TEXT as i64));
    }
    machine.run(function, &padded, &symbols)
}

/// Returns the largest difference of logits from the stored logits of the positions from `first` on.
fn differ(got: &[f32], stored: &Array, first: usize) -> f32 {
    let vocab = stored.shape[1];
    let want = &stored.floats().unwrap()[first * vocab..];
    got.iter()
        .zip(want)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, e| if e.is_nan() { e } else { most.max(e) })
}

fn deviation(values: &[f32]) -> f32 {
    let mean = values.iter().sum::<f32>() / values.len() as f32;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / values.len() as f32).sqrt()
}

/// Runs a text through a model's functions, divided into runs in several ways; returns the largest error of a logit.
fn cut(machine: &mut Machine, ids: &[i32], stored: &Array) -> f32 {
    let mut worst = 0.0f32;
    let vocab = stored.shape[1];
    let mut note = |error: f32| worst = if error.is_nan() { f32::INFINITY } else { worst.max(error) };
    // Token by token.
    for past in 0..ids.len() {
        let (logits, next) = step(machine, "decode", past, &ids[past..=past]);
        note(differ(&logits, stored, past));
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(logits[next[0] as usize], best);
    }
    // Chunks of several sizes; each one overwrites the padding of earlier chunks.
    machine.reset();
    let mut past = 0;
    for size in [5, 1, 8, 3, 8, 7] {
        let (logits, _) = step(machine, "prefill", past, &ids[past..past + size]);
        past += size;
        note(differ(&logits, stored, past - 1));
    }
    // `verify`, with several rows of logits, after these chunks.
    let (logits, next) = step(machine, "verify", past, &ids[past..]);
    let rows = ids.len() - past;
    assert_eq!((logits.len(), next.len()), (rows * vocab, rows));
    note(differ(&logits, stored, past));
    // An id of -1 stands for the last selected token.
    let (_, next) = step(machine, "prefill", 0, &ids[..4]);
    let (want, _) = step(machine, "decode", 4, &next);
    step(machine, "prefill", 0, &ids[..4]);
    let (got, _) = step(machine, "decode", 4, &[-1]);
    assert_eq!(got, want);
    worst
}

/// Models of `tests/language` that the device runs in f32: very different architectures, and quantized weights of several
/// formats.
const IN_F32: [&str; 4] = ["gemma3", "gpt2", "llama-k.gguf", "mixtral"];
/// Models of `tests/language` that the device runs in f16.
const IN_F16: [&str; 2] = ["gemma2", "qwen3-moe"];
/// Models of `tests/language` that the device runs with the function `prefill_long`.
const IN_LONG: [&str; 2] = ["concat.onnx", "llama-k.gguf"];
/// Models of `tests/language` that the device runs with an 8-bit KV cache.
const IN_CODES: [&str; 3] = ["grouped.onnx", "llama", "phi3"];

/// Returns a model of `tests/language` with its stored token ids and logits.
fn named(name: &str) -> (PathBuf, Vec<i32>, Array) {
    with_stored(Path::new(env!("CARGO_MANIFEST_DIR")).join("language").join(name))
}

#[test]
fn every_way_of_cutting_a_text_gives_the_stored_logits() {
    models().into_par_iter().for_each(|(path, ids, stored)| {
        if path.ends_with("llama-dynamic") {
            // With more than 16 tokens, every RoPE angle depends on the length.
            let context = Dims::from([("context".into(), (50, 50))]);
            let error = drift_models::load(&path, &context).unwrap_err().to_string();
            assert!(error.contains("at most 16"), "{error}");
            let (short, _) = drift_models::load(&path, &Dims::new()).unwrap();
            assert!(
                short
                    .entry_points
                    .iter()
                    .all(|entry| entry.name == "sample" || entry.graph.bounds["past"].1 < 16)
            );
            return;
        }
        let functions = load(&path, 50, 8).entry_points;
        let mut reference = Machine::Reference(functions, eval::States::new());
        let error = cut(&mut reference, &ids[..TEXT], &stored);
        assert!(error < F32, "{} differs by {error}", path.display());
    });
}

#[test]
fn the_device_keeps_the_caches() {
    IN_F32.into_par_iter().chain(["grouped.onnx", "concat.onnx"]).for_each(|name| {
        let (path, ids, stored) = named(name);
        let mut device = open(&load(&path, 50, CHUNK), &Options::default());
        let error = cut(&mut device, &ids[..TEXT], &stored);
        assert!(error < F32, "{name} differs by {error}");
    });
}

#[test]
fn f16_differs_by_its_rounding() {
    for name in IN_F16 {
        let (path, ids, stored) = named(name);
        let options = Options { precision: Precision::F16, ..Options::default() };
        let mut device = open(&load(&path, 50, CHUNK), &options);
        let error = cut(&mut device, &ids[..TEXT], &stored) / deviation(stored.floats().unwrap());
        assert!(
            error < F16,
            "the logits of {name} differ from the stored ones by {error} standard deviations"
        );
    }
}

#[test]
fn quantized_caches_differ_by_their_rounding() {
    for name in IN_CODES {
        let (path, ids, stored) = named(name);
        let mut model = load(&path, 50, CHUNK);
        let functions = model.entry_points.iter_mut().map(|entry| (entry.name.as_str(), &mut entry.graph));
        let count = caches::run(functions).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(count > 0 && count.is_multiple_of(2), "{name} has {count} caches");
        let mut device = open(&model, &Options::default());
        let error = cut(&mut device, &ids[..TEXT], &stored) / deviation(stored.floats().unwrap());
        // The rounding of keys and values shows, and is small.
        assert!(
            error > 1e-4 && error < CODES,
            "the logits of {name} differ from the stored ones by {error} standard deviations"
        );
    }
}

/// A text that is divided into runs of `prefill_long`, `prefill` and `decode` gives the stored logits.
#[test]
fn long_chunks_give_the_same_logits() {
    IN_LONG.into_par_iter().for_each(|name| {
        let (path, ids, stored) = named(name);
        let model = load_with(&path, &[("context", 50), ("chunk", 4), ("long", 16)]);
        let mut device = open(&model, &Options::default());
        let mut past = 0;
        for (function, size) in
            [("prefill_long", 16), ("prefill", 4), ("decode", 1), ("prefill_long", 13), ("prefill", 3)]
        {
            let (logits, next) = step(&mut device, function, past, &ids[past..past + size]);
            past += size;
            let error = differ(&logits, &stored, past - 1);
            assert!(
                error < F32,
                "{name}: a logit after {past} tokens differs from the stored one by {error}"
            );
            // Every function with an output `next` keeps the last selected token.
            let (want, _) = step(&mut device, "decode", past, &next);
            let (_, again) = step(&mut device, function, past - size, &ids[past - size..past]);
            let (got, _) = step(&mut device, "decode", past, &[-1]);
            assert_eq!((got, again), (want, next), "{name} after {past} tokens");
        }
        assert_eq!(past, 37);
    });
}

/// Models of `tests/language` that are compiled with `--batch-invariant`. They have sliding windows, soft caps, experts and
/// quantized weights of several formats.
const IN_ONE_WAY: [&str; 8] =
    ["gemma2", "gemma3", "llama-gptq-order", "llama-k.gguf", "mistral", "phi3", "qwen3-moe", "grouped.onnx"];

/// Checks that `decode` of a batch-invariant model gives logits with the same bits as each row of `verify`, for any number of
/// rows.
fn agree_in_every_bit(target: TargetProfile, name: &str, precision: Precision) {
    let (path, ids, stored) = named(name);
    let mut model = load(&path, 64, CHUNK);
    language::batch_invariant::run(&mut model).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut device = open_for(target, &model, &Options { precision, ..Options::default() });
    assert_eq!(device.bounds("decode", "past"), Some((0, 63)), "{name}");
    let limit = if precision == Precision::F32 { F32 } else { F16 * deviation(stored.floats().unwrap()) };
    let mut rows = Vec::new();
    for past in 0..TEXT {
        let (logits, next) = step(&mut device, "decode", past, &ids[past..=past]);
        assert_eq!((logits.len(), next.len()), (stored.shape[1], 1), "{name}");
        assert!(
            differ(&logits, &stored, past) < limit,
            "{name}: a logit after {past} tokens differs too much from the stored one"
        );
        rows.push((logits, next[0]));
    }
    device.reset();
    let mut past = 0;
    for count in [3, 16, 1, 5, 2, 9, 4] {
        let (logits, next) = step(&mut device, "verify", past, &ids[past..past + count]);
        for (row, (logits, next)) in logits.chunks(stored.shape[1]).zip(next).enumerate() {
            let (want, best) = &rows[past + row];
            assert!(
                logits == want && next == *best,
                "{name}: row {row} of `verify` after {past} tokens differs from `decode`"
            );
        }
        past += count;
    }
    assert_eq!(past, TEXT);
}

#[test]
fn batch_invariant_functions_agree_in_every_bit() {
    IN_ONE_WAY.into_par_iter().enumerate().for_each(|(index, name)| {
        let precision = if index % 2 == 0 { Precision::F32 } else { Precision::F16 };
        agree_in_every_bit(device::target(), name, precision);
    });
}

/// `decode` and `verify` of batch-invariant models also agree in every bit on matrix units, if the driver has them.
#[test]
fn batch_invariant_functions_agree_on_matrix_units() {
    let Some(target) = device::matrix_target() else {
        eprintln!("not run: no device of the tests has matrix units");
        return;
    };
    for name in ["llama-k.gguf", "mistral"] {
        agree_in_every_bit(target.clone(), name, Precision::F16);
    }
}

/// An ONNX model becomes functions with a KV cache only if it is a decoder with caches and the user sets no size that
/// the ONNX file declares. Unsuitable context lengths are refused.
#[test]
fn onnx_models_become_functions_where_they_can() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("language/concat.onnx");
    let load =
        |name: &str, low, high| language::onnx::load(&path, &Dims::from([(name.into(), (low, high))]), None);
    for size in ["batch_size", "sequence_length", "past_sequence_length"] {
        assert!(load(size, 1, 1).unwrap().is_none(), "{size}");
    }
    let names = |model: &Model| model.entry_points.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
    // The number of tokens equals the number of positions in a table.
    let language = load("chunk", 8, 8).unwrap().unwrap();
    assert!(language.notes.iter().any(|note| note.contains("unchanged")), "{:?}", language.notes);
    let decode = graph(&language.entry_points, "decode");
    assert_eq!((decode.bounds["past"], decode.inputs().len(), decode.stores().len()), ((0, 63), 1, 5));
    assert_eq!(names(&self::load(&path, 16, 4)), ["verify", "decode", "prefill", "sample"]);
    let long = load_with(&path, &[("context", 48), ("chunk", 4), ("long", 40)]);
    assert_eq!(names(&long), ["verify", "decode", "prefill", "prefill_long", "sample"]);
    assert!(long.entry_points.iter().all(|entry| entry.keep_if_faster_than.is_none()));
    assert_eq!(graph(&long.entry_points, "prefill_long").bounds["past"], (0, 8));
    let error = load("context", 65, 65).unwrap_err().to_string();
    assert!(error.contains("it must be one number from 1 to 64"), "{error}");
}

/// Named graphs in text form. Together they have every kind of state update that a plan supports.
const STATES: &[(&str, &str)] = &[
    // A matmul and a sum write into the state through views.
    (
        "in place",
        r#"
symbol past 0..5
%0 = input {"name":"x","dtype":"f32","shape":[1,3,8]}
%1 = constant {"dtype":"f32","shape":[8,8],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = reshape %2 {"shape":[1,3,2,4]}
%4 = state {"name":"a","dtype":"f32","shape":[1,8,2,4]}
%5 = update %4 %3 {"axis":1,"start":"past"} "first"
%6 = slice %5 {"starts":[0,0,0,0],"steps":[1,1,1,1],"sizes":[1,"past+3",2,4]}
%7 = reshape %0 {"shape":[1,3,2,4]}
%8 = add %7 %7
%9 = transpose %8 {"perm":[0,2,1,3]}
%10 = state {"name":"b","dtype":"f32","shape":[1,2,8,4]}
%11 = update %10 %9 {"axis":2,"start":"past"} "second"
%12 = reduce %6 {"kind":"sum","axes":[1],"keepdims":false}
%13 = reduce %11 {"kind":"sum","axes":[2],"keepdims":false}
%14 = add %12 %13
output "y" %14
store "a" %5
store "b" %11
"#,
    ),
    // The old state is read after the update; new rows are inputs, views and values with other consumers.
    (
        "copies",
        r#"
symbol past 0..5
%0 = input {"name":"x","dtype":"f32","shape":[3,4]}
%1 = state {"name":"a","dtype":"f32","shape":[8,4]}
%2 = update %1 %0 {"axis":0,"start":"past"}
%3 = relu %2
%4 = add %3 %1
%5 = relu %0
%6 = state {"name":"b","dtype":"f32","shape":[4,9]}
%7 = transpose %5 {"perm":[1,0]}
%8 = update %6 %7 {"axis":1,"start":"past+1"}
%9 = update %8 %7 {"axis":1,"start":0}
output "y" %4
output "z" %5
store "a" %2
store "b" %9
"#,
    ),
    // Whole states, each stored into the other.
    (
        "whole",
        r#"
symbol past 0..5
%0 = input {"name":"x","dtype":"f32","shape":[6]}
%1 = state {"name":"a","dtype":"f32","shape":[6]}
%2 = state {"name":"b","dtype":"f32","shape":[6]}
%3 = add %1 %0
%4 = mul %3 %2
output "y" %4
output "sum" %3
store "a" %3
store "b" %1
store "c" %0
"#,
    ),
];

#[test]
fn states_hold_what_the_reference_says() {
    for (name, source) in STATES {
        let graph = graph_text::parse(source).unwrap();
        assert_eq!(
            graph_text::print(&graph_text::parse(&graph_text::print(&graph)).unwrap()),
            graph_text::print(&graph)
        );
        let options = device::validated(&Options::default());
        let functions =
            lower_all(&graph, &device::target(), &options).unwrap_or_else(|e| panic!("{name}: {e}"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("states.drift");
        compile::write(&Model::default(), &[device::target()], &[&functions], &options, &path).unwrap();
        let mut session = Session::load(&path, &drift_runtime::Options::default()).unwrap();
        let mut states = eval::States::new();
        for (round, past) in [0, 3, 5, 1, 2].into_iter().enumerate() {
            let inputs = random_graph::inputs(&graph, round as u64 + 1);
            let symbols = Bindings::from([("past".into(), past)]);
            let want = eval::eval_with(&graph, &inputs, &symbols, &mut states).unwrap();
            let takes = session.function("main").unwrap().symbols.iter().any(|s| s.name == "past");
            if takes {
                session.set_symbol("main", "past", past).unwrap();
            }
            let got = device::run_session(&mut session, &inputs).unwrap();
            for ((_, want), (output, got)) in want.iter().zip(&got) {
                compare(output, got, want, Tolerance::F32)
                    .unwrap_or_else(|e| panic!("{name}, round {round}: {e}"));
            }
        }
        session.reset_states().unwrap();
    }
}

/// In the graph `in place` of [`STATES`], new rows are computed directly in the states' memory, with one dispatch for each
/// operator and no copies.
#[test]
fn parts_are_computed_where_states_lie() {
    let graph = graph_text::parse(STATES[0].1).unwrap();
    let plan = compile::lower(&graph, &device::target(), &Options::default()).unwrap().plan;
    let copies: Vec<&str> = plan
        .dispatches
        .iter()
        .map(|step| step.label.as_str())
        .filter(|label| label.contains("copy"))
        .collect();
    assert!(copies.is_empty() && plan.dispatches.len() <= 5, "{copies:?} of {}", plan.dispatches.len());
    assert_eq!(plan.states.iter().map(|s| s.bytes).collect::<Vec<_>>(), [256, 256]);
}
