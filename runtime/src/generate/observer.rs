//! Receiver of the events of a generation.

/// Receiver of the events of a generation. Both methods return false to end the generation.
pub trait Observer {
    /// Receives the progress of the prompt: `read` of `total` tokens that the KV caches lacked are computed. Called before
    /// each run of prompt tokens.
    fn prompt(&mut self, read: usize, total: usize) -> bool {
        let _ = (read, total);
        true
    }

    /// Receives a generated token, except a stop token. `logits` has one logit for each token of the vocabulary, before
    /// the repetition penalty; it is `None` unless [`Request::logits`](super::Request::logits) is set.
    fn token(&mut self, id: u32, logits: Option<&[f32]>) -> bool;
}

/// Observer that passes tokens to a function.
pub(super) struct Callback<'a>(pub(super) &'a mut dyn FnMut(u32) -> bool);

impl Observer for Callback<'_> {
    fn token(&mut self, id: u32, _logits: Option<&[f32]>) -> bool {
        (self.0)(id)
    }
}
