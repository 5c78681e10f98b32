//! Report of `driftc audit`: what a driver's compiler made of each pipeline. `driftc diff` compares two reports.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::drivers::Fact;

/// Report about all pipelines of a variant.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) bundle: String,
    pub(crate) target: String,
    /// Name of the device, as the driver reports it.
    pub(crate) device: String,
    pub(crate) driver: String,
    pub(crate) driver_info: String,
    /// False if the driver reports no statistics; the rows then have compile times only.
    pub(crate) statistics: bool,
    pub(crate) totals: Totals,
    /// Distinct pipelines, the worst first.
    pub(crate) pipelines: Vec<Row>,
}

/// Numbers of pipelines.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) pipelines: usize,
    pub(crate) refused: usize,
    pub(crate) crashed: usize,
    pub(crate) timed_out: usize,
    /// Pipelines with spills.
    pub(crate) spilling: usize,
    /// Pipelines whose shader multiplies matrices or computes packed dot products, but whose machine code has no such
    /// instruction.
    pub(crate) emulated: usize,
    /// Sum of the compile times, in milliseconds.
    pub(crate) compile_ms: f64,
}

/// A pipeline with the driver's report about it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Name of the kernel.
    pub(crate) kernel: String,
    /// Node of the first dispatch with the pipeline.
    pub(crate) node: String,
    /// Number of dispatches with the pipeline, over all functions.
    pub(crate) dispatches: usize,
    /// Hash of the shader.
    pub(crate) shader: String,
    pub(crate) workgroup_size: [u32; 3],
    /// Refusal, crash or timeout; absent if the pipeline was compiled.
    pub(crate) failure: Option<String>,
    pub(crate) compile_ms: Option<f64>,
    pub(crate) subgroup_size: Option<u32>,
    pub(crate) facts: BTreeMap<Fact, f64>,
    /// True if the machine code has instructions that multiply matrices; absent if the shader needs none.
    pub(crate) matrix_instructions: Option<bool>,
    /// True if the machine code has dot products of packed integers; absent if the shader needs none.
    pub(crate) dot_instructions: Option<bool>,
    /// All statistics under the driver's names.
    pub(crate) statistics: BTreeMap<String, f64>,
}

impl Row {
    pub(crate) fn fact(&self, fact: Fact) -> Option<f64> {
        self.facts.get(&fact).copied()
    }

    pub(crate) fn is_emulated(&self) -> bool {
        self.matrix_instructions == Some(false) || self.dot_instructions == Some(false)
    }
}
