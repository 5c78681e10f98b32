//! Stored ONNX models with random changes: a seed determines one model and its changes.
//!
//! The stored models are the official ONNX operator tests and folders of exported networks. Most changes leave a model
//! well-formed (another size everywhere, another element type, one more node), because a model that the importer refuses does
//! not test the compiler. [`changes`] lists the changes, [`outcome`] compiles the models.

pub mod changes;
pub mod outcome;
mod pool;

use driftc::import::onnx::schema::ModelProto;

use crate::random_graph::Rng;
use changes::CHANGES;
pub use pool::{Pool, Stored};

/// Maximum number of random changes of one model.
const MOST_CHANGES: usize = 4;

impl Pool {
    /// Returns the changed model of a seed, and a line with its origin and changes. Returns `None` if the stored file is not a
    /// model.
    pub fn model(&self, seed: u64) -> Option<(String, ModelProto)> {
        let rng = &mut Rng::new(seed);
        let (mut story, mut stored) = self.any(rng)?;
        if !rng.once_in(8) {
            changes::pin_small(&mut stored);
        }
        for _ in 0..1 + rng.below(MOST_CHANGES) {
            let (name, change) = rng.pick(CHANGES);
            if change(&mut stored, rng, self).is_some() {
                story = format!("{story} {name}");
            }
        }
        Some((story, stored.model))
    }
}
