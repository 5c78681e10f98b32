//! Errors as a status and a message of the calling thread. Panics become `DRIFT_STATUS_INTERNAL` and never reach C.

use crate::types::Status;
use drift_runtime::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Failure of a call: its status and its message.
pub(crate) struct Failure {
    pub(crate) status: Status,
    pub(crate) message: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Returns the message of the last failed call on this thread. The string is valid until the next call on this thread
/// fails.
#[unsafe(no_mangle)]
pub extern "C" fn drift_last_error() -> *const c_char {
    LAST.with_borrow(|message| message.as_ptr())
}

/// Creates a failure with the status `DRIFT_STATUS_ARGUMENT`.
pub(crate) fn argument(message: impl Into<String>) -> Failure {
    Failure { status: Status::Argument, message: message.into() }
}

/// Runs the body of an interface function. Converts errors and panics to a status, and stores the message for
/// `drift_last_error`.
pub(crate) fn call(work: impl FnOnce() -> Result<()>) -> Status {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Failure { status: Status::Internal, message: format!("internal error in the runtime: {text}") }
        }
    };
    let message = CString::new(failure.message.replace('\0', " ")).unwrap_or_default();
    LAST.with_borrow_mut(|last| *last = message);
    failure.status
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match &error {
            Error::Io { .. } | Error::States { .. } => Status::Io,
            Error::NotABundle | Error::Version { .. } | Error::Corrupt { .. } | Error::Invalid { .. } => {
                Status::Bundle
            }
            Error::NoLoader { .. }
            | Error::NoDevice { .. }
            | Error::NoSuchTarget { .. }
            | Error::Unmet { .. }
            | Error::Driver { .. }
            | Error::NoTimestamps => Status::Device,
            Error::DeviceLost { .. } => Status::DeviceLost,
            Error::OutOfMemory { .. } => Status::OutOfMemory,
            _ => Status::Request,
        };
        Failure { status, message: error.to_string() }
    }
}
