//! The language models of `tests/language`: built from their folders, run on the device, compared with stored logits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use drift_models::Dims;
use drift_tests::device;
use driftc::compile::Options;
use driftc::ir::array::Array;
use driftc::ir::tensor::DType;
use driftc::ir::text;
use driftc::passes::Precision;
use serde_json::{Value, json};

/// Largest difference of a logit that arithmetic in f32 explains.
const F32: f32 = 2e-4;
/// The same for values stored in f16, in standard deviations of the logits.
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

/// The stored ids and logits.
fn stored(folder: &Path) -> (Array, Array) {
    let ids = npy(&folder.join("ids.npy"));
    let shape: Vec<usize> = ids.shape().iter().map(|d| *d as usize).collect();
    let ids = Array::int(DType::I64, &shape, ids.into_vec::<i64>().unwrap());
    let logits = npy(&folder.join("logits.npy"));
    let shape: Vec<usize> = logits.shape().iter().map(|d| *d as usize).collect();
    (ids, Array::f32(&shape, logits.into_vec::<f32>().unwrap()))
}

/// The largest difference of the first `length` positions of every row, and the logits' standard deviation.
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
        // Every angle of a dynamic embedding depends on the length.
        let seq = if name == "llama-dynamic" { (40, 40) } else { (1, 48) };
        let (error, _) = differ(&folder, seq, 40, Precision::F32);
        assert!(error < F32, "{name} differs by {error}");
    }
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
        assert!(error < F16 * deviation, "{name} differs by {error}, with a deviation of {deviation}");
    }
}

/// A copy of a folder with another configuration.
fn with_config(name: &str, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = folder(name);
    let mut config: Value = serde_json::from_slice(&fs::read(from.join("config.json")).unwrap()).unwrap();
    change(config.as_object_mut().unwrap());
    fs::write(copy.path().join("config.json"), config.to_string()).unwrap();
    fs::copy(from.join("model.safetensors"), copy.path().join("model.safetensors")).unwrap();
    copy
}

/// The newer dialect of an older configuration.
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
            text::print(&model.graph)
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

/// What loading says.
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
        ("llama", "hidden_size", json!(64), "the configuration needs"),
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
        assert!(said.contains(reason), "{name} with {field} {value}: {said}");
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
