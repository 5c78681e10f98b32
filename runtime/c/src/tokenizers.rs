//! Tokenizers and other files that a bundle carries. This module is part of builds with the Cargo feature `text`.

use crate::errors::{Failure, Result, call};
use crate::handles::Shared;
use crate::pointers::{bytes_mut, check, copy, elements, elements_mut, put, put_unless_null, text, text_of};
use crate::text_types::Tokenizer;
use crate::types::Status;
use drift_chat::PromptEncoder;
use drift_runtime::Bundle;
use std::ffi::{c_char, c_void};
use std::path::Path;

static TOKENIZERS: Shared<PromptEncoder> = Shared::new();

/// Copies up to `capacity` bytes of a file that a bundle carries, such as `tokenizer.json` or `chat_template.jinja`.
/// `size` receives the byte size of the whole file, or is null. If the bundle does not carry the file, the status is
/// DRIFT_STATUS_REQUEST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_attachment(
    path: *const c_char,
    name: *const c_char,
    bytes: *mut c_void,
    capacity: usize,
    size: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: C passes strings.
        let (path, name) = unsafe { (text("path", path)?, text("name", name)?) };
        let bundle = Bundle::open(Path::new(path))?;
        let found = bundle.attachment(name)?.ok_or_else(|| {
            Failure::new(Status::Request, format!("the bundle {path} carries no file `{name}`"))
        })?;
        // SAFETY: C passes memory for `capacity` bytes, and memory for a number or null.
        unsafe {
            copy(found, bytes_mut("bytes", bytes, capacity)?);
            put_unless_null(size, found.len())
        }
    })
}

/// Opens the tokenizer that a bundle carries. Needs no device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_tokenizer_open(path: *const c_char, tokenizer: *mut Tokenizer) -> Status {
    call(|| {
        check("tokenizer", tokenizer, 1)?;
        // SAFETY: C passes a string.
        let bundle = Bundle::open(Path::new(unsafe { text("path", path) }?))?;
        let encoder = PromptEncoder::from_bundle(&bundle)?.ok_or(drift_chat::Error::NoTokenizer)?;
        let id = TOKENIZERS.add(encoder);
        // SAFETY: C passes memory for a tokenizer.
        unsafe { put("tokenizer", tokenizer, Tokenizer { id }) }
    })
}

/// Closes a tokenizer. Does nothing if the id is 0 or the tokenizer is closed already.
#[unsafe(no_mangle)]
pub extern "C" fn drift_tokenizer_close(tokenizer: Tokenizer) -> Status {
    call(|| {
        TOKENIZERS.remove(tokenizer.id);
        Ok(())
    })
}

/// Calls `work` with an open tokenizer, and returns the status of the call.
fn with(tokenizer: Tokenizer, work: impl FnOnce(&drift_text::Tokenizer) -> Result<()>) -> Status {
    call(|| TOKENIZERS.with(tokenizer.id, "tokenizer", |encoder| work(encoder.tokenizer())))
}

/// Returns the number of tokens in the vocabulary of a tokenizer, including special tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_tokenizer_size(tokenizer: Tokenizer, vocabulary: *mut usize) -> Status {
    // SAFETY: C passes memory for a number.
    with(tokenizer, |tokenizer| unsafe { put("vocabulary", vocabulary, tokenizer.size()) })
}

/// Encodes a text, `size` bytes of UTF-8, and copies up to `capacity` token ids. `count` receives the number of all
/// token ids, or is null. If `special` is not 0, the tokenizer adds its start and end tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_tokenizer_encode(
    tokenizer: Tokenizer,
    text: *const c_char,
    size: usize,
    special: u8,
    ids: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> Status {
    // SAFETY: C passes `size` bytes, memory for `capacity` ids, and memory for a number or null.
    with(tokenizer, |tokenizer| unsafe {
        let encoded = tokenizer.encode(text_of("text", text, size)?, special != 0)?;
        copy(&encoded, elements_mut("ids", ids, capacity)?);
        put_unless_null(count, encoded.len())
    })
}

/// Decodes `count` token ids, and copies up to `capacity` bytes of the text, which is UTF-8 without a zero byte at the
/// end. `size` receives the byte size of the whole text, or is null. Special tokens give no text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_tokenizer_decode(
    tokenizer: Tokenizer,
    ids: *const u32,
    count: usize,
    text: *mut c_char,
    capacity: usize,
    size: *mut usize,
) -> Status {
    // SAFETY: C passes `count` ids, memory for `capacity` bytes, and memory for a number or null.
    with(tokenizer, |tokenizer| unsafe {
        let decoded = tokenizer.decode(elements("ids", ids, count)?)?;
        copy(decoded.as_bytes(), bytes_mut("text", text.cast(), capacity)?);
        put_unless_null(size, decoded.len())
    })
}
