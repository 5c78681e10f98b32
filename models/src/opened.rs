//! A model folder or GGUF file that was opened, before its graph is built.

use std::rc::Rc;

use driftc::metadata::Metadata;
use serde_json::Value;

use crate::weights::Tensors;

/// Weights, configuration and attached files of an opened model.
pub(crate) struct OpenedModel {
    pub(crate) weights: Rc<dyn Tensors>,
    pub(crate) config: Value,
    /// Hash of the weight files.
    pub(crate) hash: [u8; 32],
    /// Names and contents of files that the compiler attaches to the bundle.
    pub(crate) attachments: Vec<(String, Vec<u8>)>,
    pub(crate) metadata: Metadata,
    /// Notes for the user, for example about a tokenizer that is not supported.
    pub(crate) notes: Vec<String>,
}
