//! Puts values around convolutions into slices of four channels, from the structure of the graph.
//!
//! ```text
//! %2 = conv %0 %1                            %2 = conv@slices4 %0 %1
//! %3 = pool %2                        ->     %3 = pool %2
//! %4 = reshape %3                            %4 = reshape %3
//! ```
//!
//! Every kernel reads and writes any layout, so this is a matter of cost alone, and it runs last. Image operators
//! (convolutions, pools, resizing, group norms, elementwise and the like on `[N, C, spatial..]`) that hang
//! together with a convolution exchange slices of four channels, when the target prefers them. Inputs, results
//! and constants of the graph stay row-major, and so do views and what they read: in row-major order a reshape
//! costs nothing. A value that both sides read is written in slices and copied once by a `relayout`;
//! a value that only row-major operators read is written row-major by its producer, which costs no copy.
//!
//! Slices lie in the kind of memory object that the target prefers. Kernels read each operand in its own kind, so a
//! value is judged by itself: where its extents exceed the device's, the next kind that can hold it is taken.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{Op, Relayout};
use crate::ir::storage::Storage;
use crate::ir::tensor::{Layout, TensorDesc};
use crate::passes::{Changes, Context, Note};
use crate::target::{LayoutKind, TargetProfile};

/// The name in reports, and of the pass.
pub const STAGE: &str = "choose-layouts";

/// Fewest channels for which slices of four are worth their padding.
const FEWEST_CHANNELS: i64 = 3;

/// Chooses layouts.
pub fn run(graph: &mut Graph, context: &Context<'_>) -> Result<Changes> {
    let mut changes = Changes::default();
    if context.target.prefer.layout.convolution != LayoutKind::Slices4 {
        return Ok(changes);
    }
    let order = graph.topological();
    let sliced = near_convolutions(graph, &order);
    for id in &order {
        if !sliced.contains(id) {
            continue;
        }
        let decision = decide(graph, *id, &sliced);
        let mut reason = match decision {
            Decision::RowMajor(reason) => reason.to_string(),
            Decision::Sliced => "blocked layout C4: every user is an image operator".to_string(),
            Decision::Both => {
                let copy = copy_row_major(graph, *id, &sliced)?;
                let readers = graph.users(copy).len() + usize::from(graph.is_output(copy));
                format!("blocked layout C4, and one row-major copy for {readers} of its users")
            }
        };
        if matches!(decision, Decision::Sliced | Decision::Both) {
            let (storage, why) = storage(graph, *id, context.target);
            graph.set_layout(*id, Layout::Slices4(storage));
            changes.count += 1;
            reason += &why;
        }
        changes.notes.push(Note { node: graph.node(*id).name.clone(), what: reason });
    }
    Ok(changes)
}

/// What becomes of a value near a convolution.
enum Decision {
    RowMajor(&'static str),
    Sliced,
    Both,
}

fn decide(graph: &Graph, id: NodeId, sliced: &BTreeSet<NodeId>) -> Decision {
    let users = graph.users(id);
    let image_users = users.iter().filter(|u| reads_slices(graph, **u, sliced)).count();
    let narrow =
        graph.tensor(id).shape.get(1).and_then(|c| c.as_known()).is_some_and(|c| c < FEWEST_CHANNELS);
    if narrow {
        Decision::RowMajor("row-major: the blocked layout C4 would be mostly padding")
    } else if users.is_empty() {
        Decision::RowMajor("row-major: a result of the graph")
    } else if image_users == 0 {
        Decision::RowMajor("row-major: no user is an image operator")
    } else if image_users == users.len() && !graph.is_output(id) {
        Decision::Sliced
    } else {
        Decision::Both
    }
}

/// The kind of memory object for a value in slices of four, and why it is not the preferred one or a buffer.
fn storage(graph: &Graph, id: NodeId, target: &TargetProfile) -> (Storage, String) {
    let wanted = target.prefer.storage.activations;
    let tensor = graph.tensor(id);
    let elements = storage_texels(tensor).range(&graph.bounds).1;
    let holds = |storage: Storage| match storage {
        Storage::Buffer => true,
        Storage::TexelBuffer => elements <= i64::from(target.limits.max_texel_buffer_elements),
        texture => texture
            .extent(&tensor.shape, &graph.bounds)
            .is_some_and(|extent| target.limits.holds_texture(texture, extent)),
    };
    // Layers and depth take what a single texture's height cannot.
    let ladder: &[Storage] = match wanted {
        Storage::Texture2d => &[Storage::Texture2d, Storage::TextureArray],
        Storage::TextureArray => &[Storage::TextureArray, Storage::Texture2d],
        Storage::Texture3d => &[Storage::Texture3d, Storage::TextureArray, Storage::Texture2d],
        Storage::TexelBuffer => &[Storage::TexelBuffer],
        Storage::Buffer => &[],
    };
    let taken = ladder.iter().copied().find(|s| holds(*s)).unwrap_or(Storage::Buffer);
    let why = match (taken == wanted, wanted) {
        (true, Storage::Buffer) => String::new(),
        (true, _) => format!("; in a {}, which the target prefers", taken.name()),
        (false, _) => {
            format!("; in a {}, since it exceeds the target's limits of a {}", taken.name(), wanted.name())
        }
    };
    (taken, why)
}

/// Vectors of four that a tensor in slices takes.
fn storage_texels(tensor: &TensorDesc) -> Dim {
    let rest = tensor.shape.iter().enumerate().filter(|(axis, _)| *axis != 1);
    rest.fold(tensor.shape[1].ceil_div(4), |n, (_, size)| n.mul(size))
}

/// Adds the row-major copy of a value, for the results of the graph and for users that do not want slices.
fn copy_row_major(graph: &mut Graph, id: NodeId, sliced: &BTreeSet<NodeId>) -> Result<NodeId> {
    let name = graph.node(id).name.clone();
    let users = graph.users(id);
    let copy = graph.add(Relayout { layout: Layout::RowMajor }, &[id], &name)?;
    let dtype = graph.tensor(id).dtype;
    graph.set_storage_type(copy, dtype);
    for user in users {
        if !reads_slices(graph, user, sliced) {
            graph.replace_operand(user, id, copy);
        }
    }
    graph.replace_output(id, copy);
    Ok(copy)
}

/// Whether a node reads slices as readily as rows.
fn reads_slices(graph: &Graph, user: NodeId, sliced: &BTreeSet<NodeId>) -> bool {
    sliced.contains(&user) || is_convolution(graph.op(user))
}

fn is_convolution(op: &Op) -> bool {
    matches!(op, Op::Conv(_) | Op::ConvTranspose(_) | Op::SeparableConv(_))
}

/// Image operators that a convolution reaches, or that reach one, through image operators alone.
fn near_convolutions(graph: &Graph, order: &[NodeId]) -> BTreeSet<NodeId> {
    let mut groups = Groups::default();
    let mut convolutions: Vec<NodeId> = Vec::new();
    for id in order.iter().filter(|id| is_image_operator(graph, **id)) {
        if is_convolution(graph.op(*id)) {
            convolutions.push(*id);
        }
        for operand in graph.operands(*id) {
            if is_image_operator(graph, operand) {
                groups.join(operand, *id);
            }
        }
    }
    let wanted: BTreeSet<NodeId> = convolutions.iter().map(|c| groups.find(*c)).collect();
    order
        .iter()
        .filter(|id| is_image_operator(graph, **id) && wanted.contains(&groups.find(**id)))
        .copied()
        .collect()
}

/// Whether a node computes an image `[N, C, spatial..]` of floats, one channel slice at a time.
fn is_image_operator(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let rank = node.tensor.rank();
    let known_channels = node.tensor.shape.get(1).is_some_and(|c| c.as_known().is_some());
    if !(3..=5).contains(&rank) || !known_channels || !node.tensor.dtype.is_float() {
        return false;
    }
    match &node.op {
        Op::Pool(_) | Op::GroupNorm(_) | Op::GridSample(_) | Op::Elementwise(_) => true,
        op if is_convolution(op) => true,
        Op::Resize(resize) => {
            let source = graph.operands(id).first().map(|x| graph.tensor(*x).shape.clone());
            source.is_some_and(|s| s.get(..2) == resize.sizes.get(..2))
        }
        Op::Concat(concat) => concat.axis >= 1,
        Op::Pad(pad) => pad.before.iter().zip(&pad.after).take(2).all(|(b, a)| b.is(0) && a.is(0)),
        Op::Reduce(reduce) => reduce.keepdims && reduce.axes.iter().all(|a| *a >= 2),
        _ => false,
    }
}

/// Disjoint sets of nodes.
#[derive(Default)]
struct Groups {
    parent: BTreeMap<NodeId, NodeId>,
}

impl Groups {
    fn find(&self, mut id: NodeId) -> NodeId {
        while let Some(up) = self.parent.get(&id) {
            id = *up;
        }
        id
    }

    fn join(&mut self, a: NodeId, b: NodeId) {
        let (a, b) = (self.find(a), self.find(b));
        if a != b {
            self.parent.insert(b, a);
        }
    }
}
