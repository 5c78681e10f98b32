//! Arrays in device memory, and memory shared with other APIs.

#[cfg(not(unix))]
use crate::errors::Failure;
use crate::errors::{Result, argument, call};
use crate::handles::{self, State};
use crate::pointers::{check, elements, put, text};
use crate::types::{Array, Session, Status, device_type};
use drift_runtime::format::DeviceType;
use drift_runtime::{DeviceArray, Session as Loaded};
use std::ffi::{c_char, c_int};

/// Calls `work` with a session, the name of a function, and the name of an input or output of this function.
unsafe fn with(
    session: Session,
    function: *const c_char,
    port: *const c_char,
    work: impl FnOnce(&mut State, &str, &str) -> Result<()>,
) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        // SAFETY: C passes strings.
        let (function, port) = unsafe { (text("function", function)?, text("port", port)?) };
        work(&mut *opened.state()?, function, port)
    })
}

/// Returns an output of the function's last run as an array in device memory. The run may be in flight. The array keeps
/// the memory allocated until drift_array_free, but not the contents: later runs overwrite them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_device_output(
    session: Session,
    function: *const c_char,
    output: *const c_char,
    array: *mut Array,
) -> Status {
    // SAFETY: C passes strings, and memory for an array.
    unsafe {
        with(session, function, output, |state, function, output| {
            check("array", array, 1)?;
            let id = handles::add_array(state.session.device_output(function, output)?);
            put("array", array, Array { id })
        })
    }
}

/// Uses a device array as an input of all runs until the input is written again. The array is copied on the device
/// when a run starts. Arrays of another session work only if the sessions were opened together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_feed(
    session: Session,
    function: *const c_char,
    input: *const c_char,
    array: Array,
) -> Status {
    // SAFETY: C passes strings.
    unsafe {
        with(session, function, input, |state, function, input| {
            Ok(state.session.feed(function, input, &handles::array(array.id)?)?)
        })
    }
}

/// Copies an output of the function's last run to a device array, and waits for the copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_deliver(
    session: Session,
    function: *const c_char,
    output: *const c_char,
    array: Array,
) -> Status {
    // SAFETY: C passes strings.
    unsafe {
        with(session, function, output, |state, function, output| {
            Ok(state.session.copy_output(function, output, &handles::array(array.id)?)?)
        })
    }
}

/// Frees a device array. Does nothing if the id is 0 or the array is freed already.
#[unsafe(no_mangle)]
pub extern "C" fn drift_array_free(array: Array) -> Status {
    call(|| {
        handles::free_array(array.id);
        Ok(())
    })
}

/// Imports device memory of another API or process as an array, by an opaque file descriptor of the same driver and
/// device. `dtype` is a drift_Dtype that devices support. `allocation` is the byte size of the exported allocation; 0
/// means the size of the array. The library takes ownership of the descriptor, whatever the status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_import_fd(
    session: Session,
    descriptor: c_int,
    allocation: u64,
    dtype: u32,
    shape: *const usize,
    rank: usize,
    array: *mut Array,
) -> Status {
    // SAFETY: C gives the descriptor away.
    let descriptor = unsafe { take_descriptor(descriptor) };
    // SAFETY: C passes a shape of this rank, and memory for an array.
    unsafe {
        with_array_type(session, dtype, shape, rank, |session, dtype, shape| {
            check("array", array, 1)?;
            let allocation = Some(allocation).filter(|size| *size > 0);
            let imported = import_memory(session, descriptor?, allocation, dtype, shape)?;
            put("array", array, Array { id: handles::add_array(imported) })
        })
    }
}

/// Allocates an array that other APIs can import, and returns its file descriptor. The caller owns the descriptor.
/// `dtype` is a drift_Dtype that devices support.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_share_fd(
    session: Session,
    dtype: u32,
    shape: *const usize,
    rank: usize,
    array: *mut Array,
    descriptor: *mut c_int,
) -> Status {
    // SAFETY: C passes a shape of this rank, and memory for an array and a descriptor.
    unsafe {
        with_array_type(session, dtype, shape, rank, |session, dtype, shape| {
            check("array", array, 1)?;
            check("descriptor", descriptor, 1)?;
            let (exported, number) = export_memory(session, dtype, shape)?;
            put("descriptor", descriptor, number)?;
            put("array", array, Array { id: handles::add_array(exported) })
        })
    }
}

/// Calls `work` with a session and the checked type and shape of an array.
unsafe fn with_array_type(
    session: Session,
    dtype: u32,
    shape: *const usize,
    rank: usize,
    work: impl FnOnce(&Loaded, DeviceType, &[usize]) -> Result<()>,
) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        let dtype = device_type(dtype).ok_or_else(|| {
            argument(format!("{dtype} is not a drift_Dtype that devices support; use F32, F16, I32 or U32"))
        })?;
        // SAFETY: C passes a shape of this rank.
        let shape = unsafe { elements("shape", shape, rank) }?;
        work(&opened.state()?.session, dtype, shape)
    })
}

#[cfg(unix)]
type Descriptor = std::os::fd::OwnedFd;

#[cfg(unix)]
unsafe fn take_descriptor(descriptor: c_int) -> Result<Descriptor> {
    use std::os::fd::FromRawFd;
    match descriptor {
        // SAFETY: the caller gives up ownership of the descriptor.
        0.. => Ok(unsafe { Descriptor::from_raw_fd(descriptor) }),
        _ => Err(argument(format!("{descriptor} is not a file descriptor"))),
    }
}

#[cfg(unix)]
fn import_memory(
    session: &Loaded,
    descriptor: Descriptor,
    allocation: Option<u64>,
    dtype: DeviceType,
    shape: &[usize],
) -> Result<DeviceArray> {
    Ok(session.import_memory(descriptor, allocation, dtype, shape)?)
}

#[cfg(unix)]
fn export_memory(session: &Loaded, dtype: DeviceType, shape: &[usize]) -> Result<(DeviceArray, c_int)> {
    use std::os::fd::IntoRawFd;
    let (array, descriptor) = session.export_memory(dtype, shape)?;
    Ok((array, descriptor.into_raw_fd()))
}

#[cfg(not(unix))]
type Descriptor = std::convert::Infallible;

#[cfg(not(unix))]
unsafe fn take_descriptor(_: c_int) -> Result<Descriptor> {
    Err(no_descriptors())
}

#[cfg(not(unix))]
fn import_memory(
    _: &Loaded,
    descriptor: Descriptor,
    _: Option<u64>,
    _: DeviceType,
    _: &[usize],
) -> Result<DeviceArray> {
    match descriptor {}
}

#[cfg(not(unix))]
fn export_memory(_: &Loaded, _: DeviceType, _: &[usize]) -> Result<(DeviceArray, c_int)> {
    Err(no_descriptors())
}

#[cfg(not(unix))]
fn no_descriptors() -> Failure {
    argument("memory cannot be shared by file descriptor on this system")
}
