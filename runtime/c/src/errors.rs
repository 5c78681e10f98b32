//! Errors as a status and a message of the calling thread. Panics become `DRIFT_STATUS_INTERNAL` and never reach C.

use crate::c_text::c_text;
use crate::types::Status;
use drift_runtime::Error;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;

/// Failure of a call: its status and its message.
pub(crate) struct Failure {
    pub(crate) status: Status,
    message: String,
    /// Advice for the user, if there is any that the message does not give.
    help: Option<String>,
}

impl Failure {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into(), help: None }
    }
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

thread_local! {
    /// Message and advice of the last failure.
    static LAST: RefCell<(CString, Option<CString>)> = RefCell::new((CString::default(), None));
}

/// Returns the message of the last failed call on this thread. The string is valid until the next call on this thread
/// fails.
#[unsafe(no_mangle)]
pub extern "C" fn drift_last_error() -> *const c_char {
    LAST.with_borrow(|(message, _)| message.as_ptr())
}

/// Returns advice on the last failed call on this thread, in terms of the program `driftc`, or null if there is none.
/// The string is valid until the next call on this thread fails.
#[unsafe(no_mangle)]
pub extern "C" fn drift_last_help() -> *const c_char {
    LAST.with_borrow(|(_, help)| help.as_ref().map_or(null(), |help| help.as_ptr()))
}

/// Creates a failure with the status `DRIFT_STATUS_ARGUMENT`.
pub(crate) fn argument(message: impl Into<String>) -> Failure {
    Failure::new(Status::Argument, message)
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
            Failure::new(Status::Internal, format!("internal error in the runtime: {text}"))
        }
    };
    let strings = (c_text(&failure.message), failure.help.as_deref().map(c_text));
    LAST.with_borrow_mut(|last| *last = strings);
    failure.status
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let status = match &error {
            Error::Io { .. } | Error::States { .. } => Status::Io,
            Error::NotABundle | Error::Version { .. } | Error::Corrupt { .. } | Error::Invalid { .. } => {
                Status::Bundle
            }
            Error::Untrusted { .. } => Status::Untrusted,
            Error::InvalidKey { .. } => Status::Argument,
            Error::NoLoader { .. }
            | Error::NoDevice { .. }
            | Error::NoSuchTarget { .. }
            | Error::Unmet { .. }
            | Error::Driver { .. }
            | Error::SelfTest { .. }
            | Error::NoTimestamps => Status::Device,
            Error::DeviceLost { .. } => Status::DeviceLost,
            Error::OutOfMemory { .. } => Status::OutOfMemory,
            _ => Status::Request,
        };
        Failure { status, message: error.to_string(), help: error.help() }
    }
}

#[cfg(feature = "drift-text")]
impl From<drift_text::Error> for Failure {
    fn from(error: drift_text::Error) -> Failure {
        let status = match &error {
            drift_text::Error::File { .. } => Status::Bundle,
            drift_text::Error::Text(_) | drift_text::Error::Template(_) => Status::Request,
        };
        Failure { status, message: error.to_string(), help: error.help().map(str::to_owned) }
    }
}

#[cfg(feature = "text")]
impl From<drift_chat::Error> for Failure {
    fn from(error: drift_chat::Error) -> Failure {
        use drift_chat::Error as E;
        let status = match error {
            E::Runtime(error) => return error.into(),
            E::Text(error) => return error.into(),
            E::Transcript { .. } => Status::Io,
            E::NoTokenizer
            | E::NoChatTemplate
            | E::EmptyConversation
            | E::NoAnswer
            | E::OutsideVocabulary { .. }
            | E::NotAnEmbedder { .. }
            | E::TooLong { .. } => Status::Request,
        };
        Failure { status, message: error.to_string(), help: error.help().map(str::to_owned) }
    }
}

#[cfg(feature = "image")]
impl From<drift_image::Error> for Failure {
    fn from(error: drift_image::Error) -> Failure {
        use drift_image::Error as E;
        let status = match error {
            E::Runtime(error) => return error.into(),
            E::Text(error) => return error.into(),
            E::File { .. } | E::Setting { .. } => Status::Bundle,
            E::Request(_)
            | E::Picture { .. }
            | E::NotAnImageModel { .. }
            | E::NotFinite { .. }
            | E::Cancelled => Status::Request,
        };
        Failure { status, message: error.to_string(), help: error.help().map(str::to_owned) }
    }
}

#[cfg(feature = "speech")]
impl From<drift_audio::Error> for Failure {
    fn from(error: drift_audio::Error) -> Failure {
        use drift_audio::{Error as E, RecordingFault};
        let status = match error {
            E::Runtime(error) => return error.into(),
            E::Text(error) => return error.into(),
            E::File { .. } | E::Setting { .. } => Status::Bundle,
            E::Recording { fault: RecordingFault::Io(_), .. } => Status::Io,
            E::Recording { .. } | E::Request(_) | E::NotASpeechModel { .. } | E::NotFinite { .. } => {
                Status::Request
            }
        };
        Failure { status, message: error.to_string(), help: error.help().map(str::to_owned) }
    }
}
