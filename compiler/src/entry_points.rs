//! Models, their entry points, and the functions of a bundle that the entry points become.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::emit::spirv;
use crate::ir::dim::{Bindings, Bounds};
use crate::ir::graph::Graph;
use crate::pass::{PassReport, Precision};
use crate::plan::{self, Plan};

/// Name of the only function of a model that has no named entry points.
pub const MAIN: &str = "main";

/// A model after import.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Graph of the whole model. If there are no `entry_points`, this graph becomes the function [`MAIN`].
    pub graph: Graph,
    /// Entry points, which share weights and states.
    pub entry_points: Vec<EntryPoint>,
    /// Name of the model's file or folder, without the path to it.
    pub name: String,
    /// Hash of the model's files.
    pub hash: [u8; 32],
    /// Names and contents of the files that the bundle carries, such as a tokenizer.
    pub attachments: Vec<(String, Vec<u8>)>,
    /// Metadata that the bundle carries, by key.
    pub metadata: BTreeMap<String, String>,
}

impl Model {
    /// Returns the index of an entry point by name.
    pub fn entry_point_index(&self, name: &str) -> Option<usize> {
        self.entry_points.iter().position(|entry| entry.name == name)
    }
}

/// A named computation of a model, such as `prefill` or `decode` of a language model.
#[derive(Debug, Clone, Default)]
pub struct EntryPoint {
    /// Name of the bundle's functions that the entry point becomes.
    pub name: String,
    /// Computation.
    pub graph: Graph,
    /// Storage type of the entry point's floats. `None`: the type that the user selects for the model.
    pub precision: Option<Precision>,
    /// True if all sizes are fixed, so that the entry point never gets specializations.
    pub fixed_size: bool,
    /// True if the entry point should read the weights as earlier entry points packed them, unless a packing of its own
    /// makes it much faster.
    pub reuse_weights: bool,
    /// Name of another entry point with the same purpose for fewer tokens. A target keeps this entry point only if it
    /// takes clearly less time per token than the other entry point. `None`: every target keeps this entry point.
    pub keep_if_faster_than: Option<String>,
    /// Bounds of symbols at run time, for symbols whose bounds are narrower than the bounds for which kernels are
    /// selected.
    pub bounds: Bounds,
}

impl EntryPoint {
    /// Creates an entry point with default settings.
    pub fn new(name: impl Into<String>, graph: Graph) -> Self {
        Self { name: name.into(), graph, ..Self::default() }
    }
}

/// Options of compiling.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Storage type of floats in the compiled model.
    pub precision: Precision,
    /// Function that validates or optimizes every emitted SPIR-V module.
    pub finish: Option<spirv::Finish>,
    /// Options of planning.
    pub plan: plan::Options,
    /// Values of symbols for which functions get specializations.
    pub specialize: Specialize,
    /// Command line options that changed the output, for the bundle's provenance.
    pub flags: Vec<String>,
}

/// Values of symbols for which functions get specializations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Specialize {
    /// The size 1 of symbols that can have it (a batch of one, one row, one token), if a specialization for it is
    /// estimated to save time. Sides of pictures get none.
    #[default]
    Worthwhile,
    /// No values: one function for all sizes.
    Never,
    /// The given values. Each item has values for some symbols and gives one specialization.
    Sizes(Vec<Bindings>),
}

impl FromStr for Specialize {
    type Err = String;

    /// Parses the text of an option: `auto`, `never`, or values such as `seq=1` and `batch=1,seq=1`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Worthwhile),
            "never" => Ok(Self::Never),
            _ => {
                let mut values = Bindings::new();
                for binding in text.split(',') {
                    let value = binding.split_once('=').and_then(|(name, v)| Some((name, v.parse().ok()?)));
                    let (name, value) =
                        value.ok_or("write auto, never or NAME=N[,NAME=N], for example seq=1")?;
                    values.insert(name.to_string(), value);
                }
                Ok(Self::Sizes(vec![values]))
            }
        }
    }
}

impl fmt::Display for Specialize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Worthwhile => f.write_str("auto"),
            Self::Never => f.write_str("never"),
            Self::Sizes(all) => {
                let one = |values: &Bindings| {
                    values.iter().map(|(name, v)| format!("{name}={v}")).collect::<Vec<_>>().join(",")
                };
                f.write_str(&all.iter().map(one).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

/// A function of a bundle before it is emitted: an entry point's graph after all rewrites, and its plan.
#[derive(Debug)]
pub struct Lowered {
    /// Name of the entry point.
    pub name: String,
    /// Graph after all rewrites, from which the plan was made.
    pub graph: Graph,
    /// Reports of the passes and of the steps layouts, fusion and decompositions.
    pub passes: Vec<PassReport>,
    /// Plan of the function: its dispatches, and the tensors and weights that they refer to.
    pub plan: Plan,
}

/// Returns the label of a function in reports: its name, and the bounds of its symbols if it has any.
pub fn function_label(name: &str, bounds: &Bounds) -> String {
    let symbols: Vec<String> = bounds
        .iter()
        .map(|(symbol, (low, high))| match low == high {
            true => format!("{symbol}={low}"),
            false => format!("{symbol}={low}..{high}"),
        })
        .collect();
    if symbols.is_empty() { name.to_string() } else { format!("{name} [{}]", symbols.join(", ")) }
}
