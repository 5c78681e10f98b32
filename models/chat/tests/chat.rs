//! Tests of completions and chats with a language model of one kernel, whose tokens a reference implementation gives.

#[path = "../../../runtime/tests/common/mod.rs"]
mod common;

use std::fs;
use std::path::Path;

use common::language::{Toy, VOCABULARY};
use drift_chat::{Chat, Completion, Error, Finish, Listener, PromptEncoder, TextRequest, complete};
use drift_runtime::{Draft, Generator, Options, Sampling, Session};
use drift_text::Message;
use serde_json::{Value, json};

/// Token ids of the roles, of the end token and of the start of an answer.
const SPECIAL: [(&str, usize); 4] = [("<user>", 27), ("<system>", 28), ("<assistant>", 29), ("<end>", 30)];
const END: u32 = 30;

/// Small prompt chunks, so that reading a prompt takes several runs.
const TOY: Toy = Toy {
    context: 200,
    long: 0,
    prefill: 8,
    verify: 0,
    counted: false,
    memory: true,
    salt: 0,
    ids: drift_runtime::format::HostType::I32,
};

/// Returns the text of a token: `w0` to `w31`, or the name of a special token.
fn word(id: usize) -> String {
    let special = SPECIAL.iter().find(|(_, special)| *special == id);
    special.map_or_else(|| format!("w{id}"), |(name, _)| (*name).to_owned())
}

fn tokenizer() -> Value {
    let ids: serde_json::Map<String, Value> = (0..VOCABULARY).map(|id| (word(id), id.into())).collect();
    let special = SPECIAL.map(|(name, id)| {
        json!({"id": id, "content": name, "special": true, "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false})
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": special, "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null, "post_processor": null,
        "model": {"type": "WordLevel", "vocab": ids, "unk_token": "w0"},
    })
}

fn chat() -> Chat {
    let template = "{% for m in messages %}\
        {% if m.role not in ['user', 'system', 'assistant'] %}{{ raise_exception('unknown role') }}{% endif %}\
        <{{ m.role }}> {{ m.content }} {% endfor %}<assistant>";
    let config = json!({"eos_token": "<end>", "chat_template": template});
    let files = [("tokenizer.json", tokenizer().to_string()), ("tokenizer_config.json", config.to_string())];
    let bundle = TOY.with_files(&files, &|_| ());
    let encoder = PromptEncoder::from_bundle(&bundle).unwrap().unwrap();
    let options = Options { frames: 3, ..Options::default() };
    Chat::new(Generator::new(Session::from_bundle(bundle, &options).unwrap()).unwrap(), encoder)
}

fn request(max_tokens: usize) -> TextRequest {
    TextRequest { max_tokens, ..TextRequest::default() }
}

/// Returns the text of the reference implementation after a conversation, and true if an end token ends it.
fn expected(chat: &Chat, messages: &[Message], max_tokens: usize) -> (String, bool) {
    let prompt = chat.encoder().encode_conversation(messages).unwrap();
    let ids = TOY.greedy(&prompt, max_tokens);
    let answer = &ids[prompt.len()..];
    let end = answer.iter().position(|id| *id == END);
    let words = answer[..end.unwrap_or(answer.len())].iter().map(|id| *id as usize);
    let plain = words.filter(|id| SPECIAL.iter().all(|(_, special)| special != id));
    (plain.map(|id| format!(" {}", word(id))).collect(), end.is_some())
}

/// Listener that records what it receives, and cancels the completion at one of three limits.
struct Record {
    pieces: Vec<String>,
    progress: Vec<(usize, usize)>,
    tokens: usize,
    max_read: usize,
    max_tokens: usize,
    max_pieces: usize,
}

impl Default for Record {
    fn default() -> Self {
        let (max_read, max_tokens, max_pieces) = (usize::MAX, usize::MAX, usize::MAX);
        Self { pieces: Vec::new(), progress: Vec::new(), tokens: 0, max_read, max_tokens, max_pieces }
    }
}

impl Listener for Record {
    fn prompt(&mut self, read: usize, total: usize) -> bool {
        self.progress.push((read, total));
        read < self.max_read
    }

    fn token(&mut self, _id: u32, _logits: Option<&[f32]>) -> bool {
        self.tokens += 1;
        self.tokens < self.max_tokens
    }

    fn text(&mut self, text: &str) -> bool {
        assert!(!text.is_empty());
        self.pieces.push(text.to_owned());
        self.pieces.len() < self.max_pieces
    }
}

/// Sends a message. Checks that the listener receives the text of the completion.
fn say(chat: &mut Chat, text: &str, request: &TextRequest) -> Completion {
    let mut record = Record::default();
    let done = chat.say(text, request, &mut record).unwrap();
    assert_eq!(record.pieces.concat(), done.text);
    done
}

fn roles(chat: &Chat) -> Vec<&str> {
    chat.messages().iter().map(|message| message.role.as_str()).collect()
}

#[test]
fn answers_follow_the_whole_conversation() {
    let mut chat = chat();
    chat.set_system(Some("w5 w6"));
    let mut messages = vec![Message::new("system", "w5 w6")];
    for (round, text) in ["w1 w2", "w3", "w4 w4 w4"].into_iter().enumerate() {
        messages.push(Message::new("user", text));
        let (answer, ended) = expected(&chat, &messages, 20);
        let done = say(&mut chat, text, &request(20));
        assert_eq!(done.text, answer, "round {round}");
        assert_eq!(done.finish, if ended { Finish::EndToken } else { Finish::Length });
        messages.push(Message::new("assistant", &answer));
        assert_eq!(chat.messages().len(), messages.len());
    }
    // The KV cache has the earlier rounds, so only few tokens are read.
    let total = chat.encoder().encode_conversation(chat.messages()).unwrap().len();
    let done = say(&mut chat, "w7", &request(4));
    assert!(done.report.prompt_tokens < total / 2, "{} of {total}", done.report.prompt_tokens);
    chat.reset();
    assert_eq!((roles(&chat), chat.system()), (vec!["system"], Some("w5 w6")));
    chat.set_system(Some("w8"));
    let (answer, _) = expected(&chat, &[Message::new("system", "w8"), Message::new("user", "w9")], 6);
    assert_eq!(say(&mut chat, "w9", &request(6)).text, answer);
    chat.set_system(None);
    assert_eq!((roles(&chat), chat.system()), (vec!["user", "assistant"], None));
}

#[test]
fn stop_strings_end_a_text_before_them() {
    let mut chat = chat();
    let whole = say(&mut chat, "w1 w2", &request(30)).text;
    assert!(whole.len() > 40, "{whole}");
    // From the middle of one word to the middle of another one.
    let start = whole.match_indices(' ').nth(6).unwrap().0 - 1;
    let stop = whole[start..start + 3].to_owned();
    let before = whole[..whole.find(&stop).unwrap()].to_owned();
    chat.reset();
    let stops = TextRequest { stop: vec!["none".to_owned(), stop.clone()], ..request(30) };
    let done = say(&mut chat, "w1 w2", &stops);
    assert_eq!((done.text.as_str(), &done.finish), (before.as_str(), &Finish::StopString(stop)));
    assert!(done.report.tokens < 30);
    assert_eq!(chat.messages()[1].content, before);
    // The start of a stop string at the end of a text belongs to the text.
    chat.reset();
    let stop = format!("{}!", &whole[whole.len() - 4..]);
    let done = say(&mut chat, "w1 w2", &TextRequest { stop: vec![stop], ..request(30) });
    assert_eq!(done.text, whole);
    assert_ne!(done.finish, Finish::Cancelled);
}

#[test]
fn end_tokens_can_be_ignored() {
    let mut chat = chat();
    // Searches for a message whose answer ends at an end token.
    let ending = (0..27).map(word).find(|text| expected(&chat, &[Message::new("user", text)], 40).1).unwrap();
    let done = say(&mut chat, &ending, &request(40));
    assert_eq!(done.finish, Finish::EndToken);
    chat.reset();
    let longer = say(&mut chat, &ending, &TextRequest { ignore_end: true, ..request(40) });
    assert_eq!((longer.finish, longer.report.tokens), (Finish::Length, 40));
    assert!(longer.text.len() > done.text.len() && longer.text.starts_with(&done.text));
}

#[test]
fn a_message_cancelled_while_it_is_read_is_forgotten() {
    let mut chat = chat();
    let mut record = Record { max_read: 20, ..Record::default() };
    let done = chat.say(&"w1 ".repeat(60), &request(10), &mut record).unwrap();
    assert_eq!((done.finish, done.text.as_str(), record.tokens), (Finish::Cancelled, "", 0));
    let total = 62;
    assert_eq!(record.progress, [(0, total), (8, total), (16, total), (24, total)]);
    assert!(chat.messages().is_empty());
    let (answer, _) = expected(&chat, &[Message::new("user", "w2 w3")], 10);
    assert_eq!(say(&mut chat, "w2 w3", &request(10)).text, answer);
}

#[test]
fn an_answer_cancelled_after_its_start_stays() {
    let mut chat = chat();
    let (answer, _) = expected(&chat, &[Message::new("user", "w1 w2")], 20);
    let mut record = Record { max_pieces: 3, ..Record::default() };
    let done = chat.say("w1 w2", &request(20), &mut record).unwrap();
    assert_eq!(done.finish, Finish::Cancelled);
    assert!(!done.text.is_empty() && done.text.len() < answer.len() && answer.starts_with(&done.text));
    assert_eq!((record.pieces.len(), chat.messages()[1].content.as_str()), (3, done.text.as_str()));
    let mut messages = chat.messages().to_vec();
    messages.push(Message::new("user", "w3"));
    let (answer, _) = expected(&chat, &messages, 10);
    assert_eq!(say(&mut chat, "w3", &request(10)).text, answer);
    // Without any text, the message is forgotten.
    let mut record = Record { max_tokens: 1, ..Record::default() };
    let done = chat.say("w4", &request(20), &mut record).unwrap();
    assert_eq!((done.finish, roles(&chat).len()), (Finish::Cancelled, 4));
    assert_eq!(done.text, "");
}

#[test]
fn an_answer_is_generated_again() {
    let mut chat = chat();
    assert!(matches!(chat.regenerate(&request(5), &mut Record::default()), Err(Error::NoAnswer)));
    let sampled = |seed| TextRequest {
        sampling: Sampling { temperature: 3.0, seed, ..Sampling::default() },
        ..request(16)
    };
    let first = say(&mut chat, "w1 w2", &sampled(1)).text;
    let mut again = |seed: u64, record: &mut Record| chat.regenerate(&sampled(seed), record).unwrap();
    assert_eq!(again(1, &mut Record::default()).text, first);
    let second = again(2, &mut Record::default()).text;
    assert_ne!(second, first);
    let done = again(3, &mut Record { max_read: 0, ..Record::default() });
    assert_eq!(done.finish, Finish::Cancelled);
    assert_eq!(roles(&chat), ["user", "assistant"]);
    assert_eq!(chat.messages()[1].content, second);
}

#[test]
fn errors_leave_the_conversation_unchanged() {
    let mut chat = chat();
    let (answer, _) = expected(&chat, &[Message::new("user", "w1")], 8);
    say(&mut chat, "w1", &request(8));
    // The message does not fit the context, and then the answer does not.
    for (text, max_tokens) in [("w2 ".repeat(300), 5), ("w2 ".repeat(150), 100)] {
        let all = TextRequest { ignore_end: true, ..request(max_tokens) };
        let failed = chat.say(&text, &all, &mut Record::default());
        assert!(
            matches!(failed, Err(Error::Runtime(drift_runtime::Error::ContextFull { .. }))),
            "{failed:?}"
        );
        assert_eq!((roles(&chat).len(), chat.messages()[1].content.as_str()), (2, answer.as_str()));
        let failed = TextRequest { sampling: Sampling { top_p: 9.0, ..Sampling::default() }, ..request(1) };
        assert!(chat.regenerate(&failed, &mut Record::default()).is_err());
        assert_eq!(chat.messages()[1].content, answer);
    }
    let (answer, _) = expected(&chat, &[chat.messages(), &[Message::new("user", "w3")]].concat(), 8);
    assert_eq!(say(&mut chat, "w3", &request(8)).text, answer);
}

#[test]
fn a_prompt_without_template_is_completed() {
    let chat = chat();
    let prompt = chat.encoder().encode_text("w1 w2 w3").unwrap();
    assert_eq!(prompt, [1, 2, 3]);
    let bundle = TOY.bundle();
    assert!(PromptEncoder::from_bundle(&bundle).unwrap().is_none());
    let mut generator = Generator::new(Session::from_bundle(bundle, &Options::default()).unwrap()).unwrap();
    let mut text = String::new();
    let listener = &mut |piece: &str| {
        text.push_str(piece);
        true
    };
    let ignore = TextRequest { ignore_end: true, ..request(6) };
    let done = complete(&mut generator, chat.encoder(), &prompt, &ignore, &mut Draft::NGram, listener);
    assert_eq!((done.unwrap().text, generator.tokens()), (text, &TOY.greedy(&prompt, 6)[..]));
}

#[test]
fn conversations_are_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("talk.json");
    let mut first = chat();
    first.set_system(Some("w5 \"quoted\"\n\u{1f600}"));
    say(&mut first, "w1 w2", &request(8));
    first.save(&path).unwrap();
    let saved: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(saved[0], json!({"role": "system", "content": "w5 \"quoted\"\n\u{1f600}"}));
    let mut second = chat();
    say(&mut second, "w9", &request(8));
    second.load(&path).unwrap();
    let contents = |chat: &Chat| -> Vec<String> {
        chat.messages().iter().map(|message| format!("{}: {}", message.role, message.content)).collect()
    };
    assert_eq!(contents(&second), contents(&first));
    let next = say(&mut first, "w3", &request(8)).text;
    assert_eq!(say(&mut second, "w3", &request(8)).text, next);
    // A file that exists is replaced, and a folder that does not exist is an error.
    second.save(&path).unwrap();
    first.load(&path).unwrap();
    assert_eq!(contents(&second), contents(&first));
    let failed = second.save(&folder.path().join("none/talk.json")).unwrap_err();
    assert!(matches!(failed, Error::Transcript { .. }), "{failed}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn hostile_transcripts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let mut chat = chat();
    say(&mut chat, "w1", &request(4));
    let mut refused = |path: &Path, says: &str| {
        let error = chat.load(path).unwrap_err();
        assert!(matches!(error, Error::Transcript { .. }), "{error}");
        assert!(error.to_string().contains(says), "`{error}` does not contain `{says}`");
        assert_eq!(roles(&chat), ["user", "assistant"]);
    };
    refused(&folder.path().join("none"), "none");
    refused(folder.path(), "");
    refused(&write("empty", b""), "not a conversation");
    refused(&write("object", br#"{"role": "user", "content": "w1"}"#), "not a conversation");
    refused(&write("text", br#"["w1"]"#), "not a conversation");
    refused(&write("role", br#"[{"role": 1, "content": "w1"}]"#), "not a conversation");
    refused(&write("content", br#"[{"role": "user"}]"#), "content");
    refused(&write("field", br#"[{"role": "user", "content": "w1", "tool": 1}]"#), "tool");
    refused(&write("twice", br#"[{"role": "user", "role": "user", "content": "w1"}]"#), "role");
    refused(&write("rest", br#"[{"role": "user", "content": "w1"}] ["#), "not a conversation");
    refused(&write("half", br#"[{"role": "user", "content": "w1"}"#), "not a conversation");
    refused(&write("surrogate", br#"[{"role": "user", "content": "\ud800"}]"#), "not a conversation");
    refused(&write("bytes", b"[{\"role\": \"user\", \"content\": \"\xff\"}]"), "not a conversation");
    refused(&write("deep", "[".repeat(100_000).as_bytes()), "not a conversation");
    let large = folder.path().join("large");
    fs::File::create(&large).unwrap().set_len(1 << 40).unwrap();
    refused(&large, "bytes");
    // A file with an unknown role is a conversation, but the template refuses it. The chat then continues with another one.
    chat.load(&write("unknown", br#"[{"role": "tool\u0000", "content": "<user> <end>"}]"#)).unwrap();
    let failed = chat.say("w2", &request(4), &mut Record::default());
    assert!(failed.is_err_and(|error| error.to_string().contains("unknown role")));
    assert_eq!(roles(&chat), ["tool\0"]);
    chat.load(&write("none yet", b"[]")).unwrap();
    let (answer, _) = expected(&chat, &[Message::new("user", "w2")], 4);
    assert_eq!(say(&mut chat, "w2", &request(4)).text, answer);
}
