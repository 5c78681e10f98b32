//! The weight slots of a variant: constants packed, written as chunks and given places.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use drift_runtime::codec::BundleWriter;
use drift_runtime::format::{self, Binding, WeightPlacement, WeightSlot};

use super::{images, index, runtime_error, stream};
use crate::error::{Error, OpError, Result};
use crate::plan::{Location, Plan};
use crate::shader::pack::Packed;
use crate::target::TargetProfile;

/// Weight chunks start at multiples of this in their slot; every device's binding alignment divides it.
const WEIGHT_ALIGNMENT: u64 = 256;

/// Why weights were not written.
struct Refused(Error);

impl From<OpError> for Refused {
    fn from(e: OpError) -> Self {
        Self(Error::internal("pack", e.0))
    }
}

/// Where a constant is.
pub(super) enum Place {
    /// The range of a slot of weights, by the number of that slot among them.
    Buffer(Binding),
    /// The image that holds it, and its bytes.
    Texture(format::Image, u64),
}

/// The weight slots of a variant as they fill up.
pub(super) struct Weights {
    pub(super) slots: Vec<WeightSlot>,
    pub(super) placements: Vec<WeightPlacement>,
    placed: BTreeMap<u32, (u32, u64)>,
    largest_slot: u64,
    largest_binding: u64,
    longest_side: u32,
    target: String,
}

impl Weights {
    pub(super) fn new(target: &TargetProfile) -> Self {
        Self {
            slots: Vec::new(),
            placements: Vec::new(),
            placed: BTreeMap::new(),
            largest_slot: target.limits.max_allocation.min(1 << 30),
            largest_binding: target.limits.max_storage_buffer_range,
            longest_side: target.limits.max_texture_2d,
            target: target.name.clone(),
        }
    }

    /// Packs and writes a plan's constants; returns where each is.
    pub(super) fn add(&mut self, writer: &mut BundleWriter, plan: &Plan) -> Result<Vec<Place>> {
        let largest = plan.weights.iter().map(Packed::bytes).zip(images::weights(plan, self.longest_side));
        let buffers = largest.filter(|(_, texture)| texture.is_none());
        if let Some(size) = buffers.map(|(bytes, _)| bytes).max().filter(|b| *b > self.largest_binding) {
            let over = |i: &usize| plan.weights.get(*i).is_some_and(|w| w.bytes() == size);
            let users = plan.dispatches.iter().filter(|s| {
                s.locations.iter().any(|location| matches!(location, Location::Weight(i) if over(i)))
            });
            return Err(Error::request(
                format!(
                    "`{}` needs a weight of {size} bytes, and {} binds at most {} bytes",
                    users.map(|s| s.label.as_str()).next().unwrap_or_default(),
                    self.target,
                    self.largest_binding
                ),
                "compile with --precision f16, or pick a target with a larger limit",
            ));
        }
        let (places, _) = stream::stream(&plan.weights, |portions| self.write(writer, plan, portions))
            .map_err(|e: Refused| e.0)?;
        Ok(places)
    }

    /// Writes the portions of a plan's constants.
    fn write(
        &mut self,
        writer: &mut BundleWriter,
        plan: &Plan,
        portions: &stream::Portions,
    ) -> std::result::Result<Vec<Place>, Refused> {
        let textures = images::weights(plan, self.longest_side);
        let mut places = Vec::with_capacity(plan.weights.len());
        for (packed, texture) in plan.weights.iter().zip(&textures) {
            let size = packed.bytes();
            let padding = texture.as_ref().map_or(0, |image| image.bytes().saturating_sub(size));
            let fill = |out: &mut dyn Write| {
                portions.write(out)?;
                std::io::copy(&mut std::io::repeat(0).take(padding), out).map(|_| ())
            };
            let chunk = writer.chunk(fill).map_err(|e| Refused(runtime_error(e)))?;
            places.push(match texture {
                Some(image) => Place::Texture(images::slot(image, Some(chunk)), image.bytes()),
                None => {
                    let (slot, offset) = self.place(chunk, size).map_err(Refused)?;
                    Place::Buffer(Binding { slot, offset, size })
                }
            });
        }
        Ok(places)
    }

    fn place(&mut self, chunk: u32, size: u64) -> Result<(u32, u64)> {
        if let Some(place) = self.placed.get(&chunk) {
            return Ok(*place);
        }
        let fits = self.slots.last().is_some_and(|s| {
            s.size.next_multiple_of(WEIGHT_ALIGNMENT).saturating_add(size) <= self.largest_slot
        });
        if !fits {
            self.slots.push(WeightSlot { size: 0 });
        }
        let slot = index(self.slots.len() - 1)?;
        let last = self.slots.last_mut().ok_or_else(|| Error::internal("bundle", "no weight slot"))?;
        let offset = last.size.next_multiple_of(WEIGHT_ALIGNMENT);
        last.size = offset + size;
        self.placements.push(WeightPlacement { chunk, slot, offset });
        self.placed.insert(chunk, (slot, offset));
        Ok((slot, offset))
    }
}
