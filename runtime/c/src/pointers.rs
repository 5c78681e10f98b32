//! Converts pointers from C to references. Null and misaligned pointers are errors; other invalid pointers cannot be
//! detected.
//!
//! Every function is unsafe for one reason: C guarantees that a pointer leads to the stated number of elements, and that
//! no other thread writes to them until the call returns.

use crate::errors::{Result, argument};
use std::ffi::{CStr, c_char, c_void};

/// Converts a pointer to a string that ends with a zero byte. `what` names the argument in errors.
pub(crate) unsafe fn text<'a>(what: &str, text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(argument(format!("{what} is null")));
    }
    // SAFETY: C guarantees a string that ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| argument(format!("{what} is not UTF-8")))
}

/// Converts a pointer to a string that ends with a zero byte; null becomes `None`.
pub(crate) unsafe fn text_or_none<'a>(what: &str, pointer: *const c_char) -> Result<Option<&'a str>> {
    match pointer.is_null() {
        true => Ok(None),
        // SAFETY: as above.
        false => unsafe { text(what, pointer) }.map(Some),
    }
}

/// Converts `size` bytes of UTF-8 to a string.
#[cfg(feature = "drift-text")]
pub(crate) unsafe fn text_of<'a>(what: &str, first: *const c_char, size: usize) -> Result<&'a str> {
    // SAFETY: C guarantees this number of bytes.
    let bytes = unsafe { bytes(what, first.cast(), size) }?;
    std::str::from_utf8(bytes).map_err(|_| argument(format!("{what} is not UTF-8")))
}

/// Converts `size` bytes of UTF-8 to a string; null becomes `None`.
#[cfg(feature = "drift-text")]
pub(crate) unsafe fn text_of_or_none<'a>(
    what: &str,
    first: *const c_char,
    size: usize,
) -> Result<Option<&'a str>> {
    match first.is_null() {
        true => Ok(None),
        // SAFETY: as above.
        false => unsafe { text_of(what, first, size) }.map(Some),
    }
}

/// Converts a pointer to `count` elements to a slice. The pointer may be null if `count` is 0.
pub(crate) unsafe fn elements<'a, T>(what: &str, first: *const T, count: usize) -> Result<&'a [T]> {
    check(what, first, count)?;
    match count {
        0 => Ok(&[]),
        // SAFETY: C guarantees this number of elements, and `check` has checked their byte size.
        _ => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// Converts `count` bytes.
pub(crate) unsafe fn bytes<'a>(what: &str, first: *const c_void, count: usize) -> Result<&'a [u8]> {
    // SAFETY: as above.
    unsafe { elements(what, first.cast::<u8>(), count) }
}

/// Converts a pointer to `count` writable bytes to a slice.
pub(crate) unsafe fn bytes_mut<'a>(what: &str, first: *mut c_void, count: usize) -> Result<&'a mut [u8]> {
    // SAFETY: as above.
    unsafe { elements_mut(what, first.cast::<u8>(), count) }
}

/// Converts a pointer to `count` writable elements to a slice. The elements are plain data that is initialized, or that
/// is written before it is read.
pub(crate) unsafe fn elements_mut<'a, T>(what: &str, first: *mut T, count: usize) -> Result<&'a mut [T]> {
    check(what, first, count)?;
    match count {
        0 => Ok(&mut []),
        // SAFETY: as above, and no other thread reads or writes them until the call returns.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(first, count) }),
    }
}

/// Writes a result to memory of the caller, without reading the previous contents.
pub(crate) unsafe fn put<T>(what: &str, to: *mut T, value: T) -> Result<()> {
    check(what, to, 1)?;
    // SAFETY: C guarantees memory for a value, and `check` has checked the alignment.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes a result to memory of the caller, unless the pointer `to` is null.
#[cfg(feature = "helpers")]
pub(crate) unsafe fn put_unless_null<T>(to: *mut T, value: T) -> Result<()> {
    match to.is_null() {
        true => Ok(()),
        // SAFETY: C passes memory for a value.
        false => unsafe { put("a pointer for a result", to, value) },
    }
}

/// Copies elements from the start of `from` until `to` is full.
#[cfg(feature = "helpers")]
pub(crate) fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

/// Checks that a pointer can lead to `count` elements: not null, aligned, and within the address space.
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
    size.map(|_| ()).ok_or_else(|| argument(format!("{what}: {count} elements exceed the address space")))
}
