//! A folder or file that was read, before its graph is built.

use std::rc::Rc;

use serde_json::Value;

use crate::weights::Tensors;

/// Weights, configuration and attachments of a model.
pub(crate) struct OpenedModel {
    pub(crate) weights: Rc<dyn Tensors>,
    pub(crate) config: Value,
    /// Hash of the weights.
    pub(crate) hash: [u8; 32],
    /// Files that the bundle carries.
    pub(crate) attachments: Vec<(String, Vec<u8>)>,
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
}
