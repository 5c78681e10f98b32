//! Compares tokenizers and chat templates of several model families with the results of `transformers`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use drift_text::{ChatTemplate, Clock, Message, Stream, Tokenizer};
use driftc::import::gguf;
use serde_json::Value;

fn folders() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("text");
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    assert!(folders.len() >= 4);
    folders
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn tokenizer(folder: &Path) -> Tokenizer {
    let config = fs::read(folder.join("tokenizer_config.json")).unwrap();
    Tokenizer::new(&fs::read(folder.join("tokenizer.json")).unwrap(), Some(&config), None).unwrap()
}

fn cases(folder: &Path) -> Value {
    json(&folder.join("cases.json"))
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

#[test]
fn texts_become_ids_and_back() {
    for folder in folders() {
        let tokenizer = tokenizer(&folder);
        for case in cases(&folder)["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            assert_eq!(
                tokenizer.encode(text, true).unwrap(),
                ids(&case["ids"]),
                "{} {text:?}",
                folder.display()
            );
            let plain = tokenizer.encode(text, false).unwrap();
            assert_eq!(plain, ids(&case["ids_no_special"]), "{} {text:?}", folder.display());
            let decoded = tokenizer.decode(&ids(&case["ids"])).unwrap();
            assert_eq!(decoded, case["decoded"].as_str().unwrap(), "{}", folder.display());
        }
    }
}

/// Returns the GGUF metadata that a converter would write for the tokenizer of a Hugging Face folder.
fn metadata(folder: &Path) -> BTreeMap<String, gguf::Value> {
    let (file, config) = (json(&folder.join("tokenizer.json")), json(&folder.join("tokenizer_config.json")));
    let name = folder.file_name().unwrap().to_str().unwrap();
    let text = |t: &str| gguf::Value::Text(t.to_owned());
    let vocab = file["model"]["vocab"].as_object().unwrap();
    let added = file["added_tokens"].as_array().unwrap();
    let size =
        vocab.len() + added.iter().filter(|t| !vocab.contains_key(t["content"].as_str().unwrap())).count();
    let (mut tokens, mut kinds) = (vec![String::new(); size], vec![1; size]);
    for (token, id) in vocab {
        tokens[id.as_u64().unwrap() as usize].clone_from(token);
        if token.starts_with("<0x") {
            kinds[id.as_u64().unwrap() as usize] = 6;
        }
    }
    for token in added {
        let id = token["id"].as_u64().unwrap() as usize;
        tokens[id] = token["content"].as_str().unwrap().to_owned();
        kinds[id] = if tokens[id] == "<unk>" {
            2
        } else if token["special"] == true {
            3
        } else {
            4
        };
    }
    let merges: Vec<[String; 2]> = file["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| match m.as_str() {
            Some(pair) => pair.split_once(' ').map(|(a, b)| [a.to_owned(), b.to_owned()]).unwrap(),
            None => [m[0].as_str().unwrap().to_owned(), m[1].as_str().unwrap().to_owned()],
        })
        .collect();
    let pieces = matches!(name, "phi3" | "gemma2");
    let mut out = BTreeMap::from([
        ("tokenizer.ggml.model".to_owned(), text(if pieces { "llama" } else { "gpt2" })),
        ("tokenizer.ggml.pre".to_owned(), text(if name == "qwen3" { "qwen2" } else { "llama-bpe" })),
        ("tokenizer.ggml.add_bos_token".to_owned(), gguf::Value::Bool(config["add_bos_token"] == true)),
        ("tokenizer.ggml.add_space_prefix".to_owned(), gguf::Value::Bool(name == "phi3")),
        ("tokenizer.chat_template".to_owned(), text(config["chat_template"].as_str().unwrap())),
    ]);
    for (key, field) in
        [("bos_token_id", "bos_token"), ("eos_token_id", "eos_token"), ("unknown_token_id", "unk_token")]
    {
        if let Some(id) = config[field].as_str().and_then(|t| tokens.iter().position(|o| o == t)) {
            out.insert(format!("tokenizer.ggml.{key}"), gguf::Value::Unsigned(id as u64));
        }
    }
    if pieces {
        // A token of an earlier merge has a better score.
        let rank: BTreeMap<String, usize> =
            merges.iter().enumerate().rev().map(|(i, [a, b])| (format!("{a}{b}"), i)).collect();
        let score = |token: &String| gguf::Value::Float(rank.get(token).map_or(-1e6, |i| -(*i as f64)));
        out.insert("tokenizer.ggml.scores".into(), gguf::Value::List(tokens.iter().map(score).collect()));
    } else {
        let pairs = merges.iter().map(|[a, b]| text(&format!("{a} {b}"))).collect();
        out.insert("tokenizer.ggml.merges".into(), gguf::Value::List(pairs));
    }
    out.insert("tokenizer.ggml.tokens".into(), gguf::Value::List(tokens.iter().map(|t| text(t)).collect()));
    let kinds = kinds.into_iter().map(gguf::Value::Unsigned).collect();
    out.insert("tokenizer.ggml.token_type".into(), gguf::Value::List(kinds));
    out
}

#[test]
fn tokenizers_of_gguf_files_equal_tokenizers_of_folders() {
    for folder in folders() {
        let files = drift_models::gguf::tokenizer::tokenizer_files(&metadata(&folder)).unwrap().unwrap();
        let config = files.config.to_string();
        let file = files.tokenizer.to_string();
        let tokenizer = Tokenizer::new(file.as_bytes(), Some(config.as_bytes()), None).unwrap();
        for case in cases(&folder)["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            assert_eq!(
                tokenizer.encode(text, true).unwrap(),
                ids(&case["ids"]),
                "{} {text:?}",
                folder.display()
            );
            let decoded = tokenizer.decode(&ids(&case["ids"])).unwrap();
            assert_eq!(decoded, case["decoded"].as_str().unwrap(), "{}", folder.display());
        }
        let template = ChatTemplate::new(None, Some(config.as_bytes())).unwrap().unwrap();
        assert_eq!(
            template.render(&messages(&folder), true, Clock(0)).unwrap(),
            cases(&folder)["chat"]["rendered"]
        );
    }
}

#[test]
fn tokenizers_of_gguf_files_that_are_not_known_are_refused_by_name() {
    let folder = folders().into_iter().find(|f| f.ends_with("llama3")).unwrap();
    let with = |key: &str, value: gguf::Value| {
        let mut metadata = metadata(&folder);
        metadata.insert(format!("tokenizer.ggml.{key}"), value);
        drift_models::gguf::tokenizer::tokenizer_files(&metadata).unwrap_err()
    };
    assert!(with("model", gguf::Value::Text("t5".into())).contains("`t5`"));
    assert!(with("pre", gguf::Value::Text("tekken".into())).contains("`tekken`"));
    assert!(with("merges", gguf::Value::Bool(true)).contains("merges"));
    assert!(with("tokens", gguf::Value::List(vec![gguf::Value::Bool(true)])).contains("tokens"));
    assert!(with("token_type", gguf::Value::List(vec![gguf::Value::Unsigned(1)])).contains("has 1 entries"));
}

#[test]
fn texts_come_piece_by_piece() {
    for folder in folders() {
        let tokenizer = tokenizer(&folder);
        for case in cases(&folder)["cases"].as_array().unwrap() {
            let ids = ids(&case["ids"]);
            for prompt in [0, 1.min(ids.len()), ids.len() / 2] {
                let mut stream = Stream::new(&tokenizer, &ids[..prompt]);
                let mut text = String::new();
                for id in &ids[prompt..] {
                    let piece = stream.push(*id).unwrap();
                    assert!(!piece.contains('\u{fffd}'), "{piece:?}");
                    text.push_str(&piece);
                }
                text.push_str(&stream.finish().unwrap());
                let whole = tokenizer.decode(&ids).unwrap();
                let before = tokenizer.decode(&ids[..prompt]).unwrap();
                // If a character is split, its first bytes give no text by themselves.
                if let Some(rest) = whole.strip_prefix(&before) {
                    assert_eq!(text, rest, "{} {case} from {prompt}", folder.display());
                }
            }
        }
    }
}

/// A text stream decodes a long text piece by piece, and also ids that are not valid text.
#[test]
fn streams_have_no_end() {
    let folder = folders().into_iter().find(|f| f.ends_with("llama3")).unwrap();
    let tokenizer = tokenizer(&folder);
    let word = "Übergrößenträger 🎉 and more. ".repeat(40);
    let ids = tokenizer.encode(&word, false).unwrap();
    let mut stream = Stream::new(&tokenizer, &[]);
    let mut text: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
    text.push_str(&stream.finish().unwrap());
    assert_eq!(text, word);
    // The first byte of a character, again and again.
    let first = *tokenizer.encode("🎉", false).unwrap().first().unwrap();
    let mut stream = Stream::new(&tokenizer, &[]);
    let broken: String = (0..100).map(|_| stream.push(first).unwrap()).collect();
    assert!(broken.chars().count() > 50 && broken.chars().all(|c| c == '\u{fffd}'));
}

fn messages(folder: &Path) -> Vec<Message> {
    let message = |m: &Value| Message::new(m["role"].as_str().unwrap(), m["content"].as_str().unwrap());
    cases(folder)["chat"]["messages"].as_array().unwrap().iter().map(message).collect()
}

#[test]
fn conversations_become_texts() {
    for folder in folders() {
        let config = fs::read(folder.join("tokenizer_config.json")).unwrap();
        let template = ChatTemplate::new(None, Some(&config)).unwrap().unwrap();
        let chat = &cases(&folder)["chat"];
        let text = template.render(&messages(&folder), true, Clock(0)).unwrap();
        assert_eq!(text, chat["rendered"].as_str().unwrap(), "{}", folder.display());
        let tokenizer = tokenizer(&folder);
        assert_eq!(tokenizer.encode(&text, false).unwrap(), ids(&chat["ids"]), "{}", folder.display());
    }
}

#[test]
fn files_that_are_cut_off_are_refused() {
    let folder = folders().remove(0);
    let whole = fs::read(folder.join("tokenizer.json")).unwrap();
    let error = Tokenizer::new(&whole[..whole.len() / 2], None, None).err().unwrap().to_string();
    assert!(error.starts_with("tokenizer.json: "), "{error}");
    assert!(Tokenizer::new(&whole, Some(b"{"), None).is_err());
}
