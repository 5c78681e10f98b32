//! Tests of the runtime's `Generator` with language models of `tests/language` on the device. Every way to generate
//! (chunks, draft tokens, restored states) gives the same tokens as single decode steps, and the stored logits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use drift_models::Dims;
use drift_runtime::{Draft, Generator, Options, Request, Sampling, Session};
use drift_tests::device;
use driftc::compile;
use driftc::ir::array::Array;
use driftc::ir::eval::eval;
use driftc::ir::graph::Graph;
use driftc::lowering::lower_model;
use driftc::quantize::calibration::Calibration;
use driftc::quantize::{self, Weights, activations};
use rayon::prelude::*;

const CONTEXT: i64 = 64;
const GENERATED: usize = 24;

/// Language model of `tests/language` with the first row of its stored token ids, and the logits of that row.
struct Stored {
    path: PathBuf,
    ids: Vec<u32>,
    logits: Vec<f32>,
}

/// Returns the language models of `tests/language` that accept texts of any length.
fn models() -> Vec<Stored> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("language");
    let mut models: Vec<PathBuf> = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|e| e == "gguf"))
        .filter(|path| !path.ends_with("llama-dynamic"))
        .collect();
    models.sort();
    assert!(models.len() > 16);
    models.into_iter().map(stored).collect()
}

fn stored(path: PathBuf) -> Stored {
    let beside = |name: &str| if path.is_dir() { path.join(name) } else { path.with_extension(name) };
    let npy = |name| npyz::NpyFile::new(std::io::Cursor::new(fs::read(beside(name)).unwrap())).unwrap();
    let (ids, logits) = (npy("ids.npy"), npy("logits.npy"));
    let length = *ids.shape().last().unwrap() as usize;
    let vocabulary = *logits.shape().last().unwrap() as usize;
    let ids = ids.into_vec::<i64>().unwrap().into_iter().take(length).map(|id| id as u32).collect();
    let logits = logits.into_vec::<f32>().unwrap().into_iter().take(length * vocabulary).collect();
    Stored { path, ids, logits }
}

/// Compiles the bundle of a language model whose function `prefill` reads `chunk` tokens in one run.
fn bundle(path: &Path, chunk: i64) -> drift_runtime::Bundle {
    written(&load(path, &[("chunk", chunk)]))
}

/// Compiles the bundle of a language model without the function `sample`, so that the host draws tokens.
fn without_sample(path: &Path) -> drift_runtime::Bundle {
    let mut model = load(path, &[("chunk", 16)]);
    model.entry_points.retain(|entry| entry.name != "sample");
    assert_eq!(model.entry_points.len(), 3);
    written(&model)
}

fn load(path: &Path, sizes: &[(&str, i64)]) -> compile::Model {
    let sizes = sizes.iter().chain(&[("context", CONTEXT)]);
    let dims: Dims = sizes.map(|(name, size)| ((*name).into(), (*size, *size))).collect();
    drift_models::load(path, &dims).unwrap_or_else(|e| panic!("{e}")).0
}

fn written(model: &compile::Model) -> drift_runtime::Bundle {
    let (target, options) = (device::target(), device::validated(&compile::Options::default()));
    let functions = lower_model(model, &target, &options).unwrap_or_else(|e| panic!("{e}"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.drift");
    compile::write(model, &[target], &[&functions], &options, &file).unwrap_or_else(|e| panic!("{e}"));
    drift_runtime::Bundle::from_vec(fs::read(file).unwrap()).unwrap()
}

fn open(bundle: drift_runtime::Bundle, frames: usize) -> Generator {
    let options = Options { frames, conversations: 2, ..Options::default() };
    Generator::new(Session::from_bundle(bundle, &options).unwrap()).unwrap()
}

/// Generates `n` tokens after the tokens of the conversation. Returns all tokens of the conversation.
fn run(generator: &mut Generator, draft: &mut Draft, n: usize) -> Vec<u32> {
    let request = Request { max_tokens: n, ..Request::default() };
    generator.generate(&request, draft, &mut |_| true).unwrap_or_else(|e| panic!("{e}"));
    generator.tokens().to_vec()
}

/// Evaluates the prompt and generates tokens with one token in each run. Returns prompt and generated tokens.
fn by_steps(generator: &mut Generator, prompt: &[u32]) -> Vec<u32> {
    generator.truncate(0);
    for id in prompt.split_last().unwrap().1 {
        generator.append(&[*id]).unwrap();
        run(generator, &mut Draft::None, 1);
        generator.truncate(generator.tokens().len() - 1);
    }
    generator.append(&prompt[prompt.len() - 1..]).unwrap();
    run(generator, &mut Draft::None, GENERATED)
}

#[test]
fn every_way_of_generating_gives_the_same_text() {
    let models: Vec<Stored> = models().into_iter().step_by(10).collect();
    models.into_par_iter().for_each(|Stored { path, ids, .. }| {
        let folder = tempfile::tempdir().unwrap();
        let saved = folder.path().join("saved");
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut generator = open(bundle(&path, 16), 3);
        let prompt = &ids[..37];
        let expected = by_steps(&mut generator, prompt);
        assert_eq!(expected.len(), prompt.len() + GENERATED);
        let mut fresh = |draft: &mut Draft| {
            generator.truncate(0);
            generator.append(prompt).unwrap();
            run(&mut generator, draft, GENERATED)
        };
        assert_eq!(fresh(&mut Draft::None), expected, "{name}, reading the prompt in chunks of 16");
        assert_eq!(fresh(&mut Draft::NGram), expected, "{name}, with draft tokens from an n-gram search");
        // A draft model with other kernels, one frame, and its own chunk size.
        let mut small = open(written(&load(&path, &[("chunk", 4), ("long", 16)])), 1);
        small.append(prompt).unwrap();
        assert_eq!(
            run(&mut small, &mut Draft::None, GENERATED),
            expected,
            "{name}, reading the prompt in chunks of 16 and 4"
        );
        assert_eq!(fresh(&mut Draft::Model(Box::new(small))), expected, "{name}, with a draft model");
        // The first half here, the rest from a saved file in another conversation.
        generator.truncate(0);
        generator.append(prompt).unwrap();
        run(&mut generator, &mut Draft::None, GENERATED / 2);
        generator.save(&saved).unwrap();
        generator.choose_conversation(1).unwrap();
        generator.restore(&saved).unwrap();
        assert_eq!(run(&mut generator, &mut Draft::None, GENERATED / 2), expected, "{name}, restored");
    });
}

/// If RoPE angles change at a text length (longrope), the generator computes the KV cache again there. Each token then equals
/// the token that the graph of the whole text gives.
#[test]
fn a_text_that_passes_its_turn_is_computed_anew() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved");
    let Stored { path, ids, .. } = stored(Path::new(env!("CARGO_MANIFEST_DIR")).join("language/phi3"));
    // The model was trained for texts of 24 tokens.
    let prompt = &ids[..18];
    let mut generator = open(bundle(&path, 16), 3);
    let mut expected = prompt.to_vec();
    for _ in 0..GENERATED {
        let mut next = 0;
        let each = &mut |logits: &[f32]| {
            next = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]).then(b.cmp(a))).unwrap();
            Ok(())
        };
        generator.logits(&expected, each).unwrap();
        expected.push(next as u32);
    }
    let mut fresh = |draft: &mut Draft| {
        generator.truncate(0);
        generator.append(prompt).unwrap();
        run(&mut generator, draft, GENERATED)
    };
    assert_eq!(fresh(&mut Draft::None), expected, "steps that run ahead");
    assert_eq!(fresh(&mut Draft::NGram), expected, "n-gram draft");
    let mut exact = open(bundle(&path, 7), 1);
    exact.append(prompt).unwrap();
    assert_eq!(run(&mut exact, &mut Draft::None, GENERATED), expected, "one frame");
    assert_eq!(fresh(&mut Draft::Model(Box::new(exact))), expected, "a draft");
    // Back below the longrope threshold, and across it again from a file.
    for length in [20, 24, 25, 30] {
        generator.truncate(length);
        generator.save(&saved).unwrap();
        generator.choose_conversation(1).unwrap();
        generator.restore(&saved).unwrap();
        let rest = expected.len() - length;
        assert_eq!(run(&mut generator, &mut Draft::None, rest), expected, "from {length} on, restored");
        generator.choose_conversation(0).unwrap();
        assert_eq!(run(&mut generator, &mut Draft::None, rest), expected, "from {length} on");
    }
}

#[test]
fn logits_of_every_position_are_those_stored() {
    let models: Vec<Stored> = models().into_iter().skip(1).step_by(10).collect();
    models.into_par_iter().for_each(|Stored { path, ids, logits }| {
        let mut generator = open(bundle(&path, 16), 1);
        let mut rows = logits.chunks(generator.vocabulary_size());
        let mut worst = 0.0f32;
        let each = &mut |found: &[f32]| {
            for (a, b) in found.iter().zip(rows.next().unwrap()) {
                let error = (a - b).abs();
                worst = if error.is_nan() { f32::INFINITY } else { worst.max(error) };
            }
            Ok(())
        };
        generator.logits(&ids[..40], each).unwrap();
        assert!(worst < 2e-4, "{} differs by {worst}", path.display());
    });
}

/// `prefill_logits` measures the quantized activations of `prefill`, which `logits` does not have.
#[test]
fn prefill_logits_have_quantized_activations() {
    let Stored { path, ids, logits } =
        stored(Path::new(env!("CARGO_MANIFEST_DIR")).join("language").join("llama"));
    let ids = &ids[..37];
    let plain = load(&path, &[("chunk", 32)]);
    let mut quantized = plain.clone();
    let graphs = |model: &mut compile::Model, change: &mut dyn FnMut(Vec<&mut Graph>)| {
        change(model.entry_points.iter_mut().map(|entry| &mut entry.graph).collect());
    };
    graphs(&mut quantized, &mut |graphs| {
        quantize::run(graphs, Weights::Q8, &Calibration::default()).unwrap();
    });
    graphs(&mut quantized, &mut |graphs| assert!(activations::run(graphs).unwrap() > 8));
    let rows = |model: &compile::Model| {
        let mut generator = open(written(model), 1);
        let (mut rows, mut prefill_rows) = (Vec::new(), Vec::new());
        let collect = |rows: &mut Vec<f32>, found: &[f32]| {
            rows.extend(found);
            Ok(())
        };
        generator.logits(ids, &mut |found| collect(&mut rows, found)).unwrap();
        generator.prefill_logits(ids, &mut |found| collect(&mut prefill_rows, found)).unwrap();
        [rows, prefill_rows]
    };
    let differ = |a: &[f32], b: &[f32]| {
        let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
        (squares.sum::<f64>() / b.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>()).sqrt()
    };
    for rows in rows(&plain) {
        let error = differ(&rows, &logits[..rows.len()]);
        assert!(error < 1e-4, "{error}");
    }
    let [rows, prefill_rows] = rows(&quantized);
    let error = differ(&prefill_rows, &rows);
    assert!(error > 1e-4 && error < 0.05, "{error}");
}

/// Sampling with one seed gives the same text on the device and on the host, with any number of frames in flight.
#[test]
fn a_seed_draws_one_text() {
    let plain = Sampling { temperature: 1.5, seed: 3, ..Sampling::default() };
    let ways = [
        Sampling { top_k: 20, top_p: 0.9, ..plain.clone() },
        Sampling { top_k: 64, ..plain.clone() },
        Sampling { temperature: 0.3, top_p: 0.6, ..plain.clone() },
        // Logits so flat that 64 of 128 tokens do not always decide.
        Sampling { temperature: 9.0, ..plain.clone() },
        Sampling { temperature: 9.0, top_p: 0.4, ..plain.clone() },
        // The host draws.
        Sampling { top_k: 65, ..plain.clone() },
        Sampling { repetition_penalty: 1.3, top_k: 9, ..plain },
    ];
    // The second model's RoPE angles change after 24 tokens.
    let folder = |name: &str| stored(Path::new(env!("CARGO_MANIFEST_DIR")).join("language").join(name));
    for Stored { path, ids, .. } in [folder("gemma.gguf"), folder("phi3")] {
        let whole = bundle(&path, 16).bytes().to_vec();
        let with = |frames| open(drift_runtime::Bundle::from_vec(whole.clone()).unwrap(), frames);
        let mut hosts = [open(without_sample(&path), 2), with(2)];
        let mut devices = [1, 4, 7].map(with);
        for sampling in &ways {
            let request = Request { max_tokens: GENERATED, sampling: sampling.clone(), ..Request::default() };
            let text = |generator: &mut Generator, draft: &mut Draft| {
                generator.truncate(0);
                generator.append(&ids[..10]).unwrap();
                generator.generate(&request, draft, &mut |_| true).unwrap();
                let whole = generator.tokens().to_vec();
                // Steps past the end of the text have no effect.
                generator.append(&ids[..3]).unwrap();
                generator.generate(&request, draft, &mut |_| true).unwrap();
                (whole, generator.tokens().to_vec())
            };
            let wanted = text(&mut hosts[0], &mut Draft::None);
            assert_eq!(text(&mut hosts[1], &mut Draft::NGram), wanted, "{}: {sampling:?}", path.display());
            for device in &mut devices {
                let frames = device.session().frames();
                let given = text(device, &mut Draft::None);
                assert_eq!(given, wanted, "{}: {sampling:?} in {frames}", path.display());
            }
        }
    }
}

/// The function `sample` draws the same tokens on the device as on the CPU reference, for a vocabulary of 50257 tokens.
#[test]
fn the_device_draws_as_the_reference_does() {
    let vocabulary = 50257;
    let graph = driftc::language::sample::sampling_graph(vocabulary).unwrap();
    let noise = |i: i64| ((i.wrapping_mul(2_654_435_761) >> 7) % 10_007) as f32 / 500.0;
    let logits: Vec<f32> = (0..vocabulary).map(noise).collect();
    let logits = Array::f32(&[1, logits.len()], logits);
    let mut tokens = Vec::new();
    for settings in
        [[1.0, 0.0, 1.0, 0.2], [0.7, 40.0, 0.8, 0.7], [0.5, 0.0, 0.02, 0.9], [2.0, 64.0, 1.0, 0.1]]
    {
        let settings = Array::f32(&[4], settings.to_vec());
        let inputs =
            BTreeMap::from([("logits".to_string(), logits.clone()), ("settings".to_string(), settings)]);
        let token = |outputs: Vec<(String, Array)>| outputs[0].1.ints().unwrap()[0];
        let wanted = token(eval(&graph, &inputs).unwrap());
        let given = token(device::run(&graph, &compile::Options::default(), &inputs).unwrap());
        assert_eq!(given, wanted);
        tokens.push(wanted);
    }
    tokens.sort_unstable();
    tokens.dedup();
    assert!(tokens.len() > 2, "{tokens:?}");
}
