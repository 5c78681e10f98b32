//! Opening bundles, writing inputs, running functions, reading outputs.

use crate::c_text::c_text;
use crate::errors::{Failure, Result, argument, call};
use crate::handles::{self, State};
use crate::inspect::dims;
use crate::pointers::{bytes, bytes_mut, check, elements, elements_mut, put, text, text_or_none};
use crate::types::{Options, Session, Status, Ticket, Time, View, host_type};
use drift_runtime::{ArrayRef, Bundle, LoadProgress, OnProgress};
use std::ffi::{c_char, c_void};
use std::path::Path;

/// Maximum number of runs in flight that `options.frames` may request.
const MAX_FRAMES: usize = 64;

/// Opens a bundle: loads it on a device, uploads its weights and creates its pipelines. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_open(
    path: *const c_char,
    options: *const Options,
    session: *mut Session,
) -> Status {
    // SAFETY: C passes one path and memory for one session.
    unsafe { drift_open_together(&raw const path, 1, options, session) }
}

/// Opens several bundles on one device, so that outputs of one session can be inputs of another. `sessions` must have
/// room for `count` sessions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_open_together(
    paths: *const *const c_char,
    count: usize,
    options: *const Options,
    sessions: *mut Session,
) -> Status {
    call(|| {
        let mut bundles = Vec::new();
        // SAFETY: C passes `count` strings.
        for path in unsafe { elements("paths", paths, count) }? {
            // SAFETY: each is a string.
            let path = unsafe { text("path", *path) }?;
            bundles.push(Bundle::open(Path::new(path))?);
        }
        // SAFETY: the pointers come from C unchanged.
        unsafe { open(bundles, options, sessions) }
    })
}

/// Opens a bundle that is in memory instead of a file. The library copies the bytes. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_open_bytes(
    bundle: *const c_void,
    size: usize,
    options: *const Options,
    session: *mut Session,
) -> Status {
    call(|| {
        // SAFETY: C passes `size` bytes.
        let bundle = unsafe { bytes("bundle", bundle, size) }?;
        let bundles = vec![Bundle::from_vec(bundle.to_vec())?];
        // SAFETY: the pointers come from C unchanged.
        unsafe { open(bundles, options, session) }
    })
}

unsafe fn open(bundles: Vec<Bundle>, options: *const Options, sessions: *mut Session) -> Result<()> {
    check("the pointer for sessions", sessions, bundles.len())?;
    // SAFETY: C passes options or null.
    let options = unsafe { load_options(options) }?;
    for (index, session) in load(bundles, &options)?.into_iter().enumerate() {
        let id = handles::add_session(session);
        // SAFETY: C passes memory for one session per bundle.
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

pub(crate) unsafe fn load_options(options: *const Options) -> Result<drift_runtime::Options> {
    let mut converted = drift_runtime::Options::default();
    // SAFETY: C passes options or null.
    let options = unsafe { elements("options", options, usize::from(!options.is_null())) }?;
    if let Some(options) = options.first() {
        // SAFETY: C passes strings or null.
        unsafe {
            converted.device = text_or_none("device", options.device)?.map(str::to_owned);
            converted.target = text_or_none("target", options.target)?.map(str::to_owned);
            converted.pipeline_cache =
                text_or_none("pipeline_cache", options.pipeline_cache)?.map(Into::into);
        }
        if options.frames > MAX_FRAMES {
            let given = options.frames;
            return Err(argument(format!("frames is {given}; the maximum is {MAX_FRAMES}")));
        }
        (converted.frames, converted.trust_file) = (options.frames, options.trust_file != 0);
        converted.on_progress = on_progress(options);
        // SAFETY: C passes keys or null.
        let keys = unsafe { trusted_keys(options) }?;
        set_trusted_keys(&mut converted, keys)?;
    }
    Ok(converted)
}

/// Returns the public keys of the options, or `None` if there are none.
unsafe fn trusted_keys(options: &Options) -> Result<Option<Vec<String>>> {
    if options.trusted_keys.is_null() && options.trusted_key_count == 0 {
        return Ok(None);
    }
    // SAFETY: C passes `trusted_key_count` strings.
    let keys = unsafe { elements("trusted_keys", options.trusted_keys, options.trusted_key_count) }?;
    // SAFETY: each is a string.
    keys.iter()
        .map(|key| unsafe { text("a trusted key", *key) }.map(str::to_owned))
        .collect::<Result<_>>()
        .map(Some)
}

#[cfg(feature = "signatures")]
fn set_trusted_keys(options: &mut drift_runtime::Options, keys: Option<Vec<String>>) -> Result<()> {
    options.trusted_keys = keys;
    Ok(())
}

/// Refuses trusted keys, which this library cannot check.
#[cfg(not(feature = "signatures"))]
fn set_trusted_keys(_: &mut drift_runtime::Options, keys: Option<Vec<String>>) -> Result<()> {
    match keys {
        None => Ok(()),
        Some(_) => Err(argument(
            "this library checks no signatures; build it with the feature `signatures`, or leave out trusted_keys",
        )),
    }
}

/// Pointer that C passes through to its callback.
struct User(*mut c_void);

// SAFETY: the library never follows the pointer. The documentation of the callback tells C that several threads call it.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

/// Wraps the callback for the progress of loading, if there is one.
fn on_progress(options: &Options) -> Option<OnProgress> {
    let callback = options.progress?;
    let user = User(options.progress_user);
    Some(OnProgress::new(move |LoadProgress { pipelines, total }| {
        // The closure takes the whole struct, which may move between threads, and not its pointer.
        let User(pointer) = &user;
        // SAFETY: the callback accepts the pointer that C passes with it.
        unsafe { callback(pipelines, total, *pointer) };
    }))
}

/// Closes a session. Strings and memory that calls for the session returned become invalid. Does nothing if the id is 0 or
/// the session is closed already.
#[unsafe(no_mangle)]
pub extern "C" fn drift_close(session: Session) -> Status {
    call(|| {
        handles::close_session(session.id);
        Ok(())
    })
}

/// Calls `work` with a session and the name of one of its functions.
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

/// Sets the value of a symbol that no input shape determines. The value applies to all runs until it is set again.
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

/// Copies an array into an input, converted to the device type. The input keeps this value for all runs until it is
/// written again. `dtype` is a drift_Dtype. `data` is row-major without gaps; `size` is the byte size of `data`.
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
    // SAFETY: C passes strings, a shape of this rank, and `size` bytes.
    unsafe {
        with(session, function, |state, function| {
            let dtype = host_type(dtype).ok_or_else(|| argument(format!("{dtype} is not a drift_Dtype")))?;
            let (shape, bytes) = (elements("shape", shape, rank)?, bytes("data", data, size)?);
            Ok(state.session.write_input(
                function,
                text("input", input)?,
                ArrayRef { dtype, shape, bytes },
            )?)
        })
    }
}

/// Returns the transfer memory of an input with this shape. The caller fills the memory with elements of the port's
/// `device_dtype` and must not read it. All runs use these elements until the input is written again. The pointer is
/// valid until the next call for the session.
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
    // SAFETY: C passes strings, a shape of this rank, and memory for a pointer and a number.
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

/// Runs a function on the written inputs and waits for the end of the run. All outputs become readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_run(session: Session, function: *const c_char) -> Status {
    // SAFETY: C passes a string.
    unsafe { with(session, function, |state, function| Ok(state.session.replay(function)?)) }
}

/// Runs a function like drift_run and measures the time of each dispatch. `times` receives up to `capacity` times, in
/// execution order. `count` receives the number of dispatches, or is null. The first call for a function takes longer,
/// because it prepares the measurement.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_run_timed(
    session: Session,
    function: *const c_char,
    times: *mut Time,
    capacity: usize,
    count: *mut usize,
) -> Status {
    // SAFETY: C passes a string, memory for `capacity` times, and memory for a number or null.
    unsafe {
        with(session, function, |state, function| {
            let destination = elements_mut("times", times, capacity)?;
            let measured = state.session.replay_timed(function)?;
            let dispatches = &state.session.last_replayed(function)?.dispatches;
            state.labels = dispatches.iter().map(|dispatch| c_text(&dispatch.label)).collect();
            for ((to, time), label) in destination.iter_mut().zip(&measured).zip(&state.labels) {
                *to = Time { label: label.as_ptr(), start_ns: time.start, end_ns: time.end };
            }
            match count.is_null() {
                true => Ok(()),
                false => put("count", count, measured.len()),
            }
        })
    }
}

/// Sets all states of the session to zero, as after opening.
#[unsafe(no_mangle)]
pub extern "C" fn drift_reset_states(session: Session) -> Status {
    call(|| Ok(handles::session(session.id)?.state()?.session.reset_states()?))
}

/// Starts a run of a function and returns without waiting for it. Only the named outputs are copied to the host. If all
/// frames are in flight, the call waits for the oldest run. `ticket` receives the handle of the run, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_submit(
    session: Session,
    function: *const c_char,
    outputs: *const *const c_char,
    count: usize,
    ticket: *mut Ticket,
) -> Status {
    // SAFETY: C passes strings, `count` names, and memory for a ticket or null.
    unsafe {
        with(session, function, |state, function| {
            let outputs = elements("outputs", outputs, count)?;
            let names = outputs.iter().map(|name| text("output", *name));
            let names = names.collect::<Result<Vec<&str>>>()?;
            let submitted = state.session.submit(function, &names)?;
            state.last_ticket += 1;
            state.tickets.push((state.last_ticket, submitted));
            // Later runs have used the frames of older runs.
            let old = state.tickets.len().saturating_sub(state.session.frames());
            state.tickets.drain(..old);
            match ticket.is_null() {
                true => Ok(()),
                false => put("ticket", ticket, Ticket { id: state.last_ticket }),
            }
        })
    }
}

/// Waits for the end of a submitted run.
#[unsafe(no_mangle)]
pub extern "C" fn drift_wait(session: Session, ticket: Ticket) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        let mut state = opened.state()?;
        let submitted = submitted(&state, ticket)?;
        Ok(state.session.wait(submitted)?)
    })
}

/// Returns an output of the function's last run, in transfer memory, which host and device both access. The run must
/// have been waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_output(
    session: Session,
    function: *const c_char,
    output: *const c_char,
    view: *mut View,
) -> Status {
    // SAFETY: C passes strings, and memory for a view.
    unsafe {
        with(session, function, |state, function| {
            let found = state.session.output(function, text("output", output)?)?;
            put("view", view, view_of(found)?)
        })
    }
}

/// Returns an output of the run of a ticket, in transfer memory, which host and device both access. The run must have
/// been waited for and must have named the output.
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
        // SAFETY: C passes memory for a view.
        unsafe { put("view", view, view_of(found)?) }
    })
}

fn view_of(found: drift_runtime::View<'_>) -> Result<View> {
    let (bytes, size) = (found.bytes.as_ptr().cast(), found.bytes.len());
    let (rank, shape) = (found.shape.len(), dims(found.shape.into_iter())?);
    Ok(View { bytes, size, device_dtype: found.dtype.into(), rank, shape })
}

/// Returns the runtime's ticket for a ticket of the C interface.
///
/// # Errors
/// If a later run has used the frame of the run.
fn submitted(state: &State, ticket: Ticket) -> Result<drift_runtime::Ticket> {
    let known = state.tickets.iter().find(|(id, _)| *id == ticket.id).map(|(_, ticket)| *ticket);
    known.ok_or_else(|| Failure::from(drift_runtime::Error::Overwritten))
}

/// Copies an output of the function's last run into the caller's array, converted to the element type that the output
/// declares (`dtype` of its `drift_port`). `size` is the byte size of the array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_read(
    session: Session,
    function: *const c_char,
    output: *const c_char,
    data: *mut c_void,
    size: usize,
) -> Status {
    // SAFETY: C passes strings, and memory for `size` bytes.
    unsafe {
        with(session, function, |state, function| {
            let to = bytes_mut("data", data, size)?;
            Ok(state.session.read_output_to(function, text("output", output)?, to)?)
        })
    }
}
