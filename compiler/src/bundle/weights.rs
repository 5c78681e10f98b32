//! The weight slots of a variant: constants packed, written as chunks and given places.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use drift_runtime::codec::BundleWriter;
use drift_runtime::format::{self, Binding, WeightPlacement, WeightSlot};

use super::{images, index, runtime_error, stream};
use crate::error::{Error, OpError, Result};
use crate::plan::images::Image;
use crate::plan::{Location, Plan};
use crate::shader::pack::{Identity, Packed};
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

/// Chunks by the constants that they hold, and their bytes. Constants live until the bundle is written, and so does what tells
/// them apart: functions and targets that read the same packed constant have it packed once.
pub(super) type Chunks = BTreeMap<(Identity, u64), u32>;

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
    pub(super) fn add(
        &mut self,
        writer: &mut BundleWriter,
        plan: &Plan,
        chunks: &mut Chunks,
    ) -> Result<Vec<Place>> {
        let textures = images::weights(plan, self.longest_side);
        let buffers = plan.weights.iter().zip(&textures).filter(|(_, texture)| texture.is_none());
        if let Some(size) =
            buffers.map(|(packed, _)| packed.bytes()).max().filter(|b| *b > self.largest_binding)
        {
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
        let sizes = plan.weights.iter().zip(&textures);
        let sizes = sizes.map(|(packed, image)| image.as_ref().map_or(0, Image::bytes).max(packed.bytes()));
        let keys: Vec<_> = plan.weights.iter().map(Packed::identity).zip(sizes).collect();
        let new = plan.weights.iter().zip(&keys).filter(|(_, key)| !chunks.contains_key(key));
        let (new, keys_of_new): (Vec<_>, Vec<_>) = new.unzip();
        let write = |portions: &stream::Portions| write(writer, &new, &keys_of_new, portions);
        let (written, _) = stream::stream(&new, write).map_err(|e: Refused| e.0)?;
        chunks.extend(keys_of_new.into_iter().cloned().zip(written));
        let mut places = Vec::with_capacity(plan.weights.len());
        for ((packed, key), texture) in plan.weights.iter().zip(&keys).zip(&textures) {
            let chunk =
                chunks.get(key).ok_or_else(|| Error::internal("bundle", "a constant was not written"))?;
            places.push(match texture {
                Some(image) => Place::Texture(images::slot(image, Some(*chunk)), image.bytes()),
                None => {
                    let size = packed.bytes();
                    let (slot, offset) = self.place(*chunk, size)?;
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

/// Writes the portions of constants, padded to their bytes; returns their chunks.
fn write(
    writer: &mut BundleWriter,
    constants: &[&Packed],
    keys: &[&(Identity, u64)],
    portions: &stream::Portions,
) -> std::result::Result<Vec<u32>, Refused> {
    let each = constants.iter().zip(keys).map(|(packed, (_, bytes))| {
        let padding = bytes.saturating_sub(packed.bytes());
        let fill = |out: &mut dyn Write| {
            portions.write(out)?;
            std::io::copy(&mut std::io::repeat(0).take(padding), out).map(|_| ())
        };
        writer.chunk(fill).map_err(|e| Refused(runtime_error(e)))
    });
    each.collect()
}
