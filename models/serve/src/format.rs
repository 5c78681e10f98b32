//! Conversion of completions to the JSON of endpoints.

use drift_chat::Finish;
use serde_json::{Value, json};

use crate::job::Outcome;
use crate::logprobs::TokenLogprobs;

/// Conversion of a completion to the JSON of an endpoint.
pub(crate) trait Format: Send + 'static {
    /// Returns the whole answer.
    fn answer(&self, text: &str, outcome: &Outcome, tokens: &[TokenLogprobs]) -> Value;

    /// Returns the first chunk of a stream, if the endpoint has one without text.
    fn first_chunk(&self) -> Option<Value>;

    /// Returns a chunk of a stream. The last chunk with a text has the reason why the completion ended.
    fn chunk(&mut self, text: &str, finish: Option<&Finish>, tokens: &[TokenLogprobs]) -> Value;

    /// Returns the chunk of a stream with the usage.
    fn usage_chunk(&self, outcome: &Outcome) -> Value;
}

/// Returns the `finish_reason` of a completion.
pub(crate) fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::EndToken | Finish::StopString(_) | Finish::Cancelled => "stop",
        Finish::Length => "length",
    }
}

/// Returns the `usage` of a completion.
pub(crate) fn usage(outcome: &Outcome) -> Value {
    json!({
        "prompt_tokens": outcome.prompt_tokens,
        "completion_tokens": outcome.tokens,
        "total_tokens": outcome.prompt_tokens + outcome.tokens,
        "prompt_tokens_details": {"cached_tokens": outcome.cached_tokens},
    })
}
