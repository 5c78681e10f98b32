//! Writes bundles for tests in browsers to a folder, with an index. Inputs and expected outputs come from the CPU reference or
//! from stored files. A JavaScript program runs the bundles and compares the outputs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use driftc::compile::{Model, Options, compile, lower, write};
use driftc::import::onnx;
use driftc::ir::array::Array;
use driftc::ir::tensor::DType;
use driftc::ir::{eval, graph_text};
use driftc::kernels::KERNELS;
use driftc::kernels::cases::CASES;
use driftc::passes::Precision;
use driftc::plan::estimate::offering;
use driftc::target::TargetProfile;
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::compare::{Tolerance, quantizes_rows};
use crate::device::{host_type, random_inputs, sizes};
use crate::emission::{after_passes, models};

/// Selection of the candidates for which bundles are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidates {
    /// Every candidate of every case.
    All,
    /// Only the cheapest candidate, and only for every N-th case and for cases with arrays that may be empty.
    CheapestOf(usize),
}

/// Destination folder, target profile and precision of the bundles that are written.
#[derive(Debug)]
pub struct Job<'a> {
    /// Existing folder to which bundles are written.
    pub out: &'a Path,
    /// Target profile of the bundles.
    pub target: &'a TargetProfile,
    /// Precision of the bundles.
    pub precision: Precision,
}

impl Job<'_> {
    fn tolerance(&self) -> Tolerance {
        if self.precision == Precision::F32 { Tolerance::F32 } else { Tolerance::F16 }
    }

    fn options(&self) -> Options {
        Options { precision: self.precision, ..Options::default() }
    }

    fn entry(&self, name: &str, file: &str, runs: &[Value]) -> Value {
        let Tolerance { relative, absolute } = self.tolerance();
        json!({
            "name": format!("{name} {} {}", self.target.name, self.precision),
            "bundle": file, "runs": runs, "relative": relative, "absolute": absolute,
        })
    }

    /// Writes bundles for the test cases of kernels: one for each case, kernel and selected candidate. Returns the entries of
    /// the index.
    ///
    /// # Errors
    /// If a case does not compile, or a file cannot be written.
    pub fn kernels(&self, which: Candidates) -> Result<Vec<Value>, String> {
        let cases: Vec<(String, &str)> = CASES
            .iter()
            .flat_map(|c| c.graphs().enumerate().map(|(i, case)| (format!("{}/{i}", c.operator), case)))
            .collect();
        let chosen = cases.into_iter().enumerate().filter(|(i, (_, case))| match which {
            Candidates::All => true,
            Candidates::CheapestOf(step) => i % step == 0 || may_be_empty(case),
        });
        let chosen: Vec<(String, &str)> = chosen.map(|(_, case)| case).collect();
        let written: Result<Vec<Vec<Value>>, String> =
            chosen.par_iter().map(|(name, case)| self.case(name, case, which)).collect();
        Ok(written?.into_iter().flatten().collect())
    }

    fn case(&self, name: &str, case: &str, which: Candidates) -> Result<Vec<Value>, String> {
        let named = |e: String| format!("{name}: {e}");
        let after = after_passes(case, self.target, self.precision).map_err(named)?;
        let offered = offering(&after, self.target);
        let graph = graph_text::parse(case).map_err(|e| named(e.to_string()))?;
        // What the model itself holds in f16 the reference rounds, and a device without f16 does not.
        let half = graph.ids().into_iter().any(|id| graph.tensor(id).dtype == DType::F16);
        if half && !self.target.features.stores_f16() {
            return Ok(Vec::new());
        }
        if self.precision == Precision::F16 && quantizes_rows(&graph) {
            return Ok(Vec::new());
        }
        let mut bytes = Vec::new();
        let mut runs = Vec::new();
        for symbols in sizes(&graph) {
            let inputs = random_inputs(&graph, &symbols).map_err(named)?;
            let want = eval::eval(&graph, &inputs).map_err(|e| named(e.to_string()))?;
            let given: Vec<Value> =
                inputs.iter().map(|(name, array)| place(name, array, &mut bytes)).collect();
            let expected: Vec<Value> =
                want.iter().map(|(name, array)| place(name, array, &mut bytes)).collect();
            runs.push(json!({ "symbols": symbols, "inputs": given, "outputs": expected }));
        }
        let data = format!("{}-{}.bin", name.replace('/', "-"), self.precision);
        std::fs::write(self.out.join(&data), bytes).map_err(|e| e.to_string())?;
        for run in &mut runs {
            run["data"] = json!(data);
        }
        let mut entries = Vec::new();
        let mut seen = BTreeSet::new();
        for kernel in KERNELS.iter().filter(|k| offered.contains(k.name) && k.matrices.is_none()) {
            let mut options = self.options();
            options.plan.prefer_kernel = Some(kernel.name.to_string());
            for candidate in 0.. {
                options.plan.prefer_candidate = candidate;
                let lowered = lower(&graph, self.target, &options).map_err(|e| named(e.to_string()))?;
                let decisions = lowered.plan.decisions.iter();
                let decisions =
                    decisions.filter(|d| d.choices.first().is_some_and(|c| c.kernel.name == kernel.name));
                let candidates = decisions.map(|d| d.choices.len()).max().unwrap_or(1);
                // Candidates may have different metadata and equal shaders.
                let shaders: Vec<String> =
                    lowered.plan.dispatches.iter().map(|s| s.launch.wgsl.clone()).collect();
                if seen.insert(shaders) {
                    let file = format!(
                        "{}-{}-{}-{candidate}.drift",
                        name.replace('/', "-"),
                        kernel.name,
                        self.precision
                    );
                    let model = Model { name: "case".into(), ..Model::default() };
                    let targets = std::slice::from_ref(self.target);
                    write(&model, targets, &[&[lowered]], &options, &self.out.join(&file))
                        .map_err(|e| named(e.to_string()))?;
                    entries.push(self.entry(&format!("{} {name}#{candidate}", kernel.name), &file, &runs));
                }
                let every = which == Candidates::All && self.precision == Precision::F32;
                if !every || candidate + 1 >= candidates {
                    break;
                }
            }
        }
        Ok(entries)
    }

    /// Writes bundles of models whose inputs and expected outputs are stored as `.npy` files beside them. Returns the entries
    /// of the index.
    ///
    /// # Errors
    /// If a model does not compile, or a file cannot be written.
    pub fn models(&self, folders: &[PathBuf]) -> Result<Vec<Value>, String> {
        let mut entries = Vec::new();
        for (name, path) in models(folders) {
            let named = |e: String| format!("{name}: {e}");
            let imported = onnx::load(&path, &onnx::Options::default()).map_err(|e| named(e.to_string()))?;
            let (inputs, outputs) = (imported.graph.inputs().len(), imported.graph.outputs().len());
            let model =
                Model { graph: imported.graph, name: name.clone(), hash: imported.hash, ..Model::default() };
            let file = format!("{name}-{}.drift", self.precision);
            let targets = std::slice::from_ref(self.target);
            compile(&model, targets, &self.options(), &self.out.join(&file))
                .map_err(|e| named(e.to_string()))?;
            let folder =
                path.parent().unwrap_or(Path::new("")).canonicalize().map_err(|e| named(e.to_string()))?;
            let list = |kind: &str, count: usize| -> Vec<PathBuf> {
                (0..count).map(|i| folder.join(format!("{kind}_{i}.npy"))).filter(|p| p.is_file()).collect()
            };
            let run = json!({ "inputs": list("input", inputs), "outputs": list("output", outputs) });
            entries.push(self.entry(&name, &file, &[run]));
        }
        Ok(entries)
    }
}

/// True if an array of a test case may be empty, because a symbol has the lower bound 0.
fn may_be_empty(case: &str) -> bool {
    graph_text::parse(case).is_ok_and(|graph| graph.bounds.values().any(|(low, _)| *low == 0))
}

/// Writes the index of a folder of bundles, `index.json`.
///
/// # Errors
/// If the file cannot be written.
pub fn index(out: &Path, entries: &[Value]) -> Result<(), String> {
    let text = serde_json::to_string(entries).map_err(|e| e.to_string())?;
    std::fs::write(out.join("index.json"), text).map_err(|e| e.to_string())
}

/// Appends an array to the bytes of a data file. Returns the array's entry in the index, with name, type, shape, and
/// position in the data file.
fn place(name: &str, array: &Array, bytes: &mut Vec<u8>) -> Value {
    // Arrays of elements of 8 bytes are read where they lie.
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let elements = array.to_bytes();
    let at = bytes.len();
    bytes.extend(&elements);
    json!({
        "name": name, "type": host_type(array.dtype).name(), "shape": array.shape,
        "offset": at, "bytes": elements.len(),
    })
}
