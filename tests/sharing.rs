//! Tests of tensors that use the same memory: results that overwrite an operand, and concatenations whose operands are computed
//! directly in the result. Graphs run on the device and are compared with the CPU reference.

use std::collections::BTreeMap;

use drift_models::builtin;
use drift_tests::compare::{Tolerance, compare};
use drift_tests::{device, random_graph};
use driftc::compile::{Options, lower};
use driftc::ir::array::Array;
use driftc::ir::graph::Graph;
use driftc::ir::tensor::DType;
use driftc::ir::{eval, graph_text};
use driftc::plan::{Location, Plan};

/// Returns how many dispatches of a plan write the memory that they read, and how many dispatches belong to the kernel `kernel`.
fn facts(plan: &Plan, kernel: &str) -> (usize, usize) {
    let place = |location: &Location| match location {
        Location::Arena(i) => Some((plan.memory.offsets[*i], plan.tensors[*i])),
        _ => None,
    };
    let in_place = plan.dispatches.iter().filter(|step| {
        let sides = |writes: bool| {
            let bindings = step.locations.iter().zip(&step.launch.bindings);
            bindings.filter(move |(_, b)| b.writable == writes).filter_map(|(location, _)| place(location))
        };
        sides(true).any(|w| sides(false).any(|r| r == w))
    });
    let of_kernel = plan.dispatches.iter().filter(|s| s.launch.kernel == kernel);
    (in_place.count(), of_kernel.count())
}

/// Runs a graph on the device and compares its results with the CPU reference.
fn check(graph: &Graph, inputs: &BTreeMap<String, Array>) -> Result<(), String> {
    let want = eval::eval(graph, inputs).map_err(|e| e.to_string())?;
    let got = device::run(graph, &Options::default(), inputs)?;
    for ((name, want), (_, got)) in want.iter().zip(&got) {
        compare(name, got, want, Tolerance::F32)?;
    }
    Ok(())
}

/// Runs a graph in text form and compares its results with the CPU reference. Returns the number of dispatches that write the
/// memory that they read, and the number of dispatches that copy operands of a concatenation.
fn run(graph: &str) -> (usize, usize) {
    let graph = graph_text::parse(graph).unwrap();
    check(&graph, &random_graph::inputs(&graph, 7)).unwrap();
    facts(&lower(&graph, &device::target(), &Options::default()).unwrap().plan, "concat")
}

#[test]
fn a_residual_is_added_in_place_when_nobody_needs_it_any_more() {
    let graph = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,37,24]}
%1 = constant {"dtype":"f32","shape":[24,24],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = softmax %2 {"axis":2,"log":false}
%4 = matmul %3 %1 {"trans_a":false,"trans_b":false}
%5 = add %4 %2
%6 = softmax %5 {"axis":2,"log":false}
%7 = add %6 %5
output "y" %7
"#;
    // The second multiplication overwrites the first; the second softmax is the output.
    assert_eq!(run(graph).0, 1);
}

#[test]
fn an_operand_that_other_elements_need_stays() {
    let graph = r#"
%0 = input {"name":"x","dtype":"f32","shape":[24,24]}
%1 = constant {"dtype":"f32","shape":[24,24],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = matmul %2 %2 {"trans_a":false,"trans_b":false}
%4 = add %3 %2
%5 = transpose %4 {"perm":[1,0]}
%6 = add %5 %4
%7 = softmax %6 {"axis":1,"log":false}
output "y" %7
"#;
    assert_eq!(run(graph).0, 0);
}

#[test]
fn a_norm_overwrites_its_operand() {
    let graph = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,12,9,7]}
%1 = constant {"dtype":"f32","shape":[20,12,3,3],"random":1}
%2 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%3 = constant {"dtype":"f32","shape":[20],"random":2}
%4 = group-norm %2 %3 %3 {"groups":2,"epsilon":0.001}
%5 = relu %4
%6 = constant {"dtype":"f32","shape":[6,20,3,3],"random":3}
%7 = conv %5 %6 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
output "y" %7
"#;
    assert_eq!(run(graph).0, 1);
}

#[test]
fn operands_of_a_concatenation_are_written_into_place() {
    let graph = r#"
%0 = input {"name":"x","dtype":"f32","shape":[2,5,6,6]}
%1 = constant {"dtype":"f32","shape":[8,5,3,3],"random":1}
%2 = constant {"dtype":"f32","shape":[6,5,3,3],"random":2}
%3 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%4 = conv %0 %2 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%5 = concat %3 %4 {"axis":1}
%6 = constant {"dtype":"f32","shape":[4,14,1,1],"random":3}
%7 = conv %5 %6 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
%8 = constant {"dtype":"f32","shape":[4,6,1,1],"random":4}
%9 = conv %4 %8 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
%10 = add %7 %9
output "y" %10
"#;
    assert_eq!(run(graph).1, 0);
}

#[test]
fn a_concatenation_of_a_concatenation_holds_what_both_were_given() {
    let graph = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,8,6,6]}
%1 = constant {"dtype":"f32","shape":[8,8,3,3],"random":1}
%2 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%3 = conv %2 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%4 = concat %2 %3 {"axis":1}
%5 = constant {"dtype":"f32","shape":[8,16,1,1],"random":2}
%6 = conv %4 %5 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
%7 = concat %4 %6 {"axis":1}
%8 = constant {"dtype":"f32","shape":[4,24,1,1],"random":3}
%9 = conv %7 %8 {"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}
output "y" %9
"#;
    run(graph);
}

#[test]
fn an_operand_that_cannot_be_written_into_place_is_copied() {
    // An input, rows along the outermost axis, and a row-major operand that another node overwrites.
    let graph = r#"
%0 = input {"name":"x","dtype":"f32","shape":[4,8]}
%1 = constant {"dtype":"f32","shape":[8,8],"random":1}
%2 = matmul %0 %1 {"trans_a":false,"trans_b":false}
%3 = concat %2 %0 {"axis":0}
%4 = matmul %3 %1 {"trans_a":false,"trans_b":false}
%5 = add %4 %3
%6 = softmax %5 {"axis":1,"log":false}
%7 = matmul %6 %1 {"trans_a":false,"trans_b":false}
output "y" %7
"#;
    assert_eq!(run(graph).1, 0);
}

#[test]
fn a_skip_connection_keeps_its_own_storage() {
    // If the skip were written in place, the result's whole storage would be live through the wide middle.
    let conv = r#"{"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}"#;
    let graph = format!(
        r#"
%0 = input {{"name":"x","dtype":"f32","shape":[1,4,8,8]}}
%1 = constant {{"dtype":"f32","shape":[8,4,1,1],"random":1}}
%2 = conv %0 %1 {conv}
%3 = constant {{"dtype":"f32","shape":[64,8,1,1],"random":2}}
%4 = conv %2 %3 {conv}
%5 = constant {{"dtype":"f32","shape":[64,64,1,1],"random":3}}
%6 = conv %4 %5 {conv}
%7 = constant {{"dtype":"f32","shape":[8,64,1,1],"random":4}}
%8 = conv %6 %7 {conv}
%9 = concat %8 %2 {{"axis":1}}
%10 = constant {{"dtype":"f32","shape":[4,16,1,1],"random":5}}
%11 = conv %9 %10 {conv}
output "y" %11
"#
    );
    assert_eq!(run(&graph).1, 0);
    let lowered = lower(&graph_text::parse(&graph).unwrap(), &device::target(), &Options::default()).unwrap();
    // Two images of 64 channels and the skip.
    assert_eq!(lowered.plan.memory.peak, (64 + 64 + 8) * 64 * 4);
}

#[test]
fn a_shortcut_that_narrows_goes_first() {
    // In the model's order the input would be live together with the norm, the convolution and the shortcut. The images are
    // large enough for memory to decide.
    let conv = r#"{"strides":[1,1],"dilations":[1,1],"pads_begin":[0,0],"pads_end":[0,0],"group":1}"#;
    let graph = format!(
        r#"
%0 = input {{"name":"x","dtype":"f32","shape":[1,4,128,128]}}
%1 = constant {{"dtype":"f32","shape":[32,4,1,1],"random":1}}
%2 = conv %0 %1 {conv}
%3 = constant {{"dtype":"f32","shape":[32],"random":2}}
%4 = group-norm %2 %3 %3 {{"groups":4,"epsilon":0.001}}
%5 = constant {{"dtype":"f32","shape":[8,32,1,1],"random":3}}
%6 = conv %4 %5 {conv}
%7 = constant {{"dtype":"f32","shape":[8,8,1,1],"random":4}}
%8 = conv %6 %7 {conv}
%9 = conv %2 %5 {conv}
%10 = add %9 %8
%11 = conv %10 %7 {conv}
output "y" %11
"#
    );
    run(&graph);
    let lowered = lower(&graph_text::parse(&graph).unwrap(), &device::target(), &Options::default()).unwrap();
    assert_eq!(lowered.plan.memory.peak, (32 + 8 + 8) * 128 * 128 * 4);
}

#[test]
fn a_network_of_true_size_keeps_its_results() {
    let folder = tempfile::tempdir().unwrap();
    let model = builtin::find_builtin("deeplab-v3").unwrap().random(DType::F32, folder.path()).unwrap();
    check(&model.graph, &random_graph::inputs(&model.graph, 3)).unwrap();
    let plan = lower(&model.graph, &device::target(), &Options::default()).unwrap().plan;
    let (in_place, concatenations) = facts(&plan, "concat");
    assert!(in_place > 0, "no residual add of the network overwrites its operand");
    assert_eq!(concatenations, 0);
}

#[test]
fn random_graphs_keep_their_results() {
    let mut in_place = 0;
    for seed in 5000..5040 {
        let graph = random_graph::graph(seed);
        let inputs = random_graph::inputs(&graph, seed);
        check(&graph, &inputs).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", graph_text::print(&graph)));
        let plan = lower(&graph, &device::target(), &Options::default()).unwrap().plan;
        in_place += facts(&plan, "concat").0;
    }
    assert!(in_place > 0, "no graph shares storage");
}
