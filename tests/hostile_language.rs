//! Language model folders and files that are broken in one place. Each must be refused with an error that names the place,
//! without a panic. The folders are changed copies of the folders in `tests/language`.

use std::fs;
use std::path::{Path, PathBuf};

use drift_models::Dims;
use driftc::Error;
use serde_json::{Map, Value, json};

/// Change that breaks a copy of a model folder.
enum Change {
    /// Sets a field of `config.json`.
    Field(&'static str, Value),
    /// Sets a field of `quantization_config` in `config.json`.
    Quantized(&'static str, Value),
    /// Replaces the content of a file in the folder.
    Content(&'static str, Vec<u8>),
    /// Truncates a file in the folder to its first half.
    Half(&'static str),
    /// Removes a file.
    Missing(&'static str),
    /// Changes the JSON header of the safetensors checkpoint.
    Header(fn(&mut Map<String, Value>)),
    /// Replaces the header length that the safetensors checkpoint states.
    HeaderLength(u64),
    /// Appends four bytes to the safetensors checkpoint.
    Longer,
}

use Change::{Content, Field, Half, Header, HeaderLength, Longer, Missing, Quantized};

const CHECKPOINT: &str = "model.safetensors";
const POINTER: &[u8] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 99\n";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("language").join(name)
}

/// Copies the model folder `name` of `tests/language` to a temporary folder, and adds tokenizer files.
fn copy(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in ["config.json", CHECKPOINT] {
        fs::copy(folder(name).join(file), copy.path().join(file)).unwrap();
    }
    for file in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        fs::write(copy.path().join(file), "{\"a\": [1, 2, 3, 4]}").unwrap();
    }
    copy
}

/// Contents of a safetensors checkpoint, which a change edits before they are written again.
struct Checkpoint {
    header: Map<String, Value>,
    /// Wrong header length to write; `None` writes the true header length.
    length: Option<u64>,
    data: Vec<u8>,
}

impl Change {
    fn apply(&self, folder: &Path) {
        let config = |change: &dyn Fn(&mut Map<String, Value>)| {
            let path = folder.join("config.json");
            let mut fields: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            change(fields.as_object_mut().unwrap());
            fs::write(path, fields.to_string()).unwrap();
        };
        let checkpoint = |change: &dyn Fn(&mut Checkpoint)| {
            let path = folder.join(CHECKPOINT);
            let bytes = fs::read(&path).unwrap();
            let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
            let (header, data) = rest.split_at(usize::try_from(u64::from_le_bytes(*length)).unwrap());
            let Value::Object(header) = serde_json::from_slice(header).unwrap() else { panic!("no header") };
            let mut checkpoint = Checkpoint { header, length: None, data: data.to_vec() };
            change(&mut checkpoint);
            let header = Value::Object(checkpoint.header).to_string();
            let length = checkpoint.length.unwrap_or(header.len() as u64).to_le_bytes();
            fs::write(path, [&length[..], header.as_bytes(), &checkpoint.data].concat()).unwrap();
        };
        match self {
            Field(name, value) => config(&|fields| {
                fields.insert((*name).into(), value.clone());
            }),
            Quantized(name, value) => config(&|fields| {
                let quantized = fields["quantization_config"].as_object_mut().unwrap();
                quantized.insert((*name).into(), value.clone());
            }),
            Content(name, bytes) => fs::write(folder.join(name), bytes).unwrap(),
            Half(name) => {
                let bytes = fs::read(folder.join(name)).unwrap();
                fs::write(folder.join(name), &bytes[..bytes.len() / 2]).unwrap();
            }
            Missing(name) => fs::remove_file(folder.join(name)).unwrap(),
            Header(change) => checkpoint(&|file| change(&mut file.header)),
            HeaderLength(length) => checkpoint(&|file| file.length = Some(*length)),
            Longer => checkpoint(&|file| file.data.extend([0; 4])),
        }
    }
}

/// Loads a model that must be refused; returns the error. Fails if the error lacks the place, the reason or the remedy.
fn refusal(path: &Path, what: &str) -> String {
    let Err(error) = drift_models::load(path, &Dims::new()) else { panic!("{what} was not refused") };
    match &error {
        Error::Model { place, reason, help, .. } => {
            assert!(!place.is_empty() && !reason.is_empty() && !help.is_empty(), "{what}: {error}");
        }
        Error::Request { reason, help } => assert!(!reason.is_empty() && !help.is_empty(), "{what}"),
        Error::Io { .. } => {}
        _ => panic!("{what}: {error}"),
    }
    error.to_string()
}

/// Applies each change to a fresh copy of a folder. Loading must fail with an error that contains the words that
/// `cases` lists with the change.
fn all_refused(name: &str, cases: &[(Change, &str)]) {
    for (i, (change, words)) in cases.iter().enumerate() {
        let copy = copy(name);
        change.apply(copy.path());
        let what = format!("{name}, case {i} ({words})");
        let said = refusal(copy.path(), &what);
        assert!(said.contains(words), "{what}: {said}");
    }
}

#[test]
fn configurations() {
    let rope = |fields: Value| Field("rope_scaling", fields);
    all_refused(
        "llama",
        &[
            (Content("config.json", vec![]), "the file is not JSON"),
            (Content("config.json", b"\xff\xfe{}".to_vec()), "the file is not JSON"),
            (Content("config.json", vec![b'['; 100_000]), "the file is not JSON"),
            (Content("config.json", b"[1]".to_vec()), "names no architecture"),
            (Content("config.json", POINTER.to_vec()), "Git LFS"),
            (Half("config.json"), "the file is not JSON"),
            (Missing("config.json"), "there is no config.json"),
            (Field("architectures", json!("LlamaForCausalLM")), "is not a list"),
            (Field("architectures", json!([])), "is not a list"),
            (Field("architectures", json!(["MambaForCausalLM"])), "`MambaForCausalLM` is not supported"),
            (Field("vocab_size", json!("many")), "`vocab_size` is \"many\", but must be an integer"),
            (Field("vocab_size", json!(-5)), "`vocab_size` is -5"),
            (Field("vocab_size", json!(0)), "`vocab_size` is 0"),
            (Field("hidden_size", json!(1.5)), "`hidden_size` is 1.5, but must be an integer"),
            (Field("hidden_size", json!(1_000_000_000)), "`hidden_size` is 1000000000"),
            (Field("intermediate_size", json!([])), "`intermediate_size` is [], but must be an integer"),
            (Field("num_hidden_layers", json!(0)), "`num_hidden_layers` is 0"),
            (Field("num_hidden_layers", json!(1)), "model.layers.1.input_layernorm.weight"),
            (Field("num_hidden_layers", json!(999)), "layers.2"),
            (Field("num_hidden_layers", json!(1u64 << 40)), "`num_hidden_layers`"),
            (Field("num_attention_heads", json!(0)), "`num_attention_heads` is 0"),
            (Field("num_key_value_heads", json!(0)), "`num_key_value_heads` is 0"),
            (Field("head_dim", json!(7)), "rotated in pairs"),
            (Field("max_position_embeddings", json!(0)), "`max_position_embeddings` is 0"),
            (Field("max_position_embeddings", json!(1e30)), "`max_position_embeddings` is 1e"),
            (Field("rms_norm_eps", json!("nan")), "`rms_norm_eps` is \"nan\", but must be a number"),
            (Field("rms_norm_eps", json!(1e300)), "`rms_norm_eps`"),
            (Field("rope_theta", json!(0)), "`rope_theta` is 0"),
            (Field("partial_rotary_factor", json!(1e30)), "`partial_rotary_factor` is 1"),
            (Field("hidden_act", json!(5)), "`hidden_act` is 5, but must be a string"),
            (
                Field("tie_word_embeddings", json!("yes")),
                "`tie_word_embeddings` is \"yes\", but must be true or false",
            ),
            (Field("text_config", json!(5)), "not a JSON object"),
            (Field("rope_scaling", json!("x")), "`rope_scaling` is \"x\", but must be an object"),
            (rope(json!({"rope_type": 7})), "rope_type `7`"),
            (rope(json!({"rope_type": "linear", "factor": -2})), "`factor`"),
            (rope(json!({"rope_type": "linear", "factor": 1e300})), "`factor`"),
            (rope(json!({"rope_type": "yarn", "factor": 2, "beta_fast": -1})), "`beta_fast`"),
            (
                rope(json!({"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": -4})),
                "`original_max_position_embeddings` is -4",
            ),
            (
                rope(json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                    "original_max_position_embeddings": 1e30})),
                "`original_max_position_embeddings`",
            ),
            (Field("quantization_config", json!("x")), "not a JSON object"),
            (Field("quantization_config", json!({"quant_method": "hqq"})), "`hqq`"),
            (Field("quantization_config", json!({"quant_method": 7})), "`quant_method` is 7"),
        ],
    );
}

#[test]
fn checkpoints() {
    fn entry(header: &mut Map<String, Value>) -> &mut Value {
        &mut header["model.layers.0.mlp.down_proj.weight"]
    }
    all_refused(
        "llama",
        &[
            (Missing(CHECKPOINT), "the file is missing"),
            (Content(CHECKPOINT, vec![]), "it is empty"),
            (Content(CHECKPOINT, POINTER.to_vec()), "Git LFS"),
            (Half(CHECKPOINT), "header"),
            (Longer, "header"),
            (HeaderLength(u64::MAX), "header"),
            (HeaderLength(1 << 40), "header"),
            (HeaderLength(8), "header"),
            (Header(|header| entry(header)["shape"] = json!([48, 32])), "down_proj.weight"),
            (Header(|header| entry(header)["shape"] = json!([1i64 << 40, 1i64 << 40])), "header"),
            (Header(|header| entry(header)["data_offsets"] = json!([0, 1u64 << 60])), "header"),
            (Header(|header| entry(header)["data_offsets"] = json!([9, 3])), "header"),
            (Header(|header| entry(header)["dtype"] = json!("I16")), "a float type is needed"),
            (Header(|header| entry(header)["dtype"] = json!("F4")), "header"),
            (Header(|header| drop(header.remove("model.norm.weight"))), "header"),
            (
                Header(|header| {
                    let norm = header.remove("model.norm.weight").unwrap();
                    header.insert("model.nose.weight".into(), norm);
                }),
                "`model.norm.weight`",
            ),
        ],
    );
}

#[test]
fn shards() {
    let index = |map: Value| Content("model.safetensors.index.json", map.to_string().into_bytes());
    let shard = |file: &str| index(json!({"weight_map": {"model.norm.weight": file}}));
    all_refused(
        "llama",
        &[
            (shard("model-00002-of-00003.safetensors"), "model-00002-of-00003.safetensors"),
            (shard("../model.safetensors"), "`../model.safetensors` is not the name of a file in the folder"),
            (shard("tokenizer.json"), "tokenizer.json"),
            (index(json!({"weight_map": {"model.norm.weight": 5}})), "`model.norm.weight`"),
            (index(json!({"weight_map": ["model.safetensors"]})), "weight_map"),
            (Content("model.safetensors.index.json", b"{\"weight_map\": {".to_vec()), "weight_map"),
        ],
    );
}

#[test]
fn quantized_checkpoints() {
    all_refused(
        "llama-gptq",
        &[
            (Quantized("bits", json!("four")), "`bits` is \"four\""),
            (Quantized("bits", json!(-4)), "`bits` is -4"),
            (Quantized("bits", json!(8)), "8-bit values"),
            (Quantized("group_size", json!(-2)), "`group_size` is -2"),
            (Quantized("group_size", json!(7)), "groups of 7"),
            (Quantized("group_size", json!(1i64 << 40)), "groups of"),
            (Quantized("quant_method", json!("awq")), "qweight"),
            (
                Header(|header| {
                    let name = header.keys().find(|name| name.ends_with(".qzeros")).unwrap().clone();
                    let zeros = header.remove(&name).unwrap();
                    header.insert(format!("{name}s"), zeros);
                }),
                "qzeros`",
            ),
        ],
    );
    all_refused("llama-awq", &[(Quantized("group_size", json!(7)), "groups of 7 do not divide")]);
    all_refused("mixtral", &[(Field("num_experts_per_tok", json!(0)), "0 of 4 experts")]);
}

/// Loading a model refuses the files of the tokenizer and of the generation settings beside the checkpoint if they are not valid
/// JSON.
#[test]
fn files_beside_the_checkpoint() {
    let mut cases = Vec::new();
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        cases.extend([
            (Half(name), "the file is not JSON"),
            (Content(name, vec![]), "the file is not JSON"),
            (Content(name, vec![0xff; 99]), "the file is not JSON"),
            (Content(name, POINTER.to_vec()), "Git LFS"),
        ]);
    }
    all_refused("llama", &cases);
    // An empty chat template counts as none.
    let copy = copy("llama");
    fs::write(copy.path().join("chat_template.jinja"), "").unwrap();
    let (model, _) = drift_models::load(copy.path(), &Dims::new()).unwrap_or_else(|e| panic!("{e}"));
    assert!(model.attachments.iter().all(|(name, bytes)| name != "chat_template.jinja" && !bytes.is_empty()));
}

/// GGUF files with a wrong value in the metadata are refused. The test overwrites the value of one key in place.
#[test]
fn gguf_files() {
    let bytes = fs::read(folder("llama.gguf")).unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("model.gguf");
    for (key, value, words) in [
        ("block_count", 0u32, "`num_hidden_layers` is 0"),
        ("block_count", 1, "more"),
        ("block_count", u32::MAX, "`num_hidden_layers`"),
        ("embedding_length", 0, "`hidden_size` is 0"),
        ("embedding_length", u32::MAX, "`hidden_size`"),
        ("embedding_length", 31, ""),
        ("feed_forward_length", 0, "`intermediate_size` is 0"),
        ("feed_forward_length", 7, "shape"),
        ("attention.head_count", 0, "`num_attention_heads` is 0"),
        ("attention.head_count", 3, ""),
        ("attention.head_count_kv", 0, "`num_key_value_heads` is 0"),
        ("context_length", 0, "`max_position_embeddings` is 0"),
        ("rope.freq_base", 0xff80_0000, "rope.freq_base"),
        ("attention.layer_norm_rms_epsilon", 0x7fc0_0000, "rms"),
    ] {
        let key = format!("llama.{key}");
        let entry = [&(key.len() as u64).to_le_bytes(), key.as_bytes()].concat();
        let at = bytes.windows(entry.len()).position(|window| window == entry).expect(&key) + entry.len() + 4;
        let mut broken = bytes.clone();
        broken[at..at + 4].copy_from_slice(&value.to_le_bytes());
        fs::write(&path, broken).unwrap();
        let said = refusal(&path, &key);
        assert!(said.contains(words), "{key} {value}: {said}");
    }
}
