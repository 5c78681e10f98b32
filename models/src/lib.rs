//! Model architectures, one file each: they turn a configuration and a checkpoint into a graph.
//!
//! `config.json + *.safetensors -> load -> driftc::compile::Model`; architectures of [`builtin`] need no files.

mod bert;
pub mod blocks;
pub mod builtin;
pub mod folder;
pub mod mobilenet;
pub mod random;
pub mod resnet50;
pub mod stable_diffusion;
pub mod weights;

pub use folder::{Dims, load};

use driftc::error::Result;
use folder::Folder;

/// An architecture.
#[derive(Debug)]
pub struct Architecture {
    /// Name in `config.json`'s `architectures`.
    pub name: &'static str,
    /// Builds the graph of a folder.
    pub build: fn(&mut Folder) -> Result<()>,
}

/// Every architecture.
pub const ARCHITECTURES: &[Architecture] = &[Architecture { name: "BertModel", build: bert::build }];
