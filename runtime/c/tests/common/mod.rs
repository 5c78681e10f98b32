//! A small bundle for the device of the tests. It computes y = 3 * x + 1 with four floats, and has metadata.

use driftc::compile::{Model, Options, compile};
use driftc::ir::graph_text;
use driftc::target::TargetProfile;
use std::path::{Path, PathBuf};

const GRAPH: &str = r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,2]}
%1 = constant {"dtype":"f32","shape":[],"values":[3.0]}
%2 = mul %0 %1
%3 = constant {"dtype":"f32","shape":[],"values":[1.0]}
%4 = add %2 %3
output "y" %4
"#;

pub(crate) fn write_bundle(folder: &Path) -> PathBuf {
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".to_owned());
    let target = TargetProfile::load(&name).unwrap();
    let path = folder.join("small.drift");
    let metadata =
        [("labels", "cat\ndog"), ("zeta", "ζ")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let graph = graph_text::parse(GRAPH).unwrap();
    let model = Model { graph, metadata: metadata.into(), ..Model::default() };
    let options = Options { finish: Some(drift_spirv_tools::validate), ..Options::default() };
    compile(&model, &[target], &options, &path).unwrap();
    path
}
