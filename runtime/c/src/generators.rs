//! Text generation with language models. This module is part of builds with the Cargo feature `generator`.

use crate::errors::{Result, argument, call};
use crate::handles::Shared;
use crate::pointers::{check, copy, elements, elements_mut, put, put_unless_null, text};
use crate::runs::load;
use crate::types::{Each, Ended, Generated, Generator, Options, Request, Status, nanoseconds};
use drift_runtime::{Bundle, Draft, Generator as Model, Sampling};
use std::ffi::{c_char, c_void};
use std::path::Path;

static GENERATORS: Shared<Model> = Shared::new();

/// Opens the bundle of a language model as a generator. `options.frames` is the maximum number of decode steps in
/// flight. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_generator_open(
    path: *const c_char,
    options: *const Options,
    generator: *mut Generator,
) -> Status {
    call(|| {
        check("generator", generator, 1)?;
        // SAFETY: C passes a string, and options or null.
        let (path, options) = unsafe { (text("path", path)?, crate::runs::load_options(options)?) };
        let session = load(vec![Bundle::open(Path::new(path))?], &options)?.pop();
        let session = session.ok_or_else(|| argument("no bundle was opened"))?;
        let id = GENERATORS.add(Model::new(session)?);
        // SAFETY: C passes memory for a generator.
        unsafe { put("generator", generator, Generator { id }) }
    })
}

/// Closes a generator. Does nothing if the id is 0 or the generator is closed already.
#[unsafe(no_mangle)]
pub extern "C" fn drift_generator_close(generator: Generator) -> Status {
    call(|| {
        GENERATORS.remove(generator.id);
        Ok(())
    })
}

/// Calls `work` with an open generator, and returns the status of the call.
fn with(generator: Generator, work: impl FnOnce(&mut Model) -> Result<()>) -> Status {
    call(|| GENERATORS.with(generator.id, "generator", work))
}

/// Returns the vocabulary size (token ids are below it) and the context length in tokens. Either pointer may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_generator_sizes(
    generator: Generator,
    vocabulary: *mut usize,
    context: *mut usize,
) -> Status {
    // SAFETY: C passes memory for a number each, or null.
    with(generator, |model| unsafe {
        put_unless_null(vocabulary, model.vocabulary_size())?;
        put_unless_null(context, model.context_length())
    })
}

/// Replaces the tokens of the generator's text. The KV cache of the common prefix with the old text is kept. `kept`
/// receives the number of tokens that the KV cache still holds, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_set_text(
    generator: Generator,
    ids: *const u32,
    count: usize,
    kept: *mut usize,
) -> Status {
    // SAFETY: C passes `count` ids, and memory for a number or null.
    with(generator, |model| unsafe {
        let prefix = model.set_tokens(elements("ids", ids, count)?)?;
        put_unless_null(kept, prefix)
    })
}

/// Copies up to `capacity` tokens from the start of the generator's text. `count` receives the number of tokens of the
/// whole text, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_text(
    generator: Generator,
    ids: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> Status {
    // SAFETY: C passes memory for `capacity` ids, and memory for a number or null.
    with(generator, |model| unsafe {
        copy(model.tokens(), elements_mut("ids", ids, capacity)?);
        put_unless_null(count, model.tokens().len())
    })
}

/// Generates tokens and appends them to the generator's text, which must have at least one token. `callback` receives
/// `user` and every token except a stop token, as soon as the token is known. If `callback` returns 0, the generation
/// ends. `callback` may be null, and must not call functions for this generator. `generated` receives statistics, or is
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_generate(
    generator: Generator,
    request: *const Request,
    callback: Each,
    user: *mut c_void,
    generated: *mut Generated,
) -> Status {
    with(generator, |model| {
        // SAFETY: C passes a request with `stop_count` stop tokens.
        let (request, mut draft) = unsafe { generation_request(request) }?;
        // SAFETY: the callback accepts the `user` that C passes with it.
        let mut proceed = |token: u32| callback.is_none_or(|callback| unsafe { callback(token, user) } != 0);
        let report = model.generate(&request, &mut draft, &mut proceed)?;
        let (ended, stop) = match report.stop_reason {
            drift_runtime::StopReason::StopToken(id) => (Ended::Stop, id),
            drift_runtime::StopReason::MaxTokens => (Ended::Length, 0),
            drift_runtime::StopReason::Callback => (Ended::Caller, 0),
        };
        let statistics = Generated {
            tokens: report.tokens,
            ended,
            stop,
            prompt_tokens: report.prompt_tokens,
            prompt_ns: nanoseconds(report.prompt_time),
            decode_ns: nanoseconds(report.decode_time),
        };
        // SAFETY: C passes memory for the statistics, or null.
        unsafe { put_unless_null(generated, statistics) }
    })
}

/// Converts a request.
unsafe fn generation_request(request: *const Request) -> Result<(drift_runtime::Request, Draft)> {
    // SAFETY: C passes a request.
    let request = unsafe { elements("request", request, 1) }?;
    let Some(request) = request.first() else { return Err(argument("request is null")) };
    // SAFETY: C passes `stop_count` ids.
    let stop_tokens = unsafe { elements("stops", request.stops, request.stop_count) }?.to_vec();
    let sampling = Sampling {
        temperature: request.temperature,
        top_k: request.top_k,
        top_p: one_if_zero(request.top_p),
        min_p: request.min_p,
        repetition_penalty: one_if_zero(request.repetition_penalty),
        seed: request.seed,
    };
    let draft = if request.draft == 0 { Draft::None } else { Draft::NGram };
    Ok((
        drift_runtime::Request {
            max_tokens: request.max_tokens,
            stop_tokens,
            sampling,
            ..drift_runtime::Request::default()
        },
        draft,
    ))
}

/// Returns 1 instead of 0, which stands for the default of a parameter.
pub(crate) fn one_if_zero(value: f32) -> f32 {
    if value == 0.0 { 1.0 } else { value }
}
