//! Logarithms of token probabilities.

use drift_text::Tokenizer;
use serde_json::{Map, Value, json};

/// Generated token with logarithms of probabilities.
#[derive(Clone, Debug)]
pub(crate) struct TokenLogprobs {
    chosen: Alternative,
    /// Most likely tokens, in descending order.
    top: Vec<Alternative>,
}

/// Token that the model could generate.
#[derive(Clone, Debug)]
struct Alternative {
    text: String,
    /// Natural logarithm of the probability, before temperature and penalties.
    logprob: f64,
}

impl TokenLogprobs {
    /// Computes the logarithms of a generated token and of the `top` most likely tokens. `context` is the last tokens before.
    pub(crate) fn new(tokenizer: &Tokenizer, context: &[u32], id: u32, logits: &[f32], top: usize) -> Self {
        let finite = logits.iter().map(|logit| f64::from(*logit)).filter(|logit| !logit.is_nan());
        let best = finite.clone().fold(f64::NEG_INFINITY, f64::max);
        let total = best + finite.map(|logit| (logit - best).exp()).sum::<f64>().ln();
        let before = tokenizer.decode(context).unwrap_or_default();
        let alternative = |id: u32| {
            let logit = usize::try_from(id).ok().and_then(|at| logits.get(at));
            let logprob = logit.map_or(f64::NEG_INFINITY, |logit| f64::from(*logit) - total);
            // JSON has no infinity.
            let logprob = if logprob.is_nan() { -9999.0 } else { logprob.max(-9999.0) };
            Alternative { text: token_text(tokenizer, (context, &before), id), logprob }
        };
        let mut order: Vec<(f32, u32)> = logits.iter().copied().zip(0..).collect();
        let descending = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let top = top.min(order.len());
        if top > 0 && top < order.len() {
            order.select_nth_unstable_by(top - 1, descending);
        }
        order.truncate(top);
        order.sort_unstable_by(descending);
        Self { chosen: alternative(id), top: order.into_iter().map(|(_, id)| alternative(id)).collect() }
    }

    /// Returns the token as an element of `logprobs.content` of a chat.
    pub(crate) fn chat_json(&self) -> Value {
        let mut entry = self.chosen.json();
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("top_logprobs".to_owned(), self.top.iter().map(Alternative::json).collect());
        }
        entry
    }
}

impl Alternative {
    fn json(&self) -> Value {
        json!({"token": self.text, "logprob": self.logprob, "bytes": self.text.as_bytes()})
    }
}

/// Returns `logprobs` of a completion. `offset` is the number of characters of earlier tokens; the function adds the
/// characters of these tokens.
pub(crate) fn completion_json(tokens: &[TokenLogprobs], offset: &mut usize) -> Value {
    let mut offsets = Vec::with_capacity(tokens.len());
    for token in tokens {
        offsets.push(*offset);
        *offset += token.chosen.text.chars().count();
    }
    let top = |token: &TokenLogprobs| -> Value {
        let entries = token.top.iter().map(|top| (top.text.clone(), json!(top.logprob)));
        Value::Object(entries.collect::<Map<String, Value>>())
    };
    json!({
        "tokens": tokens.iter().map(|token| token.chosen.text.as_str()).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| token.chosen.logprob).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}

/// Returns the text that a token adds after other tokens, given with their text. Returns the token's name if it adds no text.
fn token_text(tokenizer: &Tokenizer, (context, before): (&[u32], &str), id: u32) -> String {
    let all: Vec<u32> = context.iter().copied().chain([id]).collect();
    let all = tokenizer.decode(&all).unwrap_or_default();
    match all.strip_prefix(before).filter(|text| !text.is_empty()) {
        Some(text) => text.to_owned(),
        None => tokenizer.token(id).unwrap_or_default(),
    }
}
