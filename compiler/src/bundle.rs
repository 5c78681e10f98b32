//! Assembly of a bundle: emits shaders, packs constants and streams them out, and converts plans to the format's
//! records.

mod constants;
mod convert;
mod function;
mod images;
mod pipelines;
mod planned;
mod requirements;
mod store;
mod stream;
mod types;
mod weights;
mod write;

pub use function::check_limits;
pub use planned::Planned;
pub(crate) use types::host_type;
pub use write::{outline, write, write_pipelines};
