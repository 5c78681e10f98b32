//! Hand-made language model whose tokens are words. After each word, one other word is the most likely next token.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// Vocabulary of the model. After each word, the next word of this list is the most likely one; after `<assistant>` it is `aye`.
pub const WORDS: &[&str] = &[
    "<start>",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "<end>",
    "<assistant>",
    "aye",
    "captain",
    "<over>",
    "<user>",
    "<system>",
    "zig",
    "zag",
];
/// Hidden size of the model: one element for each word, and some unused elements.
pub const HIDDEN: usize = 32;

/// Returns the index of the word that the model predicts after the word with index `id`.
///
/// # Panics
/// If the model has no such word.
pub fn follower(id: usize) -> usize {
    let at = |word: &str| WORDS.iter().position(|w| *w == word).unwrap();
    match WORDS[id] {
        "<over>" | "<end>" => at("<end>"),
        "zag" => at("zig"),
        _ => (id + 1) % WORDS.len(),
    }
}

/// Writes the model as a Hugging Face folder. `positions` is the maximum context length.
///
/// # Panics
/// If a file cannot be written.
pub fn write(folder: &Path, positions: usize) {
    fs::create_dir(folder).unwrap();
    let write = |name: &str, value: &Value| fs::write(folder.join(name), value.to_string()).unwrap();
    write("config.json", &config(positions));
    fs::write(folder.join("model.safetensors"), weights()).unwrap();
    write("tokenizer.json", &tokenizer());
    write("generation_config.json", &json!({"eos_token_id": [11, 15]}));
    let template = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}\
        {% if messages[0].content == 'zag' %}{{ raise_exception('no zag first') }}{% endif %}\
        {% if add_generation_prompt %}<assistant>{% endif %}";
    write(
        "tokenizer_config.json",
        &json!({"bos_token": "<start>", "eos_token": "<end>", "chat_template": template}),
    );
}

/// Returns the configuration of the model with this number of positions.
fn config(positions: usize) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": positions, "vocab_size": WORDS.len(),
        "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": false,
    })
}

/// Shape and elements of a tensor.
type Tensor = (Vec<usize>, Vec<f32>);

/// Returns the model's weights as a safetensors file. Word embeddings are unit vectors, which the layer does not change. The
/// output head gives the next word the highest logit.
fn weights() -> Vec<u8> {
    let unit = |rows: usize, at: &dyn Fn(usize) -> usize| -> Vec<f32> {
        let mut matrix = vec![0.0; rows * HIDDEN];
        (0..rows).for_each(|row| matrix[row * HIDDEN + at(row)] = 1.0);
        matrix
    };
    let n = WORDS.len();
    let mut head = vec![0.0; n * HIDDEN];
    for id in 0..n {
        head[follower(id) * HIDDEN + id] = 1.0;
    }
    let layer = |name: &str| format!("model.layers.0.{name}.weight");
    let zeros = |rows: usize, columns: usize| (vec![rows, columns], vec![0.0; rows * columns]);
    let ones = || (vec![HIDDEN], vec![1.0; HIDDEN]);
    let tensors: Vec<(String, Tensor)> = vec![
        ("model.embed_tokens.weight".into(), (vec![n, HIDDEN], unit(n, &|row| row))),
        ("lm_head.weight".into(), (vec![n, HIDDEN], head)),
        ("model.norm.weight".into(), ones()),
        (layer("input_layernorm"), ones()),
        (layer("post_attention_layernorm"), ones()),
        (layer("self_attn.q_proj"), (vec![HIDDEN, HIDDEN], unit(HIDDEN, &|row| row))),
        (layer("self_attn.k_proj"), zeros(HIDDEN / 2, HIDDEN)),
        (layer("self_attn.v_proj"), zeros(HIDDEN / 2, HIDDEN)),
        (layer("self_attn.o_proj"), zeros(HIDDEN, HIDDEN)),
        (layer("mlp.gate_proj"), zeros(16, HIDDEN)),
        (layer("mlp.up_proj"), zeros(16, HIDDEN)),
        (layer("mlp.down_proj"), zeros(HIDDEN, 16)),
    ];
    let mut header = serde_json::Map::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, (shape, values)) in tensors {
        let start = data.len();
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        let entry = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, data.len()]});
        header.insert(name, entry);
    }
    let mut header = Value::Object(header).to_string();
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

/// Returns the tokenizer of the model. It splits a text at white space.
pub fn tokenizer() -> Value {
    let ids: serde_json::Map<String, Value> =
        WORDS.iter().enumerate().map(|(id, word)| ((*word).to_owned(), id.into())).collect();
    let special = WORDS.iter().enumerate().filter(|(_, word)| word.starts_with('<'));
    let special: Vec<Value> = special
        .map(|(id, word)| {
            json!({"id": id, "content": word, "special": true, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false})
        })
        .collect();
    let start =
        json!([{"SpecialToken": {"id": "<start>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]);
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": special, "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
        "post_processor": {"type": "TemplateProcessing", "single": start, "pair": [],
            "special_tokens": {"<start>": {"id": "<start>", "ids": [0], "tokens": ["<start>"]}}},
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": "zig"},
    })
}
