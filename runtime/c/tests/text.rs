//! Chats, tokenizers and embedders through C, with models whose results are known: each token of the language model is
//! followed by the next one, and an embedding is the mean of rows of a table.

#![allow(unsafe_code)]

use drift::{
    Answered, Chat, Embedder, Finish, Message, Status, TextRequest, Tokenizer, drift_attachment,
    drift_chat_close, drift_chat_load, drift_chat_message, drift_chat_open, drift_chat_regenerate,
    drift_chat_reset, drift_chat_save, drift_chat_say, drift_chat_sizes, drift_chat_system,
    drift_embedder_close, drift_embedder_embed, drift_embedder_open, drift_embedder_sizes, drift_last_error,
    drift_last_help, drift_tokenizer_close, drift_tokenizer_decode, drift_tokenizer_encode,
    drift_tokenizer_open, drift_tokenizer_size,
};
use driftc::compile::{EntryPoint, Model, Options, compile};
use driftc::ir::graph_text;
use driftc::target::TargetProfile;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::{null, null_mut};

/// Graph of the function `decode`. It looks up the logits of token i in row i of a table. The largest logit of row i is at
/// i + 1; the largest logit of the last row is at 0.
const DECODE: &str = r#"
symbol past 0..31
%0 = input {"name":"ids","dtype":"i32","shape":[1,1]}
%1 = constant {"dtype":"f32","shape":[4,4],"values":[0,9,1,2,0,1,9,2,0,1,2,9,9,1,2,0]}
%2 = gather %1 %0 {"axis":0} "row"
%3 = reshape %2 {"shape":[1,4]} "logits"
%4 = arg-reduce %3 {"axis":1,"largest":true,"last":false,"keepdims":false} "largest"
%5 = cast %4 {"to":"i32"} "next"
output "logits" %3
output "next" %5
"#;

/// Graph of an embedding model: the mean of the tokens' rows of a table.
const EMBED: &str = r#"
symbol seq 1..8
%0 = input {"name":"input_ids","dtype":"i64","shape":[1,"seq"]}
%1 = input {"name":"attention_mask","dtype":"i64","shape":[1,"seq"]}
%2 = constant {"dtype":"f32","shape":[4,2],"values":[1,10,2,20,3,30,4,40]}
%3 = gather %2 %0 {"axis":0} "rows"
%4 = cast %1 {"to":"f32"} "mask"
%5 = reshape %4 {"shape":[1,"seq",1]}
%6 = mul %3 %5
%7 = reduce %6 {"kind":"mean","axes":[1],"keepdims":false} "mean"
output "sentence_embedding" %7
"#;

const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null, "post_processor": null,
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3}, "unk_token": "d"}}"#;
const CONFIG: &str = r#"{"chat_template": "{% for m in messages %}{{ m.content }} {% endfor %}"}"#;

fn string(text: *const c_char) -> String {
    // SAFETY: the library returns a string that is valid until the next failure on this thread.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

fn message() -> String {
    string(drift_last_error())
}

/// Compiles a model with a tokenizer, and returns the bundle's path.
fn bundle(folder: &Path, model: Model) -> CString {
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".to_owned());
    let target = TargetProfile::load(&name).unwrap();
    let path = folder.join("model.drift");
    let files = [("tokenizer.json", TOKENIZER), ("tokenizer_config.json", CONFIG)];
    let attachments = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).to_vec();
    let options = Options { finish: Some(drift_spirv_tools::validate), ..Options::default() };
    compile(&Model { attachments, ..model }, &[target], &options, &path).unwrap();
    CString::new(path.to_str().unwrap()).unwrap()
}

fn language_model(folder: &Path) -> CString {
    let entry_points = vec![EntryPoint::new("decode", graph_text::parse(DECODE).unwrap())];
    bundle(folder, Model { entry_points, ..Model::default() })
}

fn request(max_tokens: usize) -> TextRequest {
    // SAFETY: all zeros are a valid request.
    TextRequest { max_tokens, ..unsafe { std::mem::zeroed() } }
}

/// Text that a callback receives, and the number of bytes at which the callback ends the answer.
struct Received {
    text: String,
    limit: usize,
}

unsafe extern "C" fn receive(text: *const c_char, size: usize, user: *mut c_void) -> c_int {
    // SAFETY: the library passes `size` bytes, and the tests pass a `Received` as `user`.
    let (text, received) =
        unsafe { (std::slice::from_raw_parts(text.cast::<u8>(), size), &mut *user.cast::<Received>()) };
    received.text.push_str(std::str::from_utf8(text).unwrap());
    c_int::from(received.text.len() < received.limit)
}

/// Says `text`, and returns the status, the received answer and the result.
fn say(chat: Chat, text: &str, request: &TextRequest, limit: usize) -> (Status, String, Answered) {
    let mut received = Received { text: String::new(), limit };
    // SAFETY: a text of the stated size, a request, and memory for the result.
    unsafe {
        let mut answered = std::mem::zeroed::<Answered>();
        let (text, size, user) = (text.as_ptr().cast(), text.len(), (&raw mut received).cast());
        let status = drift_chat_say(chat, text, size, request, Some(receive), user, &raw mut answered);
        (status, received.text, answered)
    }
}

/// Returns the messages of the conversation as `role: content`.
fn messages(chat: Chat) -> Vec<String> {
    let mut found = Vec::new();
    // SAFETY: memory for a message, whose texts have the stated sizes.
    unsafe {
        let mut message = std::mem::zeroed::<Message>();
        while drift_chat_message(chat, found.len(), &raw mut message) == Status::Ok {
            let text = |first: *const c_char, size| {
                String::from_utf8(std::slice::from_raw_parts(first.cast(), size).to_vec()).unwrap()
            };
            let role = text(message.role, message.role_size);
            found.push(format!("{role}: {}", text(message.content, message.content_size)));
        }
    }
    found
}

fn open(path: &CStr) -> Chat {
    let mut chat = Chat { id: 0 };
    // SAFETY: a string, and memory for a chat.
    let status = unsafe { drift_chat_open(path.as_ptr(), null(), 0, &raw mut chat) };
    assert_eq!(status, Status::Ok, "{}", message());
    chat
}

#[test]
fn answers_arrive_in_pieces_and_become_messages() {
    let folder = tempfile::tempdir().unwrap();
    let chat = open(&language_model(folder.path()));
    let (status, text, answered) = say(chat, "a b", &request(3), usize::MAX);
    assert_eq!(status, Status::Ok, "{}", message());
    assert_eq!((text.as_str(), answered.finish, answered.tokens), (" c d a", Finish::Length, 3));
    assert_eq!(answered.prompt_tokens, 2);
    assert_eq!(messages(chat), ["user: a b", "assistant:  c d a"]);

    let stops = [c"zz".as_ptr(), c"b".as_ptr()];
    let stopped = TextRequest { stops: stops.as_ptr(), stop_count: 2, ..request(9) };
    let mut answered = answered;
    // SAFETY: strings, a request, and memory for the results.
    unsafe {
        let status = drift_chat_regenerate(chat, &raw const stopped, None, null_mut(), &raw mut answered);
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!((answered.finish, answered.stop, answered.tokens), (Finish::StopString, 1, 4));
        assert_eq!(messages(chat).last().unwrap(), "assistant:  c d a ");

        assert_eq!(drift_chat_system(chat, c"c".as_ptr(), 1), Status::Ok, "{}", message());
        let (mut tokens, mut context) = (0, 0);
        assert_eq!(drift_chat_sizes(chat, &raw mut tokens, &raw mut context), Status::Ok);
        assert!(tokens >= 5 && context == 32, "{tokens} of {context}");
        let path = CString::new(folder.path().join("chat.json").to_str().unwrap()).unwrap();
        assert_eq!(drift_chat_save(chat, path.as_ptr()), Status::Ok, "{}", message());
        assert_eq!(drift_chat_reset(chat), Status::Ok);
        assert_eq!(messages(chat), ["system: c"]);
        assert_eq!(drift_chat_system(chat, null(), 0), Status::Ok);
        assert_eq!(messages(chat), [""; 0]);
        assert_eq!(drift_chat_load(chat, path.as_ptr()), Status::Ok, "{}", message());
        assert_eq!(messages(chat), ["system: c", "user: a b", "assistant:  c d a "]);
    }

    // The callback ends the second answer after its first text, and the third before it.
    let (_, text, answered) = say(chat, "a", &request(9), 1);
    assert_eq!((text.as_str(), answered.finish), (" b", Finish::Cancelled));
    assert_eq!(messages(chat).len(), 5);
    let (status, _, answered) = say(chat, "b", &request(9), 0);
    assert_eq!((status, answered.finish), (Status::Ok, Finish::Cancelled));
    assert_eq!(messages(chat).len(), 5);
    assert_eq!(drift_chat_close(chat), Status::Ok);
}

#[test]
fn refused_calls_for_a_chat_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = language_model(folder.path());
    let chat = open(&path);
    let (status, _, _) = say(chat, &"a ".repeat(40), &request(1), usize::MAX);
    assert_eq!(status, Status::Request);
    assert!(message().contains("context"), "{}", message());
    assert!(string(drift_last_help()).contains("--dim context"));
    let nan = TextRequest { temperature: f32::NAN, ..request(1) };
    assert_eq!(say(chat, "a", &nan, usize::MAX).0, Status::Request);
    let unlikely = TextRequest { min_p: 2.0, ..request(1) };
    assert_eq!(say(chat, "a", &unlikely, usize::MAX).0, Status::Request);
    assert!(message().contains("min_p") && drift_last_help().is_null(), "{}", message());
    assert_eq!(messages(chat), [""; 0]);
    // SAFETY: pointers are null, or lead to strings or memory.
    unsafe {
        let asked = request(1);
        let status = drift_chat_regenerate(chat, &raw const asked, None, null_mut(), null_mut());
        assert_eq!(status, Status::Request);
        assert!(message().contains("no answer"), "{}", message());
        let bytes = c"\xff".as_ptr();
        assert_eq!(drift_chat_system(chat, bytes, 1), Status::Argument);
        assert_eq!(drift_chat_load(chat, c"/nowhere/at/all".as_ptr()), Status::Io);
        assert_eq!(drift_chat_say(chat, bytes, 0, null(), None, null_mut(), null_mut()), Status::Argument);
        assert_eq!(drift_chat_message(chat, 0, null_mut()), Status::Request);
        let mut embedder = Embedder { id: 0 };
        assert_eq!(drift_embedder_open(path.as_ptr(), null(), &raw mut embedder), Status::Request);
        assert!(message().contains("embeddings"), "{}", message());
        assert_eq!(drift_chat_open(path.as_ptr(), null(), 0, null_mut()), Status::Argument);
    }
    drift_chat_close(chat);
    assert_eq!(drift_chat_reset(chat), Status::Argument);
    assert!(message().contains("the chat was closed"), "{}", message());
}

#[test]
fn texts_become_token_ids_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = language_model(folder.path());
    let mut tokenizer = Tokenizer { id: 0 };
    // SAFETY: strings, and memory for the stated number of elements.
    unsafe {
        let status = drift_tokenizer_open(path.as_ptr(), &raw mut tokenizer);
        assert_eq!(status, Status::Ok, "{}", message());
        let mut size = 0;
        assert_eq!(drift_tokenizer_size(tokenizer, &raw mut size), Status::Ok);
        assert_eq!(size, 4);
        let (mut ids, mut count) = ([9u32; 4], 0);
        let (text, first) = (c"c a b".as_ptr(), ids.as_mut_ptr());
        let status = drift_tokenizer_encode(tokenizer, text, 5, 1, first, 2, &raw mut count);
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!((ids, count), ([2, 0, 9, 9], 3));
        let (mut decoded, mut size) = ([b'?'; 8], 0);
        let first = decoded.as_mut_ptr().cast();
        let status = drift_tokenizer_decode(tokenizer, ids.as_ptr(), 2, first, 8, &raw mut size);
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!((&decoded, size), (b"c a?????", 3));

        let (name, mut size) = (c"tokenizer.json".as_ptr(), 0);
        assert_eq!(drift_attachment(path.as_ptr(), name, null_mut(), 0, &raw mut size), Status::Ok);
        let mut file = vec![0u8; size];
        let status = drift_attachment(path.as_ptr(), name, file.as_mut_ptr().cast(), size, null_mut());
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!(file, TOKENIZER.as_bytes());
        let status = drift_attachment(path.as_ptr(), c"other".as_ptr(), null_mut(), 0, &raw mut size);
        assert_eq!(status, Status::Request);
        assert_eq!(drift_tokenizer_close(tokenizer), Status::Ok);
        assert_eq!(drift_tokenizer_size(tokenizer, &raw mut size), Status::Argument);
    }
}

#[test]
fn embeddings_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    let graph = graph_text::parse(EMBED).unwrap();
    let path = bundle(folder.path(), Model { graph, ..Model::default() });
    let mut embedder = Embedder { id: 0 };
    // SAFETY: strings, and memory for the stated number of elements.
    unsafe {
        let status = drift_embedder_open(path.as_ptr(), null(), &raw mut embedder);
        assert_eq!(status, Status::Ok, "{}", message());
        let (mut size, mut tokens) = (0, 0);
        assert_eq!(drift_embedder_sizes(embedder, &raw mut size, &raw mut tokens), Status::Ok);
        assert_eq!((size, tokens), (2, 8));
        let (mut embedding, text) = ([0f32; 2], c"a c".as_ptr());
        let status = drift_embedder_embed(embedder, text, 3, embedding.as_mut_ptr(), 2);
        assert_eq!(status, Status::Ok, "{}", message());
        assert_eq!(embedding, [2.0, 20.0]);
        assert_eq!(drift_embedder_embed(embedder, text, 3, embedding.as_mut_ptr(), 1), Status::Request);
        let long = "a ".repeat(9);
        let text = long.as_ptr().cast();
        let status = drift_embedder_embed(embedder, text, long.len(), embedding.as_mut_ptr(), 2);
        assert_eq!(status, Status::Request);
        assert!(string(drift_last_help()).contains("split the text"));
        assert_eq!(drift_embedder_close(embedder), Status::Ok);
        assert_eq!(drift_embedder_sizes(embedder, null_mut(), null_mut()), Status::Argument);
    }
}
