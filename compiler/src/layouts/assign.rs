//! Assigns the C4 layout to values near convolutions, from the structure of the graph alone.
//!
//! ```text
//! %2 = conv %0 %1                            %2 = conv@slices4 %0 %1
//! %3 = pool %2                        ->     %3 = pool %2
//! %4 = reshape %3                            %4 = reshape %3
//! ```
//!
//! Every kernel reads and writes any layout, so layouts only change costs, and this pass runs last. Image operators are
//! operators on `[N, C, spatial..]`: convolutions, pools, resizes, group norms, elementwise operators and others. If
//! the target prefers C4, image operators that are connected to a convolution exchange slices of four channels. Inputs,
//! outputs and constants of the graph stay row-major. Views and their operands stay row-major too, because a row-major
//! reshape costs nothing. A value with users of both kinds (image operators and others) is written in C4 and copied
//! once by a `relayout`. A value with only row-major users is written row-major by its producer, without a copy.
//!
//! C4 values are stored in the kind of memory object that the target prefers. If a value exceeds the limits of that
//! kind, the next kind that can hold it is used. Kernels read each operand by its own kind, so each value is decided
//! separately.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::ir::dim::Dim;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{LayoutClass, Relayout};
use crate::ir::storage::Storage;
use crate::ir::tensor::{Layout, TensorDesc};
use crate::pass::{Changes, Context, Note};
use crate::target::{LayoutKind, TargetProfile};

/// Name of the pass that assigns the C4 layout.
pub const STAGE: &str = "choose-layouts";

/// Minimum number of channels for the C4 layout. With fewer channels, padding to four outweighs the gain.
const MIN_CHANNELS: i64 = 3;

/// Assigns layouts.
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

/// Layout of a value near a convolution.
enum Decision {
    RowMajor(&'static str),
    Sliced,
    /// C4, with a row-major copy for users that do not read C4.
    Both,
}

fn decide(graph: &Graph, id: NodeId, sliced: &BTreeSet<NodeId>) -> Decision {
    let users = graph.users(id);
    let image_users = users.iter().filter(|u| reads_slices(graph, **u, sliced)).count();
    let narrow = graph.tensor(id).shape.get(1).and_then(|c| c.as_known()).is_some_and(|c| c < MIN_CHANNELS);
    if narrow {
        Decision::RowMajor("row-major: the blocked layout C4 would be mostly padding")
    } else if users.is_empty() {
        Decision::RowMajor("row-major: an output of the graph")
    } else if image_users == 0 {
        Decision::RowMajor("row-major: no user is an image operator")
    } else if image_users == users.len() && !graph.is_output(id) {
        Decision::Sliced
    } else {
        Decision::Both
    }
}

/// Returns the kind of memory object for a C4 value, and the reason if the kind is not a buffer or not the one that the
/// target prefers.
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
    // Array layers and depth hold images that are too tall for one 2D texture.
    let ladder: &[Storage] = match wanted {
        Storage::Texture2d => &[Storage::Texture2d, Storage::TextureArray],
        Storage::TextureArray => &[Storage::TextureArray, Storage::Texture2d],
        Storage::Texture3d => &[Storage::Texture3d, Storage::TextureArray, Storage::Texture2d],
        Storage::TexelBuffer => &[Storage::TexelBuffer],
        Storage::Buffer => &[],
    };
    let selected = ladder.iter().copied().find(|s| holds(*s)).unwrap_or(Storage::Buffer);
    let why = match (selected == wanted, wanted) {
        (true, Storage::Buffer) => String::new(),
        (true, _) => format!("; stored in a {}, which the target prefers", selected.name()),
        (false, _) => {
            let (selected, wanted) = (selected.name(), wanted.name());
            format!("; stored in a {selected}, because the value exceeds the target's limits of a {wanted}")
        }
    };
    (selected, why)
}

/// Number of vec4 elements of a C4 tensor.
fn storage_texels(tensor: &TensorDesc) -> Dim {
    let rest = tensor.shape.iter().enumerate().filter(|(axis, _)| *axis != 1);
    rest.fold(tensor.shape[1].ceil_div(4), |n, (_, size)| n.mul(size))
}

/// Adds a row-major copy of a value, for graph outputs and for users that do not read C4.
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

/// True if a node reads a C4 operand as fast as a row-major one.
fn reads_slices(graph: &Graph, user: NodeId, sliced: &BTreeSet<NodeId>) -> bool {
    sliced.contains(&user) || is_convolution(graph, user)
}

fn is_convolution(graph: &Graph, id: NodeId) -> bool {
    graph.facts(id).layout == LayoutClass::Convolution
}

/// Returns the image operators that are connected to a convolution through image operators only.
fn near_convolutions(graph: &Graph, order: &[NodeId]) -> BTreeSet<NodeId> {
    let mut groups = Groups::default();
    let mut convolutions: Vec<NodeId> = Vec::new();
    for id in order.iter().filter(|id| is_image_operator(graph, **id)) {
        if is_convolution(graph, *id) {
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

/// True if a node computes an image `[N, C, spatial..]` of floats or 8-bit integers, one slice of channels at a time.
fn is_image_operator(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    let rank = node.tensor.rank();
    let known_channels = node.tensor.shape.get(1).is_some_and(|c| c.as_known().is_some());
    let dtype = node.tensor.dtype;
    let stored = dtype.is_float() || dtype.on_device().is_8_bit();
    if !(3..=5).contains(&rank) || !known_channels || !stored {
        return false;
    }
    match graph.facts(id).layout {
        LayoutClass::Convolution | LayoutClass::ImageSlices => true,
        LayoutClass::RowMajor => false,
    }
}

/// Disjoint sets of nodes (union-find).
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
