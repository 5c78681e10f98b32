//! Language models, token by token: what the feature `generator` adds.

use crate::errors::{Result, argument, call};
use crate::handles::{Table, lock, turn};
use crate::pointers::{check, elements, elements_mut, put, text};
use crate::runs::load;
use crate::types::{Each, Ended, Generated, Generator, Options, Request, Status};
use drift_runtime::{Bundle, Draft, Generator as Model, Sampling};
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

static GENERATORS: Mutex<Table<Arc<Mutex<Model>>>> = Mutex::new(Table::new());

/// Opens the bundle of a language model. It runs as many steps ahead as `frames` says. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_generator_open(
    path: *const c_char,
    options: *const Options,
    generator: *mut Generator,
) -> Status {
    call(|| {
        check("generator", generator, 1)?;
        // SAFETY: C passes a string, and options or null.
        let (path, options) = unsafe { (text("path", path)?, crate::runs::wanted(options)?) };
        let session = load(vec![Bundle::open(Path::new(path))?], &options)?.pop();
        let session = session.ok_or_else(|| argument("no bundle was opened"))?;
        let id = lock(&GENERATORS).add(Arc::new(Mutex::new(Model::new(session)?)));
        // SAFETY: C passes memory for one.
        unsafe { put("generator", generator, Generator { id }) }
    })
}

/// Closes a generator; 0 and what is closed are left alone.
#[unsafe(no_mangle)]
pub extern "C" fn drift_generator_close(generator: Generator) -> Status {
    call(|| {
        let closed = lock(&GENERATORS).remove(generator.id);
        // Freed without holding the table.
        drop(closed);
        Ok(())
    })
}

/// Does something with a generator.
fn with(generator: Generator, work: impl FnOnce(&mut Model) -> Result<()>) -> Status {
    call(|| {
        let opened = lock(&GENERATORS).get(generator.id).cloned();
        let opened = opened.ok_or_else(|| argument("the generator is closed, or none was opened"))?;
        work(&mut *turn(&opened)?)
    })
}

/// How many tokens the model knows, ids being below it, and how many a text may have. Either place may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_generator_sizes(
    generator: Generator,
    vocabulary: *mut usize,
    context: *mut usize,
) -> Status {
    // SAFETY: C passes memory for one each, or null.
    with(generator, |model| unsafe {
        put_where_wanted(vocabulary, model.vocabulary())?;
        put_where_wanted(context, model.context())
    })
}

/// Makes the text these ids. What it has in common with the beginning of the text before is not computed again: `kept`, which
/// may be null, is how many ids that are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_set_text(
    generator: Generator,
    ids: *const u32,
    count: usize,
    kept: *mut usize,
) -> Status {
    // SAFETY: C passes as many ids, and memory for a number or null.
    with(generator, |model| unsafe {
        let known = model.set_text(elements("ids", ids, count)?)?;
        put_where_wanted(kept, known)
    })
}

/// Copies as much of the text as there is room for; `count`, which may be null, is how many ids it has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_text(
    generator: Generator,
    ids: *mut u32,
    room: usize,
    count: *mut usize,
) -> Status {
    // SAFETY: C passes room for as many ids, and memory for a number or null.
    with(generator, |model| unsafe {
        let places = elements_mut("ids", ids, room)?;
        places.iter_mut().zip(model.text()).for_each(|(place, id)| *place = *id);
        put_where_wanted(count, model.text().len())
    })
}

/// Generates tokens behind the text, which has at least one, and makes them its end. `each` gets every token but a stop as it
/// comes, with `user`, and ends it all by returning 0; it may be null, and must not call anything for this generator.
/// `generated` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_generate(
    generator: Generator,
    request: *const Request,
    each: Each,
    user: *mut c_void,
    generated: *mut Generated,
) -> Status {
    with(generator, |model| {
        // SAFETY: C passes a request, whose stops are as many as it says.
        let (request, mut draft) = unsafe { wanted(request) }?;
        // SAFETY: C passes a function that takes what it passes as `user`.
        let mut go_on = |token: u32| each.is_none_or(|each| unsafe { each(token, user) } != 0);
        let report = model.generate(&request, &mut draft, &mut go_on)?;
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (ended, stop) = match report.ended {
            drift_runtime::Ended::Stop(id) => (Ended::Stop, id),
            drift_runtime::Ended::Length => (Ended::Length, 0),
            drift_runtime::Ended::Caller => (Ended::Caller, 0),
        };
        let made = Generated {
            tokens: report.tokens,
            ended,
            stop,
            prompt_tokens: report.prompt_tokens,
            prompt_ns: nanoseconds(report.prompt_time),
            decode_ns: nanoseconds(report.decode_time),
        };
        // SAFETY: C passes memory for one, or null.
        unsafe { put_where_wanted(generated, made) }
    })
}

unsafe fn wanted(request: *const Request) -> Result<(drift_runtime::Request, Draft)> {
    // SAFETY: C passes one.
    let request = unsafe { elements("request", request, 1) }?;
    let Some(request) = request.first() else { return Err(argument("request is null")) };
    // SAFETY: C passes as many ids.
    let stops = unsafe { elements("stops", request.stops, request.stop_count) }?.to_vec();
    let or_one = |value: f32| if value == 0.0 { 1.0 } else { value };
    let sampling = Sampling {
        temperature: request.temperature,
        top_k: request.top_k,
        top_p: or_one(request.top_p),
        repetition_penalty: or_one(request.repetition_penalty),
        seed: request.seed,
    };
    let draft = if request.guess == 0 { Draft::None } else { Draft::NGram };
    Ok((drift_runtime::Request { max_tokens: request.max_tokens, stops, sampling }, draft))
}

unsafe fn put_where_wanted<T>(to: *mut T, value: T) -> Result<()> {
    match to.is_null() {
        true => Ok(()),
        // SAFETY: C passes memory for one.
        false => unsafe { put("a place for a result", to, value) },
    }
}
