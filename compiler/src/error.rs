//! What can go wrong while compiling, with the place, the reason and the remedy of each.

use std::path::PathBuf;

/// The result of every fallible function of the compiler.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operator cannot be applied to its operands; the caller adds the node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OpError(pub String);

impl OpError {
    /// An operator error with the given reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// One node of a model that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The node's name, or its first output's name where it has none.
    pub node: String,
    /// Operator with its domain when that is not the default one.
    pub operator: String,
    /// Version of the operator set that the model imports.
    pub opset: i64,
    /// Types and shapes of the operands, as far as they are known.
    pub types: String,
    /// Why the node is refused.
    pub reason: String,
    /// The small inputs of the model that its operands are computed from, whose values may decide.
    pub inputs: Vec<String>,
    /// A symbolic size, and the bounds of it with which the node would be taken.
    pub within: Option<Within>,
}

/// Bounds of a symbolic size, inclusive; shown as the option that says so.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the sentence above names them")]
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

/// How the reason of every operator that is not known begins.
pub(crate) const UNKNOWN: &str = "the operator is not";

impl Unsupported {
    /// Whether the operator itself is not known, so that nothing said about sizes or values helps.
    pub fn is_unknown(&self) -> bool {
        self.reason.starts_with(UNKNOWN)
    }
}

/// An error of the compiler.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{}: {reason}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        reason: String,
    },
    /// The model file is malformed, or asks for what it must not have.
    #[error("{}: {place}: {reason}\n  help: {help}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// Node, tensor or byte inside the file.
        place: String,
        /// Why it is refused.
        reason: String,
        /// What to do about it.
        help: String,
    },
    /// Nodes that the compiler has no lowering for, all of them at once.
    #[error("{} of the model's nodes cannot be compiled\n{}\n  help: `driftc ops` lists what is supported; simplify or re-export these nodes", .nodes.len(), list_unsupported(.nodes))]
    Unsupported {
        /// Every refused node in model order.
        nodes: Vec<Unsupported>,
    },
    /// An operator does not fit its operands.
    #[error("node `{node}` ({operator}): {reason}")]
    Node {
        /// The node's name.
        node: String,
        /// The operator's name in the graph's text form.
        operator: String,
        /// Why.
        reason: String,
    },
    /// An array given for an input of the model does not fit it.
    #[error("input `{input}`{}: {reason}", .dimension.map(|d| format!(", dimension {d}")).unwrap_or_default())]
    Input {
        /// The input's name.
        input: String,
        /// The dimension at fault, when it is one.
        dimension: Option<usize>,
        /// Why.
        reason: String,
    },
    /// Text of a graph could not be parsed.
    #[error("graph text, line {line}: {reason}")]
    Text {
        /// One-based line.
        line: usize,
        /// Why.
        reason: String,
    },
    /// The target profile is unknown or malformed.
    #[error(transparent)]
    Target(#[from] crate::target::TargetError),
    /// The request cannot be met: an option, a bound or a limit of the target.
    #[error("{reason}\n  help: {help}")]
    Request {
        /// Why.
        reason: String,
        /// What to do about it.
        help: String,
    },
    /// A rule of the compiler itself is broken; never the user's fault.
    #[error(
        "internal error in {stage}: {reason}\n  help: this is a defect of driftc; please report it with the model"
    )]
    Internal {
        /// Pass or stage.
        stage: String,
        /// What is broken.
        reason: String,
    },
}

impl Error {
    /// An internal error of a stage.
    pub fn internal(stage: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Internal { stage: stage.into(), reason: reason.into() }
    }

    /// A request that cannot be met, with its remedy.
    pub fn request(reason: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Request { reason: reason.into(), help: help.into() }
    }
}

fn list_unsupported(nodes: &[Unsupported]) -> String {
    let lines: Vec<String> = nodes
        .iter()
        .map(|n| format!("  {} ({}, opset {}, {}): {}", n.node, n.operator, n.opset, n.types, n.reason))
        .collect();
    lines.join("\n")
}
