//! States in a plan: where they lie, and how they are updated without a copy.
//!
//! A state has storage of its own, as an output has. What updates it lies in the same storage, so an update is written
//! there by the node that computes the part, through any views behind that node:
//!
//! ```text
//! %1 = state [1, 4096, 8, 128]
//! %5 = matmul                  [1, 16, 1024]    written at `past` in the state's storage
//! %6 = reshape %5              [1, 16, 8, 128]
//! %7 = update %1 %6 at `past`                   the same storage
//! ```
//!
//! Where that is not possible the part is copied. What the state held before may still be read by a later node; then
//! the update is made in a copy, which is stored when everything else is done.

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
    /// The storage of a state.
    fn state(&mut self, name: &str, tensor: &TensorDesc) -> Result<ValueLocation> {
        if let Some(known) = self.states.iter().position(|state| state.name == name) {
            return Ok(ValueLocation::State(known));
        }
        let elements = tensor.known_shape().and_then(|shape| {
            shape.iter().try_fold(tensor.dtype.on_device().bytes().unsigned_abs(), |bytes, size| {
                bytes.checked_mul(u64::try_from(*size).ok()?)
            })
        });
        let limit = self.target.limits.max_storage_buffer_range;
        let bytes = elements.map(|bytes| bytes.max(1).next_multiple_of(super::ROUND)).filter(|b| *b <= limit);
        let bytes = bytes.ok_or_else(|| {
            Error::request(
                format!("state `{name}` is {tensor}, and {} binds at most {limit} bytes", self.target.name),
                "compile for fewer positions, as with --dim context=N",
            )
        })?;
        self.states.push(StateSize { name: name.to_string(), bytes });
        Ok(ValueLocation::State(self.states.len() - 1))
    }

    /// Gives every state its storage before anything is computed there.
    pub(super) fn start_states(&mut self) -> Result<()> {
        let graph = self.graph;
        for id in graph.ids() {
            let Some(state) = graph.state(id) else { continue };
            let location = self.state(&state.name, graph.tensor(id))?;
            let value = self.fresh(location, graph.tensor(id));
            self.values.insert(id, value);
        }
        Ok(())
    }

    /// Writes a part into the storage of what it updates, unless it was computed there.
    pub(super) fn update(&mut self, id: NodeId, update: &Update) -> Result<()> {
        let graph = self.graph;
        let [whole, part] = graph.operands(id)[..] else {
            return Err(Error::internal("plan", format!("`{}` has not two operands", graph.node(id).name)));
        };
        let desc = graph.tensor(id);
        let mut result = self.value(whole)?;
        // Only a state is written in place, and only when nobody reads what it held.
        let in_place = matches!(result.location, ValueLocation::State(_)) && self.until(whole) <= self.now;
        if !in_place {
            let location = self.arena(desc, &graph.node(id).name, self.until(id))?;
            let mut copy = self.fresh(ValueLocation::Arena(location), desc);
            self.copy_value(&result, &mut copy, &graph.node(id).name)?;
            result = copy;
        }
        let from = self.value(part)?;
        let mut to = destination(&result, update, graph.tensor(part));
        if from.location != to.location || !alike(&from.placement, &to.placement, &to.shape) {
            self.copy_value(&from, &mut to, &graph.node(id).name)?;
        }
        self.decisions.push(self.decision(id, Vec::new()));
        self.values.insert(id, result);
        Ok(())
    }

    /// Where a node's result is to lie so that an update needs no copy, if there is such a place.
    pub(super) fn place_in_state(&self, id: NodeId) -> Option<PlannedValue> {
        let graph = self.graph;
        // Down through views to the update, which alone may use each of them.
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
        let held = self.values.get(&whole)?;
        let same_type = graph.tensor(part).dtype.on_device() == held.dtype.on_device();
        let state = matches!(held.location, ValueLocation::State(_)) && graph.use_count(whole) == 1;
        if part != last || !state || !same_type || is_view(graph.op(id)) {
            return None;
        }
        let mut value = destination(held, update, graph.tensor(part));
        // Back up: the place of a view's operand, given that of the view.
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

    /// Copies what no update has put into a state.
    pub(super) fn finish_states(&mut self) -> Result<()> {
        let graph = self.graph;
        // A state may be stored in another one, so all of them are read before the first is written.
        let mut waiting = Vec::new();
        for store in graph.stores() {
            let mut from = self.value(store.node)?;
            let desc = TensorDesc::new(from.dtype, graph.tensor(store.node).shape.clone());
            let location = self.state(&store.name, &desc)?;
            if from.location == location && from.placement.is_dense(&from.shape) {
                continue;
            }
            if matches!(from.location, ValueLocation::State(_)) {
                let copy = self.arena(&desc, &store.name, usize::MAX)?;
                let mut copy = self.fresh(ValueLocation::Arena(copy), &desc);
                self.copy_value(&from, &mut copy, &store.name)?;
                from = copy;
            }
            waiting.push((store.name.as_str(), from, self.fresh(location, &desc)));
        }
        for (name, from, mut to) in waiting {
            self.copy_value(&from, &mut to, name)?;
        }
        Ok(())
    }
}

/// The place of a part in what it updates.
fn destination(whole: &PlannedValue, update: &Update, part: &TensorDesc) -> PlannedValue {
    let (strides, offset) = match &whole.placement {
        Placement::Strided { strides, offset } => (strides.clone(), offset.clone()),
        Placement::Slices4 => (dense_strides(&whole.shape), Dim::known(0)),
    };
    let dispatch = strides.get(update.axis).cloned().unwrap_or_default();
    let offset = offset.add(&update.start.mul(&dispatch));
    PlannedValue {
        location: whole.location,
        shape: part.shape.clone(),
        dtype: whole.dtype,
        placement: Placement::Strided { strides, offset },
        kind: Storage::Buffer,
    }
}

/// Whether elements lie at the same places; strides of axes of size 1 do not count.
fn alike(a: &Placement, b: &Placement, shape: &[Dim]) -> bool {
    match (a, b) {
        (Placement::Strided { strides: a, offset: x }, Placement::Strided { strides: b, offset: y }) => {
            x == y && a.iter().zip(b).zip(shape).all(|((a, b), size)| size.is(1) || a == b)
        }
        _ => false,
    }
}

/// The transposition that undoes another.
fn inverse(transpose: &Transpose) -> Option<Transpose> {
    let place = |axis: usize| transpose.perm.iter().position(|p| *p == axis);
    Some(Transpose { perm: (0..transpose.perm.len()).map(place).collect::<Option<_>>()? })
}
