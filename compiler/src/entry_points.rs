//! Models, their entry points, and the functions of a bundle that the entry points become.

use std::fmt;
use std::str::FromStr;

use crate::emit::spirv;
use crate::ir::dim::{Bindings, Bounds};
use crate::ir::graph::Graph;
use crate::pass::{PassReport, Precision};
use crate::plan::{self, Plan};

/// Name of the function of a model with one entry point.
pub const MAIN: &str = "main";

/// A model after import.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// Graph of the whole model. It is compiled as [`MAIN`] if there are no `entry_points`.
    pub graph: Graph,
    /// Entry points, which share weights and states.
    pub entry_points: Vec<EntryPoint>,
    /// Name of the model, without folders.
    pub name: String,
    /// Hash of the model's files.
    pub hash: [u8; 32],
    /// Files that the bundle carries, such as a tokenizer.
    pub attachments: Vec<(String, Vec<u8>)>,
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
    /// Name of the functions that it becomes.
    pub name: String,
    /// Computation.
    pub graph: Graph,
    /// Storage type of floats. `None`: the type that the user selects for the model.
    pub precision: Option<Precision>,
    /// True if all sizes are fixed, so that it is never specialized.
    pub fixed_size: bool,
    /// True if it should read the weights that earlier entry points packed, unless its own copies make it much faster.
    pub reuse_weights: bool,
    /// Name of an entry point with the same purpose for fewer tokens. A target keeps this one only if a token takes
    /// clearly less time in it. `None`: every target keeps it.
    pub keep_if_faster_than: Option<String>,
    /// Bounds of symbols at run time, where they are narrower than the bounds that kernels are selected for.
    pub bounds: Bounds,
}

impl EntryPoint {
    /// An entry point without special treatment.
    pub fn new(name: impl Into<String>, graph: Graph) -> Self {
        Self { name: name.into(), graph, ..Self::default() }
    }
}

/// Options of compiling.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Storage type of floats.
    pub precision: Precision,
    /// Function that validates or optimizes every SPIR-V module at the end.
    pub finish: Option<spirv::Finish>,
    /// Options of planning.
    pub plan: plan::Options,
    /// Sizes that get a specialized function.
    pub specialize: Specialize,
    /// Command line options that changed the output, for the bundle's provenance.
    pub flags: Vec<String>,
}

/// Sizes that get a specialized function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Specialize {
    /// Lower bounds of symbols, where that is estimated to save time.
    #[default]
    Worthwhile,
    /// None: one function for all sizes.
    Never,
    /// These, each with values for some symbols.
    Sizes(Vec<Bindings>),
}

impl FromStr for Specialize {
    type Err = String;

    /// Parses `auto`, `never`, or values such as `seq=1` and `batch=1,seq=1`.
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

/// A function of a bundle: an entry point after the passes, with its plan.
#[derive(Debug)]
pub struct Lowered {
    /// Name of the entry point.
    pub name: String,
    /// Graph that was planned.
    pub graph: Graph,
    /// Reports of the passes, layouts, fusion and decompositions.
    pub passes: Vec<PassReport>,
    /// Dispatches with everything they refer to.
    pub plan: Plan,
}

/// Label of a function in reports: its name, and the bounds of its symbols if it has any.
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
