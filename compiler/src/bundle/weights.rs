//! Weight slots of a variant: buffers that hold packed constants.

use std::collections::BTreeMap;

use drift_format::{self as format, Binding, WeightPlacement, WeightSlot};

use super::constants::Key;
use super::convert::index;
use super::images;
use super::store::Store;
use crate::error::{Error, Result};
use crate::plan::images::Image;
use crate::plan::{Location, Plan};
use crate::shader::pack::Packed;
use crate::target::TargetProfile;

/// Alignment of chunks in a weight slot, a multiple of every device's binding alignment.
const WEIGHT_ALIGNMENT: u64 = 256;

/// Location of a packed constant on the device.
pub(super) enum Place {
    /// Byte range of a weight slot (a buffer of packed constants). The slot index counts weight slots only.
    Buffer(Binding),
    /// Image that holds the constant, and the byte size of the image.
    Texture(format::Image, u64),
}

/// Maximum bytes of a weight slot (a buffer) that holds several constants. A runtime allocates one slot while it fills
/// another, so several slots load faster than one. The limit is large enough that the number of allocations stays
/// small.
const LARGEST_SLOT: u64 = 256 << 20;

/// Index of the bundle chunk of each packed constant. Functions and targets that read the same packed constant use one
/// chunk. Keys contain addresses of constants, which stay valid because constants live until the bundle is written.
pub(super) type Chunks = BTreeMap<Key, u32>;

/// List of the weight slots of a variant. Each function that is added appends the slots of the weights that it uses first.
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
            largest_slot: target.limits.max_allocation.min(LARGEST_SLOT),
            largest_binding: target.limits.max_storage_buffer_range,
            longest_side: target.limits.max_texture_2d,
            target: target.name.clone(),
        }
    }

    /// Adds the plan's constants that have no chunk yet to the store. Returns the location of each constant.
    pub(super) fn add(
        &mut self,
        store: &mut dyn Store,
        plan: &Plan,
        chunks: &mut Chunks,
    ) -> Result<Vec<Place>> {
        let textures = images::weights(plan, self.longest_side);
        self.check_bindings(plan, &textures)?;
        let keys = plan.weights.iter().zip(&textures).map(|(packed, image)| key(packed, image.as_ref()));
        let keys: Vec<Key> = keys.collect();
        let new = plan.weights.iter().zip(&keys).filter(|(_, key)| !chunks.contains_key(key));
        let new: Vec<(&Packed, &Key)> = new.collect();
        let written = store.add_chunks(&new)?;
        chunks.extend(new.into_iter().map(|(_, key)| key.clone()).zip(written));
        let mut places = Vec::with_capacity(plan.weights.len());
        for ((packed, key), texture) in plan.weights.iter().zip(&keys).zip(&textures) {
            let chunk = chunks.get(key).copied();
            let chunk = chunk.ok_or_else(|| Error::internal("bundle", "a constant was not written"))?;
            places.push(match texture {
                Some(image) => Place::Texture(images::slot(image, Some(chunk)), image.bytes()),
                None => {
                    let size = packed.bytes();
                    let (slot, offset) = self.place(chunk, size)?;
                    Place::Buffer(Binding { slot, offset, size })
                }
            });
        }
        Ok(places)
    }

    /// Returns an error if a constant in a buffer exceeds the target's binding limit.
    fn check_bindings(&self, plan: &Plan, textures: &[Option<Image>]) -> Result<()> {
        let buffers = plan.weights.iter().zip(textures).filter(|(_, texture)| texture.is_none());
        let largest = buffers.map(|(packed, _)| packed.bytes()).max();
        let Some(size) = largest.filter(|bytes| *bytes > self.largest_binding) else { return Ok(()) };
        let over = |i: &usize| plan.weights.get(*i).is_some_and(|w| w.bytes() == size);
        let users = plan.dispatches.iter().filter(|s| {
            s.locations.iter().any(|location| matches!(location, Location::Weight(i) if over(i)))
        });
        Err(Error::request(
            format!(
                "`{}` needs a weight of {size} bytes, and target {} binds at most {} bytes",
                users.map(|s| s.label.as_str()).next().unwrap_or_default(),
                self.target,
                self.largest_binding
            ),
            "compile with --precision f16, or choose a target with a larger limit",
        ))
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

/// Returns the key of a constant's chunk: its identity and byte size. A texture may be larger than the constant, so its
/// chunk is padded to the texture's size.
fn key(packed: &Packed, image: Option<&Image>) -> Key {
    (packed.identity(), image.map_or(0, Image::bytes).max(packed.bytes()))
}
