//! Errors of the compiler: each names the place, the reason and the remedy.

use std::path::PathBuf;

/// Result of a fallible function of the compiler.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why an operator cannot be applied to its operands. The caller adds the name of the node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpError(pub String);

impl OpError {
    /// Creates an operator error.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// A node of an ONNX model that the compiler refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// Name of the node, or of its first output if it has no name.
    pub node: String,
    /// Name of the operator, with its domain unless that is ai.onnx.
    pub operator: String,
    /// Version of the node's operator set that the model imports.
    pub opset: i64,
    /// Known types and shapes of the operands.
    pub types: String,
    /// Reason for the refusal.
    pub reason: String,
    /// Small inputs of the model from which the node's operands are computed. If these inputs have fixed values, the
    /// node may be accepted.
    pub inputs: Vec<String>,
    /// Bounds of a symbolic size for which the node would be accepted.
    pub within: Option<Within>,
    /// True if the operator itself is unknown, so that other sizes or values do not help.
    pub unknown_operator: bool,
}

/// Bounds of a symbolic size, inclusive. Displayed as a `--dim` option.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the comment of `Within` describes the fields")]
pub struct Within {
    pub symbol: String,
    pub low: i64,
    pub high: i64,
}

impl std::fmt::Display for Within {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { symbol, low, high } = self;
        if low == high {
            write!(f, "--dim {symbol}={low}")
        } else {
            write!(f, "--dim {symbol}={low}..{high}")
        }
    }
}

/// An error of the compiler.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {reason}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Message of the operating system.
        reason: String,
    },
    /// The model file is malformed, or has contents that the importer does not allow.
    #[error("{}: {place}: {reason}\n  help: {help}", path.display())]
    Model {
        /// Path of the file.
        path: PathBuf,
        /// Place of the fault in the file: a node, tensor or metadata entry.
        place: String,
        /// Reason why the compiler cannot use the file.
        reason: String,
        /// Remedy.
        help: String,
    },
    /// All nodes that the compiler cannot lower.
    #[error("{} of the model's nodes cannot be compiled\n{}\n  help: `driftc ops` lists what is supported; simplify or re-export these nodes", .nodes.len(), list_unsupported(.nodes))]
    Unsupported {
        /// Refused nodes, in model order.
        nodes: Vec<Unsupported>,
    },
    /// An operator does not fit its operands.
    #[error("node `{node}` ({operator}): {reason}")]
    Node {
        /// Name of the node.
        node: String,
        /// Name of the operator, as in the text form of graphs.
        operator: String,
        /// Reason.
        reason: String,
    },
    /// An input array does not match the input of the model for which it is given.
    #[error("input `{input}`{}: {reason}", .dimension.map(|d| format!(", dimension {d}")).unwrap_or_default())]
    Input {
        /// Name of the input.
        input: String,
        /// Index of the dimension that does not match; `None` if the fault is not in a dimension.
        dimension: Option<usize>,
        /// Reason.
        reason: String,
    },
    /// The text form of a graph could not be parsed.
    #[error("graph text, line {line}: {reason}")]
    Text {
        /// Line of the text, counted from 1.
        line: usize,
        /// Reason.
        reason: String,
    },
    /// The target profile is unknown or malformed.
    #[error(transparent)]
    Target(#[from] crate::target::TargetError),
    /// A request of the user cannot be met, because of an option, the bounds of a size or a limit of the target.
    #[error("{reason}\n  help: {help}")]
    Request {
        /// Reason.
        reason: String,
        /// Remedy.
        help: String,
    },
    /// A tensor exceeds a limit of the target for some sizes within the bounds of the symbols.
    #[error("{reason}{}", list_remedies(.remedies))]
    TooLarge {
        /// Reason.
        reason: String,
        /// Bounds with which this tensor fits. Each remedy suffices for this tensor, but other tensors may still exceed
        /// the limit.
        remedies: Vec<Vec<Within>>,
    },
    /// A defect of the compiler, never the user's fault.
    #[error(
        "internal error in {stage}: {reason}\n  help: this is a defect of driftc; please report it with the model"
    )]
    Internal {
        /// Pass or stage.
        stage: String,
        /// Broken rule.
        reason: String,
    },
}

impl Error {
    /// Creates an internal error: a defect in the given stage of the compiler.
    pub fn internal(stage: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Internal { stage: stage.into(), reason: reason.into() }
    }

    /// Creates an error for a request that cannot be met.
    pub fn request(reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Request { reason: reason.into(), help: help.into() }
    }
}

/// Lists bounds for the text of an error.
fn list_remedies(remedies: &[Vec<Within>]) -> String {
    let options = |remedy: &Vec<Within>| remedy.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let list: Vec<String> = remedies.iter().map(options).collect();
    if list.is_empty() {
        String::new()
    } else {
        format!("\n  help: this tensor fits with {}", list.join(" or "))
    }
}

fn list_unsupported(nodes: &[Unsupported]) -> String {
    let lines: Vec<String> = nodes
        .iter()
        .map(|n| format!("  {} ({}, opset {}, {}): {}", n.node, n.operator, n.opset, n.types, n.reason))
        .collect();
    lines.join("\n")
}
