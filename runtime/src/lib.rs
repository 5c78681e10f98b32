//! The runtime of driftc: maps a bundle, uploads its weights, creates its pipelines, replays its dispatches.
//!
//! `bundle bytes -> codec -> Manifest -> pick a variant -> Session -> replay`
//!
//! The runtime never parses a model, never sees a graph, contains no kernel, and decides nothing but which
//! variant of a bundle fits the device. The structs of a bundle and what reads and writes them are a crate of their own,
//! `drift-format`, which the compiler uses too. Backends are features: `vulkan`, and `wgpu` for what Vulkan does not reach.

#[cfg(not(any(feature = "vulkan", feature = "wgpu")))]
compile_error!(
    "drift-runtime needs a backend: the feature `vulkan` or `wgpu`; drift-format is the bundle format alone"
);

pub mod device;

mod array;
mod bundle;
mod convert;
mod generate;
mod session;
mod threads;

pub use array::{Array, ArrayRef};
pub use bundle::Bundle;
pub use device::Backend;
pub use drift_format as format;
pub use drift_format::{Error, Unmet, codec};
pub use generate::{Draft, Ended, Generator, Guess, Report, Request, Sampling};
pub use session::{DeviceArray, DispatchTime, Options, Session, Stats, Ticket, View};

use drift_format::{error, order};
