//! Tests of `driftc serve`: the answers of its endpoints. The folder `serve` has the other tests.

#[path = "serve/embeddings.rs"]
mod embeddings;
#[path = "serve/http.rs"]
mod http;
#[path = "serve/load.rs"]
mod load;
#[path = "serve/place.rs"]
mod place;
#[path = "serve/refusals.rs"]
mod refusals;

use drift_tests::settings;
use place::{CONTEXT, Server, driftc, path};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

/// Request for a chat with one message.
fn chat(text: &str) -> Value {
    json!({"model": "word", "messages": [{"role": "user", "content": text}], "temperature": 0})
}

/// Request for a completion.
fn completion(prompt: &str) -> Value {
    json!({"model": "word", "prompt": prompt, "temperature": 0, "max_tokens": 30})
}

/// Returns the request with a further field.
fn with(mut request: Value, name: &str, value: Value) -> Value {
    request[name] = value;
    request
}

/// Returns text and finish reason of a completion.
fn text(answer: &Value) -> (&str, &str) {
    let choice = &answer["choices"][0];
    let text = choice["text"].as_str().or(choice["message"]["content"].as_str());
    (text.unwrap(), choice["finish_reason"].as_str().unwrap())
}

#[test]
fn chats_and_completions() {
    let server = Server::start(&["word.drift"], &[]);
    let answer = server.done(TEXT, &completion("one two"));
    assert_eq!(text(&answer), (" three four five six seven eight nine ten", "stop"));
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
    assert_eq!(answer["usage"]["completion_tokens"], 9);
    let answer = server.done(TEXT, &with(completion("one two"), "max_tokens", json!(2)));
    assert_eq!(text(&answer), (" three four", "length"));
    let default = json!({"prompt": "zig zag", "temperature": 0});
    assert_eq!(server.done(TEXT, &default)["usage"]["completion_tokens"], 16);
    for stop in [json!("six"), json!(["never", "six"])] {
        let answer = server.done(TEXT, &with(completion("one two"), "stop", stop));
        assert_eq!(text(&answer), (" three four five ", "stop"));
    }
    for prompt in [json!(["one two"]), json!([0, 1, 2]), json!([[0, 1, 2]])] {
        let answer = server.done(TEXT, &with(completion(""), "prompt", prompt));
        assert_eq!(text(&answer).0, " three four five six seven eight nine ten");
    }
    let answer = server.done(CHAT, &chat("one two"));
    assert_eq!(text(&answer), (" aye captain", "stop"));
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("word")));
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    let parts = json!([
        {"role": "developer", "content": [{"type": "text", "text": "two"}, {"type": "text", "text": " one"}]},
        {"role": "user", "content": "six"},
        {"role": "assistant", "content": "zig"},
        {"role": "user", "content": "ten"},
    ]);
    let answer = server.done(CHAT, &with(chat(""), "messages", parts));
    // <system> two one <user> six <assistant> zig <user> ten <assistant>
    assert_eq!((text(&answer).0, &answer["usage"]["prompt_tokens"]), (" aye captain", &json!(10)));
    let neutral = json!({"n": 1, "tools": [], "tool_choice": "auto", "logit_bias": {}, "user": "me", "unknown": 7,
        "response_format": {"type": "text"}, "presence_penalty": 0, "stop": null, "top_k": -1});
    let mut request = chat("one two");
    neutral.as_object().unwrap().iter().for_each(|(name, value)| request[name] = value.clone());
    assert_eq!(text(&server.done(CHAT, &request)).0, " aye captain");
    // The context ends the text.
    let answer = server.done(TEXT, &with(completion("zig zag"), "max_tokens", json!(9999)));
    assert_eq!((text(&answer).1, &answer["usage"]["completion_tokens"]), ("length", &json!(CONTEXT + 1 - 3)));
}

#[test]
fn streams_have_the_same_text() {
    let server = Server::start(&["word.drift"], &[]);
    let request = with(completion("one two"), "stream", json!(true));
    let events = server.post(TEXT, &request).events();
    let texts = |events: &[Value]| -> Vec<String> {
        let text = |event: &Value| {
            let choice = &event["choices"][0];
            choice["text"].as_str().or(choice["delta"]["content"].as_str()).unwrap_or_default().to_owned()
        };
        events.iter().map(text).collect()
    };
    let wanted = [" three", " four", " five", " six", " seven", " eight", " nine", " ten", ""];
    assert_eq!(texts(&events), wanted);
    let finish: Vec<&Value> = events.iter().map(|event| &event["choices"][0]["finish_reason"]).collect();
    assert!(finish[..8].iter().all(|reason| reason.is_null()) && finish[8] == "stop");
    assert!(events.iter().all(|event| event["id"] == events[0]["id"] && event.get("usage").is_none()));
    let request =
        with(with(chat("one"), "stream", json!(true)), "stream_options", json!({"include_usage": true}));
    let events = server.post(CHAT, &request).events();
    assert_eq!(texts(&events), ["", " aye", " captain", "", ""]);
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    let (last, others) = events.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(3)));
    assert!(others.iter().all(|event| event["usage"].is_null() && event.get("usage").is_some()));
    // A stop string over two tokens is held back.
    let request = with(with(completion("one two"), "stream", json!(true)), "stop", json!("five six"));
    assert_eq!(texts(&server.post(TEXT, &request).events()).concat(), " three four ");
}

#[test]
fn tokens_have_logprobs() {
    let server = Server::start(&["word.drift"], &[]);
    // The norm scales each vector to the square root of its width; all other logits are zero.
    let likely = (32f64).sqrt().exp();
    let near = |value: &Value, wanted: f64| (value.as_f64().unwrap() - wanted).abs() < 1e-4;
    let (sure, other) = ((likely / (likely + 19.0)).ln(), (1.0 / (likely + 19.0)).ln());
    let request = with(with(chat("one"), "logprobs", json!(true)), "top_logprobs", json!(2));
    let answer = server.done(CHAT, &request);
    let tokens = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let names: Vec<&str> = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(names, [" aye", " captain"]);
    for token in tokens {
        assert!(near(&token["logprob"], sure), "{token}");
        assert_eq!(token["bytes"], json!(token["token"].as_str().unwrap().as_bytes()));
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["token"], &top[1]["token"]), (2, &token["token"], &json!("<start>")));
        assert!(near(&top[0]["logprob"], sure) && near(&top[1]["logprob"], other), "{token}");
    }
    let streamed = server.post(CHAT, &with(request, "stream", json!(true))).events();
    let content =
        |event: &Value| event["choices"][0]["logprobs"]["content"].as_array().cloned().unwrap_or_default();
    assert_eq!(streamed.iter().flat_map(content).collect::<Vec<_>>(), *tokens);
    let request = with(with(completion("one two"), "logprobs", json!(1)), "max_tokens", json!(3));
    let answer = server.done(TEXT, &request);
    let logprobs = &answer["choices"][0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!([" three", " four", " five"]));
    assert_eq!(logprobs["text_offset"], json!([0, 6, 11]));
    assert!(near(&logprobs["token_logprobs"][2], sure) && near(&logprobs["top_logprobs"][1][" four"], sure));
    assert!(server.done(TEXT, &completion("one"))["choices"][0]["logprobs"].is_null());
}

#[test]
fn seeds_decide_the_text() {
    let server = Server::start(&["word.drift"], &["--slots", "3", "--queue", "64"]);
    let hot = |seed: Value| {
        json!({"model": "word", "prompt": "zig zag", "max_tokens": 40, "temperature": 3.0, "ignore_eos": true,
            "seed": seed})
    };
    let generate = |seed: Value| text(&server.done(TEXT, &hot(seed))).0.to_owned();
    let alone: Vec<String> = (0..4).map(|seed| generate(json!(seed))).collect();
    assert!(alone.iter().all(|text| alone.iter().filter(|other| *other == text).count() == 1), "{alone:?}");
    // The command line gives the same tokens, except that it cannot ignore end tokens.
    let bundle = path("word.drift");
    let args =
        ["generate", &bundle, "-p", "zig zag", "--max-tokens", "40", "--temperature", "3", "--seed", "2"];
    let output = driftc().args(args).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        alone[2].starts_with(printed.trim_end()) && printed.trim().len() > 3,
        "{printed} is not {}",
        alone[2]
    );
    // Other requests change nothing, nor do slices, the slot or its earlier tokens.
    std::thread::scope(|scope| {
        for thread in 0..12 {
            let (alone, generate) = (&alone, &generate);
            scope.spawn(move || {
                for (seed, text) in alone.iter().enumerate() {
                    assert_eq!(generate(json!(seed)), *text, "seed {seed} in thread {thread}");
                }
            });
        }
    });
    // Without a seed, texts differ.
    assert_ne!(generate(Value::Null), generate(Value::Null));
}

#[test]
fn earlier_tokens_are_reused() {
    let server = Server::start(&["word.drift"], &["--slots", "2"]);
    let cached = |request: &Value| {
        let usage = server.done(TEXT, request)["usage"].clone();
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap()
    };
    let long = "one two three four five six seven eight nine ten zig zag zig zag zig zag";
    assert_eq!(cached(&completion(long)), 0);
    // The other slot, since the prompts share only the start token.
    assert_eq!(cached(&completion("nine nine nine nine nine nine")), 0);
    assert_eq!(cached(&completion(&format!("{long} one"))), 17);
    assert_eq!(cached(&completion("nine nine nine nine nine nine zig")), 7);
    // A request with a seed reuses only whole runs of the prompt.
    let exact = with(completion(&format!("{long} one")), "seed", json!(1));
    assert!(cached(&exact) < 17);
    let metric = |name: &str| server.metric(&format!("driftc_{name}{{model=\"word\"}}"));
    assert!(metric("cached_prompt_tokens_total") >= 24);
    assert!(metric("prompt_tokens_total") >= 17 + 7 + 18 + 8 + 18 && metric("generated_tokens_total") > 0);
}

#[test]
fn models_and_pages() {
    let server = Server::start(&["word.drift", "bert.drift"], &[]);
    let list = server.get("/v1/models").json();
    let ids: Vec<&Value> = list["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["word", "bert"]);
    assert_eq!(server.get("/v1/models/bert").json()["kind"], "embedding");
    assert_eq!(server.get("/v1/models/other").status, 404);
    let health = server.get("/health");
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("ok")));
    let page = server.get("/");
    assert!(page.header("content-type").unwrap().starts_with("text/html") && page.body.contains("<script>"));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert!(
        !page.body.contains("http://") && !page.body.contains("https://"),
        "the page has external resources"
    );
    assert_eq!((server.get("/nothing").status, server.get(CHAT).status), (404, 405));
    server.done(CHAT, &chat("one"));
    let count = |endpoint: &str, status: u16| {
        server.metric(&format!("driftc_requests_total{{endpoint=\"{endpoint}\",status=\"{status}\"}}"))
    };
    assert_eq!((count(CHAT, 200), count(CHAT, 405), count("other", 404), count("/", 200)), (1, 1, 2, 1));
    let name = "driftc_time_to_first_token_seconds_count{model=\"word\"}";
    assert_eq!(server.metric(name), 1);
}

/// The client library `openai` works with the server, also with many clients at once.
#[test]
fn the_python_client_works() {
    let server = Server::start(&["word.drift", "bert.drift"], &["--api-key", "secret"]);
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/serve/client.py");
    let status = std::process::Command::new(settings::python())
        .arg(script)
        .args([&format!("http://{}/v1", server.address), env!("CARGO_BIN_EXE_driftc"), &path("word.drift")])
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("XDG_CACHE_HOME", path("cache"))
        .status()
        .unwrap();
    assert!(status.success());
}
