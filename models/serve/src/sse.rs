//! Completions as a stream of server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::mpsc::Receiver;

use crate::api_error::ApiError;
use crate::format::Format;
use crate::job::Event;

/// Creates a response that streams a completion. `first` is the first event.
pub(crate) fn response(
    first: Event,
    events: Receiver<Event>,
    format: Box<dyn Format>,
    include_usage: bool,
) -> Response {
    let mut stream = EventStream { events, format, include_usage, chunks: VecDeque::new(), has_ended: false };
    if let Some(chunk) = stream.format.first_chunk() {
        stream.push(chunk);
    }
    stream.convert(first);
    let mut response = Response::new(Body::new(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Body of a streaming response. The completion is cancelled when it is dropped.
struct EventStream {
    events: Receiver<Event>,
    format: Box<dyn Format>,
    include_usage: bool,
    /// Encoded events that are not sent.
    chunks: VecDeque<Bytes>,
    has_ended: bool,
}

impl EventStream {
    /// Encodes an event of the model.
    fn convert(&mut self, event: Event) {
        match event {
            Event::Text(text, tokens) => {
                let chunk = self.format.chunk(&text, None, &tokens);
                self.push(chunk);
            }
            Event::Done(outcome, tokens) => {
                let chunk = self.format.chunk("", Some(&outcome.finish), &tokens);
                self.push(chunk);
                if self.include_usage {
                    let chunk = self.format.usage_chunk(&outcome);
                    self.push(chunk);
                }
                self.chunks.push_back(Bytes::from_static(b"data: [DONE]\n\n"));
                self.has_ended = true;
            }
            Event::Failed(error) => self.fail(&error),
        }
    }

    fn push(&mut self, mut chunk: Value) {
        // The usage of all chunks but the last one is null.
        if let Some(fields) = chunk.as_object_mut().filter(|_| self.include_usage) {
            fields.entry("usage").or_insert(Value::Null);
        }
        self.chunks.push_back(Bytes::from(format!("data: {chunk}\n\n")));
    }

    fn fail(&mut self, error: &ApiError) {
        self.chunks.push_back(Bytes::from(format!("data: {}\n\n", error.json())));
        self.has_ended = true;
    }
}

impl hyper::body::Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if self.has_ended {
                return Poll::Ready(None);
            }
            match ready!(self.events.poll_recv(context)) {
                Some(event) => self.convert(event),
                // The thread of the model drops requests of clients that do not read, and all requests if it fails.
                None => self.fail(&ApiError::unavailable("the model stopped before the end of the answer")),
            }
        }
    }
}
