//! Strings for C.

use std::ffi::CString;

/// Converts a string to a C string. Zero bytes become spaces.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}
