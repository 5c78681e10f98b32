//! Tests of the language models of `tests/language`: their graphs are built from folders and GGUF files, run on the device, and
//! compared with stored logits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use drift_models::Dims;
use drift_tests::device;
use driftc::compile::{Options, lower};
use driftc::ir::array::Array;
use driftc::ir::eval::eval;
use driftc::ir::graph::Graph;
use driftc::ir::graph_text;
use driftc::ir::op::Constant;
use driftc::ir::tensor::DType;
use driftc::passes::Precision;
use driftc::plan::Plan;
use driftc::quantize;
use driftc::quantize::activations;
use driftc::quantize::calibration::Calibration;
use driftc::shader::pack::{Arrangement, Packed};
use driftc::target::TargetProfile;
use serde_json::{Value, json};

/// Maximum absolute error of a logit in f32.
const F32: f32 = 2e-4;
/// Maximum error of a logit in f16, in standard deviations of the logits.
const F16: f32 = 3e-2;

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("language");
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    assert!(folders.len() > 10);
    folders
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("language").join(name)
}

fn dims(seq: (i64, i64)) -> Dims {
    Dims::from([("batch".into(), (2, 2)), ("seq".into(), seq)])
}

fn npy(path: &Path) -> npyz::NpyFile<std::io::Cursor<Vec<u8>>> {
    npyz::NpyFile::new(std::io::Cursor::new(fs::read(path).unwrap())).unwrap()
}

/// Returns the GGUF files of `tests/language`.
fn files() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("language");
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "gguf")).collect();
    files.sort();
    assert!(files.len() > 6);
    files
}

/// Returns the path of an array that is stored with a model: in its folder, or beside its GGUF file.
fn beside(model: &Path, name: &str) -> PathBuf {
    if model.is_dir() { model.join(name) } else { model.with_extension(name) }
}

/// Reads the token ids and the logits that are stored with a model.
fn stored(folder: &Path) -> (Array, Array) {
    let ids = npy(&beside(folder, "ids.npy"));
    let shape: Vec<usize> = ids.shape().iter().map(|d| *d as usize).collect();
    let ids = Array::int(DType::I64, &shape, ids.into_vec::<i64>().unwrap());
    let logits = npy(&beside(folder, "logits.npy"));
    let shape: Vec<usize> = logits.shape().iter().map(|d| *d as usize).collect();
    (ids, Array::f32(&shape, logits.into_vec::<f32>().unwrap()))
}

/// Runs a model on the device. Returns the largest difference from the stored logits over the first `length` positions of every
/// row, and the standard deviation of the stored logits.
fn differ(folder: &Path, seq: (i64, i64), length: usize, precision: Precision) -> (f32, f32) {
    let (model, _) = drift_models::load(folder, &dims(seq)).unwrap_or_else(|e| panic!("{e}"));
    let (ids, want) = stored(folder);
    let [rows, all] = ids.shape[..] else { panic!("ids of rank {}", ids.shape.len()) };
    let first: Vec<i64> =
        ids.ints().unwrap().chunks(all).flat_map(|row| row.iter().take(length).copied()).collect();
    let ids = Array::int(DType::I64, &[rows, length], first);
    let options = Options { precision, ..Options::default() };
    let got = device::run(&model.graph, &options, &BTreeMap::from([("input_ids".to_string(), ids)]))
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let (name, got) = &got[0];
    assert_eq!(name, "logits");
    let vocab = want.shape[2];
    assert_eq!(got.shape, [rows, length, vocab]);
    let want = want.floats().unwrap();
    let want = want.chunks(all * vocab).flat_map(|row| row.iter().take(length * vocab).copied());
    let want: Vec<f32> = want.collect();
    let error = got.floats().unwrap().iter().zip(&want).map(|(a, b)| (a - b).abs());
    let error = error.fold(0.0, |most: f32, e| if e.is_nan() { f32::INFINITY } else { most.max(e) });
    let mean = want.iter().sum::<f32>() / want.len() as f32;
    let variance = want.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / want.len() as f32;
    (error, variance.sqrt())
}

#[test]
fn logits_are_those_stored() {
    for folder in folders() {
        let name = folder.file_name().unwrap().to_str().unwrap().to_string();
        // Every angle of dynamic RoPE depends on the length.
        let seq = if name == "llama-dynamic" { (40, 40) } else { (1, 48) };
        let (error, _) = differ(&folder, seq, 40, Precision::F32);
        assert!(error < F32, "{name} differs by {error}");
    }
}

#[test]
fn gguf_files_give_the_logits_that_are_stored() {
    for file in files() {
        let (error, _) = differ(&file, (1, 48), 40, Precision::F32);
        assert!(error < F32, "{} differs by {error}", file.display());
    }
}

/// Quantized weights of a model are not copied at import: the constants refer to the bytes of the mapped file.
#[test]
fn quantized_weights_stay_in_the_file() {
    let small: Vec<PathBuf> = ["llama-gptq", "llama-awq", "llama-compressed"].map(folder).into();
    for path in small.iter().chain(&files()) {
        let (model, _) = drift_models::load(path, &dims((8, 8))).unwrap_or_else(|e| panic!("{e}"));
        let encoded = |id| model.graph.constant(id).filter(|c| c.encoding.plain_dtype().is_none());
        let quantized: Vec<_> = model.graph.ids().into_iter().filter_map(encoded).collect();
        assert!(quantized.len() > 4 && quantized.iter().all(|c| c.bytes.is_mapped()), "{}", path.display());
        assert!(graph_text::print(&model.graph).contains("\"encoding\":"), "{}", path.display());
    }
}

/// Returns the number of packed bytes of a plan's quantized weights, and the number of packed bytes of its other weights.
fn weight_bytes(plan: &Plan) -> [u64; 2] {
    let quantized = |w: &&Packed| matches!(w.arrangement, Arrangement::Quantized(_));
    let (quantized, others): (Vec<&Packed>, Vec<&Packed>) = plan.weights.iter().partition(quantized);
    [quantized, others].map(|list| list.iter().map(|w| w.bytes()).sum())
}

#[test]
fn quantized_weights_stay_quantized_in_the_bundle() {
    let target = TargetProfile::load("lavapipe").unwrap();
    let folders =
        ["llama-gptq", "llama-gptq-v2", "llama-gptq-2bit", "llama-awq", "llama-compressed-zeros"].map(folder);
    let files = files().into_iter().filter(|f| f.ends_with("llama-k.gguf") || f.ends_with("qwen2.gguf"));
    for path in folders.into_iter().chain(files) {
        let (model, _) = drift_models::load(&path, &dims((1, 48))).unwrap_or_else(|e| panic!("{e}"));
        let encoded = |id| model.graph.constant(id).filter(|c| c.encoding.plain_dtype().is_none());
        let constants: Vec<&Constant> = model.graph.ids().into_iter().filter_map(encoded).collect();
        // 4 or 8 bits for each value, and at most 4 bytes of scale and bias for each group, in panels of 16 rows.
        let bytes = |c: &&Constant| {
            let quant_format = c.encoding.quant_format().unwrap();
            let depth = *c.shape.last().unwrap();
            let rows = (c.elements() / depth).next_multiple_of(16);
            let bits = if quant_format.bits > 4 { 8 } else { 4 };
            (rows * (depth * bits / 8 + depth.div_ceil(quant_format.group_size) * 8)) as u64
        };
        let most: u64 = constants.iter().map(bytes).sum();
        for precision in [Precision::F32, Precision::F16] {
            let options = Options { precision, ..Options::default() };
            let plan = lower(&model.graph, &target, &options).unwrap().plan;
            let [quantized, _] = weight_bytes(&plan);
            assert!(
                quantized > most / 3 && quantized <= most,
                "{}: the plan has {quantized} bytes of quantized weights, but must have at most {most}, and more than a third of {most}",
                path.display()
            );
            let decoded = |w: &&Packed| {
                w.source.encoding.plain_dtype().is_none()
                    && !matches!(w.arrangement, Arrangement::Quantized(_))
            };
            assert_eq!(plan.weights.iter().filter(decoded).count(), 0, "{}", path.display());
        }
    }
}

/// Weights that driftc quantizes (`--weights`): the device agrees with the CPU reference, the logits are close to the
/// float model's logits, and the weights take less than 40 % of the float weights' bytes.
#[test]
fn weights_are_quantized() {
    let target = TargetProfile::load("lavapipe").unwrap();
    for (name, weights, near) in [
        ("llama", "q8", 0.05),
        ("llama", "q844", 0.4),
        ("gpt2", "q8", 0.05),
        ("gemma2", "q844", 0.4),
        ("qwen3-moe", "q8", 0.05),
        ("gpt2", "w4:32", 0.4),
        ("gpt2", "w4:32:zeros", 0.4),
    ] {
        let what = format!("{name} in {weights}");
        let (mut model, _) =
            drift_models::load(&folder(name), &dims((1, 48))).unwrap_or_else(|e| panic!("{e}"));
        let plain = lower(&model.graph, &target, &Options::default()).unwrap().plan;
        let changes = quantize::run([&mut model.graph], weights.parse().unwrap(), &Calibration::default());
        let changes = changes.expect(&what);
        assert!(changes.count > 8, "{what}: {}", changes.count);
        let coded = lower(&model.graph, &target, &Options::default()).unwrap().plan;
        let ([_, floats], [quantized, rest]) = (weight_bytes(&plain), weight_bytes(&coded));
        assert!(
            quantized > 0 && (quantized + rest) * 5 < floats * 2,
            "{what}: {quantized} bytes of quantized weights and {rest} bytes of other weights must be less than 40 % of the {floats} bytes of float weights"
        );
        let (ids, want) = stored(&folder(name));
        let inputs = BTreeMap::from([("input_ids".to_string(), ids)]);
        let got = device::run(&model.graph, &Options::default(), &inputs).expect(&what).remove(0).1;
        let reference = eval(&model.graph, &inputs).expect(&what).remove(0).1;
        let want = want.floats().unwrap();
        let rms = |other: &Array| {
            let squares = other.floats().unwrap().iter().zip(want).map(|(a, b)| f64::from(a - b).powi(2));
            (squares.sum::<f64>() / want.len() as f64).sqrt()
        };
        let zeros = Array::f32(&got.shape, vec![0.0; want.len()]);
        let apart = got.floats().unwrap().iter().zip(reference.floats().unwrap());
        let apart = apart.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < F32, "{what}: a logit on the device differs from the reference by {apart}");
        let error = rms(&got) / rms(&zeros);
        assert!(error > 1e-4 && error < near, "{what}: {error}");
    }
}

/// Activations that driftc quantizes (`--activations q8`): the logits of the device and of the CPU reference are close to
/// each other, and to the logits with float activations. A value that is almost in the middle between two quantized
/// values may round to either of them, which changes the logits of this token and of later tokens. The logits of the
/// first token are equal.
#[test]
fn activations_are_quantized() {
    for (name, weights) in [("llama", "q8"), ("llama", "q844"), ("gpt2", "q8")] {
        let what = format!("{name} in {weights}");
        let (ids, _) = stored(&folder(name));
        let rows = i64::try_from(ids.shape[1]).unwrap();
        let (mut model, _) =
            drift_models::load(&folder(name), &dims((rows, rows))).unwrap_or_else(|e| panic!("{e}"));
        quantize::run([&mut model.graph], weights.parse().unwrap(), &Calibration::default()).expect(&what);
        let inputs = BTreeMap::from([("input_ids".to_string(), ids)]);
        let logits = |graph: &Graph| eval(graph, &inputs).expect(&what).remove(0).1;
        let floats = logits(&model.graph);
        let count = activations::run([&mut model.graph]).expect(&what);
        assert!(count > 6, "{what}: {count} matmuls of quantized rows");
        let reference = logits(&model.graph);
        let device = device::run(&model.graph, &Options::default(), &inputs).expect(&what).remove(0).1;
        let zeros = Array::f32(&device.shape, vec![0.0; device.len()]);
        let differ = |a: &Array, b: &Array| {
            let pairs = a.floats().unwrap().iter().zip(b.floats().unwrap());
            pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
        };
        let scale = differ(&floats, &zeros);
        let (rounding, error) = (differ(&reference, &floats) / scale, differ(&device, &reference) / scale);
        assert!(rounding > 1e-4 && rounding < 0.05, "{what}: {rounding}");
        assert!(error < rounding, "{what}: the device differs from the reference by {error}");
        let columns = device.shape[2];
        let first = device.floats().unwrap().iter().zip(reference.floats().unwrap()).take(columns);
        let apart = first.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(apart < F32, "{what}: a logit of the first token differs from the reference by {apart}");
    }
}

/// Calibration with one text reduces the quantization error of the logits on another text. All functions of a model read the same
/// quantized weights.
#[test]
fn a_text_calibrates_weights() {
    let target = TargetProfile::load("lavapipe").unwrap();
    let (mut plain, mut calibrated) = (0.0, 0.0);
    for (name, weights) in
        [("llama-llama3", "q844"), ("gemma2", "q844"), ("qwen3", "q8"), ("gpt2", "w4:32:zeros")]
    {
        let (ids, want) = stored(&folder(name));
        let [_, length] = ids.shape[..] else { panic!("ids of rank {}", ids.shape.len()) };
        let (read, unread) = ids.ints().unwrap().split_at(length);
        let want = &want.floats().unwrap()[want.len() / 2..];
        let mut sizes = dims((1, 48));
        sizes.insert("batch".into(), (1, 1));
        let (model, _) = drift_models::load(&folder(name), &sizes).unwrap_or_else(|e| panic!("{e}"));
        let weights = weights.parse().unwrap();
        let found = Calibration::from_text(&model.graph, weights, false, &[read.to_vec()]).expect(name);
        assert!(found.count() > 3, "{name}: {}", found.count());
        let inputs = BTreeMap::from([(
            "input_ids".to_string(),
            Array::int(DType::I64, &[1, length], unread.to_vec()),
        )]);
        let error = |calibration: &Calibration| {
            let mut graph = model.graph.clone();
            quantize::run([&mut graph], weights, calibration).expect(name);
            let got = eval(&graph, &inputs).expect(name).remove(0).1;
            let run = device::run(&graph, &Options::default(), &inputs).expect(name).remove(0).1;
            let apart = run.floats().unwrap().iter().zip(got.floats().unwrap()).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f32::max) < F32, "{name}");
            let squares = got.floats().unwrap().iter().zip(want).map(|(a, b)| f64::from(a - b).powi(2));
            (squares.sum::<f64>() / want.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>()).sqrt()
        };
        let (without, with) = (error(&Calibration::default()), error(&found));
        (plain, calibrated) = (plain + without, calibrated + with);
        // The weights of a model are rounded once for all functions.
        let (mut model, _) =
            drift_models::load(&folder(name), &Dims::new()).unwrap_or_else(|e| panic!("{e}"));
        let graphs = model.entry_points.iter_mut().map(|entry| &mut entry.graph);
        quantize::run(graphs, weights, &found).expect(name);
        let functions = driftc::lowering::lower_model(&model, &target, &Options::default()).expect(name);
        let quantized = |function: &driftc::compile::Lowered| {
            let quantized =
                function.plan.weights.iter().filter(|w| matches!(w.arrangement, Arrangement::Quantized(_)));
            quantized.map(|w| w.source.encoding.scales_address()).collect::<std::collections::BTreeSet<_>>()
        };
        let [first, rest @ ..] = &functions[..] else { panic!("{name} has no functions") };
        let known = quantized(first);
        assert!(known.len() > 3 && rest.iter().all(|f| quantized(f).is_subset(&known)), "{name}");
    }
    assert!(calibrated < plain, "{calibrated}, and {plain} without");
}

/// A GGUF file that is truncated, or has a changed byte in its header, is refused without a panic.
#[test]
fn broken_gguf_files_are_refused() {
    let bytes = fs::read(files().iter().find(|f| f.ends_with("qwen3.gguf")).unwrap()).unwrap();
    let copy = tempfile::tempdir().unwrap();
    let path = copy.path().join("broken.gguf");
    let load = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        drift_models::load(&path, &dims((8, 8))).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(load(&bytes), Ok(()));
    let header = bytes.windows(11).rposition(|w| w == b"norm.weight").unwrap() + 64;
    for length in (0..header).step_by(7).chain([bytes.len() / 2, bytes.len() - 1]) {
        assert!(load(&bytes[..length]).is_err(), "{length} bytes are a model");
    }
    for at in 0..header {
        let mut broken = bytes[..header + 4096].to_vec();
        broken[at] ^= 1 << (at % 8);
        assert!(load(&broken).is_err());
        broken[at] = 0xff;
        assert!(load(&broken).is_err());
    }
    let named = |from: &[u8], to: &[u8], reason: &str| {
        let at = bytes.windows(from.len()).position(|w| w == from).unwrap();
        let mut broken = bytes.clone();
        broken[at..at + to.len()].copy_from_slice(to);
        let said = load(&broken).unwrap_err();
        assert!(said.contains(reason), "{said}");
    };
    named(b"GGUF", b"GGUX", "magic `GGUF`");
    named(&3u32.to_le_bytes(), &9u32.to_le_bytes(), "version 9");
    named(b"qwen3", b"mamba", "`mamba`");
    named(b"block_count", b"block_cound", "block_count");
    named(b"output_norm.weight", b"output_nose.weight", "output_norm.weight");
}

#[test]
fn what_comes_later_changes_nothing() {
    for name in ["gemma3", "mixtral"] {
        let (error, _) = differ(&folder(name), (1, 48), 7, Precision::F32);
        assert!(error < F32, "{name} differs by {error}");
    }
}

#[test]
fn half_precision_stays_close() {
    for name in ["gemma2", "gpt2", "llama-llama3", "qwen3"] {
        let (error, deviation) = differ(&folder(name), (40, 40), 40, Precision::F16);
        assert!(
            error < F16 * deviation,
            "a logit of {name} in f16 differs by {error}; the logits' standard deviation is {deviation}"
        );
    }
}

/// Copies a model folder of `tests/language` with a changed `config.json`.
fn with_config(name: &str, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = folder(name);
    let mut config: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    change(config.as_object_mut().unwrap());
    fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    fs::copy(from.join("model.safetensors"), copy.path().join("model.safetensors")).unwrap();
    copy
}

/// Rewrites a `config.json` from the older form, which has the field `rope_scaling`, to the newer form, which has
/// `rope_parameters`.
fn newer(config: &mut serde_json::Map<String, Value>) {
    let theta = config.remove("rope_theta").unwrap_or(json!(10000.0));
    let mut rope = match config.remove("rope_scaling") {
        Some(Value::Object(rope)) => rope,
        _ => serde_json::Map::new(),
    };
    let kind = rope.remove("type").or(rope.remove("rope_type")).unwrap_or(json!("default"));
    rope.insert("rope_type".into(), kind);
    rope.insert("rope_theta".into(), theta);
    for name in ["partial_rotary_factor", "original_max_position_embeddings"] {
        rope.extend(config.remove(name).map(|value| (name.to_string(), value)));
    }
    let rope = match config.remove("rope_local_base_freq") {
        Some(local) => json!({
            "full_attention": rope,
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        }),
        None => Value::Object(rope),
    };
    config.insert("rope_parameters".into(), rope);
    config.remove("dtype");
    config.insert("torch_dtype".into(), json!("bfloat16"));
}

#[test]
fn both_dialects_say_the_same() {
    for path in folders() {
        let name = path.file_name().unwrap().to_str().unwrap();
        let print = |path: &Path| {
            let (model, _) = drift_models::load(path, &dims((8, 8))).unwrap_or_else(|e| panic!("{e}"));
            graph_text::print(&model.graph)
        };
        let nested = with_config(name, |config| {
            newer(config);
            if name == "gemma3" {
                let inner = std::mem::take(config);
                config.insert("architectures".into(), json!(["Gemma3ForConditionalGeneration"]));
                config.insert("text_config".into(), Value::Object(inner));
            }
        });
        assert_eq!(print(&path), print(nested.path()), "{name}");
    }
}

/// Loads a model that must be refused; returns the error message.
fn refusal(path: &Path) -> String {
    match drift_models::load(path, &dims((8, 8))) {
        Ok(_) => panic!("{} was not refused", path.display()),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let cases: &[(&str, &str, Value, &str)] = &[
        ("llama-linear", "rope_scaling", json!({"rope_type": "spiral"}), "rope_type `spiral`"),
        ("llama-linear", "rope_scaling", json!({"rope_type": "linear"}), "`factor`"),
        ("llama-linear", "rope_scaling", json!({"rope_type": "linear", "factor": "four"}), "`factor`"),
        (
            "phi3",
            "rope_scaling",
            json!({"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}),
            "`short_factor`",
        ),
        ("llama", "hidden_act", json!("softplus2"), "`softplus2`"),
        ("llama", "use_parallel_residual", json!(true), "`use_parallel_residual`"),
        ("llama", "hidden_size", json!(64), "config.json requires"),
        ("llama", "hidden_size", json!(-1), "config.json"),
        ("llama", "num_attention_heads", json!(3), "`num_attention_heads`"),
        ("llama", "num_hidden_layers", json!(3), "layers.2"),
        ("llama", "vocab_size", json!(u64::MAX), "config.json"),
        ("mistral", "sliding_window", json!(0), "`sliding_window`"),
        ("gemma2", "layer_types", json!(["full_attention"]), "`layer_types`"),
        ("gemma2", "layer_types", json!(["full_attention", "chunked_attention"]), "`chunked_attention`"),
        ("gemma2", "attn_logit_softcapping", json!(0.0), "`attn_logit_softcapping`"),
        ("mixtral", "num_experts_per_tok", json!(9), "9 of 4 experts"),
        ("gpt2", "n_head", json!(0), "0 heads"),
        ("gpt2", "activation_function", json!("cubic"), "`cubic`"),
    ];
    for (name, field, value, reason) in cases {
        let copy = with_config(name, |config| {
            config.insert((*field).into(), value.clone());
        });
        let said = refusal(copy.path());
        assert!(
            said.contains(reason),
            "{name} with `{field}` = {value} must be refused with `{reason}`, but the error is: {said}"
        );
    }
}

#[test]
fn quantized_weights_that_are_not_known_are_refused_by_name() {
    let cases: &[(&str, &str, Value, &str)] = &[
        ("llama-gptq", "quant_method", json!("hqq"), "`hqq`"),
        ("llama-gptq", "bits", json!(3), "3-bit weights"),
        ("llama-gptq", "group_size", json!(0), "`group_size`"),
        ("llama-gptq", "group_size", json!(16), "scales"),
        ("llama-gptq", "checkpoint_format", json!("marlin"), "`marlin`"),
        ("llama-gptq", "dynamic", json!({"-:.*down.*": {}}), "`dynamic`"),
        ("llama-awq", "version", json!("gemv"), "`gemv`"),
        ("llama-awq", "group_size", json!(28), "groups of 28 do not divide"),
        ("llama-compressed", "format", json!("float-quantized"), "`float-quantized`"),
        ("llama-compressed", "config_groups", json!({}), "`config_groups`"),
        ("llama-compressed", "kv_cache_scheme", json!({"num_bits": 8}), "`kv_cache_scheme`"),
    ];
    for (name, field, value, reason) in cases {
        let copy = with_config(name, |config| {
            let quantized = config["quantization_config"].as_object_mut().unwrap();
            quantized.insert((*field).into(), value.clone());
        });
        let said = refusal(copy.path());
        assert!(
            said.contains(reason),
            "{name} with `{field}` = {value} must be refused with `{reason}`, but the error is: {said}"
        );
    }
}

#[test]
fn a_shard_that_is_missing_is_named() {
    let copy = with_config("llama", |_| {});
    let index = json!({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}});
    fs::write(copy.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    let said = refusal(copy.path());
    assert!(said.contains("model-00001-of-00001.safetensors"), "{said}");
}

#[test]
fn lengths_that_the_model_does_not_reach_are_refused() {
    let load = |name: &str, seq| drift_models::load(&folder(name), &dims(seq)).unwrap_err().to_string();
    assert!(load("gpt2", (1, 65)).contains("64 positions"));
    assert!(load("llama-dynamic", (1, 20)).contains("dynamic"));
}
