//! Conversations with language models. This module is part of builds with the Cargo feature `text`.

use crate::errors::{Failure, Result, argument, call};
use crate::generators::one_if_zero;
use crate::handles::Shared;
use crate::pointers::{check, elements, put, put_unless_null, text, text_of, text_of_or_none};
use crate::text_types::{Answered, Chat, EachText, Finish, Message, TextRequest};
use crate::types::{Options, Status, nanoseconds};
use drift_chat::{Chat as Conversation, Completion, Listener, TextRequest as Converted};
use drift_runtime::{Draft, Sampling};
use std::ffi::{c_char, c_void};
use std::path::Path;

static CHATS: Shared<Conversation> = Shared::new();

/// Opens the bundle of a language model with a tokenizer and a chat template, with an empty conversation.
/// `options.frames` is the maximum number of decode steps in flight. `options` may be null. If `draft` is not 0, draft
/// tokens from an n-gram search in the text are used for speculative decoding.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_chat_open(
    path: *const c_char,
    options: *const Options,
    draft: u8,
    chat: *mut Chat,
) -> Status {
    call(|| {
        check("chat", chat, 1)?;
        // SAFETY: C passes a string, and options or null.
        let (path, options) = unsafe { (text("path", path)?, crate::runs::load_options(options)?) };
        let draft = if draft == 0 { Draft::None } else { Draft::NGram };
        let id = CHATS.add(Conversation::open(Path::new(path), &options)?.with_draft(draft));
        // SAFETY: C passes memory for a chat.
        unsafe { put("chat", chat, Chat { id }) }
    })
}

/// Closes a chat. Does nothing if the id is 0 or the chat is closed already.
#[unsafe(no_mangle)]
pub extern "C" fn drift_chat_close(chat: Chat) -> Status {
    call(|| {
        CHATS.remove(chat.id);
        Ok(())
    })
}

/// Calls `work` with an open chat, and returns the status of the call.
fn with(chat: Chat, work: impl FnOnce(&mut Conversation) -> Result<()>) -> Status {
    call(|| CHATS.with(chat.id, "chat", work))
}

/// Adds a message of the user, `size` bytes of UTF-8, and generates the answer. `callback` receives `user` and the
/// answer, piece by piece; it may be null, and must not call functions for this chat. `answered` receives the result,
/// or is null. If the call fails, or `callback` ends the answer before its first text, the message is not part of the
/// conversation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_chat_say(
    chat: Chat,
    text: *const c_char,
    size: usize,
    request: *const TextRequest,
    callback: EachText,
    user: *mut c_void,
    answered: *mut Answered,
) -> Status {
    // SAFETY: C passes `size` bytes, a request, and memory for a result or null.
    with(chat, |chat| unsafe {
        let (text, request) = (text_of("text", text, size)?, text_request(request)?);
        let done = chat.say(text, &request, &mut Caller { callback, user })?;
        put_unless_null(answered, result(&done, &request))
    })
}

/// Generates the last answer again, and replaces it. drift_chat_say explains the parameters. If the call fails, or
/// `callback` ends the answer before its first text, the old answer stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_chat_regenerate(
    chat: Chat,
    request: *const TextRequest,
    callback: EachText,
    user: *mut c_void,
    answered: *mut Answered,
) -> Status {
    // SAFETY: C passes a request, and memory for a result or null.
    with(chat, |chat| unsafe {
        let request = text_request(request)?;
        let done = chat.regenerate(&request, &mut Caller { callback, user })?;
        put_unless_null(answered, result(&done, &request))
    })
}

/// Sets the system message, `size` bytes of UTF-8. If `text` is null, removes the system message. The other messages
/// stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_chat_system(chat: Chat, text: *const c_char, size: usize) -> Status {
    // SAFETY: C passes `size` bytes or null.
    with(chat, |chat| unsafe {
        chat.set_system(text_of_or_none("text", text, size)?);
        Ok(())
    })
}

/// Removes all messages except the system message.
#[unsafe(no_mangle)]
pub extern "C" fn drift_chat_reset(chat: Chat) -> Status {
    with(chat, |chat| {
        chat.reset();
        Ok(())
    })
}

/// Describes one message of the conversation. `index` counts the messages from 0; the system message is the first. If
/// the index is out of range, the status is DRIFT_STATUS_REQUEST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_chat_message(chat: Chat, index: usize, message: *mut Message) -> Status {
    with(chat, |chat| {
        let found = chat.messages().get(index).ok_or_else(|| {
            let count = chat.messages().len();
            let message = format!("the conversation has {count} messages; index {index} is out of range");
            Failure::new(Status::Request, message)
        })?;
        let described = Message {
            role: found.role.as_ptr().cast(),
            role_size: found.role.len(),
            content: found.content.as_ptr().cast(),
            content_size: found.content.len(),
        };
        // SAFETY: C passes memory for a message.
        unsafe { put("message", message, described) }
    })
}

/// Returns the number of tokens of the conversation that the KV cache holds, and the context length in tokens. Either
/// pointer may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_chat_sizes(chat: Chat, tokens: *mut usize, context: *mut usize) -> Status {
    // SAFETY: C passes memory for a number each, or null.
    with(chat, |chat| unsafe {
        put_unless_null(tokens, chat.generator().tokens().len())?;
        put_unless_null(context, chat.generator().context_length())
    })
}

/// Saves the messages to a JSON file, a list of objects with `role` and `content`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_chat_save(chat: Chat, path: *const c_char) -> Status {
    // SAFETY: C passes a string.
    with(chat, |chat| Ok(chat.save(Path::new(unsafe { text("path", path) }?))?))
}

/// Replaces the messages by the messages of a file that drift_chat_save wrote. If the call fails, the messages stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_chat_load(chat: Chat, path: *const c_char) -> Status {
    // SAFETY: C passes a string.
    with(chat, |chat| Ok(chat.load(Path::new(unsafe { text("path", path) }?))?))
}

/// Callback of C that receives an answer.
struct Caller {
    callback: EachText,
    user: *mut c_void,
}

impl Listener for Caller {
    fn prompt(&mut self, _read: usize, _total: usize) -> bool {
        self.text("")
    }

    fn text(&mut self, text: &str) -> bool {
        let (bytes, size) = (text.as_ptr().cast(), text.len());
        // SAFETY: the callback accepts the `user` that C passes with it, and reads `size` bytes.
        self.callback.is_none_or(|callback| unsafe { callback(bytes, size, self.user) } != 0)
    }
}

/// Converts a request.
unsafe fn text_request(request: *const TextRequest) -> Result<Converted> {
    // SAFETY: C passes a request.
    let request = unsafe { elements("request", request, 1) }?;
    let Some(request) = request.first() else { return Err(argument("request is null")) };
    // SAFETY: C passes `stop_count` strings.
    let stops = unsafe { elements("stops", request.stops, request.stop_count) }?;
    // SAFETY: each is a string.
    let stops = stops.iter().map(|stop| Ok(unsafe { text("a stop string", *stop) }?.to_owned()));
    Ok(Converted {
        max_tokens: request.max_tokens,
        stop: stops.collect::<Result<Vec<String>>>()?,
        sampling: Sampling {
            temperature: request.temperature,
            top_k: request.top_k,
            top_p: one_if_zero(request.top_p),
            min_p: request.min_p,
            repetition_penalty: one_if_zero(request.repetition_penalty),
            seed: request.seed,
        },
        ..Converted::default()
    })
}

/// Converts the result of an answer.
fn result(done: &Completion, request: &Converted) -> Answered {
    use drift_chat::Finish as Reason;
    let (finish, stop) = match &done.finish {
        Reason::EndToken => (Finish::EndToken, None),
        Reason::StopString(found) => (Finish::StopString, request.stop.iter().position(|stop| stop == found)),
        Reason::Length => (Finish::Length, None),
        Reason::Cancelled => (Finish::Cancelled, None),
    };
    Answered {
        finish,
        stop: stop.unwrap_or_default(),
        tokens: done.report.tokens,
        prompt_tokens: done.report.prompt_tokens,
        prompt_ns: nanoseconds(done.report.prompt_time),
        decode_ns: nanoseconds(done.report.decode_time),
    }
}
