//! The runtime of driftc: maps a bundle, uploads its weights, creates its pipelines, replays its dispatches.
//!
//! `bundle bytes -> codec -> Manifest -> pick a variant -> Session -> replay`
//!
//! The runtime never parses a model, never sees a graph, contains no kernel, and decides nothing but which
//! variant of a bundle fits the device. With the feature `vulkan` off, this crate is the bundle format alone:
//! the structs in [`mod@format`], and [`codec`] which reads and writes them. The compiler uses it that way.

pub mod codec;
pub mod device;
pub mod format;

#[cfg(feature = "vulkan")]
mod array;
#[cfg(feature = "vulkan")]
mod bundle;
#[cfg(feature = "vulkan")]
mod convert;
mod error;
#[cfg(feature = "vulkan")]
mod generate;
mod order;
#[cfg(feature = "vulkan")]
mod session;
mod threads;

#[cfg(feature = "vulkan")]
pub use array::{Array, ArrayRef};
#[cfg(feature = "vulkan")]
pub use bundle::Bundle;
pub use error::{Error, Unmet};
#[cfg(feature = "vulkan")]
pub use generate::{Draft, Ended, Generator, Report, Request, Sampling};
#[cfg(feature = "vulkan")]
pub use session::{DeviceArray, DispatchTime, Options, Session, Stats, Ticket, View};
