//! The runtime of driftc: maps a bundle, uploads its weights, creates its pipelines, replays its dispatches.
//!
//! `bundle bytes -> codec -> Manifest -> pick a variant -> Session -> replay`
//!
//! The runtime never parses a model, never sees a graph, contains no kernel, and decides nothing but which
//! variant of a bundle fits the device. Backends are features: `vulkan`, and `wgpu` for
//! what Vulkan does not reach. With none of them this crate is the bundle format alone: the structs in [`mod@format`], and
//! [`codec`] which reads and writes them. The compiler uses it that way.

pub mod codec;
pub mod device;
pub mod format;

#[cfg(feature = "session")]
mod array;
#[cfg(feature = "session")]
mod bundle;
#[cfg(feature = "session")]
mod convert;
mod error;
#[cfg(feature = "session")]
mod generate;
mod order;
#[cfg(feature = "session")]
mod session;
mod threads;

#[cfg(feature = "session")]
pub use array::{Array, ArrayRef};
#[cfg(feature = "session")]
pub use bundle::Bundle;
#[cfg(feature = "session")]
pub use device::Backend;
pub use error::{Error, Unmet};
#[cfg(feature = "session")]
pub use generate::{Draft, Ended, Generator, Guess, Report, Request, Sampling};
#[cfg(feature = "session")]
pub use session::{DeviceArray, DispatchTime, Options, Session, Stats, Ticket, View};
