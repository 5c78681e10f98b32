//! Completion of a prompt: token ids in, text out, piece by piece.

use drift_runtime::{Draft, Generator};

use crate::Result;
pub use crate::completion::{Completion, Finish, Listener, TextRequest};
use crate::encoder::PromptEncoder;
use crate::sliced::SlicedCompletion;

/// Generates the text that follows a prompt. The KV cache of the common prefix with the generator's earlier tokens is kept.
///
/// # Errors
/// If the prompt is empty or does not fit the context, the tokenizer fails, or the device fails. Text that was passed to the
/// listener before the error remains valid.
pub fn complete(
    generator: &mut Generator,
    encoder: &PromptEncoder,
    prompt: &[u32],
    request: &TextRequest,
    draft: &mut Draft,
    listener: &mut dyn Listener,
) -> Result<Completion> {
    generator.set_tokens(prompt)?;
    let mut sliced = SlicedCompletion::new(encoder, prompt, request.clone());
    loop {
        if let Some(done) = sliced.advance(generator, usize::MAX, draft, listener)? {
            return Ok(done);
        }
    }
}
