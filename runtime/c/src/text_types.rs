//! Types of the functions for texts: chats, tokenizers and embedders.

use std::ffi::{c_char, c_int, c_void};

/// Handle of a chat: a language model on a device, with the messages of a conversation. The id 0 stands for no chat.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chat {
    pub id: u64,
}

/// Handle of a tokenizer. The id 0 stands for no tokenizer.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokenizer {
    pub id: u64,
}

/// Handle of an embedder: a sentence-embedding model on a device. The id 0 stands for no embedder.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedder {
    pub id: u64,
}

/// Parameters of an answer. If all fields except `max_tokens` are zero, sampling is greedy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TextRequest {
    pub max_tokens: usize,
    /// Stop strings, which end the answer and are not part of it. Null if `stop_count` is 0.
    pub stops: *const *const c_char,
    pub stop_count: usize,
    /// Number of most likely tokens to sample from; 0 means all tokens.
    pub top_k: usize,
    /// Seed of the random numbers. Equal seeds give equal texts.
    pub seed: u64,
    /// Temperature: divisor of the logits before sampling; 0 always selects the most likely token.
    pub temperature: f32,
    /// Probability mass of the most likely tokens to sample from; 1 means all tokens, and 0 counts as 1.
    pub top_p: f32,
    /// Minimum probability of a token, relative to the probability of the most likely token; 0 means no minimum.
    pub min_p: f32,
    /// Penalty factor for tokens that the conversation contains: divides their positive logits and multiplies their
    /// negative ones. 1 means no penalty, and 0 counts as 1.
    pub repetition_penalty: f32,
}

/// Callback for `size` bytes of an answer: UTF-8 without a zero byte at the end, valid until the callback returns. The
/// text is empty while the model reads the prompt. `user` is the pointer that was passed with the callback. If the
/// callback returns 0, the answer ends.
pub type EachText =
    Option<unsafe extern "C" fn(text: *const c_char, size: usize, user: *mut c_void) -> c_int>;

/// Reason why an answer ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model generated an end token.
    EndToken = 0,
    /// The text reached a stop string.
    StopString = 1,
    /// `max_tokens` tokens were generated.
    Length = 2,
    /// The callback returned 0.
    Cancelled = 3,
}

/// Result of an answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    pub finish: Finish,
    /// Index of the stop string that ended the answer; 0 if no stop string did.
    pub stop: usize,
    /// Number of generated tokens, including an end token.
    pub tokens: usize,
    /// Number of tokens of the prompt that the KV cache lacked at the start, so that the model evaluated them.
    pub prompt_tokens: usize,
    /// Nanoseconds from the start of the generation to the first generated token.
    pub prompt_ns: u64,
    /// Nanoseconds from the first to the last generated token.
    pub decode_ns: u64,
}

/// Message of a conversation: UTF-8 texts without a zero byte at the end. They are valid until the next call for the
/// chat.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Role: `system`, `user` or `assistant`.
    pub role: *const c_char,
    /// Byte size of the role.
    pub role_size: usize,
    pub content: *const c_char,
    /// Byte size of the content.
    pub content_size: usize,
}
