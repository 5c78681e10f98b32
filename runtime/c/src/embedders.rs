//! Embeddings of texts. This module is part of builds with the Cargo feature `text`.

use crate::errors::{Failure, Result, call};
use crate::handles::Shared;
use crate::pointers::{check, elements_mut, put, put_unless_null, text, text_of};
use crate::text_types::Embedder;
use crate::types::{Options, Status};
use drift_chat::Embedder as Model;
use std::ffi::c_char;
use std::path::Path;

static EMBEDDERS: Shared<Model> = Shared::new();

/// Opens the bundle of a sentence-embedding model with a tokenizer. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_embedder_open(
    path: *const c_char,
    options: *const Options,
    embedder: *mut Embedder,
) -> Status {
    call(|| {
        check("embedder", embedder, 1)?;
        // SAFETY: C passes a string, and options or null.
        let (path, options) = unsafe { (text("path", path)?, crate::runs::load_options(options)?) };
        let id = EMBEDDERS.add(Model::open(Path::new(path), &options)?);
        // SAFETY: C passes memory for an embedder.
        unsafe { put("embedder", embedder, Embedder { id }) }
    })
}

/// Closes an embedder. Does nothing if the id is 0 or the embedder is closed already.
#[unsafe(no_mangle)]
pub extern "C" fn drift_embedder_close(embedder: Embedder) -> Status {
    call(|| {
        EMBEDDERS.remove(embedder.id);
        Ok(())
    })
}

/// Calls `work` with an open embedder, and returns the status of the call.
fn with(embedder: Embedder, work: impl FnOnce(&mut Model) -> Result<()>) -> Status {
    call(|| EMBEDDERS.with(embedder.id, "embedder", work))
}

/// Returns the number of elements of an embedding, and the maximum number of tokens of a text. Either pointer may be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_embedder_sizes(
    embedder: Embedder,
    size: *mut usize,
    max_tokens: *mut usize,
) -> Status {
    // SAFETY: C passes memory for a number each, or null.
    with(embedder, |model| unsafe {
        put_unless_null(size, model.size())?;
        put_unless_null(max_tokens, model.max_tokens())
    })
}

/// Computes the embedding of a text, `size` bytes of UTF-8. `count` is the number of elements of `embedding`, which
/// drift_embedder_sizes returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_embedder_embed(
    embedder: Embedder,
    text: *const c_char,
    size: usize,
    embedding: *mut f32,
    count: usize,
) -> Status {
    // SAFETY: C passes `size` bytes, and memory for `count` elements.
    with(embedder, |model| unsafe {
        let text = text_of("text", text, size)?;
        if count != model.size() {
            let size = model.size();
            let message = format!("an embedding has {size} elements, but there is memory for {count}");
            return Err(Failure::new(Status::Request, message));
        }
        elements_mut("embedding", embedding, count)?.copy_from_slice(&model.embed(text)?);
        Ok(())
    })
}
