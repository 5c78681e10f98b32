//! What a symbolic size counts, and which bounds it has where nobody says any.
//!
//! The symbol's name tells, else the operator that the axis meets first, else its place in the input. The bounds of
//! a role are a list: the first is assumed, and the later ones are tried where a model refuses it, such as one
//! whose windows are larger than the smallest picture.

use std::collections::{BTreeMap, BTreeSet};

use super::inputs::{Declared, unnamed};
use super::schema::{GraphProto, NodeProto, TensorProto};
use crate::ir::dim::Dim;
use crate::ir::tensor::DType;

/// Operators that an axis is followed through before its role is given up.
const MAX_STEPS: usize = 64;

/// What a size counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    /// Items that are computed alike.
    Batch,
    /// Tokens, frames or steps.
    Sequence,
    /// The height or width of a picture.
    Side,
    /// Samples of a sound.
    Signal,
    /// Anything else.
    Other,
}

/// How many bounds there are to try.
pub(super) const ASSUMPTIONS: usize = 5;

impl Role {
    /// Bounds to assume, the likeliest first; `None` where the options have them.
    fn bounds(self) -> Option<[(i64, i64); ASSUMPTIONS]> {
        Some(match self {
            Self::Batch => [(1, 8); ASSUMPTIONS],
            Self::Sequence => [(1, 256), (1, 64), (1, 16), (16, 256), (64, 256)],
            Self::Side => [(32, 1024), (64, 1024), (128, 1024), (256, 1024), (512, 1024)],
            Self::Signal => [(256, 16384), (1024, 16384), (4096, 16384), (8192, 16384), (16384, 65536)],
            Self::Other => return None,
        })
    }

    /// The bounds of an attempt, counted from 0.
    pub(super) fn assumed(self, attempt: usize, default: (i64, i64)) -> (i64, i64) {
        match self.bounds() {
            Some(list) => list[attempt.min(ASSUMPTIONS - 1)],
            None => (default.0.max(i64::from(attempt > 0) << attempt).min(default.1), default.1),
        }
    }

    /// One size that models of the kind are often used with, to be tried where none but a fixed one will do.
    pub(super) fn typical(self) -> &'static [i64] {
        match self {
            Self::Batch => &[1],
            Self::Sequence => &[64, 128, 16],
            Self::Side => &[640, 224, 320, 48, 32],
            Self::Signal => &[16000, 512, 1024],
            Self::Other => &[1],
        }
    }

    /// What it is, for the user.
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::Batch => "a batch",
            Self::Sequence => "a sequence",
            Self::Side => "a picture's side",
            Self::Signal => "samples",
            Self::Other => "a size",
        }
    }
}

/// The role of each symbol.
pub(super) fn roles(
    graph: &GraphProto,
    inputs: &[Declared],
    symbols: &BTreeSet<String>,
) -> BTreeMap<String, Role> {
    let names = Names::of(graph);
    let role = |symbol: &String| {
        let dim = Dim::symbol(symbol);
        let axes = || {
            inputs.iter().flat_map(|input| {
                let shape = input.shape.as_deref().unwrap_or_default();
                let axes = shape.iter().enumerate().filter(|(_, d)| **d == dim);
                axes.map(move |(axis, _)| (input, axis, shape.len()))
            })
        };
        let made_up = axes().any(|(input, axis, _)| unnamed(&input.name, axis) == *symbol);
        let named = if made_up { None } else { by_name(symbol) };
        let met = axes().find_map(|(input, axis, rank)| follow(&names, &input.name, axis, rank));
        // A sequence of samples is longer than one of tokens.
        let told = if met == Some(Role::Signal) { met } else { named.or(met) };
        told.unwrap_or_else(|| by_place(&axes().collect::<Vec<_>>()))
    };
    symbols.iter().map(|s| (s.clone(), role(s))).collect()
}

fn by_name(symbol: &str) -> Option<Role> {
    let name = symbol.to_lowercase();
    let words: Vec<&str> = name.split(|c: char| !c.is_ascii_alphabetic()).collect();
    let has = |parts: &[&str]| parts.iter().any(|p| name.contains(p));
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

/// By the places it has in the inputs: the first axis counts items, the second one of ids counts tokens.
fn by_place(axes: &[(&Declared, usize, usize)]) -> Role {
    let ids = |input: &Declared| matches!(&input.dtype, Ok(DType::I32 | DType::I64));
    let items = |(i, _, rank): &(&Declared, usize, usize)| *rank >= 3 || *rank == 2 && ids(i);
    if axes.iter().all(|(_, axis, _)| *axis == 0) && axes.iter().any(items) {
        return Role::Batch;
    }
    let tokens = axes.iter().any(|(i, axis, rank)| *axis == 1 && *rank == 2 && ids(i));
    if tokens { Role::Sequence } else { Role::Other }
}

/// Who uses a name and which constant it is, in the graph and in its branches, which see the names around them.
#[derive(Default)]
struct Names<'m> {
    users: BTreeMap<&'m str, Vec<&'m NodeProto>>,
    constants: BTreeMap<&'m str, &'m TensorProto>,
}

impl<'m> Names<'m> {
    fn of(graph: &'m GraphProto) -> Self {
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

/// What the first operator that tells says about an axis.
fn follow(names: &Names<'_>, input: &str, axis: usize, rank: usize) -> Option<Role> {
    // Samples come as they are: one row each, without channels.
    let bare = rank <= 2;
    let mut open = vec![(input, axis, rank)];
    let mut seen = BTreeSet::new();
    let mut at = 0;
    while let Some((name, axis, rank)) = open.get(at).copied() {
        at += 1;
        if at > MAX_STEPS || !seen.insert(name) {
            continue;
        }
        for node in names.users.get(name).into_iter().flatten() {
            match meet(names, node, name, axis, rank, bare) {
                Met::Told(role) => return Some(role),
                Met::Goes(axis, rank) => open.extend(node.output.first().map(|o| (o.as_str(), axis, rank))),
                Met::Nothing => {}
            }
        }
    }
    None
}

/// What an operator does to an axis, or says about it.
enum Met {
    Told(Role),
    /// The axis of its first result, and that one's rank.
    Goes(usize, usize),
    Nothing,
}

fn meet(names: &Names<'_>, node: &NodeProto, name: &str, axis: usize, rank: usize, bare: bool) -> Met {
    let operand = node.input.iter().position(|i| i == name).unwrap_or(0);
    match node.op_type() {
        "Conv" | "ConvInteger" | "QLinearConv" | "ConvTranspose" | "MaxPool" | "AveragePool" | "LpPool"
        | "Resize" | "Upsample" | "GridSample" | "DepthToSpace" | "SpaceToDepth"
            if operand == 0 =>
        {
            match (axis, rank) {
                (0, _) => Met::Told(Role::Batch),
                (2.., 4..) => Met::Told(Role::Side),
                (2.., _) => Met::Told(if bare { Role::Signal } else { Role::Sequence }),
                _ => Met::Nothing,
            }
        }
        "STFT" | "DFT" if axis > 0 => Met::Told(Role::Signal),
        "LSTM" | "GRU" | "RNN" if operand == 0 => match axis {
            0 => Met::Told(Role::Sequence),
            1 => Met::Told(Role::Batch),
            _ => Met::Nothing,
        },
        // The states before the first step.
        "LSTM" | "GRU" | "RNN" if operand >= 5 && axis == 1 => Met::Told(Role::Batch),
        "Gather" if operand == 1 => match (axis, rank) {
            (0, 2) => Met::Told(Role::Batch),
            (1, 2) => Met::Told(Role::Sequence),
            _ => Met::Nothing,
        },
        "MatMul" | "LayerNormalization" | "Attention" | "MultiHeadAttention" if rank == 3 => match axis {
            0 => Met::Told(Role::Batch),
            1 => Met::Told(Role::Sequence),
            _ => Met::Nothing,
        },
        "Transpose" => {
            let perm: Vec<i64> = ints(node, "perm").unwrap_or_default();
            let reversed = rank.checked_sub(axis + 1);
            let to = if perm.is_empty() {
                reversed
            } else {
                perm.iter().position(|p| usize::try_from(*p) == Ok(axis))
            };
            to.map_or(Met::Nothing, |axis| Met::Goes(axis, rank))
        }
        "Unsqueeze" => match axes(names, node) {
            Some(added) => {
                let rank = rank + added.len();
                let added: BTreeSet<usize> = added.into_iter().filter_map(|a| place(a, rank)).collect();
                let kept = (0..rank).filter(|i| !added.contains(i)).nth(axis);
                kept.map_or(Met::Nothing, |axis| Met::Goes(axis, rank))
            }
            None => Met::Nothing,
        },
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
            if operand == 0 || !matches!(node.op_type(), "Pad" | "Slice") =>
        {
            Met::Goes(axis, rank)
        }
        _ => Met::Nothing,
    }
}

fn ints(node: &NodeProto, name: &str) -> Option<Vec<i64>> {
    Some(node.attribute.iter().find(|a| a.name() == name)?.ints.clone())
}

/// The axes of an Unsqueeze: an attribute until opset 12, a constant since.
fn axes(names: &Names<'_>, node: &NodeProto) -> Option<Vec<i64>> {
    if let Some(axes) = ints(node, "axes") {
        return Some(axes);
    }
    let constant = names.constants.get(node.input.get(1)?.as_str())?;
    let array = super::tensors::inline(constant).ok()?;
    array.ints().ok().map(<[i64]>::to_vec)
}

fn place(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()
}

#[cfg(test)]
mod tests {
    use super::{Role, by_name};

    #[test]
    fn names_tell() {
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
    fn every_attempt_has_bounds_that_hold_something() {
        for role in [Role::Batch, Role::Sequence, Role::Side, Role::Signal, Role::Other] {
            for attempt in 0..8 {
                let (low, high) = role.assumed(attempt, (1, 64));
                assert!(1 <= low && low <= high, "{role:?} {attempt}");
            }
        }
    }
}
