//! Bundles with self-test vectors, and damaged copies of them whose hashes are valid.

use std::path::Path;

use drift_runtime::Bundle;
use drift_runtime::codec::{BundleWriter, section};
use drift_runtime::format::self_test::{ATTACHMENT, SelfTest};
use driftc::compile::{Model, Options, write};
use driftc::ir::graph_text;
use driftc::lowering::lower_model;
use driftc::self_test::{References, self_test};
use driftc::target::TargetProfile;

/// Writes the bundle of a graph, given as text, with a self-test of `n_vectors` vectors, or of the default number.
///
/// # Panics
/// If the graph does not compile.
pub fn write_tested(
    path: &Path,
    graph: &str,
    target: &TargetProfile,
    options: &Options,
    n_vectors: Option<u16>,
) {
    let mut model = Model { graph: graph_text::parse(graph).unwrap(), ..Model::default() };
    let functions = lower_model(&model, target, options).unwrap_or_else(|e| panic!("{e}"));
    let test = self_test(&model, &functions, options, n_vectors, &References::default())
        .unwrap_or_else(|e| panic!("{e}"));
    model.attachments.extend(test.map(|test| (ATTACHMENT.to_owned(), test.encode().unwrap())));
    let targets = std::slice::from_ref(target);
    write(&model, targets, &[&functions], options, path).unwrap_or_else(|e| panic!("{e}"));
}

/// Writes a copy of a bundle with valid hashes, after `edit` changed each of its chunks and the self-test.
///
/// # Panics
/// If the bundle has no self-test, or the copy cannot be written.
pub fn write_edited(bundle: &Bundle, path: &Path, edit: &dyn Fn(&mut Vec<u8>, &mut SelfTest)) {
    let manifest = bundle.manifest();
    let mut test = SelfTest::decode(bundle.attachment(ATTACHMENT).unwrap().unwrap()).unwrap();
    let mut writer = BundleWriter::create(path).unwrap();
    for chunk in &manifest.chunks {
        let mut bytes = section(bundle.bytes(), chunk.offset, chunk.size).unwrap().to_vec();
        edit(&mut bytes, &mut test);
        writer.chunk(|out| out.write_all(&bytes)).unwrap();
    }
    for artifact in &manifest.artifacts {
        let bytes = section(bundle.bytes(), artifact.offset, artifact.size).unwrap();
        writer.artifact(artifact.kind, bytes).unwrap();
    }
    writer.attach(ATTACHMENT, &test.encode().unwrap()).unwrap();
    writer.finish(manifest.provenance.clone(), manifest.variants.clone()).unwrap();
}
