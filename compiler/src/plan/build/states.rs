//! States in a plan: their storage, and updates without a copy.
//!
//! A state has its own storage, like an output. Its update lies in the same storage. The node that computes the new
//! rows writes them there directly, even if views lie between the node and the update:
//!
//! ```text
//! %1 = state [1, 4096, 8, 128]
//! %5 = matmul                  [1, 16, 1024]    written at `past` in the state's storage
//! %6 = reshape %5              [1, 16, 8, 128]
//! %7 = update %1 %6 at `past`                   the same storage
//! ```
//!
//! If that is not possible, the new rows are copied. If a later node still reads the state's old contents, a copy of
//! the state is updated instead and stored after all other nodes.

use super::{PlannedValue, Planner, ValueLocation};
use crate::error::{Error, Result};
use crate::ir::dim::Dim;
use crate::ir::graph::NodeId;
use crate::ir::op::{Op, Transpose, Update};
use crate::ir::storage::Storage;
use crate::ir::tensor::{Layout, TensorDesc};
use crate::plan::StateSize;
use crate::plan::views::{is_view, view};
use crate::shader::problem::{Placement, dense_strides};

impl Planner<'_> {
    /// Returns the location of a state's storage. Adds the state to the plan at the first call.
    fn state_location(&mut self, name: &str, tensor: &TensorDesc) -> Result<ValueLocation> {
        if let Some(known) = self.states.iter().position(|state| state.name == name) {
            return Ok(ValueLocation::State(known));
        }
        let elements = tensor.known_shape().and_then(|shape| {
            shape.iter().try_fold(tensor.dtype.on_device().bytes().unsigned_abs(), |bytes, size| {
                bytes.checked_mul(u64::try_from(*size).ok()?)
            })
        });
        let limit = self.target.limits.max_storage_buffer_range;
        let bytes = elements.map(|bytes| bytes.max(1).next_multiple_of(super::TENSOR_ALIGNMENT));
        let bytes = bytes.filter(|b| *b <= limit);
        let bytes = bytes.ok_or_else(|| {
            Error::request(
                format!("state `{name}` is {tensor}, but {} binds at most {limit} bytes", self.target.name),
                "compile for smaller sizes: for a shorter context with --dim context=N, for smaller pictures with --dim width=W and --dim height=H",
            )
        })?;
        self.states.push(StateSize { name: name.to_string(), bytes });
        Ok(ValueLocation::State(self.states.len() - 1))
    }

    /// Gives every state its storage, before any node is planned.
    pub(super) fn place_states(&mut self) -> Result<()> {
        let graph = self.graph;
        for id in graph.ids() {
            let Some(state) = graph.state(id) else { continue };
            let location = self.state_location(&state.name, graph.tensor(id))?;
            let value = self.planned_value(location, graph.tensor(id));
            self.values.insert(id, value);
        }
        Ok(())
    }

    /// Writes the new rows of an update into the storage of the updated value, unless the node that computes the rows
    /// wrote them there.
    pub(super) fn update(&mut self, id: NodeId, update: &Update) -> Result<()> {
        let graph = self.graph;
        let [whole, part] = graph.operands(id)[..] else {
            return Err(Error::internal(
                "plan",
                format!("the update `{}` does not have two operands", graph.node(id).name),
            ));
        };
        let desc = graph.tensor(id);
        let mut result = self.value(whole)?;
        // A state is updated in place only if no later node reads its old contents.
        let in_place = matches!(result.location, ValueLocation::State(_)) && self.last_use(whole) <= self.now;
        if !in_place {
            let location = self.add_tensor(desc, &graph.node(id).name, self.last_use(id))?;
            let mut copy = self.planned_value(ValueLocation::Arena(location), desc);
            self.copy_value(&result, &mut copy, &graph.node(id).name)?;
            result = copy;
        }
        let from = self.value(part)?;
        let mut to = updated_rows(&result, update, graph.tensor(part));
        if from.location != to.location || !same_strides(&from.placement, &to.placement, &to.shape) {
            self.copy_value(&from, &mut to, &graph.node(id).name)?;
        }
        self.decisions.push(self.decision(id, Vec::new()));
        self.values.insert(id, result);
        Ok(())
    }

    /// Returns the place in a state's storage where a node can write its result without a later copy. Returns `None` if
    /// there is none.
    pub(super) fn place_in_state(&self, id: NodeId) -> Option<PlannedValue> {
        let graph = self.graph;
        // Follow views to the update. Each value on the way must have a single user.
        let mut views = Vec::new();
        let mut last = id;
        let (user, update) = loop {
            let [user] = graph.users(last)[..] else { return None };
            if graph.use_count(last) != 1 || graph.tensor(last).layout != Layout::RowMajor {
                return None;
            }
            match graph.op(user) {
                Op::Update(update) => break (user, update),
                Op::Reshape(_) | Op::Transpose(_) if graph.node(user).epilogue.is_empty() => {
                    views.push((last, user));
                    last = user;
                }
                _ => return None,
            }
        };
        let [whole, part] = graph.operands(user)[..] else { return None };
        let state_value = self.values.get(&whole)?;
        let same_type = graph.tensor(part).dtype.on_device() == state_value.dtype.on_device();
        let state = matches!(state_value.location, ValueLocation::State(_)) && graph.use_count(whole) == 1;
        if part != last || !state || !same_type || is_view(graph.op(id)) {
            return None;
        }
        let mut value = updated_rows(state_value, update, graph.tensor(part));
        // Go back through the views: invert each to get the placement of its operand.
        for (operand, user) in views.into_iter().rev() {
            let shape = &graph.tensor(operand).shape;
            let op = match graph.op(user) {
                Op::Transpose(transpose) => inverse(transpose)?.into(),
                op => op.clone(),
            };
            value.placement = view(&op, &value.shape, &value.placement, shape)?;
            value.shape.clone_from(shape);
        }
        value.dtype = graph.tensor(id).dtype;
        Some(value)
    }

    /// Copies the final value of each state into the state's storage, unless updates already wrote it there.
    pub(super) fn finish_states(&mut self) -> Result<()> {
        let graph = self.graph;
        // A state may be stored into another one, so all are read before the first is written.
        let mut pending = Vec::new();
        for store in graph.stores() {
            let mut from = self.value(store.node)?;
            let desc = TensorDesc::new(from.dtype, graph.tensor(store.node).shape.clone());
            let location = self.state_location(&store.name, &desc)?;
            if from.location == location && from.placement.is_dense(&from.shape) {
                continue;
            }
            if matches!(from.location, ValueLocation::State(_)) {
                let copy = self.add_tensor(&desc, &store.name, usize::MAX)?;
                let mut copy = self.planned_value(ValueLocation::Arena(copy), &desc);
                self.copy_value(&from, &mut copy, &store.name)?;
                from = copy;
            }
            pending.push((store.name.as_str(), from, self.planned_value(location, &desc)));
        }
        for (name, from, mut to) in pending {
            self.copy_value(&from, &mut to, name)?;
        }
        Ok(())
    }
}

/// Returns the place of an update's new rows inside the updated value.
fn updated_rows(whole: &PlannedValue, update: &Update, part: &TensorDesc) -> PlannedValue {
    let (strides, offset) = match &whole.placement {
        Placement::Strided { strides, offset } => (strides.clone(), offset.clone()),
        Placement::Slices4 => (dense_strides(&whole.shape), Dim::known(0)),
    };
    let stride = strides.get(update.axis).cloned().unwrap_or_default();
    let offset = offset.add(&update.start.mul(&stride));
    PlannedValue {
        location: whole.location,
        shape: part.shape.clone(),
        dtype: whole.dtype,
        placement: Placement::Strided { strides, offset },
        kind: Storage::Buffer,
    }
}

/// True if two placements put elements at equal addresses; strides of axes of size 1 do not count.
fn same_strides(a: &Placement, b: &Placement, shape: &[Dim]) -> bool {
    match (a, b) {
        (Placement::Strided { strides: a, offset: x }, Placement::Strided { strides: b, offset: y }) => {
            x == y && a.iter().zip(b).zip(shape).all(|((a, b), size)| size.is(1) || a == b)
        }
        _ => false,
    }
}

/// Returns the inverse of a transposition.
fn inverse(transpose: &Transpose) -> Option<Transpose> {
    let place = |axis: usize| transpose.perm.iter().position(|p| *p == axis);
    Some(Transpose { perm: (0..transpose.perm.len()).map(place).collect::<Option<_>>()? })
}
