//! Tests of the commands of `driftc` for language models: text in and out, token ids, chats, and faulty requests.
//!
//! The tested model is hand-made: its tokens are words, and after each word one other word is the most likely next token.

use drift_tests::settings;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

/// Vocabulary of the model. After each word, the next word of this list is the most likely one; after `<assistant>` it is `aye`.
const WORDS: &[&str] = &[
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
const HIDDEN: usize = 32;
const CONTEXT: usize = 48;

/// Returns the index of the word that the model predicts after the word with index `id`.
fn follower(id: usize) -> usize {
    let at = |word: &str| WORDS.iter().position(|w| *w == word).unwrap();
    match WORDS[id] {
        "<over>" | "<end>" => at("<end>"),
        "zag" => at("zig"),
        _ => (id + 1) % WORDS.len(),
    }
}

/// Temporary folder with the model, its bundle, arrays and cached bundles.
static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let place = Place(tempfile::tempdir().unwrap());
    let model = place.0.path().join("model");
    fs::create_dir(&model).unwrap();
    let write = |name: &str, value: &Value| fs::write(model.join(name), value.to_string()).unwrap();
    write("config.json", &config());
    fs::write(model.join("model.safetensors"), weights()).unwrap();
    write("tokenizer.json", &tokenizer());
    write("generation_config.json", &json!({"eos_token_id": [11, 15]}));
    let template = "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}\
        {% if messages[0].content == 'zag' %}{{ raise_exception('no zag first') }}{% endif %}\
        {% if add_generation_prompt %}<assistant>{% endif %}";
    write(
        "tokenizer_config.json",
        &json!({"bos_token": "<start>", "eos_token": "<end>", "chat_template": template}),
    );
    // A second folder without tokenizer and chat template.
    let bare = place.0.path().join("bare");
    fs::create_dir(&bare).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(model.join(name), bare.join(name)).unwrap();
    }
    let bundle = place.path("model.drift");
    let dim = format!("context={CONTEXT}");
    place.done(&["compile", &place.path("model"), "-t", &target(), "-o", &bundle, "--dim", &dim]);
    place
});

fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "max_position_embeddings": 256, "vocab_size": WORDS.len(),
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

fn tokenizer() -> Value {
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

fn target() -> String {
    settings::target_name()
}

struct Place(tempfile::TempDir);

impl Place {
    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn run(&self, args: &[&str], input: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftc"));
        command.env("XDG_CACHE_HOME", self.path("cache")).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs `driftc` with standard input; it must succeed. Returns its standard output and standard error.
    fn done_with(&self, args: &[&str], input: &str) -> (String, String) {
        let output = self.run(args, input);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {err}");
        (out, err)
    }

    fn done(&self, args: &[&str]) -> (String, String) {
        self.done_with(args, "")
    }

    /// Runs `driftc`, which must fail with the exit code `code` and a message that contains `says`.
    fn refused(&self, args: &[&str], code: i32, says: &str) {
        let output = self.run(args, "");
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(says), "the error of {args:?} does not contain `{says}`:\n{err}");
        assert!(!err.contains("panicked"), "{err}");
    }

    /// Writes a `.npy` file with this element type, shape and data; returns its path.
    fn array(&self, name: &str, descr: &str, shape: &str, data: &[u8]) -> String {
        let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
        header += &" ".repeat(63 - (10 + header.len()) % 64);
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend(u16::try_from(header.len()).unwrap().to_le_bytes());
        file.extend(header.as_bytes());
        file.extend(data);
        fs::write(self.0.path().join(name), file).unwrap();
        self.path(name)
    }

    fn ids(&self, name: &str, ids: &[i64]) -> String {
        let data: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        self.array(name, "<i8", &format!("({},)", ids.len()), &data)
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Reads a `.npy` file; returns its elements and its shape.
fn read<T: npyz::Deserialize>(path: &str) -> (Vec<T>, Vec<u64>) {
    let file = npyz::NpyFile::new(std::io::Cursor::new(fs::read(PathBuf::from(path)).unwrap())).unwrap();
    let shape = file.shape().to_vec();
    (file.into_vec().unwrap(), shape)
}

#[test]
fn a_text_goes_on() {
    let bundle = PLACE.path("model.drift");
    let (out, err) = PLACE.done(&["generate", &bundle, "--prompt", "one two"]);
    assert_eq!(out, " three four five six seven eight nine ten\n");
    assert!(err.contains("prompt 3 tokens") && err.contains("decode 8 tokens") && err.contains("tokens/s"));
    // The next start finds the driver's compiled pipelines.
    let kept = fs::read_dir(PLACE.path("cache/driftc")).unwrap();
    let names = kept.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().any(|name| name.ends_with(".pipelines")));
    let (out, err) = PLACE.done(&["generate", &bundle, "--prompt", "one", "--max-tokens", "4"]);
    assert_eq!(out, " two three four five\n");
    assert!(err.contains("cut after 4 tokens"), "{err}");
    let (out, err) = PLACE.done(&["generate", &bundle, "--prompt", "one two", "--chat"]);
    assert_eq!(out, " aye captain\n");
    assert!(!err.contains("cut after"), "{err}");
    let system = ["--chat", "--system", "zig zag", "--temperature", "0.01", "--top-k", "2"];
    let (out, _) = PLACE.done(&[&["generate", &bundle, "-p", "five"], &system[..]].concat());
    assert_eq!(out, " aye captain\n");
}

#[test]
fn a_model_is_compiled_and_kept() {
    let (model, dim) = (PLACE.path("model"), format!("context={}", CONTEXT - 1));
    let args = ["generate", &model, "--dim", &dim, "--prompt", "eight"];
    let (out, err) = PLACE.done(&args);
    assert_eq!(out, " nine ten\n");
    assert!(err.contains("compiled in"), "{err}");
    let (_, err) = PLACE.done(&args);
    assert!(!err.contains("compiled in"), "{err}");
}

#[test]
fn draft_tokens_do_not_change_the_text() {
    let (bundle, model) = (PLACE.path("model.drift"), PLACE.path("model"));
    let args = ["generate", &bundle, "--prompt", "zig zag zig zag", "--max-tokens", "30"];
    let (plain, err) = PLACE.done(&args);
    assert_eq!(plain.split_whitespace().count(), 30);
    assert!(!err.contains("draft tokens"), "{err}");
    for draft in ["ngram", &bundle] {
        let (out, err) = PLACE.done(&[&args[..], &["--draft", draft]].concat());
        assert_eq!(out, plain);
        assert!(err.contains("draft tokens accepted"), "{err}");
    }
    // Model options apply to the model that generates, not to the bundle of the draft model.
    let dim = ["--dim", "context=40", "--draft", &bundle];
    let (out, _) = PLACE.done(&[&["generate", &model, "--prompt", "one"][..], &dim].concat());
    assert!(out.contains("two three"), "{out}");
    PLACE.refused(&[&args[..], &["--draft", &format!("{model}.none")]].concat(), 1, "model.none");
}

#[test]
fn weights_and_caches_of_few_bits() {
    let (model, bundle, text) = (PLACE.path("model"), PLACE.path("small.drift"), PLACE.path("calibrate.txt"));
    fs::write(&text, "one two three four five six seven eight nine ten ".repeat(4)).unwrap();
    let (target, dim) = (target(), format!("context={CONTEXT}"));
    let args = ["compile", &model, "-t", &target, "-o", &bundle, "--dim", &dim, "--kv-cache", "q8"];
    let calibrated = ["--weights", "q8", "--calibrate", &text];
    PLACE.done(&[&args[..], &calibrated[..]].concat());
    let (out, _) = PLACE.done(&["generate", &bundle, "--prompt", "one two"]);
    assert_eq!(out, " three four five six seven eight nine ten\n");
    let (out, _) = PLACE.done(&["inspect", &bundle]);
    assert!(
        ["--kv-cache q8", "--weights q8", "--calibrate calibrate.txt:"].iter().all(|flag| out.contains(flag)),
        "{out}"
    );
    PLACE.refused(&[&args[..], &calibrated[2..]].concat(), 2, "--weights");
    let missing = PLACE.path("nothing.txt");
    PLACE.refused(&[&args[..], &calibrated[..3], &[&missing]].concat(), 1, "nothing.txt");
}

#[test]
fn functions_are_tuned_by_their_own_symbols() {
    let (model, dim, db) = (PLACE.path("model"), format!("context={CONTEXT}"), PLACE.path("times.txt"));
    let target = target();
    let tune =
        ["tune", &model, "-t", &target, "-o", &db, "--dim", &dim, "--candidates", "2", "--nodes", "attn"];
    PLACE.done(&tune);
    let times = fs::read_to_string(&db).unwrap();
    let problems: Vec<&str> = times.lines().filter(|line| line.starts_with("problem")).collect();
    for symbol in ["past=", "count="] {
        assert!(
            problems.iter().any(|problem| problem.contains(symbol)),
            "no problem in the tuning database has the symbol `{symbol}`:\n{times}"
        );
    }
    assert!(!times.contains("failed"), "{times}");
    let bundle = PLACE.path("tuned.drift");
    PLACE.done(&["compile", &model, "-t", &target, "-o", &bundle, "--dim", &dim, "--tuning", &db]);
    let (out, _) = PLACE.done(&["generate", &bundle, "--prompt", "one two"]);
    assert_eq!(out, " three four five six seven eight nine ten\n");
}

#[test]
fn ids_go_on_without_a_tokenizer() {
    let (bare, dim) = (PLACE.path("bare"), format!("context={CONTEXT}"));
    let (ids, out) = (PLACE.ids("one.npy", &[0, 1]), PLACE.path("more.npy"));
    let args = ["generate", &bare, "--dim", &dim, "--ids", &ids, "--ids-out", &out, "--max-tokens", "12"];
    let (text, _) = PLACE.done(&args);
    assert_eq!(text, "");
    // No file names the tokens that end a text.
    assert_eq!(read::<i64>(&out), (vec![2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 11], vec![12]));
    let bundle = PLACE.path("model.drift");
    PLACE.done(&["generate", &bundle, "--ids", &ids, "--ids-out", &out]);
    assert_eq!(read::<i64>(&out).0, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    PLACE.refused(&["generate", &bare, "--dim", &dim, "--prompt", "one"], 1, "no tokenizer");
    PLACE.refused(&["chat", &bare, "--dim", &dim], 1, "no tokenizer");
}

#[test]
fn logits_and_perplexity() {
    let bundle = PLACE.path("model.drift");
    let ids: Vec<i64> = (0..CONTEXT as i64).map(|at| at * 7 % WORDS.len() as i64).collect();
    let (file, out) = (PLACE.ids("many.npy", &ids), PLACE.path("logits.npy"));
    PLACE.done(&["logits", &bundle, "--ids", &file, "--output", &out]);
    let (logits, shape) = read::<f32>(&out);
    assert_eq!(shape, [CONTEXT as u64, WORDS.len() as u64]);
    for (row, id) in logits.chunks(WORDS.len()).zip(&ids) {
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        assert_eq!(best, follower(*id as usize), "behind {id}");
    }
    // The norm scales each vector to the square root of its width; all other logits are zero.
    let likely = (HIDDEN as f64).sqrt().exp();
    let sure = (likely + 19.0) / likely;
    let text = PLACE.path("text.txt");
    fs::write(&text, "one two three\nfour five").unwrap();
    for args in [["--text", &text], ["--ids", &PLACE.ids("chain.npy", &[0, 1, 2, 3, 4, 5])]] {
        let (out, _) = PLACE.done(&[&["perplexity", &bundle, "--json"], &args[..]].concat());
        let found: Value = serde_json::from_str(&out).unwrap();
        assert_eq!((&found["tokens"], &found["predicted_tokens"]), (&json!(6), &json!(5)));
        assert!((found["perplexity"].as_f64().unwrap() - sure).abs() < 1e-4, "{found} is not {sure}");
    }
    let long: Vec<i64> = (0..100).map(|at| 18 + at % 2).collect();
    let (out, _) = PLACE.done(&["perplexity", &bundle, "--ids", &PLACE.ids("long.npy", &long)]);
    assert!(out.contains("over 100 tokens"), "{out}");
    let windows = ["perplexity", &bundle, "--json", "--window", "10", "--ids", &PLACE.path("long.npy")];
    let found: Value = serde_json::from_str(&PLACE.done(&windows).0).unwrap();
    assert_eq!(found["predicted_tokens"], 90);
    PLACE.refused(&["perplexity", &bundle, "--ids", &PLACE.ids("single.npy", &[1])], 1, "fewer than two");
    PLACE.refused(&[&windows[..4], &["1"], &windows[5..]].concat(), 2, "window");
}

#[test]
fn a_chat_remembers_and_forgets() {
    let bundle = PLACE.path("model.drift");
    let said = "one two\n\nthree\n/reset\n/help\nfour\n/exit\nfive\n";
    let (out, err) = PLACE.done_with(&["chat", &bundle], said);
    assert_eq!(out, " aye captain\n aye captain\n aye captain\n");
    // The second question extends the KV cache, the third one starts again.
    let prompts: Vec<&str> = err.lines().filter(|line| line.contains("prompt")).collect();
    let counts: Vec<bool> = ["prompt 4 tokens", "prompt 3 tokens", "prompt 3 tokens"]
        .iter()
        .zip(&prompts)
        .map(|(n, line)| line.contains(n))
        .collect();
    assert_eq!(counts, [true; 3], "{prompts:?}");
    assert!(err.contains("no command /help"), "{err}");
    // A question beyond the context length is dropped, and the chat continues.
    let long = format!("{}\nzig\n", "zig ".repeat(CONTEXT));
    let (out, err) = PLACE.done_with(&["chat", &bundle], &long);
    assert_eq!(out.trim(), "aye captain");
    assert!(err.contains("the context is full") && err.contains("forgotten"), "{err}");
}

#[test]
fn wrong_requests_say_what_is_wrong() {
    let bundle = PLACE.path("model.drift");
    let generate = |args: &[&str], code, says| {
        PLACE.refused(&[&["generate", &bundle], args].concat(), code, says);
    };
    generate(&[], 2, "--prompt");
    generate(&["--prompt", "one", "--ids", "x.npy"], 2, "--ids");
    generate(&["--prompt", "one", "--temperature", "-1"], 2, "temperature");
    generate(&["--prompt", "one", "--top-p", "1.5"], 2, "top_p");
    generate(&["--prompt", "one", "--draft", "none.drift"], 1, "none.drift");
    generate(&["--prompt", "one", "--dim", "context=9"], 2, "bundle");
    generate(&["--prompt", "zag", "--chat"], 1, "no zag first");
    generate(&["--prompt", "one", "--target", "other"], 2, "other");
    generate(&["--prompt", &"zig ".repeat(CONTEXT)], 1, "the context is full");
    generate(&["--prompt", "zig", "--max-tokens", "99"], 1, "the context is full");
    generate(&["--ids", "none.npy"], 1, "none.npy");
    generate(&["--ids", &PLACE.ids("empty.npy", &[])], 2, "the prompt is empty");
    generate(&["--ids", &PLACE.ids("high.npy", &[1, 20])], 1, "id 20 is outside");
    generate(&["--ids", &PLACE.ids("low.npy", &[-1])], 1, "-1 is not a token id");
    let floats = PLACE.array("floats.npy", "<f8", "(1,)", &1f64.to_le_bytes());
    generate(&["--ids", &floats], 1, "f64");
    let two = PLACE.array("two.npy", "<i8", "(2, 1)", &[0; 16]);
    generate(&["--ids", &two], 1, "[2, 1]");
    // A bundle of the whole graph, without KV cache.
    let (whole, model) = (PLACE.path("whole.drift"), PLACE.path("model"));
    PLACE.done(&["compile", &model, "-t", &target(), "-o", &whole, "--dim", "seq=1..8"]);
    PLACE.refused(&["generate", &whole, "--prompt", "one"], 1, "not a language model");
    PLACE.refused(&["generate", &PLACE.path("none"), "--prompt", "one"], 1, "none");
    PLACE.refused(
        &["logits", &bundle, "--ids", &PLACE.path("high.npy"), "-o", &PLACE.path("l.npy")],
        1,
        "id 20",
    );
}

/// If tokenizer or template files are faulty, compiling prints a note, and only commands that need text are refused.
#[test]
fn texts_that_mean_nothing() {
    let ids = PLACE.ids("known.npy", &[0, 1]);
    let broken = |name: &str, file: &str, content: &str| {
        let (from, to) = (PLACE.0.path().join("model"), PLACE.0.path().join(name));
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        fs::write(to.join(file), content).unwrap();
        let bundle = PLACE.path(&format!("{name}.drift"));
        let dim = format!("context={CONTEXT}");
        let args = ["compile", &PLACE.path(name), "-t", &target(), "-o", &bundle, "--dim", &dim];
        let (_, err) = PLACE.done(&args);
        PLACE.done(&["logits", &bundle, "--ids", &ids, "--output", &PLACE.path("some.npy")]);
        (bundle, err)
    };
    let template = |text: &str| json!({"eos_token": "<end>", "chat_template": text}).to_string();
    for (name, text, says) in [
        ("syntax", "{% for m in messages %}{{ m.role }", "unexpected"),
        ("filter", "{{ messages | reversed_twice }}", "reversed_twice"),
        ("endless", "{% for a in range(99999) %}{{ 'zig ' * 9999 }}{% endfor %}", "more than"),
        ("silent", "", "no text"),
    ] {
        let (bundle, err) = broken(name, "tokenizer_config.json", &template(text));
        assert_eq!(err.contains("refuses chats"), name == "syntax", "{err}");
        PLACE.done(&["generate", &bundle, "--prompt", "one"]);
        PLACE.refused(&["generate", &bundle, "--prompt", "one", "--chat"], 1, says);
    }
    let mut larger = tokenizer();
    larger["model"]["vocab"]["zag"] = json!(77);
    let (bundle, err) = broken("larger", "tokenizer.json", &larger.to_string());
    assert!(err.contains("ids up to 77"), "{err}");
    PLACE.done(&["generate", &bundle, "--prompt", "one"]);
    PLACE.refused(&["generate", &bundle, "--prompt", "zag"], 1, "the id 77");
    let (bundle, err) = broken("modelless", "tokenizer.json", "{}");
    assert!(err.contains("accepts only token ids"), "{err}");
    PLACE.refused(&["generate", &bundle, "--prompt", "one"], 1, "tokenizer.json");
    let ends = json!({"eos_token_id": 999}).to_string();
    let (_, err) = broken("unending", "generation_config.json", &ends);
    assert!(err.contains("end token 999"), "{err}");
    let ends = json!({"eos_token_id": "<end>"}).to_string();
    let (bundle, _) = broken("nameless", "generation_config.json", &ends);
    PLACE.refused(&["generate", &bundle, "--prompt", "one"], 1, "`eos_token_id`");
}
