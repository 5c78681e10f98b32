//! From what C passes to references. Null is an error; what else is wrong with a pointer cannot be seen.
//!
//! Every function is unsafe for one reason: C promises that a pointer leads to as many elements as it says, and that nobody
//! writes there until the call returns.

use crate::errors::{Result, argument};
use std::ffi::{CStr, c_char, c_void};

/// A string; it ends with a zero byte.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(argument(format!("{what} is null")));
    }
    // SAFETY: C promises a string that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| argument(format!("{what} is not UTF-8")))
}

/// A string, or none where it is null.
pub(crate) unsafe fn text_or_none<'a>(what: &str, pointer: *const c_char) -> Result<Option<&'a str>> {
    match pointer.is_null() {
        true => Ok(None),
        // SAFETY: as above.
        false => unsafe { text(what, pointer) }.map(Some),
    }
}

/// As many elements; null is well where there are none.
pub(crate) unsafe fn elements<'a, T>(what: &str, first: *const T, count: usize) -> Result<&'a [T]> {
    check(what, first, count)?;
    match count {
        0 => Ok(&[]),
        // SAFETY: C promises this many elements; their size was checked to be one that memory has.
        _ => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// As many bytes.
pub(crate) unsafe fn bytes<'a>(what: &str, first: *const c_void, count: usize) -> Result<&'a [u8]> {
    // SAFETY: as above.
    unsafe { elements(what, first.cast::<u8>(), count) }
}

/// As many bytes, to be written.
pub(crate) unsafe fn bytes_mut<'a>(what: &str, first: *mut c_void, count: usize) -> Result<&'a mut [u8]> {
    // SAFETY: as above.
    unsafe { elements_mut(what, first.cast::<u8>(), count) }
}

/// As many elements, to be written. They are plain data that was written before, or is not read.
pub(crate) unsafe fn elements_mut<'a, T>(what: &str, first: *mut T, count: usize) -> Result<&'a mut [T]> {
    check(what, first, count)?;
    match count {
        0 => Ok(&mut []),
        // SAFETY: as above, and nobody else reads or writes there until the call returns.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(first, count) }),
    }
}

/// Writes a result. What was there is not looked at.
pub(crate) unsafe fn put<T>(what: &str, to: *mut T, value: T) -> Result<()> {
    check(what, to, 1)?;
    // SAFETY: C promises memory for one; it is aligned.
    unsafe { to.write(value) };
    Ok(())
}

/// Whether a pointer can lead to as many elements.
pub(crate) fn check<T>(what: &str, first: *const T, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    if first.is_null() {
        return Err(argument(format!("{what} is null")));
    }
    if !first.is_aligned() {
        return Err(argument(format!("{what} is not aligned")));
    }
    let size = count.checked_mul(size_of::<T>()).filter(|size| isize::try_from(*size).is_ok());
    size.map(|_| ()).ok_or_else(|| argument(format!("{what}: {count} elements are more than memory has")))
}
