//! Roles of symbolic sizes (batch, sequence, ...), and the bounds that are assumed for each role.
//!
//! The role follows from the symbol's name, else from the first operator that reads the axis, else from its position in
//! the input. A role has a list of bounds. The first bounds of the list are assumed. The other bounds are tried if the
//! model is refused, for example because a window is larger than the smallest image.

use std::collections::{BTreeMap, BTreeSet};

use super::declarations::{Declared, unnamed_axis};
use super::schema::{GraphProto, NodeProto, TensorProto};
use crate::ir::dim::Dim;
use crate::ir::tensor::DType;

/// Maximum number of values of the model through which an input's axis is followed to find its role.
const MAX_STEPS: usize = 64;

/// The quantity that a symbolic size counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Items of a batch.
    Batch,
    /// Tokens, frames or time steps.
    Sequence,
    /// Height or width of an image.
    Side,
    /// Audio samples.
    Signal,
    /// Any other quantity.
    Other,
}

/// Number of bounds in the list of a role (batch, sequence, image side). Each import attempt assumes one of them for a symbolic
/// dimension of the role.
pub(super) const ASSUMPTIONS: usize = 5;

impl Role {
    /// Returns the list of bounds to assume for a symbol with this role, most likely first; `None` if the default
    /// bounds of the import options apply.
    fn bounds(self) -> Option<[(i64, i64); ASSUMPTIONS]> {
        Some(match self {
            Self::Batch => [(1, 8); ASSUMPTIONS],
            Self::Sequence => [(1, 256), (1, 64), (1, 16), (16, 256), (64, 256)],
            Self::Side => [(32, 1024), (64, 1024), (128, 1024), (256, 1024), (512, 1024)],
            Self::Signal => [(256, 16384), (1024, 16384), (4096, 16384), (8192, 16384), (16384, 65536)],
            Self::Other => return None,
        })
    }

    /// Returns the bounds that the import attempt `attempt`, counted from 0, assumes for a symbol with this role.
    pub(super) fn assumed(self, attempt: usize, default: (i64, i64)) -> (i64, i64) {
        match self.bounds() {
            Some(list) => list[attempt.min(ASSUMPTIONS - 1)],
            None => (default.0.max(i64::from(attempt > 0) << attempt).min(default.1), default.1),
        }
    }

    /// Returns common sizes of symbols with this role, most common first. The sizes are tried if a model needs a fixed
    /// size.
    pub(super) fn typical(self) -> &'static [i64] {
        match self {
            Self::Batch => &[1],
            Self::Sequence => &[64, 128, 16],
            Self::Side => &[640, 224, 320, 48, 32],
            Self::Signal => &[16000, 512, 1024],
            Self::Other => &[1],
        }
    }

    /// Returns the role's description in notes for the user.
    pub(super) fn description(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Sequence => "sequence",
            Self::Side => "image side",
            Self::Signal => "audio samples",
            Self::Other => "unknown role",
        }
    }
}

/// Returns the role of each symbol.
pub(super) fn roles(
    graph: &GraphProto,
    inputs: &[Declared],
    symbols: &BTreeSet<String>,
) -> BTreeMap<String, Role> {
    let names = Names::from_graph(graph);
    let role = |symbol: &String| {
        let dim = Dim::symbol(symbol);
        let axes = || {
            inputs.iter().flat_map(|input| {
                let shape = input.shape.as_deref().unwrap_or_default();
                let axes = shape.iter().enumerate().filter(|(_, d)| **d == dim);
                axes.map(move |(axis, _)| (input, axis, shape.len()))
            })
        };
        let generated = axes().any(|(input, axis, _)| unnamed_axis(&input.name, axis) == *symbol);
        let from_name = if generated { None } else { by_name(symbol) };
        let from_use = axes().find_map(|(input, axis, rank)| follow_axis(&names, &input.name, axis, rank));
        // Audio wins over a name such as `length`: a sequence of samples is longer than one of tokens.
        let role = if from_use == Some(Role::Signal) { from_use } else { from_name.or(from_use) };
        role.unwrap_or_else(|| by_position(&axes().collect::<Vec<_>>()))
    };
    symbols.iter().map(|s| (s.clone(), role(s))).collect()
}

/// Returns the role that a symbol's name implies.
fn by_name(symbol: &str) -> Option<Role> {
    let name = symbol.to_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphabetic()).collect();
    let has = |fragments: &[&str]| fragments.iter().any(|f| name.contains(f));
    let is = |list: &[&str]| words.iter().any(|w| list.contains(w));
    if has(&["batch"]) || is(&["n", "b", "bs", "bsz"]) {
        Some(Role::Batch)
    } else if has(&["height", "width"]) || is(&["h", "w"]) {
        Some(Role::Side)
    } else if has(&["seq", "len", "token", "time", "frame", "step", "past", "context"]) || is(&["t", "l"]) {
        Some(Role::Sequence)
    } else if has(&["sample", "audio", "wave"]) {
        Some(Role::Signal)
    } else {
        None
    }
}

/// Returns the role that follows from the position of a symbol among the axes of the inputs. The first axis counts
/// items of a batch; the second axis of token ids counts tokens.
fn by_position(axes: &[(&Declared, usize, usize)]) -> Role {
    let ids = |input: &Declared| matches!(&input.dtype, Ok(DType::I32 | DType::I64));
    let items = |(i, _, rank): &(&Declared, usize, usize)| *rank >= 3 || *rank == 2 && ids(i);
    if axes.iter().all(|(_, axis, _)| *axis == 0) && axes.iter().any(items) {
        return Role::Batch;
    }
    let tokens = axes.iter().any(|(i, axis, rank)| *axis == 1 && *rank == 2 && ids(i));
    if tokens { Role::Sequence } else { Role::Other }
}

/// For each name of a value in the graph or a nested graph: the nodes that read the value, and the value's elements if
/// it is constant.
#[derive(Default)]
struct Names<'m> {
    users: BTreeMap<&'m str, Vec<&'m NodeProto>>,
    constants: BTreeMap<&'m str, &'m TensorProto>,
}

impl<'m> Names<'m> {
    fn from_graph(graph: &'m GraphProto) -> Self {
        let mut names = Self::default();
        let mut graphs = vec![graph];
        while let Some(graph) = graphs.pop() {
            names.constants.extend(graph.initializer.iter().map(|t| (t.name(), t)));
            for node in &graph.node {
                for name in node.input.iter().filter(|n| !n.is_empty()) {
                    names.users.entry(name).or_default().push(node);
                }
                let value = node.attribute.iter().find_map(|a| a.t.as_ref());
                if let ("Constant", Some(name), Some(value)) = (node.op_type(), node.output.first(), value) {
                    names.constants.insert(name, value);
                }
                graphs.extend(node.attribute.iter().filter_map(|a| a.g.as_ref()));
            }
        }
        names
    }
}

/// Follows an input's axis through the graph. Returns the role that the first operator with a known meaning of the axis
/// implies.
fn follow_axis(names: &Names<'_>, input: &str, axis: usize, rank: usize) -> Option<Role> {
    // Audio inputs have one row per item, without channels.
    let without_channels = rank <= 2;
    let mut open = vec![(input, axis, rank)];
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while let Some((name, axis, rank)) = open.get(at).copied() {
        at += 1;
        if at > MAX_STEPS || !seen.insert(name) {
            continue;
        }
        for node in names.users.get(name).into_iter().flatten() {
            match axis_use(names, node, name, axis, rank, without_channels) {
                AxisUse::Role(role) => return Some(role),
                AxisUse::Result(axis, rank) => {
                    open.extend(node.output.first().map(|o| (o.as_str(), axis, rank)));
                }
                AxisUse::Unknown => {}
            }
        }
    }
    None
}

/// Information that an operator gives about an axis of its operand.
enum AxisUse {
    /// The operator implies a role of the axis.
    Role(Role),
    /// The axis becomes an axis of the operator's first result. The fields are the index of that axis and the result's
    /// rank.
    Result(usize, usize),
    Unknown,
}

fn axis_use(
    names: &Names<'_>,
    node: &NodeProto,
    name: &str,
    axis: usize,
    rank: usize,
    without_channels: bool,
) -> AxisUse {
    let operand = node.input.iter().position(|i| i == name).unwrap_or(0);
    match node.op_type() {
        "Conv" | "ConvInteger" | "QLinearConv" | "ConvTranspose" | "MaxPool" | "AveragePool" | "LpPool"
        | "Resize" | "Upsample" | "GridSample" | "DepthToSpace" | "SpaceToDepth"
            if operand == 0 =>
        {
            match (axis, rank) {
                (0, _) => AxisUse::Role(Role::Batch),
                (2.., 4..) => AxisUse::Role(Role::Side),
                (2.., _) => AxisUse::Role(if without_channels { Role::Signal } else { Role::Sequence }),
                _ => AxisUse::Unknown,
            }
        }
        "STFT" | "DFT" if axis > 0 => AxisUse::Role(Role::Signal),
        "LSTM" | "GRU" | "RNN" if operand == 0 => match axis {
            0 => AxisUse::Role(Role::Sequence),
            1 => AxisUse::Role(Role::Batch),
            _ => AxisUse::Unknown,
        },
        // The initial states.
        "LSTM" | "GRU" | "RNN" if operand >= 5 && axis == 1 => AxisUse::Role(Role::Batch),
        "Gather" if operand == 1 => match (axis, rank) {
            (0, 2) => AxisUse::Role(Role::Batch),
            (1, 2) => AxisUse::Role(Role::Sequence),
            _ => AxisUse::Unknown,
        },
        "MatMul" | "LayerNormalization" | "Attention" | "MultiHeadAttention" if rank == 3 => match axis {
            0 => AxisUse::Role(Role::Batch),
            1 => AxisUse::Role(Role::Sequence),
            _ => AxisUse::Unknown,
        },
        "Transpose" => {
            let perm: Vec<i64> = ints(node, "perm").unwrap_or_default();
            let reversed = rank.checked_sub(axis + 1);
            let to = if perm.is_empty() {
                reversed
            } else {
                perm.iter().position(|p| usize::try_from(*p) == Ok(axis))
            };
            to.map_or(AxisUse::Unknown, |axis| AxisUse::Result(axis, rank))
        }
        "Unsqueeze" => match axes(names, node) {
            Some(added) => {
                let rank = rank + added.len();
                let added: BTreeSet<usize> =
                    added.into_iter().filter_map(|a| nonnegative_axis(a, rank)).collect();
                let kept = (0..rank).filter(|i| !added.contains(i)).nth(axis);
                kept.map_or(AxisUse::Unknown, |axis| AxisUse::Result(axis, rank))
            }
            None => AxisUse::Unknown,
        },
        op if keeps_axes(op) && (operand == 0 || !matches!(op, "Pad" | "Slice")) => {
            AxisUse::Result(axis, rank)
        }
        _ => AxisUse::Unknown,
    }
}

/// True if axis i of the operator's operand becomes axis i of its result, for every i.
fn keeps_axes(op: &str) -> bool {
    matches!(
        op,
        "Add"
            | "Sub"
            | "Mul"
            | "Div"
            | "Pow"
            | "Cast"
            | "Identity"
            | "Clip"
            | "Relu"
            | "Sqrt"
            | "Log"
            | "Abs"
            | "Neg"
            | "Pad"
            | "BatchNormalization"
            | "InstanceNormalization"
            | "QuantizeLinear"
            | "DequantizeLinear"
            | "DynamicQuantizeLinear"
            | "Concat"
            | "Slice"
    )
}

fn ints(node: &NodeProto, name: &str) -> Option<Vec<i64>> {
    Some(node.attribute.iter().find(|a| a.name() == name)?.ints.clone())
}

/// Returns the axes of an Unsqueeze: an attribute before opset 13, a constant from then on.
fn axes(names: &Names<'_>, node: &NodeProto) -> Option<Vec<i64>> {
    if let Some(axes) = ints(node, "axes") {
        return Some(axes);
    }
    let constant = names.constants.get(node.input.get(1)?.as_str())?;
    let array = super::tensors::inline(constant).ok()?;
    array.ints().ok().map(<[i64]>::to_vec)
}

fn nonnegative_axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()
}

#[cfg(test)]
mod tests {
    use super::{Role, by_name};

    #[test]
    fn roles_follow_from_names() {
        for (name, role) in [
            ("batch_size", Some(Role::Batch)),
            ("N", Some(Role::Batch)),
            ("image_width", Some(Role::Side)),
            ("h", Some(Role::Side)),
            ("past_sequence_length", Some(Role::Sequence)),
            ("num_samples", Some(Role::Signal)),
            ("DynamicDimension.0", None),
            ("unk__214", None),
        ] {
            assert_eq!(by_name(name), role, "{name}");
        }
    }

    #[test]
    fn bounds_of_every_attempt_are_not_empty() {
        for role in [Role::Batch, Role::Sequence, Role::Side, Role::Signal, Role::Other] {
            for attempt in 0..8 {
                let (low, high) = role.assumed(attempt, (1, 64));
                assert!(1 <= low && low <= high, "{role:?} {attempt}");
            }
        }
    }
}
