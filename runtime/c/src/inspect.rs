//! Properties of a session: functions, ports, symbols, device.

use crate::errors::{Failure, Result, argument, call};
use crate::handles::{self, FunctionNames};
use crate::pointers::{put, text};
use crate::types::{Direction, MAX_RANK, Port, Session, Stats, Status, Symbol};
use drift_runtime::format::{Function, Port as Described, Symbol as Size};
use std::ffi::c_char;
use std::ptr::null;

/// Returns the name of the device, or null if the session is closed. The string is valid until the session is closed.
#[unsafe(no_mangle)]
pub extern "C" fn drift_device_name(session: Session) -> *const c_char {
    handles::session(session.id).map_or(null(), |opened| opened.names.device.as_ptr())
}

/// Returns the target of the bundle's variant in use, or null if the session is closed. The string is valid until the
/// session is closed.
#[unsafe(no_mangle)]
pub extern "C" fn drift_target(session: Session) -> *const c_char {
    handles::session(session.id).map_or(null(), |opened| opened.names.target.as_ptr())
}

/// Returns the name of the function with this index, counted from 0, or null if there is no such function. The string
/// is valid until the session is closed.
#[unsafe(no_mangle)]
pub extern "C" fn drift_function_name(session: Session, index: usize) -> *const c_char {
    let opened = handles::session(session.id);
    let function = opened.as_ref().ok().and_then(|opened| opened.names.functions.get(index));
    function.map_or(null(), |function| function.name.as_ptr())
}

/// Returns the key of the metadata entry with this index, counted from 0, or null if there is no such entry. Metadata is
/// text from the source model, such as the labels of its classes. The string is valid until the session is closed.
#[unsafe(no_mangle)]
pub extern "C" fn drift_metadata_key(session: Session, index: usize) -> *const c_char {
    let opened = handles::session(session.id);
    let entry = opened.as_ref().ok().and_then(|opened| opened.names.metadata.get(index));
    entry.map_or(null(), |(key, _)| key.as_ptr())
}

/// Returns the metadata of the source model for this key, or null if the model has no such metadata or the session is
/// closed. The string is valid until the session is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_metadata(session: Session, key: *const c_char) -> *const c_char {
    // SAFETY: C passes a string.
    let (Ok(opened), Ok(key)) = (handles::session(session.id), unsafe { text("key", key) }) else {
        return null();
    };
    let mut entries = opened.names.metadata.iter();
    entries.find(|(known, _)| known.to_bytes() == key.as_bytes()).map_or(null(), |(_, value)| value.as_ptr())
}

/// Describes one input or output of a function. `direction` is a drift_Direction; `index` counts the inputs or the
/// outputs of the function from 0. If the index is out of range, the status is DRIFT_STATUS_REQUEST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_port(
    session: Session,
    function: *const c_char,
    direction: u32,
    index: usize,
    port: *mut Port,
) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        // SAFETY: C passes a string.
        let function = unsafe { text("function", function) }?;
        let state = opened.state()?;
        let described = state.session.function(function)?;
        let known = opened.names.functions.iter().find(|known| known.name.to_bytes() == function.as_bytes());
        let inputs = match direction {
            input if input == Direction::Input as u32 => true,
            output if output == Direction::Output as u32 => false,
            other => return Err(argument(format!("{other} is not a drift_Direction"))),
        };
        let ports = if inputs { &described.inputs } else { &described.outputs };
        let names = |known: &FunctionNames| {
            let names = if inputs { &known.inputs } else { &known.outputs };
            names.get(index).map(|name| name.as_ptr())
        };
        let found = ports.get(index).zip(known.and_then(names));
        let (found, name) = found.ok_or_else(|| {
            let kind = if inputs { "inputs" } else { "outputs" };
            let message = format!("`{function}` has {} {kind}; index {index} is out of range", ports.len());
            Failure::new(Status::Request, message)
        })?;
        // SAFETY: C passes memory for a port.
        unsafe { put("port", port, describe(described, found, name)?) }
    })
}

/// Describes one symbol of a function. `index` counts the symbols of the function from 0. If the index is out of range,
/// the status is DRIFT_STATUS_REQUEST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_symbol(
    session: Session,
    function: *const c_char,
    index: usize,
    symbol: *mut Symbol,
) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        // SAFETY: C passes a string.
        let function = unsafe { text("function", function) }?;
        let state = opened.state()?;
        let symbols = &state.session.function(function)?.symbols;
        let known = opened.names.functions.iter().find(|known| known.name.to_bytes() == function.as_bytes());
        let found = symbols.get(index).zip(known.and_then(|known| known.symbols.get(index)));
        let (found, name) = found.ok_or_else(|| {
            let message =
                format!("`{function}` has {} symbols; index {index} is out of range", symbols.len());
            Failure::new(Status::Request, message)
        })?;
        // SAFETY: C passes memory for a symbol.
        unsafe { put("symbol", symbol, Symbol { name: name.as_ptr(), min: found.min, max: found.max }) }
    })
}

fn describe(function: &Function, port: &Described, name: *const c_char) -> Result<Port> {
    let bound = |at: fn(&Size) -> i64| {
        let symbols: Vec<i64> = function.symbols.iter().map(at).collect();
        let shape =
            port.shape_at(&symbols).map_err(|source| argument(format!("`{}`: {source}", port.name)))?;
        dims(shape.iter().map(|dim| usize::try_from(*dim).unwrap_or_default()))
    };
    Ok(Port {
        name,
        dtype: port.host_type.into(),
        device_dtype: port.device_type.into(),
        rank: port.shape.len(),
        min_shape: bound(|symbol| symbol.min)?,
        max_shape: bound(|symbol| symbol.max)?,
    })
}

/// Converts a shape to a C array of fixed length. Array elements beyond the rank of the shape are 0.
pub(crate) fn dims(shape: impl Iterator<Item = usize>) -> Result<[usize; MAX_RANK]> {
    let mut dims = [0; MAX_RANK];
    let mut places = dims.iter_mut();
    for size in shape {
        let place =
            places.next().ok_or_else(|| argument(format!("an array has more than {MAX_RANK} axes")))?;
        *place = size;
    }
    Ok(dims)
}

/// Returns the numbers of pipelines, memory allocations and allocated bytes. Each number is a total over the session
/// and all sessions that were opened together with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_stats(session: Session, stats: *mut Stats) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        let now = opened.state()?.session.stats();
        let (pipelines, allocations, allocated_bytes) = (now.pipelines, now.allocations, now.allocated_bytes);
        // SAFETY: C passes memory for the numbers.
        unsafe { put("stats", stats, Stats { pipelines, allocations, allocated_bytes }) }
    })
}
