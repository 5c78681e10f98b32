//! The C interface of the runtime: the functions that `include/drift.h` declares.
//!
//! C calls the functions of `runs`, `arrays`, `generators` and `inspect`. Each of them passes a closure to
//! `errors::call`, which converts errors and panics to a status and a message. `handles` looks up sessions by id, so a
//! call with a closed handle is an error instead of a wild pointer. `pointers` converts the arguments to references.
//! The functions are unsafe because of their pointers: each must point to the number of elements that the next argument
//! states, and strings must end with a zero byte. Null is an error unless the function says otherwise.

#![allow(unsafe_code)]
// The conditions are stated above; a section for each function would be copied to the header.
#![allow(clippy::missing_safety_doc)]

mod arrays;
mod errors;
#[cfg(feature = "generator")]
mod generators;
mod handles;
mod inspect;
mod pointers;
mod runs;
mod types;

pub use arrays::{
    drift_array_free, drift_deliver, drift_device_output, drift_feed, drift_import_fd, drift_share_fd,
};
pub use errors::drift_last_error;
#[cfg(feature = "generator")]
pub use generators::{
    drift_generate, drift_generator_close, drift_generator_open, drift_generator_sizes, drift_set_text,
    drift_text,
};
pub use inspect::{
    drift_device_name, drift_function_name, drift_metadata, drift_metadata_key, drift_port, drift_stats,
    drift_symbol, drift_target,
};
pub use runs::{
    drift_close, drift_input, drift_open, drift_open_bytes, drift_open_together, drift_output,
    drift_output_of, drift_read, drift_reset_states, drift_run, drift_run_timed, drift_set_symbol,
    drift_submit, drift_wait, drift_write,
};
pub use types::{
    Array, Direction, Dtype, Each, Ended, Generated, Generator, MAX_RANK, Options, Port, Progress, Request,
    Session, Stats, Status, Symbol, Ticket, Time, View,
};
