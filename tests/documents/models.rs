//! Small models and arrays under the names that the documents use.

use std::fs;
use std::path::Path;

use drift_tests::onnx::{bytes, floats, graph, input, int, ints, model, node, with};
use serde_json::{Value, json};

use crate::place::Place;

/// Folder of a language model with random weights, below the repository's root, and the GGUF file of a similar model.
const LANGUAGE_MODEL: [&str; 2] = ["tests/language/llama", "tests/language/llama.gguf"];

/// Numbers of tokens of the two models.
const VOCABULARIES: [usize; 2] = [128, 64];

/// Context length that the language model claims to support.
const POSITIONS: usize = 65536;

/// Chat template of the language models.
const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}\
    {% if add_generation_prompt %}assistant: {% endif %}";

/// Writes the models and arrays to a folder:
/// - `model.onnx`: image classifier, input `image` f32 `[batch, 3, 224, 224]`, output `scores` f32 `[batch, 10]`; `cat.npy`;
/// - `mobilenet.onnx`: MobileNet with 100 classes, input `0` f32 `[1, 3, 224, 224]`; `picture.npy`;
/// - `model` and `path/to/model`: folder of a language model; `model.gguf`;
/// - `mine.toml`: target profile.
///
/// # Errors
/// If a file cannot be read or written.
pub(crate) fn write(root: &Path, folder: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("models for the documents: {e}");
    fs::write(folder.join("model.onnx"), classifier()).map_err(fail)?;
    fs::write(folder.join("cat.npy"), image()).map_err(fail)?;
    let mobilenet = root.join("tests/corpus/mobilenet_v1");
    fs::copy(mobilenet.join("model.onnx"), folder.join("mobilenet.onnx")).map_err(fail)?;
    fs::copy(mobilenet.join("input_0.npy"), folder.join("picture.npy")).map_err(fail)?;
    fs::write(folder.join("mine.toml"), "name = \"mine\"\ninherits = \"lavapipe\"\n").map_err(fail)?;
    let gguf = fs::read(root.join(LANGUAGE_MODEL[1])).map_err(fail)?;
    fs::write(folder.join("model.gguf"), with_tokenizer(&gguf)).map_err(fail)?;
    fs::create_dir_all(folder.join("path/to")).map_err(fail)?;
    for path in ["model", "path/to/model"] {
        language_model(&root.join(LANGUAGE_MODEL[0]), &folder.join(path)).map_err(fail)?;
    }
    Ok(())
}

/// Checks that driftc runs the models that no document may use at the moment.
///
/// # Errors
/// If a model does not run.
pub(crate) fn check() -> Result<(), String> {
    let place = Place::new()?;
    for model in ["model", "model.gguf"] {
        let generated =
            place.shell(&format!("driftc generate {model} --chat --prompt hello --max-tokens 2\n"), "")?;
        if !generated.contains("decode") {
            return Err(format!("{model}: {generated}"));
        }
    }
    place.shell("driftc estimate model.onnx -t ./mine.toml\n", "").map(|_| ())
}

fn classifier() -> Vec<u8> {
    let conv = with(node("Conv", &["image", "filter"], &["patches"]), ints("strides", &[16, 16]));
    let mut g = graph(
        vec![input("image", &["batch", "3", "224", "224"])],
        vec![
            conv,
            node("Relu", &["patches"], &["positive"]),
            node("GlobalAveragePool", &["positive"], &["mean"]),
            with(node("Flatten", &["mean"], &["flat"]), int("axis", 1)),
            node("MatMul", &["flat", "classes"], &["scores"]),
        ],
        &["scores"],
    );
    let weights =
        |count: usize| (0..count).map(|i| ((i * 7 % 23) as f32 - 11.0) / 64.0).collect::<Vec<f32>>();
    g.initializer = vec![
        floats("filter", &[8, 3, 16, 16], &weights(8 * 3 * 16 * 16)),
        floats("classes", &[8, 10], &weights(80)),
    ];
    bytes(&model(17, g)).to_vec()
}

/// Returns the `.npy` file of an image, f32 `[1, 3, 224, 224]`.
fn image() -> Vec<u8> {
    let mut header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 224, 224), }".to_owned();
    header += &" ".repeat(63 - (10 + header.len()) % 64);
    header.push('\n');
    let length = u16::try_from(header.len()).unwrap_or_default().to_le_bytes();
    let pixels = (0..3 * 224 * 224).flat_map(|i| ((i % 255) as f32 / 255.0).to_le_bytes());
    let start = [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes()].concat();
    start.into_iter().chain(pixels).collect()
}

/// Returns the tokens of a language model: three special tokens, printable ASCII characters with `▁` for a space, the frequent
/// ones first, and unused tokens.
fn tokens(vocabulary: usize) -> Vec<String> {
    let special = ["<unk>", "<s>", "</s>"].map(str::to_owned).into_iter();
    let frequent = "\u{2581}abcdefghijklmnopqrstuvwxyz0123456789.,:;!?'\"-()/<>";
    let others = ('!'..='~').filter(|c| !frequent.contains(*c));
    let characters = frequent.chars().chain(others).map(String::from);
    let unused = (0..vocabulary).map(|id| format!("<unused{id}>"));
    special.chain(characters).chain(unused).take(vocabulary).collect()
}

/// Writes the folder of a language model: weights of an existing model, and a tokenizer of characters.
fn language_model(weights: &Path, folder: &Path) -> std::io::Result<()> {
    fs::create_dir(folder)?;
    fs::copy(weights.join("model.safetensors"), folder.join("model.safetensors"))?;
    let mut config: Value = serde_json::from_str(&fs::read_to_string(weights.join("config.json"))?)?;
    config["max_position_embeddings"] = json!(POSITIONS);
    let vocabulary: serde_json::Map<String, Value> =
        tokens(VOCABULARIES[0]).into_iter().enumerate().map(|(id, token)| (token, id.into())).collect();
    let special = |(id, content): (usize, &&str)| {
        json!({"id": id, "content": content, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
    };
    let special: Vec<Value> = ["<unk>", "<s>", "</s>"].iter().enumerate().map(special).collect();
    let replace =
        |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": special,
        "normalizer": replace(" ", "▁"), "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [replace("▁", " "), {"type": "Fuse"}]},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": [], "unk_token": "<unk>"},
    });
    let template = json!({"bos_token": "<s>", "eos_token": "</s>", "chat_template": TEMPLATE});
    // Every token of the second half ends a text, so that texts of random weights are short.
    let ends: Vec<usize> = (64..128).chain([2]).collect();
    for (name, value) in [
        ("config.json", config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", template),
        ("generation_config.json", json!({"eos_token_id": ends})),
    ] {
        fs::write(folder.join(name), value.to_string())?;
    }
    Ok(())
}

/// Adds a tokenizer of characters and a chat template to the metadata of a GGUF file.
fn with_tokenizer(file: &[u8]) -> Vec<u8> {
    const HEADER: usize = 24;
    const ALIGNMENT: usize = 32;
    let tokens = tokens(VOCABULARIES[1]);
    let text = |value: &str| [&(value.len() as u64).to_le_bytes(), value.as_bytes()].concat();
    let entry =
        |key: &str, kind: u32, value: Vec<u8>| [text(key), kind.to_le_bytes().to_vec(), value].concat();
    let list = |kind: u32, items: Vec<Vec<u8>>| {
        [kind.to_le_bytes().to_vec(), (items.len() as u64).to_le_bytes().to_vec(), items.concat()].concat()
    };
    let kind_of = |id: usize| {
        if id == 0 {
            2u32
        } else if id < 3 {
            3
        } else {
            1
        }
    };
    let kinds = (0..tokens.len()).map(|id| kind_of(id).to_le_bytes().to_vec()).collect();
    let scores = (0..tokens.len()).map(|id| (-(id as f32)).to_le_bytes().to_vec()).collect();
    let mut added = [
        entry("tokenizer.ggml.model", 8, text("llama")),
        entry("tokenizer.ggml.tokens", 9, list(8, tokens.iter().map(|token| text(token)).collect())),
        entry("tokenizer.ggml.token_type", 9, list(5, kinds)),
        entry("tokenizer.ggml.scores", 9, list(6, scores)),
        entry("tokenizer.ggml.bos_token_id", 4, 1u32.to_le_bytes().to_vec()),
        entry("tokenizer.ggml.eos_token_id", 4, 2u32.to_le_bytes().to_vec()),
        entry("tokenizer.chat_template", 8, text(TEMPLATE)),
    ]
    .concat();
    // A last entry fills the metadata up, so that the tensors keep their alignment.
    let unfilled = added.len() + entry("filled", 8, text("")).len();
    added.extend(entry("filled", 8, text(&"-".repeat(unfilled.next_multiple_of(ALIGNMENT) - unfilled))));
    let (header, rest) = file.split_at(HEADER.min(file.len()));
    let entries = header.get(16..).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes);
    [header.get(..16).unwrap_or_default(), &(entries + 8).to_le_bytes(), &added, rest].concat()
}
