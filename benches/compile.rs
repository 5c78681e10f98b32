//! Times the compiler from an imported graph to a bundle on disk: `cargo bench -p drift-benches --bench compile`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use driftc::compile::{Model, Options, compile, lower};
use driftc::ir::graph_text;
use driftc::target::TargetProfile;

/// Text of a graph of 32 convolutions in sequence, so that compile time per node dominates fixed costs.
fn stack() -> String {
    let mut lines = vec![r#"%0 = input {"name":"x","dtype":"f32","shape":[1,64,56,56]}"#.to_string()];
    let mut last = 0;
    for i in 0..32 {
        let (w, y, r) = (last + 1, last + 2, last + 3);
        lines.push(format!(r#"%{w} = constant {{"dtype":"f32","shape":[64,64,3,3],"random":{i}}}"#));
        lines.push(format!(
            r#"%{y} = conv %{last} %{w} {{"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}}"#
        ));
        lines.push(format!("%{r} = relu %{y}"));
        last = r;
    }
    lines.push(format!(r#"output "y" %{last}"#));
    lines.join("\n")
}

fn benches(c: &mut Criterion) {
    let graph = graph_text::parse(&stack()).expect("the stack parses");
    let target = TargetProfile::load("lavapipe").expect("a built-in profile");
    let options = Options::default();
    c.bench_function("lower 32 convolutions", |b| b.iter(|| lower(black_box(&graph), &target, &options)));
    let path = std::env::temp_dir().join(format!("drift-bench-{}.drift", std::process::id()));
    let model = Model { graph, ..Model::default() };
    c.bench_function("compile 32 convolutions", |b| {
        b.iter(|| {
            compile(black_box(&model), std::slice::from_ref(&target), &options, &path).map(|r| r.summary)
        });
    });
    let _ = std::fs::remove_file(&path);
}

criterion_group!(group, benches);
criterion_main!(group);
