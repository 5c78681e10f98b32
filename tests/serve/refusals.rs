//! Tests of requests that `driftc serve` refuses, and of its access rules.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::http::Pending;
use crate::place::{CONTEXT, Server, driftc, path};
use crate::{CHAT, TEXT, chat, completion, with};

#[test]
fn wrong_requests_say_what_is_wrong() {
    let server = Server::start(&["word.drift"], &["--max-tokens", "100"]);
    let refused = |name: &str, value: Value, says: &str| {
        let error = server.refused(CHAT, &with(chat("one"), name, value), 400, says);
        assert_eq!(error["type"], "invalid_request_error");
        error
    };
    for (name, value, says) in [
        ("n", json!(2), "n=1"),
        ("tools", json!([{"type": "function"}]), "functions"),
        ("tool_choice", json!("required"), "functions"),
        ("logit_bias", json!({"7": 1}), "logit_bias"),
        ("response_format", json!({"type": "json_object"}), "only the type"),
        ("presence_penalty", json!(0.5), "repetition_penalty"),
        ("modalities", json!(["audio"]), "only text"),
        ("audio", json!({"voice": "a"}), "only text"),
        ("temperature", json!(-1), "at least 0"),
        ("temperature", json!("warm"), "must be a number"),
        ("temperature", json!(1e300), "must be a number"),
        ("top_p", json!(0), "top_p"),
        ("top_k", json!(-2), "top_k"),
        ("min_p", json!(2), "min_p"),
        ("repetition_penalty", json!(0), "repetition_penalty"),
        ("seed", json!("a"), "must be an integer"),
        ("max_tokens", json!(-1), "max_tokens"),
        ("max_tokens", json!(101), "at most 100"),
        ("max_completion_tokens", json!(1.5), "max_completion_tokens"),
        ("stop", json!(7), "stop"),
        ("stop", json!(vec!["a"; 17]), "at most 16"),
        ("stream", json!("yes"), "true or false"),
        ("stream_options", json!({"include_usage": true}), "stream"),
        ("logprobs", json!(3), "true or false"),
        ("top_logprobs", json!(3), "logprobs"),
        ("messages", json!([]), "at least one"),
        ("messages", json!("one"), "list"),
        ("messages", Value::Null, "missing"),
        ("messages", json!([7]), "role"),
        ("messages", json!([{"role": "tool", "content": "one"}]), "role"),
        ("messages", json!([{"role": "user"}]), "content"),
        ("messages", json!([{"role": "user", "content": [{"type": "image_url"}]}]), "type `text`"),
        ("messages", json!([{"role": "assistant", "content": "a", "tool_calls": [{}]}]), "tool_calls"),
        ("messages", json!([{"role": "user", "content": "zag"}]), "no zag first"),
    ] {
        refused(name, value, says);
    }
    let many = with(with(chat("one"), "logprobs", json!(true)), "top_logprobs", json!(21));
    server.refused(CHAT, &many, 400, "at most 20");
    assert_eq!(refused("n", json!(2), "n=1")["param"], "n");
    let long = refused("messages", json!([{"role": "user", "content": "one ".repeat(CONTEXT)}]), "50 tokens");
    assert_eq!(long["code"], "context_length_exceeded");
    for (name, value, says) in [
        ("prompt", json!(["one", "two"]), "only one text"),
        ("prompt", json!([0, 20]), "20 is outside"),
        ("prompt", json!([0, -1]), "token ids"),
        ("prompt", json!([]), "empty"),
        ("prompt", Value::Null, "missing"),
        ("echo", json!(true), "echo"),
        ("best_of", json!(2), "best_of"),
        ("suffix", json!("end"), "suffix"),
        ("logprobs", json!(21), "at most 20"),
    ] {
        server.refused(TEXT, &with(completion("one"), name, value), 400, says);
    }
    let error = server.refused(CHAT, &with(chat("one"), "model", json!("other")), 404, "other");
    assert_eq!(error["code"], "model_not_found");
    // The server still works.
    server.done(CHAT, &chat("one"));
}

#[test]
fn hostile_bodies_are_refused() {
    let server = Server::start(&["word.drift"], &["--max-body", "10000", "--client-timeout", "1"]);
    let headers = [("content-type", "application/json")];
    let send = |body: &[u8]| Pending::send(&server.address, "POST", CHAT, &headers, body).response();
    let deep = "[".repeat(5000);
    for bad in [&b""[..], b"{", b"[]", b"7", b"{\"a\": 1} x", b"\xff\xfe", deep.as_bytes()] {
        let response = send(bad);
        assert_eq!(response.status, 400, "{}", response.body);
        assert!(response.json()["error"]["message"].as_str().unwrap().contains("JSON"));
    }
    let response = send(&vec![b' '; 50_000]);
    assert_eq!((response.status, &response.json()["error"]["code"]), (413, &json!("body_too_large")));
    let text = [("content-type", "text/plain")];
    assert_eq!(Pending::send(&server.address, "POST", CHAT, &text, b"{}").response().status, 415);
    // A header or a body that does not arrive ends the connection.
    let unfinished =
        ["POST /v1/chat/completions HTTP/1.1\r\nhost: loc", "GET / HTTP/9.9\r\n\r\n", "\0\0\0\0\0\0\r\n\r\n"];
    for head in unfinished {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The server may reset the connection.
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, b"HTTP/1.1 408");
    server.done(CHAT, &chat("one"));
}

#[test]
fn only_requests_with_the_key_are_answered() {
    let server = Server::start(&["word.drift"], &["--api-key", "secret"]);
    let get =
        |path: &str, key: &[(&str, &str)]| Pending::send(&server.address, "GET", path, key, b"").response();
    let error = server.refused(CHAT, &chat("one"), 401, "API key");
    assert_eq!((&error["type"], &error["code"]), (&json!("authentication_error"), &json!("invalid_api_key")));
    for wrong in ["secret", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret"] {
        assert_eq!(get("/v1/models", &[("authorization", wrong)]).status, 401, "{wrong}");
    }
    for path in ["/metrics", "/v1/models", "/v1/models/word", "/nothing"] {
        assert_eq!(get(path, &[]).status, 401, "{path}");
    }
    assert_eq!((get("/health", &[]).status, get("/", &[]).status), (200, 200));
    assert_eq!(get("/v1/models", &[("authorization", "Bearer secret")]).status, 200);
    let mut command = driftc();
    let output = command.args(["serve", &path("word.drift"), "--api-key", ""]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn web_pages_need_permission() {
    let server = Server::start(&["word.drift"], &[]);
    let with_host =
        |host: &str| Pending::send(&server.address, "GET", "/health", &[("host", host)], b"").response();
    assert_eq!((with_host("localhost:80").status, with_host("evil.example:80").status), (200, 421));
    let origin = [("origin", "https://page.example"), ("access-control-request-method", "POST")];
    let preflight =
        |server: &Server| Pending::send(&server.address, "OPTIONS", CHAT, &origin, b"").response();
    let refused = preflight(&server);
    assert!(refused.status == 405 && refused.header("access-control-allow-origin").is_none());
    assert!(server.get("/health").header("access-control-allow-origin").is_none());
    let options = ["--cors", "https://page.example", "--api-key", "secret"];
    let server = Server::start(&["word.drift"], &options);
    let allowed = preflight(&server);
    assert_eq!(allowed.status, 204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("https://page.example"));
    assert!(allowed.header("access-control-allow-headers").unwrap().contains("authorization"));
    let health = server.get("/health");
    assert_eq!(health.header("access-control-allow-origin"), Some("https://page.example"));
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let refused = |args: &[&str], code: i32, says: &str| {
        let output = driftc().arg("serve").args(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(says), "the error of {args:?} does not contain `{says}`:\n{error}");
    };
    let word = path("word.drift");
    let server = Server::start(&["word.drift"], &[]);
    let port = server.address.rsplit_once(':').unwrap().1;
    refused(&[&word, "--port", port], 1, "cannot listen");
    refused(
        &[&word, &format!("word={}", path("bert.drift")), "--port", "0"],
        2,
        "two models are called `word`",
    );
    refused(&[&word, "--slots", "0"], 2, "--slots");
    refused(&[&path("nothing.drift")], 1, "nothing.drift");
    refused(&[], 2, "MODEL");
}
