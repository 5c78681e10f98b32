//! Opening, inputs, runs, outputs.

use crate::errors::{Failure, Result, argument, call};
use crate::handles::{self, State, c_text};
use crate::inspect::dims;
use crate::pointers::{bytes, bytes_mut, check, elements, elements_mut, put, text, text_or_none};
use crate::types::{Options, Session, Status, Ticket, Time, View, host_type};
use drift_runtime::{ArrayRef, Bundle};
use std::ffi::{c_char, c_void};
use std::path::Path;

/// The most runs in flight that may be asked for.
const MAX_FRAMES: usize = 64;

/// Opens a bundle: loads it onto a device, uploads its weights, creates its pipelines. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_open(
    path: *const c_char,
    options: *const Options,
    session: *mut Session,
) -> Status {
    // SAFETY: C passes one path and memory for one session.
    unsafe { drift_open_together(&raw const path, 1, options, session) }
}

/// Opens several bundles on one device, so that outputs of one can be fed to another. `sessions` has room for as many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_open_together(
    paths: *const *const c_char,
    count: usize,
    options: *const Options,
    sessions: *mut Session,
) -> Status {
    call(|| {
        let mut bundles = Vec::new();
        // SAFETY: C passes as many strings.
        for path in unsafe { elements("paths", paths, count) }? {
            // SAFETY: each is a string.
            let path = unsafe { text("path", *path) }?;
            bundles.push(Bundle::open(Path::new(path))?);
        }
        // SAFETY: the pointers are passed on as they are.
        unsafe { open(bundles, options, sessions) }
    })
}

/// Opens a bundle that lies in memory, which is copied. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_open_bytes(
    bundle: *const c_void,
    size: usize,
    options: *const Options,
    session: *mut Session,
) -> Status {
    call(|| {
        // SAFETY: C passes as many bytes.
        let bundle = unsafe { bytes("bundle", bundle, size) }?;
        let bundles = vec![Bundle::from_vec(bundle.to_vec())?];
        // SAFETY: the pointers are passed on as they are.
        unsafe { open(bundles, options, session) }
    })
}

unsafe fn open(bundles: Vec<Bundle>, options: *const Options, sessions: *mut Session) -> Result<()> {
    check("the place for sessions", sessions, bundles.len())?;
    // SAFETY: null, or C passes one.
    let options = unsafe { wanted(options) }?;
    for (index, session) in load(bundles, &options)?.into_iter().enumerate() {
        let id = handles::add_session(session);
        // SAFETY: there is room for as many, as was checked.
        unsafe { put("session", sessions.wrapping_add(index), Session { id }) }?;
    }
    Ok(())
}

pub(crate) fn load(
    bundles: Vec<Bundle>,
    options: &drift_runtime::Options,
) -> Result<Vec<drift_runtime::Session>> {
    Ok(drift_runtime::Session::load_together(bundles, options)?)
}

pub(crate) unsafe fn wanted(options: *const Options) -> Result<drift_runtime::Options> {
    let mut wanted = drift_runtime::Options::default();
    // SAFETY: null, or C passes one.
    let options = unsafe { elements("options", options, usize::from(!options.is_null())) }?;
    if let Some(options) = options.first() {
        // SAFETY: strings or null.
        unsafe {
            wanted.device = text_or_none("device", options.device)?.map(str::to_owned);
            wanted.target = text_or_none("target", options.target)?.map(str::to_owned);
            wanted.pipeline_cache = text_or_none("pipeline_cache", options.pipeline_cache)?.map(Into::into);
        }
        if options.frames > MAX_FRAMES {
            let given = options.frames;
            return Err(argument(format!(
                "frames is {given}; at most {MAX_FRAMES} runs are in flight at once"
            )));
        }
        (wanted.frames, wanted.trust_file) = (options.frames, options.trust_file != 0);
    }
    Ok(wanted)
}

/// Closes a session. What names and views point to is freed; 0 and what is closed are left alone.
#[unsafe(no_mangle)]
pub extern "C" fn drift_close(session: Session) -> Status {
    call(|| {
        handles::close_session(session.id);
        Ok(())
    })
}

/// Does something with a session and one of its functions.
unsafe fn with(
    session: Session,
    function: *const c_char,
    work: impl FnOnce(&mut State, &str) -> Result<()>,
) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        // SAFETY: C passes a string.
        let function = unsafe { text("function", function) }?;
        work(&mut *opened.state()?, function)
    })
}

/// Sets a size that no input's shape gives, for all runs until it is set again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_set_symbol(
    session: Session,
    function: *const c_char,
    name: *const c_char,
    value: i64,
) -> Status {
    // SAFETY: C passes strings.
    unsafe {
        with(session, function, |state, function| {
            Ok(state.session.set_symbol(function, text("name", name)?, value)?)
        })
    }
}

/// Sets an input from an array of the caller's, for all runs until it is set again. `dtype` is a drift_Dtype; elements are
/// row-major, without gaps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_write(
    session: Session,
    function: *const c_char,
    input: *const c_char,
    dtype: u32,
    shape: *const usize,
    rank: usize,
    data: *const c_void,
    size: usize,
) -> Status {
    // SAFETY: C passes strings, and arrays of as many elements.
    unsafe {
        with(session, function, |state, function| {
            let dtype = host_type(dtype).ok_or_else(|| argument(format!("{dtype} is no drift_Dtype")))?;
            let (shape, bytes) = (elements("shape", shape, rank)?, bytes("data", data, size)?);
            Ok(state.session.write_input(
                function,
                text("input", input)?,
                ArrayRef { dtype, shape, bytes },
            )?)
        })
    }
}

/// Gives the memory of an input of this shape, to be filled with elements of the port's `device_dtype` and not read. It
/// counts as written for all runs. Valid until the next call for the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_input(
    session: Session,
    function: *const c_char,
    input: *const c_char,
    shape: *const usize,
    rank: usize,
    memory: *mut *mut c_void,
    size: *mut usize,
) -> Status {
    // SAFETY: C passes strings, a shape of this rank, and room for a pointer and a number.
    unsafe {
        with(session, function, |state, function| {
            check("memory", memory, 1)?;
            check("size", size, 1)?;
            let shape = elements("shape", shape, rank)?;
            let bytes = state.session.input_mut(function, text("input", input)?, shape)?;
            put("size", size, bytes.len())?;
            put("memory", memory, bytes.as_mut_ptr().cast())
        })
    }
}

/// Runs a function on the inputs that were written, and waits. All outputs can be read afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_run(session: Session, function: *const c_char) -> Status {
    // SAFETY: C passes a string.
    unsafe { with(session, function, |state, function| Ok(state.session.replay(function)?)) }
}

/// Runs a function as drift_run does and tells the time of each dispatch: as many as there is room for, in order; `count`,
/// which may be null, is how many there are. The first such call for a function prepares it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_run_timed(
    session: Session,
    function: *const c_char,
    times: *mut Time,
    room: usize,
    count: *mut usize,
) -> Status {
    // SAFETY: C passes a string, room for as many times, and memory for a number or null.
    unsafe {
        with(session, function, |state, function| {
            let places = elements_mut("times", times, room)?;
            let taken = state.session.replay_timed(function)?;
            let dispatches = &state.session.replayed(function)?.dispatches;
            state.labels = dispatches.iter().map(|dispatch| c_text(&dispatch.label)).collect();
            for ((place, time), label) in places.iter_mut().zip(&taken).zip(&state.labels) {
                *place = Time { label: label.as_ptr(), start_ns: time.start, end_ns: time.end };
            }
            match count.is_null() {
                true => Ok(()),
                false => put("count", count, taken.len()),
            }
        })
    }
}

/// Sets everything to zero that the session keeps between runs, as after opening.
#[unsafe(no_mangle)]
pub extern "C" fn drift_reset_states(session: Session) -> Status {
    call(|| Ok(handles::session(session.id)?.state()?.session.reset_states()?))
}

/// Starts a run and returns. Only the outputs named come to the host. Where as many runs are in flight as there are frames,
/// the oldest is waited for. `ticket` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_submit(
    session: Session,
    function: *const c_char,
    outputs: *const *const c_char,
    count: usize,
    ticket: *mut Ticket,
) -> Status {
    // SAFETY: C passes strings, as many as it says, and room for a ticket.
    unsafe {
        with(session, function, |state, function| {
            let names = elements("outputs", outputs, count)?.iter().map(|name| text("output", *name));
            let names = names.collect::<Result<Vec<&str>>>()?;
            let submitted = state.session.submit(function, &names)?;
            state.last_ticket += 1;
            state.tickets.push((state.last_ticket, submitted));
            // The frames of older runs are in use again.
            let old = state.tickets.len().saturating_sub(state.session.frames());
            state.tickets.drain(..old);
            match ticket.is_null() {
                true => Ok(()),
                false => put("ticket", ticket, Ticket { id: state.last_ticket }),
            }
        })
    }
}

/// Waits for a run.
#[unsafe(no_mangle)]
pub extern "C" fn drift_wait(session: Session, ticket: Ticket) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        let mut state = opened.state()?;
        let submitted = submitted(&state, ticket)?;
        Ok(state.session.wait(submitted)?)
    })
}

/// Gives an output of the function's last run, which was waited for, where it was transferred to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_output(
    session: Session,
    function: *const c_char,
    output: *const c_char,
    view: *mut View,
) -> Status {
    // SAFETY: C passes strings and room for a view.
    unsafe {
        with(session, function, |state, function| {
            let found = state.session.output(function, text("output", output)?)?;
            put("view", view, view_of(found)?)
        })
    }
}

/// Gives an output of a run, which was waited for and had been asked for it, where it was transferred to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_output_of(
    session: Session,
    ticket: Ticket,
    output: *const c_char,
    view: *mut View,
) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        // SAFETY: C passes a string.
        let output = unsafe { text("output", output) }?;
        let state = opened.state()?;
        let found = state.session.output_of(submitted(&state, ticket)?, output)?;
        // SAFETY: C passes room for a view.
        unsafe { put("view", view, view_of(found)?) }
    })
}

fn view_of(found: drift_runtime::View<'_>) -> Result<View> {
    let (bytes, size) = (found.bytes.as_ptr().cast(), found.bytes.len());
    let (rank, shape) = (found.shape.len(), dims(found.shape.into_iter())?);
    Ok(View { bytes, size, device_dtype: found.dtype.into(), rank, shape })
}

/// The run of a ticket, while it has its outputs.
fn submitted(state: &State, ticket: Ticket) -> Result<drift_runtime::Ticket> {
    let known = state.tickets.iter().find(|(id, _)| *id == ticket.id).map(|(_, ticket)| *ticket);
    known.ok_or_else(|| Failure::from(drift_runtime::Error::Overwritten))
}

/// Copies an output of the function's last run into an array of the caller's, converted to the port's `dtype`. `size` is
/// what its elements take.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_read(
    session: Session,
    function: *const c_char,
    output: *const c_char,
    data: *mut c_void,
    size: usize,
) -> Status {
    // SAFETY: C passes strings and room for as many bytes.
    unsafe {
        with(session, function, |state, function| {
            let to = bytes_mut("data", data, size)?;
            Ok(state.session.read_output_to(function, text("output", output)?, to)?)
        })
    }
}
