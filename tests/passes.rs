//! Tests the passes in two ways: Markdown cases show their effect, and random graphs show that no pass changes the results of a
//! graph.
//!
//! `tests/passes/<pass>.md` documents a pass by cases; `pipeline.md` runs all passes. A heading `## ...` starts a case. The
//! case's first `drift` block is the input graph, and its `drift after` block is the exact text of the graph after the pass.
//! Both graphs must compute the same results. Words after `drift` set the context: `target=NAME` (a profile), `binds=BYTES`
//! (largest storage buffer binding), `precision=f16`, and in `decompose.md` `always=NAME` (a decomposition to apply regardless
//! of its cost). DRIFT_BLESS=1 rewrites the `drift after` blocks.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use drift_tests::compare::{Tolerance, compare};
use drift_tests::random_graph;
use drift_tests::settings::{self, Scope};
use driftc::decompose;
use driftc::fusion;
use driftc::ir::array::Array;
use driftc::ir::eval::eval;
use driftc::ir::graph::{Graph, Replacement};
use driftc::ir::graph_text::{parse, print};
use driftc::ir::op::{Op, Softmax};
use driftc::ir::ops::constant::random;
use driftc::ir::tensor::DType;
use driftc::layouts::weigh;
use driftc::passes::{Changes, Context, Options, PIPELINE, Pass, Precision, run_pass, run_pipeline};
use driftc::plan::Alternatives;
use driftc::plan::estimate::Costs;
use driftc::quantize::calibration::Calibration;
use driftc::quantize::{self, Weights};
use driftc::target::TargetProfile;

/// Target profile of random graphs, and of cases that name no profile.
const TARGET: &str = "vulkan-baseline";
/// Target profile with 16-bit storage, for the cases in f16.
const HALVES: &str = "android-15";

/// Tolerance for f32 results after a pass. It is tighter than for kernels, because a pass may only change the order of rounding.
const REORDERED: Tolerance = Tolerance { relative: 1e-4, absolute: 2e-5 };

/// Tolerance for results after a pass that stores values in f16: several roundings, which a norm may amplify.
const HALF: Tolerance = Tolerance { relative: 5e-2, absolute: 5e-2 };

#[test]
fn markdown_cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("passes");
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let bless = settings::bless();
    let mut failures = String::new();
    for pass in PIPELINE.iter().filter(|p| !folder.join(format!("{}.md", p.name)).exists()) {
        writeln!(failures, "pass {} has no file of cases in tests/passes", pass.name).unwrap();
    }
    for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let pass = path.file_stem().unwrap().to_string_lossy();
        let text = fs::read_to_string(path).unwrap();
        let blessed = rewrite(&text, |case| match apply(&pass, case) {
            Ok(after) => {
                if after != case.after && !bless {
                    let (pass, title, want) = (&pass, &case.title, &case.after);
                    writeln!(failures, "{pass}: {title}\n--- expected\n{want}--- got\n{after}").unwrap();
                }
                after
            }
            Err(reason) => {
                writeln!(failures, "{pass}: {}: {reason}", case.title).unwrap();
                case.after.clone()
            }
        });
        if text.matches("\n```drift\n").count() + text.matches("\n```drift ").count()
            != 2 * text.matches("\n```drift after\n").count()
        {
            writeln!(failures, "{pass}.md: each `drift after` block must follow one input block `drift`")
                .unwrap();
        }
        if bless && blessed != text {
            fs::write(path, blessed).unwrap();
        }
    }
    assert!(failures.is_empty(), "{failures}\nDRIFT_BLESS=1 accepts the printed graphs as expected");
}

/// Test case in a Markdown file of `tests/passes`.
#[derive(Debug, Default)]
struct Case {
    title: String,
    /// Words after `drift` in the line that opens the input block.
    context: String,
    input: String,
    after: String,
}

/// Returns a Markdown document with every `drift after` block replaced by what the function `after` returns for its case.
fn rewrite(text: &str, mut after: impl FnMut(&Case) -> String) -> String {
    let mut out = String::new();
    let mut case = Case::default();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if let Some(title) = line.strip_prefix("## ") {
            case = Case { title: title.to_string(), ..Case::default() };
        }
        let Some(words) = line.strip_prefix("```drift") else { continue };
        let block: String = lines.by_ref().take_while(|l| *l != "```").map(|l| format!("{l}\n")).collect();
        if words.trim() == "after" {
            case.after = block;
            out.push_str(&after(&case));
        } else {
            out.push_str(&block);
            (case.context, case.input) = (words.to_string(), block);
        }
        out.push_str("```\n");
    }
    out
}

fn apply(pass: &str, case: &Case) -> Result<String, String> {
    let (mut target, mut precision, mut binds) = (TARGET, Precision::F32, None);
    let mut plan = driftc::plan::Options::default();
    for word in case.context.split_whitespace() {
        match word.split_once('=') {
            Some(("target", name)) => target = name,
            Some(("precision", name)) => precision = name.parse().map_err(|e| format!("{e}"))?,
            Some(("binds", bytes)) => binds = Some(bytes.parse().map_err(|e| format!("{e}"))?),
            Some(("always", name)) => plan.alternatives = Alternatives::Always(name.into(), None),
            _ => {
                return Err(format!(
                    "unknown word `{word}` after `drift`; write target=NAME, precision=NAME, binds=BYTES or always=NAME"
                ));
            }
        }
    }
    let mut target = TargetProfile::load(target).map_err(|e| e.to_string())?;
    target.limits.max_storage_buffer_range = binds.unwrap_or(target.limits.max_storage_buffer_range);
    let context = Context { target: &target, precision };
    let mut graph = parse(&case.input).map_err(|e| e.to_string())?;
    let before = graph.clone();
    if pass == "pipeline" {
        run_pipeline(&mut graph, &context, Options::default()).map_err(|e| e.to_string())?;
    } else if pass == weigh::STAGE {
        weigh::run(&mut graph, &mut Costs::new(&target, None), &plan).map_err(|e| e.to_string())?;
    } else if pass == decompose::STAGE {
        decompose::run(&mut graph, &mut Costs::new(&target, None), &plan).map_err(|e| e.to_string())?;
    } else if pass == fusion::STAGE {
        fusion::run(&mut graph, &mut Costs::new(&target, None), &plan).map_err(|e| e.to_string())?;
    } else {
        let pass = PIPELINE
            .iter()
            .find(|p| p.name == pass)
            .ok_or("the name of the Markdown file is not the name of a pass")?;
        run_pass(&mut graph, pass, &context, false).map_err(|e| e.to_string())?;
    }
    let inputs = random_graph::inputs(&before, 1);
    let results = eval(&before, &inputs).map_err(|e| format!("the input graph cannot be evaluated: {e}"))?;
    let half = precision != Precision::F32 || case.input.contains("f16");
    let tolerance = if half { HALF } else { REORDERED };
    check(&graph, &inputs, &results, tolerance)?;
    Ok(print(&graph))
}

/// Fails if a changed graph gives other results than the expected ones.
fn check(
    changed: &Graph,
    inputs: &BTreeMap<String, Array>,
    results: &[(String, Array)],
    tolerance: Tolerance,
) -> Result<(), String> {
    let changed = eval(changed, inputs).map_err(|e| e.to_string())?;
    if !changed.iter().map(|r| &r.0).eq(results.iter().map(|r| &r.0)) {
        return Err("the changed graph has outputs with other names".into());
    }
    changed.iter().zip(results).try_for_each(|((name, got), (_, want))| compare(name, got, want, tolerance))
}

/// A random graph with inputs and with the results that every pass must preserve.
struct Sample {
    seed: u64,
    graph: Graph,
    inputs: BTreeMap<String, Array>,
    results: Vec<(String, Array)>,
}

/// Returns the random graphs of `count` seeds that begin with `first`. In the full scope, the number of seeds is 20
/// times larger.
fn samples(first: u64, count: u64) -> impl Iterator<Item = Sample> {
    let times = if Scope::from_environment().is_full() { 20 } else { 1 };
    (first..first + count * times).map(|seed| {
        let graph = random_graph::graph(seed);
        let inputs = random_graph::inputs(&graph, seed);
        let results = eval(&graph, &inputs).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        Sample { seed, graph, inputs, results }
    })
}

impl Sample {
    /// Fails if a graph that was changed gives other results than this sample's graph.
    fn check(&self, changed: &Graph, what: &str, tolerance: Tolerance) {
        if let Err(why) = check(changed, &self.inputs, &self.results, tolerance) {
            let (before, after) = (print(&self.graph), print(changed));
            panic!("seed {}: {what}: {why}\n--- before\n{before}--- after\n{after}", self.seed);
        }
    }

    /// Runs a pass on a graph and, if the pass changed the graph, compares the results. Returns true if the graph changed.
    fn run(&self, graph: &mut Graph, pass: &Pass, context: &Context<'_>, tolerance: Tolerance) -> bool {
        let before = print(graph);
        run_pass(graph, pass, context, false).unwrap_or_else(|e| panic!("seed {}: {e}\n{before}", self.seed));
        let changed = print(graph) != before;
        if changed {
            self.check(graph, pass.name, tolerance);
        }
        changed
    }
}

/// Returns a target whose largest storage buffer binding is so small that weights of random graphs are split.
fn narrow() -> TargetProfile {
    let mut target = TargetProfile::load(TARGET).unwrap();
    target.limits.max_storage_buffer_range = 512;
    target
}

#[test]
fn each_pass_alone_keeps_the_results() {
    let target = narrow();
    let context = Context { target: &target, precision: Precision::F32 };
    for sample in samples(0, 300) {
        for (i, pass) in PIPELINE.iter().enumerate() {
            if PIPELINE[..i].iter().all(|p| p.name != pass.name) {
                sample.run(&mut sample.graph.clone(), pass, &context, REORDERED);
            }
        }
    }
}

#[test]
fn the_pipeline_keeps_the_results_after_every_pass() {
    // Weights are split for one target, and matmuls are merged for the other.
    let targets = [narrow(), TargetProfile::load(TARGET).unwrap()];
    let mut changed: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, sample) in samples(300, 600).enumerate() {
        let context = Context { target: &targets[i % 2], precision: Precision::F32 };
        let mut graph = sample.graph.clone();
        for pass in PIPELINE {
            let times = changed.entry(pass.name).or_default();
            *times += usize::from(sample.run(&mut graph, pass, &context, REORDERED));
        }
        let mut whole = sample.graph.clone();
        run_pipeline(&mut whole, &context, Options::default()).unwrap();
        assert_eq!(print(&whole), print(&graph), "seed {}", sample.seed);
    }
    // Storing floats in their own type changes nothing.
    let idle: Vec<&str> = changed.iter().filter(|(_, n)| **n == 0).map(|(name, _)| *name).collect();
    assert_eq!(
        idle,
        ["lower-precision"],
        "every pass except `lower-precision` must change a random graph; numbers of graphs that each pass changed: {changed:?}"
    );
}

#[test]
fn weighing_layouts_keeps_the_results_and_never_costs_more() {
    let target = TargetProfile::load(TARGET).unwrap();
    let context = Context { target: &target, precision: Precision::F32 };
    let mut costs = Costs::new(&target, None);
    let total = |costs: &mut Costs<'_>, graph: &Graph| -> f64 {
        graph.ids().into_iter().filter_map(|id| costs.node(graph, id).estimated).sum()
    };
    let mut moved = 0;
    for sample in samples(1100, 200) {
        let mut graph = sample.graph.clone();
        run_pipeline(&mut graph, &context, Options::default()).unwrap();
        let before = total(&mut costs, &graph);
        moved += weigh::run(&mut graph, &mut costs, &driftc::plan::Options::default()).unwrap().changes.count;
        let after = total(&mut costs, &graph);
        assert!(
            after <= before * 1.000_001,
            "seed {}: the layouts raised the estimated time from {before} ns to {after} ns",
            sample.seed
        );
        sample.check(&graph, weigh::STAGE, REORDERED);
    }
    assert!(moved > 0, "no value of any random graph got another layout");
}

#[test]
fn decompositions_keep_the_results() {
    let target = TargetProfile::load(TARGET).unwrap();
    let context = Context { target: &target, precision: Precision::F32 };
    let mut costs = Costs::new(&target, None);
    let mut changed = 0;
    for sample in samples(1100, 300) {
        let mut graph = sample.graph.clone();
        run_pipeline(&mut graph, &context, Options::default()).unwrap();
        for decomposition in decompose::DECOMPOSITIONS {
            let name = decomposition.name;
            let options = driftc::plan::Options {
                alternatives: Alternatives::Always(name.into(), None),
                ..Default::default()
            };
            let mut apart = graph.clone();
            if decompose::run(&mut apart, &mut costs, &options).unwrap().changes.count > 0 {
                sample.check(&apart, name, REORDERED);
                changed += 1;
            }
        }
    }
    assert!(changed > 0, "no decomposition applied to any random graph");
}

#[test]
#[should_panic(expected = "times the tolerance")]
fn a_wrong_pass_is_caught() {
    fn run(graph: &mut Graph, _: &Context<'_>) -> driftc::Result<Changes> {
        for id in graph.ids() {
            if let Op::Softmax(softmax) = graph.op(id) {
                let op = Op::Softmax(Softmax { log: !softmax.log, ..softmax.clone() });
                let (operands, node) = (graph.operands(id), graph.node(id));
                let (arity, epilogue) = (node.arity, node.epilogue.clone());
                graph.set_op(id, Replacement { op, operands, arity, epilogue })?;
            }
        }
        Ok(Changes::default())
    }
    let target = TargetProfile::load(TARGET).unwrap();
    let context = Context { target: &target, precision: Precision::F32 };
    for sample in samples(0, 100) {
        sample.run(&mut sample.graph.clone(), &Pass { name: "wrong", run }, &context, REORDERED);
    }
}

#[test]
fn half_precision_stays_close() {
    let target = TargetProfile::load(HALVES).unwrap();
    for precision in [Precision::F16, Precision::Mixed] {
        let context = Context { target: &target, precision };
        for sample in samples(700, 200) {
            let mut graph = sample.graph.clone();
            run_pipeline(&mut graph, &context, Options::default()).unwrap();
            sample.check(&graph, &format!("the pipeline with precision {precision}"), HALF);
        }
    }
}

#[test]
fn text_of_every_stage_reads_back() {
    let target = TargetProfile::load(HALVES).unwrap();
    let context = Context { target: &target, precision: Precision::F16 };
    let mut read = 0;
    for sample in samples(900, 200) {
        let mut graph = sample.graph.clone();
        for stage in 0..2 {
            let text = print(&graph);
            // A large constant prints as a hash, which no parser can invert.
            if !text.contains("\"hash\"") {
                let back = parse(&text).unwrap_or_else(|e| panic!("seed {}: {e}\n{text}", sample.seed));
                assert_eq!(print(&back), text, "seed {}", sample.seed);
                read += 1;
            }
            if stage == 0 {
                run_pipeline(&mut graph, &context, Options::default()).unwrap();
            }
        }
    }
    assert!(
        read > 150,
        "only {read} graph texts could be parsed; the others have hashes instead of the elements of large constants"
    );
}

/// Quantized filters stay quantized if a batch normalization is folded into them.
#[test]
fn scales_are_folded_into_quantized_filters() {
    let text = r#"
%0 = input {"name":"x","dtype":"f32","shape":[1,32,6,5]}
%1 = constant {"dtype":"f32","shape":[16,32,3,3],"random":1}
%2 = conv %0 %1 {"strides":[1,1],"dilations":[1,1],"pads_begin":[1,1],"pads_end":[1,1],"group":1}
%3 = constant {"dtype":"f32","shape":[16,1,1],"random":2}
%4 = mul %2 %3
%5 = constant {"dtype":"f32","shape":[16,1,1],"random":3}
%6 = add %4 %5
output "y" %6
"#;
    let given = parse(text).unwrap();
    let mut graph = given.clone();
    quantize::run([&mut graph], Weights::Q8, &Calibration::default()).unwrap();
    let pass = PIPELINE.iter().find(|pass| pass.name == "fold-batch-norm").unwrap();
    let target = TargetProfile::load(TARGET).unwrap();
    let context = Context { target: &target, precision: Precision::F32 };
    run_pass(&mut graph, pass, &context, false).unwrap();
    let constants = graph.ids().into_iter().filter_map(|id| graph.constant(id));
    let mut encodings: Vec<String> = constants.map(|constant| constant.encoding.to_string()).collect();
    encodings.sort();
    assert_eq!(encodings, ["f32", "u8 in groups of 288 from f32"]);
    assert_eq!(graph.ids().len(), 4, "the scale and the shift are folded");
    let inputs = BTreeMap::from([("x".to_string(), random(DType::F32, &[1, 32, 6, 5], 4))]);
    let [want, got] = [&given, &graph].map(|graph| eval(graph, &inputs).unwrap().remove(0).1);
    // Rounding 288 filter weights to 8 bits changes each result by less than this fraction of the largest result.
    let tolerance = 0.01 * want.floats().unwrap().iter().fold(0f32, |a, v| a.max(v.abs()));
    let pairs = want.floats().unwrap().iter().zip(got.floats().unwrap());
    assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= tolerance));
}
