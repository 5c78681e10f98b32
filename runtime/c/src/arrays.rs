//! Arrays that stay on the device, and memory that is shared with other interfaces.

#[cfg(not(unix))]
use crate::errors::Failure;
use crate::errors::{Result, argument, call};
use crate::handles::{self, State};
use crate::pointers::{check, elements, put, text};
use crate::types::{Array, Session, Status, device_type};
use drift_runtime::format::DeviceType;
use drift_runtime::{DeviceArray, Session as Loaded};
use std::ffi::{c_char, c_int};

/// Does something with a session, one of its functions, and an input or output of that.
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

/// Gives an output of the function's last run as it lies on the device; the run may be in flight. The array keeps the memory
/// until it is freed, not the contents: later runs overwrite them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_device_output(
    session: Session,
    function: *const c_char,
    output: *const c_char,
    array: *mut Array,
) -> Status {
    // SAFETY: C passes strings and room for an array.
    unsafe {
        with(session, function, output, |state, function, output| {
            check("array", array, 1)?;
            let id = handles::add_array(state.session.device_output(function, output)?);
            put("array", array, Array { id })
        })
    }
}

/// Makes an array of the device an input of all runs until it is written again: it is copied on the device when a run
/// starts. Sessions must have been opened together.
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

/// Copies an output of the function's last run into memory of the device, and waits.
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
            Ok(state.session.deliver(function, output, &handles::array(array.id)?)?)
        })
    }
}

/// Frees an array; 0 and what is freed are left alone.
#[unsafe(no_mangle)]
pub extern "C" fn drift_array_free(array: Array) -> Status {
    call(|| {
        handles::free_array(array.id);
        Ok(())
    })
}

/// An array in memory that another program or interface shares by an opaque file descriptor of the same driver and device.
/// `dtype` is a drift_Dtype that devices have; `allocation` is the size that the memory was allocated with, 0 where that is
/// the array's. The descriptor belongs to the library from then on, whatever the status.
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
    let descriptor = unsafe { owned(descriptor) };
    // SAFETY: C passes a shape of this rank and room for an array.
    unsafe {
        shared(session, dtype, shape, rank, |session, dtype, shape| {
            check("array", array, 1)?;
            let made = import(session, descriptor?, Some(allocation).filter(|size| *size > 0), dtype, shape)?;
            put("array", array, Array { id: handles::add_array(made) })
        })
    }
}

/// New memory for an array, and a file descriptor under which others import it, which belongs to the caller. `dtype` is a
/// drift_Dtype that devices have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_share_fd(
    session: Session,
    dtype: u32,
    shape: *const usize,
    rank: usize,
    array: *mut Array,
    descriptor: *mut c_int,
) -> Status {
    // SAFETY: C passes a shape of this rank, and room for an array and a descriptor.
    unsafe {
        shared(session, dtype, shape, rank, |session, dtype, shape| {
            check("array", array, 1)?;
            check("descriptor", descriptor, 1)?;
            let (made, number) = share(session, dtype, shape)?;
            put("descriptor", descriptor, number)?;
            put("array", array, Array { id: handles::add_array(made) })
        })
    }
}

unsafe fn shared(
    session: Session,
    dtype: u32,
    shape: *const usize,
    rank: usize,
    work: impl FnOnce(&Loaded, DeviceType, &[usize]) -> Result<()>,
) -> Status {
    call(|| {
        let opened = handles::session(session.id)?;
        let dtype = device_type(dtype)
            .ok_or_else(|| argument(format!("{dtype} is no drift_Dtype that devices have")))?;
        // SAFETY: C passes a shape of this rank.
        let shape = unsafe { elements("shape", shape, rank) }?;
        work(&opened.state()?.session, dtype, shape)
    })
}

#[cfg(unix)]
type Descriptor = std::os::fd::OwnedFd;

#[cfg(unix)]
unsafe fn owned(descriptor: c_int) -> Result<Descriptor> {
    use std::os::fd::FromRawFd;
    match descriptor {
        // SAFETY: the caller owns the descriptor.
        0.. => Ok(unsafe { Descriptor::from_raw_fd(descriptor) }),
        _ => Err(argument(format!("{descriptor} is no file descriptor"))),
    }
}

#[cfg(unix)]
fn import(
    session: &Loaded,
    descriptor: Descriptor,
    allocation: Option<u64>,
    dtype: DeviceType,
    shape: &[usize],
) -> Result<DeviceArray> {
    Ok(session.import(descriptor, allocation, dtype, shape)?)
}

#[cfg(unix)]
fn share(session: &Loaded, dtype: DeviceType, shape: &[usize]) -> Result<(DeviceArray, c_int)> {
    use std::os::fd::IntoRawFd;
    let (array, descriptor) = session.share(dtype, shape)?;
    Ok((array, descriptor.into_raw_fd()))
}

#[cfg(not(unix))]
type Descriptor = std::convert::Infallible;

#[cfg(not(unix))]
unsafe fn owned(_: c_int) -> Result<Descriptor> {
    Err(no_descriptors())
}

#[cfg(not(unix))]
fn import(
    _: &Loaded,
    descriptor: Descriptor,
    _: Option<u64>,
    _: DeviceType,
    _: &[usize],
) -> Result<DeviceArray> {
    match descriptor {}
}

#[cfg(not(unix))]
fn share(_: &Loaded, _: DeviceType, _: &[usize]) -> Result<(DeviceArray, c_int)> {
    Err(no_descriptors())
}

#[cfg(not(unix))]
fn no_descriptors() -> Failure {
    argument("this system shares no memory by file descriptor")
}
