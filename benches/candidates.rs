//! Times every candidate of every kernel on layers of well-known networks, beside the estimates.
//! `cargo bench -p drift-benches --bench candidates -- [FILTER]`; `DRIFT_TEST_TARGET` names the profile.

use std::path::Path;

use drift_benches::measure_candidates;
use driftc::ir::graph_text;
use driftc::target::{LayoutKind, TargetProfile};

/// A timed layer: its name, operator with attributes, input shape, and shapes of its constant operands.
type Layer = (&'static str, &'static str, &'static str, &'static [&'static str]);

const LAYERS: &[Layer] = &[
    (
        "conv 7x7/2 3-64 at 224",
        r#"conv {"strides":[2,2],"dilations":[1,1],"pads_begin":[3,3],"pads_end":[3,3],"group":1}"#,
        "1,3,224,224",
        &["64,3,7,7", "64"],
    ),
    (
        "conv 3x3 64-64 at 56",
        r#"conv {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}"#,
        "1,64,56,56",
        &["64,64,3,3", "64"],
    ),
    (
        "conv 3x3 320-320 at 64",
        r#"conv {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}"#,
        "1,320,64,64",
        &["320,320,3,3", "320"],
    ),
    (
        "conv 3x3 512-512 at 7",
        r#"conv {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}"#,
        "1,512,7,7",
        &["512,512,3,3", "512"],
    ),
    (
        "conv 1x1 256-64 at 56",
        r#"conv {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}"#,
        "1,256,56,56",
        &["64,256,1,1", "64"],
    ),
    (
        "conv 1x1 2048-512 at 7",
        r#"conv {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}"#,
        "1,2048,7,7",
        &["512,2048,1,1", "512"],
    ),
    (
        "conv 1x1 16-96 at 112",
        r#"conv {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}"#,
        "1,16,112,112",
        &["96,16,1,1", "96"],
    ),
    (
        "depthwise 3x3 32 at 112",
        r#"conv {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":32}"#,
        "1,32,112,112",
        &["32,1,3,3", "32"],
    ),
    (
        "depthwise 3x3/2 96 at 112",
        r#"conv {"strides":[2,2],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":96}"#,
        "1,96,112,112",
        &["96,1,3,3", "96"],
    ),
    (
        "depthwise 3x3 960 at 7",
        r#"conv {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":960}"#,
        "1,960,7,7",
        &["960,1,3,3", "960"],
    ),
    (
        "separable 3x3 32-16 at 112",
        r#"separable-conv {"depthwise":{"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":32},"epilogue":[{"element":{"unary":"relu"},"args":[{"step":0}]}],"bias":true}"#,
        "1,32,112,112",
        &["32,1,3,3", "16,32,1,1", "16"],
    ),
    (
        "separable 3x3/2 96-24 at 112",
        r#"separable-conv {"depthwise":{"strides":[2,2],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":96},"epilogue":[{"element":{"unary":"relu"},"args":[{"step":0}]}],"bias":true}"#,
        "1,96,112,112",
        &["96,1,3,3", "24,96,1,1", "24"],
    ),
    (
        "separable 3x3 384-64 at 14",
        r#"separable-conv {"depthwise":{"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":384},"epilogue":[{"element":{"unary":"relu"},"args":[{"step":0}]}],"bias":true}"#,
        "1,384,14,14",
        &["384,1,3,3", "64,384,1,1", "64"],
    ),
    (
        "transposed 4x4/2 64-32 at 32",
        r#"conv-transpose {"strides":[2,2],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"output_padding":[0,0],"group":1}"#,
        "1,64,32,32",
        &["64,32,4,4", "32"],
    ),
    (
        "max pool 3x3/2 64 at 112",
        r#"pool {"kind":"max","kernel":[3,3],"strides":[2,2],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"ceil":false}"#,
        "1,64,112,112",
        &[],
    ),
    (
        "resize linear x2 64 at 56",
        r#"resize {"filter":"linear","coordinates":"half-pixel","scales":[1.0,1.0,2.0,2.0],"sizes":[1,64,112,112],"roi":[],"extrapolation":0.0,"antialias":false,"exclude_outside":false}"#,
        "1,64,56,56",
        &[],
    ),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-')).unwrap_or_default();
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".into());
    let mut target = TargetProfile::load(&name)?;
    let folder = std::env::temp_dir().join(format!("drift-candidates-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for layer in LAYERS.iter().filter(|l| l.0.contains(&filter)) {
        for layout in [LayoutKind::RowMajor, LayoutKind::Slices4] {
            println!("{} {layout:?}", layer.0);
            target.prefer.layout.convolution = layout;
            run(layer, &target, &folder.join("layer.drift"))?;
        }
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Prints the time and the estimate of each candidate for one layer. Copies between tensor layouts are not timed.
fn run(layer: &Layer, target: &TargetProfile, path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (_, operator, input, constants) = layer;
    let (operator, attributes) = operator.split_once(' ').ok_or("a layer without attributes")?;
    // Element functions around the layer leave it free to use any layout.
    let mut graph =
        format!("%0 = input {{\"name\":\"x\",\"dtype\":\"f32\",\"shape\":[{input}]}}\n%1 = relu %0\n");
    let mut operands = "%1".to_string();
    for (i, shape) in constants.iter().enumerate() {
        let id = i + 2;
        graph += &format!("%{id} = constant {{\"dtype\":\"f32\",\"shape\":[{shape}],\"random\":{id}}}\n");
        operands += &format!(" %{id}");
    }
    let id = constants.len() + 2;
    // A pool takes any layout, where softmax would ask for rows.
    let pool = r#"pool %OF {"kind":"max","kernel":[2,2],"strides":[2,2],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"ceil":false}"#;
    let softmax = r#"softmax %OF {"axis":3,"log":false}"#;
    let after = if operator == "pool" { softmax } else { pool }.replace("OF", &id.to_string());
    graph += &format!("%{id} = {operator} {operands} {attributes}\n%{} = {after}\n", id + 1);
    graph += &format!("output \"y\" %{}\n", id + 1);
    let graph = graph_text::parse(&graph)?;
    for measured in measure_candidates(&graph, target, path, |name| name == operator)?.iter().take(1) {
        for (choice, time) in &measured.candidates {
            let knobs: Vec<String> = choice.candidate.knobs.iter().map(|(n, v)| format!("{n}={v}")).collect();
            println!(
                "  {:<14} estimated {:>10.1} µs  measured {time:>10.1} µs  {}",
                choice.kernel.name,
                choice.candidate.cost / 1e3,
                knobs.join(" ")
            );
        }
    }
    Ok(())
}
