//! Self-test vectors of bundles that driftc writes.

use drift_runtime::format::self_test::ATTACHMENT;
use driftc::compile::{Lowered, Model, Options};
use driftc::self_test::self_test;

use crate::failure::Result;

/// Adds a self-test to the files that a model's bundle carries: `n_vectors` vectors, or one by default if it is cheap.
/// `lowered` has the functions of a target. Returns the number of vectors.
pub(crate) fn add_self_test(
    model: &mut Model,
    lowered: &[Lowered],
    options: &Options,
    n_vectors: Option<u16>,
) -> Result<usize> {
    let Some(test) = self_test(model, lowered, options, n_vectors)? else { return Ok(0) };
    model.attachments.push((ATTACHMENT.to_owned(), test.encode()?));
    Ok(test.vectors.len())
}
