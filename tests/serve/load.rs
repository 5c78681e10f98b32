//! Tests of `driftc serve` with several clients: queue, slots, disconnects, slow readers, and shutdown.

use std::net::TcpStream;

use serde_json::json;

use crate::place::{LONG, Server, endless};
use crate::{TEXT, text};

const BUSY: &str = "driftc_slots_busy{model=\"long\"}";
const WAITING: &str = "driftc_queue_depth{model=\"long\"}";
const TOKENS: &str = "driftc_generated_tokens_total{model=\"long\"}";

/// Request for one token.
fn short() -> serde_json::Value {
    json!({"model": "long", "prompt": "one", "max_tokens": 1, "temperature": 0})
}

#[test]
fn a_full_queue_refuses_requests() {
    let server = Server::start(&["long.drift"], &["--slots", "1", "--queue", "1"]);
    let running = server.begin(TEXT, &endless(LONG, true));
    server.wait_for(BUSY, |busy| busy == 1);
    let waiting = server.begin(TEXT, &short());
    server.wait_for(WAITING, |waiting| waiting == 1);
    let response = server.post(TEXT, &short());
    assert_eq!(response.status, 429, "{}", response.body);
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(response.json()["error"]["code"], "queue_full");
    drop(running);
    assert_eq!(text(&waiting.response().json()).0, " two");
    server.done(TEXT, &short());
}

#[test]
fn a_long_request_does_not_block_a_short_one() {
    let server = Server::start(&["long.drift"], &["--slots", "2"]);
    let mut long = server.begin(TEXT, &endless(2500, true));
    long.wait_for("data: ");
    let prompt = "zig ".repeat(1000);
    let request = json!({"model": "long", "prompt": prompt, "max_tokens": 2, "temperature": 0});
    let answer = server.done(TEXT, &request);
    assert_eq!(answer["usage"]["completion_tokens"], 2);
    // The slot of the short request is free shortly after its answer.
    let busy = server.wait_for(BUSY, |busy| busy < 2);
    assert_eq!(busy, 1, "the long request ended first");
    // The interrupted request has the text of an undisturbed one.
    let streamed = long.rest();
    assert!(streamed.contains("[DONE]"));
    assert_eq!(streamed.matches("zig").count() + streamed.matches("zag").count(), 2500 - 1);
}

#[test]
fn a_disconnect_ends_the_generation() {
    let server = Server::start(&["long.drift"], &["--slots", "1", "--queue", "2"]);
    let disconnects = "driftc_cancelled_total{model=\"long\",reason=\"disconnect\"}";
    let mut streaming = server.begin(TEXT, &endless(LONG, true));
    streaming.wait_for("data: ");
    // A request that waits, and one that has no stream.
    let waiting = server.begin(TEXT, &endless(LONG, false));
    server.wait_for(WAITING, |waiting| waiting == 1);
    drop(waiting);
    server.wait_for(WAITING, |waiting| waiting == 0);
    assert_eq!(server.metric(BUSY), 1);
    drop(streaming);
    server.wait_for(BUSY, |busy| busy == 0);
    let plain = server.begin(TEXT, &endless(LONG, false));
    let before = server.wait_for(TOKENS, |_| true);
    server.wait_for(TOKENS, |tokens| tokens > before);
    drop(plain);
    server.wait_for(BUSY, |busy| busy == 0);
    server.wait_for(disconnects, |count| count == 3);
    let tokens = server.metric(TOKENS);
    assert!(tokens < 2 * LONG as u64 - 100, "{tokens} tokens were generated");
    server.done(TEXT, &short());
    assert_eq!(server.metric(TOKENS), tokens + 1);
}

#[test]
fn a_client_that_does_not_read_stalls_no_one() {
    let options = ["--slots", "2", "--client-timeout", "2"];
    let server = Server::start(&["long.drift"], &options);
    let mut request = endless(LONG, true);
    // Long events fill the buffers.
    request["logprobs"] = json!(20);
    let slow = server.begin(TEXT, &request);
    server.wait_for(BUSY, |busy| busy == 1);
    server.done(TEXT, &short());
    let cancelled = |reason: &str| {
        server.metric(&format!("driftc_cancelled_total{{model=\"long\",reason=\"{reason}\"}}"))
    };
    server.wait_for(BUSY, |busy| {
        server.done(TEXT, &short());
        busy == 0
    });
    // The connection or the model's thread sees the timeout first.
    assert_eq!(cancelled("disconnect") + cancelled("slow_client"), 1);
    let read = slow.rest();
    assert!(!read.contains("[DONE]"), "{} bytes were sent to a client that does not read", read.len());
}

#[test]
fn shutdown_finishes_running_requests() {
    let mut server = Server::start(&["long.drift"], &["--slots", "2"]);
    let mut running = server.begin(TEXT, &endless(500, true));
    running.wait_for("data: ");
    server.terminate();
    let address = server.address.clone();
    let rest = running.rest();
    assert!(rest.contains("\"length\"") && rest.contains("[DONE]"), "{rest}");
    assert_eq!(server.exit_code(), Some(0));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn shutdown_ends_after_the_grace_time() {
    let mut server = Server::start(&["long.drift"], &["--grace", "0"]);
    let mut running = server.begin(TEXT, &endless(LONG, true));
    running.wait_for("data: ");
    server.terminate();
    assert_eq!(server.exit_code(), Some(0));
    assert!(!running.rest().contains("[DONE]"));
    // A second signal ends the server at once.
    let mut server = Server::start(&["long.drift"], &["--grace", "1000"]);
    let mut running = server.begin(TEXT, &endless(LONG, true));
    running.wait_for("data: ");
    server.terminate();
    while TcpStream::connect(&server.address).is_ok() {}
    server.terminate();
    assert_eq!(server.exit_code(), Some(1));
}
