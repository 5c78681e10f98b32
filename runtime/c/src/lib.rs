//! The C interface of the runtime: the functions that `include/drift.h` declares.
//!
//! `runs`, `arrays`, `generators` and `inspect` are what C calls; each of their functions is a closure that `errors::call` runs, which
//! turns errors and panics into a status and a message. Handles lead to sessions through `handles`, so that one which was
//! closed is an error and no wild pointer. `pointers` turns what C passes into references. The functions are unsafe because
//! of the pointers they take: each leads to as many elements as the count beside it says, strings end with a zero byte, and
//! null is an error unless the function says otherwise.

#![allow(unsafe_code)]
// The conditions are those above; beside each function the header would repeat them.
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
    drift_device_name, drift_function_name, drift_port, drift_stats, drift_symbol, drift_target,
};
pub use runs::{
    drift_close, drift_input, drift_open, drift_open_bytes, drift_open_together, drift_output,
    drift_output_of, drift_read, drift_reset_states, drift_run, drift_run_timed, drift_set_symbol,
    drift_submit, drift_wait, drift_write,
};
pub use types::{
    Array, Direction, Dtype, Each, Ended, Generated, Generator, MAX_RANK, Options, Port, Request, Session,
    Stats, Status, Symbol, Ticket, Time, View,
};
