//! The runtime of driftc. It maps a bundle, uploads its weights, creates its pipelines and replays its
//! dispatches.
//!
//! `bundle bytes -> codec -> Manifest -> select a variant -> Session -> replay`
//!
//! The runtime never parses a model, never sees a graph and contains no kernels. Its only decision is which
//! variant of a bundle fits the device. The crate `drift-format` has the bundle's structs, reader and writer;
//! the compiler uses it too. Backends are Cargo features: `vulkan`, and `wgpu` for devices without Vulkan.

#[cfg(not(any(feature = "vulkan", feature = "wgpu")))]
compile_error!(
    "drift-runtime needs a backend: enable the feature `vulkan` or `wgpu`; to use only the bundle format, depend on drift-format"
);

pub mod device;

mod array;
mod bundle;
mod convert;
mod generate;
mod progress;
mod session;
#[cfg(feature = "statistics")]
pub mod statistics;
mod threads;
#[cfg(feature = "signatures")]
mod trust;

pub use array::{Array, ArrayRef};
pub use bundle::Bundle;
pub use device::Backend;
pub use drift_format as format;
pub use drift_format::{Error, Unmet, codec};
pub use generate::{Draft, DraftFunction, Generator, Observer, Report, Request, Sampling, StopReason};
pub use progress::{LoadProgress, OnProgress};
pub use session::{DeviceArray, DispatchTime, Options, Session, Stats, Ticket, View};

use drift_format::{error, order};
