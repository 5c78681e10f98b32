//! Tests of the commands of `driftc` for language models: text in and out, token ids, chats, and faulty requests.
//!
//! The tested model is hand-made: see `drift_tests::word_model`.

#[cfg(unix)]
#[path = "talk/terminal.rs"]
mod terminal;

use drift_tests::word_model::{HIDDEN, WORDS, follower, tokenizer};
use drift_tests::{settings, word_model};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

const CONTEXT: usize = 48;

/// Temporary folder with the model, its bundle, arrays and cached bundles.
static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let place = Place(tempfile::tempdir().unwrap());
    let model = place.0.path().join("model");
    word_model::write(&model, 256);
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

/// With `--activations q8`, only `--prefill` shows the loss, and a note says so.
#[test]
fn prefill_logits_and_perplexity() {
    let (bundle, dim) = (PLACE.path("activations.drift"), format!("context={CONTEXT}"));
    let options = ["--dim", &dim, "--weights", "q8", "--activations", "q8"];
    let compile = ["compile", &PLACE.path("model"), "-t", &target(), "-o", &bundle];
    PLACE.done(&[&compile[..], &options].concat());
    let ids: Vec<i64> = (0..CONTEXT as i64).map(|at| at * 7 % WORDS.len() as i64).collect();
    let (file, out) = (PLACE.ids("prompt.npy", &ids), PLACE.path("prompt_logits.npy"));
    let (_, err) = PLACE.done(&["logits", &bundle, "--ids", &file, "--output", &out]);
    assert!(err.contains("float activations") && err.contains("--prefill"), "{err}");
    let (_, err) = PLACE.done(&["logits", &bundle, "--ids", &file, "--output", &out, "--prefill"]);
    assert!(!err.contains("float activations"), "{err}");
    let (logits, shape) = read::<f32>(&out);
    assert_eq!(shape, [CONTEXT as u64, WORDS.len() as u64]);
    for (row, id) in logits.chunks(WORDS.len()).zip(&ids) {
        let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap();
        assert_eq!(best, follower(*id as usize), "behind {id}");
    }
    let (_, err) = PLACE.done(&["perplexity", &bundle, "--ids", &file]);
    assert!(err.contains("float activations"), "{err}");
    let (out, err) = PLACE.done(&["perplexity", &bundle, "--ids", &file, "--prefill"]);
    assert!(out.contains("over 48 tokens") && !err.contains("float activations"), "{out}{err}");
}

#[test]
fn a_chat_remembers_and_forgets() {
    let bundle = PLACE.path("model.drift");
    let said = "one two\n\nthree\n/reset\n/rset\n/help\nfour\n/exit\nfive\n";
    let (out, err) = PLACE.done_with(&["chat", &bundle], said);
    assert_eq!(out, " aye captain\n aye captain\n aye captain\n");
    // The second question extends the KV cache. The third one has only the role in common with the first one.
    let prompts: Vec<&str> = err.lines().filter(|line| line.contains("prompt")).collect();
    let counts: Vec<bool> = ["prompt 4 tokens", "prompt 3 tokens", "prompt 2 tokens"]
        .iter()
        .zip(&prompts)
        .map(|(n, line)| line.contains(n))
        .collect();
    assert_eq!(counts, [true; 3], "{prompts:?}");
    assert!(err.contains("did you mean /reset?") && err.contains("/regen"), "{err}");
    // A question beyond the context length is dropped, and the chat continues.
    let long = format!("{}\nzig\n", "zig ".repeat(CONTEXT));
    let (out, err) = PLACE.done_with(&["chat", &bundle], &long);
    assert_eq!(out.trim(), "aye captain");
    assert!(err.contains("the context is full") && err.contains("forgotten"), "{err}");
    assert!(err.contains("/reset") && err.contains("--dim context=N"), "{err}");
}

#[test]
fn a_chat_is_saved_loaded_and_regenerated() {
    let bundle = PLACE.path("model.drift");
    let (saved, again, system) =
        (PLACE.path("talk.json"), PLACE.path("again.json"), PLACE.path("system.txt"));
    fs::write(&system, "zig zag\n").unwrap();
    let said = format!("/regen\none two\n/save {saved}\n/regen\n/system two\n/save {again}\n/save\n");
    let (out, err) = PLACE.done_with(&["chat", &bundle, "--system-file", &system], &said);
    assert_eq!(out, " aye captain\n aye captain\n");
    assert!(err.contains("has no answer yet") && err.contains("saved 3 messages"), "{err}");
    assert!(err.contains("/save needs the name of a file"), "{err}");
    let messages = |path: &str| -> Value { serde_json::from_slice(&fs::read(path).unwrap()).unwrap() };
    let message = |role: &str, content: &str| json!({"role": role, "content": content});
    let talk = [message("user", "one two"), message("assistant", " aye captain")];
    assert_eq!(messages(&saved), json!([message("system", "zig zag"), talk[0], talk[1]]));
    assert_eq!(messages(&again), json!([message("system", "two"), talk[0], talk[1]]));
    // Errors of commands and of the chat template do not end the chat.
    let said = format!(
        "/load {}\n/load {}\n/load {saved}\nthree\n/system\n/save {again}\n/reset\nzag\nfour\n",
        PLACE.path("none.json"),
        PLACE.path("system.txt")
    );
    let (out, err) = PLACE.done_with(&["chat", &bundle, "--stop", "captain"], &said);
    assert_eq!(out, " aye \n aye \n");
    for says in ["none.json", "not a conversation", "loaded 3 messages", "no zag first"] {
        assert!(err.contains(says), "{err}");
    }
    let next = [message("user", "three"), message("assistant", " aye ")];
    assert_eq!(messages(&again), json!([talk[0], talk[1], next[0], next[1]]));
}

#[test]
fn prompts_come_from_files_and_standard_input() {
    let (bundle, file) = (PLACE.path("model.drift"), PLACE.path("prompt.txt"));
    fs::write(&file, "one two\r\n").unwrap();
    let generate = |args: &[&str], input: &str| {
        PLACE.done_with(&[&["generate", &bundle, "--max-tokens", "3"], args].concat(), input).0
    };
    assert_eq!(generate(&["--prompt-file", &file], "five\n"), " three four five\n");
    assert_eq!(generate(&["--prompt", "-"], "five\n"), " six seven eight\n");
    assert_eq!(generate(&[], "five six"), " seven eight nine\n");
    assert_eq!(generate(&["--chat", "--system-file", &file], "five six"), " aye captain\n");
    let refused = |args: &[&str], code, says: &str| {
        PLACE.refused(&[&["generate", &bundle], args].concat(), code, says);
    };
    refused(&["--prompt-file", &PLACE.path("none.txt")], 1, "none.txt");
    refused(&["--prompt-file", &file, "--prompt", "one"], 2, "--prompt");
    refused(&["--prompt", "one", "--system-file", &file], 2, "need --chat");
    refused(&["--prompt", "one", "--system", "two", "--system-file", &file, "--chat"], 2, "--system");
    fs::write(&file, [b'o', 0xff]).unwrap();
    refused(&["--prompt-file", &file], 1, "UTF-8");
}

#[test]
fn texts_end_before_stop_strings() {
    let bundle = PLACE.path("model.drift");
    let args = ["generate", &bundle, "--prompt", "one two", "--stop", "never", "--stop", "e six"];
    let (out, err) = PLACE.done(&args);
    assert_eq!(out, " three four fiv\n");
    assert!(err.contains("decode 3 tokens") && !err.contains("cut after"), "{err}");
    // A stop string of one token at the start leaves no text.
    assert_eq!(PLACE.done(&["generate", &bundle, "-p", "one", "--stop", " "]).0, "\n");
    PLACE.refused(&["generate", &bundle, "-p", "one", "--stop", ""], 2, "--stop");
    // Each follower is far more likely than the other words, which `--min-p` excludes.
    let hot = ["--temperature", "3", "--max-tokens", "8", "--seed", "7"];
    let args = [&["generate", &bundle, "-p", "one two"], &hot[..]].concat();
    let likely = " three four five six seven eight nine ten\n";
    assert_ne!(PLACE.done(&args).0, likely);
    assert_eq!(PLACE.done(&[&args[..], &["--min-p", "0.9"]].concat()).0, likely);
    PLACE.refused(&[&args[..], &["--min-p", "1.5"]].concat(), 2, "min_p");
}

#[test]
fn generate_reports_json() {
    let (bundle, bare, dim) = (PLACE.path("model.drift"), PLACE.path("bare"), format!("context={CONTEXT}"));
    let json = |args: &[&str]| -> Value {
        let (out, err) = PLACE.done(&[&["generate"], args, &["--json"]].concat());
        assert!(!err.contains("tokens/s"), "{err}");
        serde_json::from_str(&out).unwrap()
    };
    let found = json(&[&bundle, "--prompt", "seven eight"]);
    assert_eq!(found["text"], " nine ten");
    assert_eq!((&found["finish_reason"], &found["stop"]), (&json!("end_token"), &Value::Null));
    assert_eq!((&found["prompt_tokens"], &found["generated_tokens"]), (&json!(3), &json!(3)));
    assert_eq!((&found["model"], &found["seed"]), (&json!(bundle), &json!(0)));
    assert!(found["prompt_tokens_per_second"].as_f64().unwrap() > 0.0, "{found}");
    assert!(found["decode_tokens_per_second"].as_f64().unwrap() > 0.0, "{found}");
    assert_eq!(found.get("ids"), None);
    let args = ["--prompt", "zig zag zig zag", "--max-tokens", "12", "--seed", "5", "--draft", "ngram"];
    let found = json(&[&[&bundle[..]], &args[..]].concat());
    assert_eq!((&found["finish_reason"], &found["seed"]), (&json!("length"), &json!(5)));
    let accepted = found["accepted_draft_tokens"].as_u64().unwrap();
    assert!(accepted > 0 && accepted <= found["draft_tokens"].as_u64().unwrap(), "{found}");
    let found = json(&[&bundle, "--prompt", "one", "--stop", " five"]);
    assert_eq!((&found["finish_reason"], &found["stop"]), (&json!("stop_string"), &json!(" five")));
    assert_eq!(found["text"], " two three four");
    let ids = PLACE.ids("json.npy", &[0, 1]);
    let found = json(&[&bundle, "--ids", &ids, "--max-tokens", "2"]);
    assert_eq!((&found["text"], &found["ids"]), (&json!(" two three"), &json!([2, 3])));
    let found = json(&[&bare, "--dim", &dim, "--ids", &ids, "--max-tokens", "2"]);
    assert_eq!((&found["text"], &found["ids"]), (&Value::Null, &json!([2, 3])));
    let stopped = ["generate", &bare, "--dim", &dim, "--ids", &ids, "--stop", "x"];
    PLACE.refused(&stopped, 2, "--stop needs a model with a tokenizer");
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
