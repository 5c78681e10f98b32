//! Conversion of a plan to a function of the bundle format: slots (the buffers and images that dispatches bind),
//! dispatches and ports.

use std::collections::BTreeMap;

use drift_format::{
    Binding, Dispatch, Expr, ExprError, ExprOp, Function, MemoryReport, Slot, SlotKind, StateSlot, Symbol,
    WeightSlot,
};

use super::convert::index;
use super::images;
use super::pipelines::{Pipelines, key};
use super::types::{device_type, host_type};
use super::weights::Place;
use crate::error::{Error, Result};
use crate::ir::dim::{Atom, Bounds, Dim, product};
use crate::plan::{self, Location, Plan, Port, bound_remedies};
use crate::target::TargetProfile;

/// Data of a bundle's variant that all its functions refer to.
pub(super) struct Shared<'a> {
    pub(super) target: &'a TargetProfile,
    /// Weight slots (buffers of packed weights), with their final sizes.
    pub(super) weights: &'a [WeightSlot],
    pub(super) states: &'a [StateSlot],
    pub(super) pipelines: &'a Pipelines<'a>,
}

/// Index of each symbol in the function's list of symbols, by the symbol's name.
type Symbols<'a> = BTreeMap<&'a str, u32>;

/// Converts a plan to a function of the bundle. `places` has the location of each constant of the plan. `general` has
/// the symbol bounds of the first function of this name: functions of one name have input and output slots of equal
/// sizes, for these bounds.
pub(super) fn function(
    (name, general): (&str, &Bounds),
    plan: &Plan,
    places: &[Place],
    shared: &Shared<'_>,
) -> Result<Function> {
    let symbols: Vec<Symbol> = plan
        .bounds
        .iter()
        .map(|(name, (min, max))| Symbol { name: name.clone(), min: *min, max: *max })
        .collect();
    let order: Symbols<'_> = symbols.iter().map(|s| s.name.as_str()).zip(0..).collect();
    let params = Params::from_plan(plan, shared.target);
    let (slots, places) = slots(plan, general, places, params.bytes, shared)?;
    let mut dispatches = Vec::with_capacity(plan.dispatches.len());
    for (step, params) in plan.dispatches.iter().zip(&params.ranges) {
        dispatches.push(dispatch(step, plan, *params, &places, &order, shared)?);
    }
    let footprint = plan.footprint();
    Ok(Function {
        name: name.to_string(),
        inputs: ports(&plan.inputs, places.first_input, &order)?,
        outputs: ports(&plan.outputs, places.first_output, &order)?,
        symbols,
        slots,
        memory: MemoryReport {
            peak: footprint.peak,
            lower_bound: footprint.lower_bound,
            naive: footprint.naive,
            strategy: plan.memory.strategy.to_string(),
        },
        dispatches,
    })
}

/// Byte ranges of the dispatches' parameters in the buffer of parameters.
struct Params {
    /// Byte offset and byte size of each dispatch's parameters. The size is 0 for a dispatch without parameters.
    ranges: Vec<(u64, u64)>,
    bytes: u64,
}

impl Params {
    /// Lays out the parameters of all dispatches in one buffer. Dispatches with equal parameters use one copy.
    fn from_plan(plan: &Plan, target: &TargetProfile) -> Self {
        let alignment = u64::from(target.limits.uniform_buffer_alignment).max(16);
        let mut known: BTreeMap<&[Dim], u64> = BTreeMap::new();
        let (mut ranges, mut end) = (Vec::with_capacity(plan.dispatches.len()), 0u64);
        for step in &plan.dispatches {
            let words = step.launch.params.as_slice();
            let bytes = (words.len() as u64 * 4).next_multiple_of(16);
            if words.is_empty() {
                ranges.push((0, 0));
                continue;
            }
            let offset = *known.entry(words).or_insert_with(|| {
                let offset = end.next_multiple_of(alignment);
                end = offset + bytes;
                offset
            });
            ranges.push((offset, bytes));
        }
        Self { ranges, bytes: end }
    }
}

/// Indices of the slots (buffers and images) that dispatches bind, by what the slots hold.
struct Places<'a> {
    weights: &'a [Place],
    first_weights: u32,
    first_arena: u32,
    first_input: u32,
    first_output: u32,
    params: u32,
    /// Index of the slot of each state of the plan.
    states: Vec<u32>,
    first_image: u32,
    /// Index of the image slot of each constant that is stored in a texture, by the constant's index.
    constants: BTreeMap<usize, u32>,
}

fn slots<'a>(
    plan: &Plan,
    bounds: &Bounds,
    weights: &'a [Place],
    params: u64,
    shared: &Shared<'_>,
) -> Result<(Vec<Slot>, Places<'a>)> {
    // Inputs and outputs come first, so that all functions of a name have them in the same slots.
    let mut slots = Vec::new();
    let first_input = index(slots.len())?;
    for (i, port) in plan.inputs.iter().enumerate() {
        slots.push(Slot { kind: SlotKind::Input(index(i)?), size: port_bytes(port, bounds, shared.target)? });
    }
    let first_output = index(slots.len())?;
    for (i, port) in plan.outputs.iter().enumerate() {
        slots
            .push(Slot { kind: SlotKind::Output(index(i)?), size: port_bytes(port, bounds, shared.target)? });
    }
    let first_weights = index(slots.len())?;
    for (i, slot) in shared.weights.iter().enumerate() {
        slots.push(Slot { kind: SlotKind::Weights(index(i)?), size: slot.size });
    }
    let first_arena = index(slots.len())?;
    for bytes in &plan.memory.arenas {
        slots.push(Slot { kind: SlotKind::Arena, size: *bytes });
    }
    let params_slot = index(slots.len())?;
    if params > 0 {
        slots.push(Slot { kind: SlotKind::Params, size: params });
    }
    let mut states = Vec::with_capacity(plan.states.len());
    for state in &plan.states {
        let known = shared.states.iter().position(|slot| slot.name == state.name);
        let known = known.ok_or_else(|| Error::internal("bundle", "an unknown state"))?;
        states.push(index(slots.len())?);
        slots.push(Slot { kind: SlotKind::State(index(known)?), size: state.bytes });
    }
    let first_image = index(slots.len())?;
    for image in &plan.images.textures {
        slots.push(Slot { kind: SlotKind::Image(images::slot(image, None)), size: image.bytes() });
    }
    let mut constants = BTreeMap::new();
    for (i, place) in weights.iter().enumerate() {
        if let Place::Texture(image, size) = place {
            constants.insert(i, index(slots.len())?);
            slots.push(Slot { kind: SlotKind::Image(*image), size: *size });
        }
    }
    let places = Places {
        weights,
        first_weights,
        first_arena,
        first_input,
        first_output,
        params: params_slot,
        states,
        first_image,
        constants,
    };
    Ok((slots, places))
}

/// Returns the binding of a tensor's location: slot index, byte offset and byte size.
fn binding(
    location: Location,
    plan: &Plan,
    params: (u64, u64),
    places: &Places<'_>,
    shared: &Shared<'_>,
) -> Result<Binding> {
    let unplaced = |what: &str| Error::internal("bundle", format!("{what} has no slot"));
    let port = |ports: &[Port], first: u32, i: usize| {
        let port = ports.get(i).ok_or_else(|| unplaced("a port"))?;
        Ok(Binding {
            slot: first + index(i)?,
            offset: 0,
            size: port_bytes(port, &plan.bounds, shared.target)?,
        })
    };
    match location {
        Location::Arena(i) => {
            let place = plan.memory.offsets.get(i).zip(plan.tensors.get(i));
            let (offset, size) = place.ok_or_else(|| unplaced("a tensor"))?;
            let slot = places.first_arena + index(plan.memory.arena(i))?;
            Ok(Binding { slot, offset: *offset, size: *size })
        }
        Location::Image(i) => {
            let object = plan.images.texture_of.get(i).copied();
            let image = object.and_then(|object| plan.images.textures.get(object));
            let (object, image) = object.zip(image).ok_or_else(|| unplaced("an image"))?;
            Ok(Binding { slot: places.first_image + index(object)?, offset: 0, size: image.bytes() })
        }
        Location::Input(i) => port(&plan.inputs, places.first_input, i),
        Location::Output(i) => port(&plan.outputs, places.first_output, i),
        Location::Weight(i) => match places.weights.get(i) {
            Some(Place::Buffer(place)) => {
                Ok(Binding { slot: places.first_weights + place.slot, ..place.clone() })
            }
            Some(Place::Texture(_, size)) => {
                let slot = *places.constants.get(&i).ok_or_else(|| unplaced("a constant"))?;
                Ok(Binding { slot, offset: 0, size: *size })
            }
            None => Err(unplaced("a constant")),
        },
        Location::State(i) => {
            let place = places.states.get(i).zip(plan.states.get(i));
            let (slot, state) = place.ok_or_else(|| unplaced("a state"))?;
            Ok(Binding { slot: *slot, offset: 0, size: state.bytes })
        }
        Location::Params => Ok(Binding { slot: places.params, offset: params.0, size: params.1 }),
    }
}

fn dispatch(
    step: &plan::Dispatch,
    plan: &Plan,
    params: (u64, u64),
    places: &Places<'_>,
    symbols: &Symbols<'_>,
    shared: &Shared<'_>,
) -> Result<Dispatch> {
    let launch = &step.launch;
    let bindings = step.locations.iter().map(|location| binding(*location, plan, params, places, shared));
    let pipeline = shared.pipelines.get(&key(step));
    let [x, y, z] = &launch.grid;
    let size = |dim: &Dim| program(dim, symbols, &step.label);
    check_grid(step, &plan.bounds, shared.target)?;
    Ok(Dispatch {
        pipeline: *pipeline.ok_or_else(|| Error::internal("bundle", "an unknown pipeline"))?,
        bindings: bindings.collect::<Result<_>>()?,
        grid: [size(x)?, size(y)?, size(z)?],
        params: launch.params.iter().map(size).collect::<Result<_>>()?,
        params_offset: params.0,
        barrier_before: step.barrier,
        label: step.label.clone(),
        flops: size(&launch.flops)?,
        bytes: size(&step.bytes)?,
    })
}

/// Checks that the dispatches, inputs and outputs of a plan stay within the target's limits, for all values of the
/// symbols. Writing a bundle checks these limits too.
///
/// # Errors
/// If a limit is exceeded, with bounds of symbols for which it is not.
pub fn check_limits(plan: &Plan, target: &TargetProfile) -> Result<()> {
    plan.dispatches.iter().try_for_each(|step| check_grid(step, &plan.bounds, target))?;
    let mut ports = plan.inputs.iter().chain(&plan.outputs);
    ports.try_for_each(|port| port_bytes(port, &plan.bounds, target).map(drop))
}

/// Checks that a dispatch stays within the target's limit of workgroups per axis, for all values of the symbols.
fn check_grid(step: &plan::Dispatch, bounds: &Bounds, target: &TargetProfile) -> Result<()> {
    for (groups, limit) in step.launch.grid.iter().zip(target.limits.max_workgroup_count) {
        let most = groups.range(bounds).1;
        if most > i64::from(limit) {
            return Err(Error::TooLarge {
                reason: format!(
                    "`{}` needs {most} workgroups on one axis; target {} allows {limit}",
                    step.label, target.name
                ),
                remedies: bound_remedies::remedies(groups, bounds, limit.into()),
            });
        }
    }
    Ok(())
}

fn ports(ports: &[Port], first: u32, symbols: &Symbols<'_>) -> Result<Vec<drift_format::Port>> {
    let port = |(i, port): (usize, &Port)| {
        Ok(drift_format::Port {
            name: port.name.clone(),
            host_type: host_type(port.dtype),
            device_type: device_type(port.device),
            shape: port.shape.iter().map(|d| program(d, symbols, &port.name)).collect::<Result<_>>()?,
            slot: first + index(i)?,
            offset: 0,
        })
    };
    ports.iter().enumerate().map(port).collect()
}

/// Returns the byte size of a port's buffer at the upper bounds of the symbols. Fails above the target's limit for one
/// storage buffer.
fn port_bytes(port: &Port, bounds: &Bounds, target: &TargetProfile) -> Result<u64> {
    let elements = port.shape.iter().fold(1i64, |n, d| n.saturating_mul(d.range(bounds).1.max(0)));
    let bytes = elements.saturating_mul(port.device.bytes());
    let bytes = u64::try_from(bytes).map_err(|e| Error::internal("bundle", e.to_string()))?;
    let limit = target.limits.max_storage_buffer_range;
    if bytes > limit {
        let size = product(&port.shape).scale(port.device.bytes());
        return Err(Error::TooLarge {
            reason: format!(
                "port `{}` takes {bytes} bytes, and target {} binds at most {limit}",
                port.name, target.name
            ),
            remedies: bound_remedies::remedies(&size, bounds, limit),
        });
    }
    Ok(bytes.max(1).next_multiple_of(16))
}

/// Converts a symbolic size to an expression over the function's symbols. Fails if the expression exceeds the limits of
/// the bundle format.
fn program(dim: &Dim, symbols: &Symbols<'_>, name: &str) -> Result<Expr> {
    let program = expr(dim, symbols)?;
    match program.check(symbols.len()) {
        Err(ExprError::TooLarge) => Err(Error::request(
            format!("the expression for a size of `{name}` is too long for a bundle"),
            "fix one of the model's sizes with --dim NAME=N",
        )),
        _ => Ok(program),
    }
}

fn expr(dim: &Dim, symbols: &BTreeMap<&str, u32>) -> Result<Expr> {
    let mut sum: Option<Expr> = None;
    for term in dim.terms() {
        let mut product = Expr::constant(term.coefficient);
        for (i, factor) in term.factors.iter().enumerate() {
            let value =
                match factor {
                    Atom::Symbol(name) => Expr::symbol(*symbols.get(&**name).ok_or_else(|| {
                        Error::internal("bundle", format!("symbol `{name}` is not declared"))
                    })?),
                    Atom::FloorDiv(inner, divisor) => {
                        expr(inner, symbols)?.then(ExprOp::FloorDiv, Expr::constant(*divisor))
                    }
                    Atom::Positive(inner) => expr(inner, symbols)?.then(ExprOp::Max, Expr::constant(0)),
                };
            product = if i == 0 && term.coefficient == 1 { value } else { product.then(ExprOp::Mul, value) };
        }
        sum = Some(match sum {
            Some(before) => before.then(ExprOp::Add, product),
            None => product,
        });
    }
    Ok(sum.unwrap_or_else(|| Expr::constant(0)))
}
