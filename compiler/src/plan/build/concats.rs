//! Concatenations in place, whose operands are written directly into the result: the storage of the result and of its
//! slices.

use super::{PlannedValue, Planner, TENSOR_ALIGNMENT, ValueLocation};
use crate::error::Result;
use crate::ir::graph::NodeId;
use crate::shader::problem::Placement;

impl Planner<'_> {
    /// Returns the slice of a concatenation's result that a value is written to directly. Returns `None` if there is
    /// none.
    pub(super) fn concat_slice_for(&mut self, id: NodeId) -> Result<Option<ValueLocation>> {
        for user in self.graph.users(id) {
            let index = self.graph.operands(user).iter().position(|o| *o == id);
            let slice = index.and_then(|k| Some((k, self.concats.get(&user)?.get(k)?)));
            if let Some((k, slice)) = slice
                && slice.in_place
            {
                let (_, slices) = self.concat_storage(user)?;
                return Ok(slices.get(k).map(|allocation| ValueLocation::Arena(*allocation)));
            }
        }
        Ok(None)
    }

    /// Returns the allocations of a concatenation in place and of its slices. Adds them at the first call.
    fn concat_storage(&mut self, id: NodeId) -> Result<(usize, Vec<usize>)> {
        if let Some(known) = self.concat_allocations.get(&id) {
            return Ok(known.clone());
        }
        let slices = self.concats.get(&id).cloned().unwrap_or_default();
        let in_place = self.graph.operands(id).into_iter().zip(&slices).filter(|(_, s)| s.in_place);
        let until = in_place.map(|(o, _)| self.last_use(o)).fold(self.last_use(id), usize::max);
        let desc = self.graph.tensor(id).clone();
        let whole = self.add_tensor(&desc, &self.graph.node(id).name, until)?;
        let slices: Vec<usize> = slices
            .iter()
            .map(|s| {
                let bytes = s.bytes.next_multiple_of(TENSOR_ALIGNMENT);
                self.allocations.add_slice(whole, s.offset, bytes, s.in_place)
            })
            .collect();
        self.concat_allocations.insert(id, (whole, slices.clone()));
        Ok((whole, slices))
    }

    /// Completes a concatenation in place: copies the operands that were not written in place.
    pub(super) fn finish_concat(&mut self, id: NodeId) -> Result<()> {
        let graph = self.graph;
        let (whole, allocations) = self.concat_storage(id)?;
        let slices = self.concats.get(&id).cloned().unwrap_or_default();
        for ((operand, slice), allocation) in graph.operands(id).into_iter().zip(slices).zip(allocations) {
            if !slice.in_place {
                let from = self.value(operand)?;
                let layout = graph.tensor(id).layout;
                let placement = Placement::from_layout(layout, &from.shape);
                let kind = layout.storage();
                let mut to = PlannedValue {
                    location: ValueLocation::Arena(allocation),
                    placement,
                    kind,
                    ..from.clone()
                };
                self.copy_value(&from, &mut to, &graph.node(id).name)?;
            }
        }
        let value = self.planned_value(ValueLocation::Arena(whole), graph.tensor(id));
        self.decisions.push(self.decision(id, Vec::new()));
        self.values.insert(id, value);
        Ok(())
    }
}
