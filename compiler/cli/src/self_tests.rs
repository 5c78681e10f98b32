//! Self-test vectors of bundles that driftc writes.

use drift_runtime::format::self_test::ATTACHMENT;
use driftc::compile::{Lowered, Model, Options};
use driftc::self_test::{References, self_test};

use crate::failure::Result;

/// Returns what a bundle says about a model (name, hash, metadata, files that it carries), with a self-test of `n_vectors`
/// vectors, or of one by default if it is cheap. `lowered` has the functions of each target. `references` has the
/// results of earlier calls for the model. Also returns the number of vectors.
pub(crate) fn with_self_test(
    model: &Model,
    lowered: &[&[Lowered]],
    options: &Options,
    n_vectors: Option<u16>,
    references: &References,
) -> Result<(Model, usize)> {
    let mut described = Model {
        name: model.name.clone(),
        hash: model.hash,
        attachments: model.attachments.clone(),
        metadata: model.metadata.clone(),
        ..Model::default()
    };
    let Some(functions) = lowered.first() else { return Ok((described, 0)) };
    let Some(test) = self_test(model, functions, options, n_vectors, references)? else {
        return Ok((described, 0));
    };
    described.attachments.push((ATTACHMENT.to_owned(), test.encode()?));
    Ok((described, test.vectors.len()))
}
