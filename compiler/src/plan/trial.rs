//! Candidates apart from their model, many in one plan, so that one bundle measures them all.
//!
//! Tensors in textures are measured in buffers. Operands that are no constants become inputs of the plan, results and
//! scratch buffers share the arena. Each dispatch waits for the one before, so that its time is its own.

use std::collections::BTreeMap;

use super::choice::Choice;
use super::fit;
use super::images;
use super::memory::{self, LiveRange};
use super::tuning;
use super::{Dispatch, Location, Plan, Port};
use crate::error::{Error, OpError, Result};
use crate::ir::dim::{Bounds, Dim};
use crate::ir::op::Constant;
use crate::ir::tensor::DType;
use crate::shader::pack::Packed;
use crate::shader::problem::{Operand, Placement, Problem, storage_elements};
use crate::shader::{Bound, Launch};
use crate::target::TargetProfile;

/// Vectors of four may be read at the end of any tensor.
const ROUND: u64 = 16;

/// One candidate of one problem.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The problem, as a tuning database names it.
    pub problem: String,
    /// The candidate, as a tuning database names it.
    pub configuration: String,
    launches: Vec<Launch>,
    operands: Vec<OperandSource>,
    result: u64,
    traffic: Dim,
    bounds: Bounds,
}

/// Where an operand comes from.
#[derive(Debug, Clone)]
enum OperandSource {
    Constant(Constant),
    /// An input of so many elements.
    Input(DType, u64),
}

impl Trial {
    /// A candidate by itself; none where it exceeds a limit of the target.
    ///
    /// # Errors
    /// When the kernel cannot be specialised.
    pub fn new(problem: &Problem<'_>, choice: &Choice) -> Result<Option<Self>, OpError> {
        let launches = (choice.kernel.launches)(&problem.in_buffers(), &choice.candidate)?;
        if fit::exceeded(&launches, problem.bounds, problem.target).is_some() {
            return Ok(None);
        }
        let source = |o: &Operand<'_>| match o.codes.map(|codes| codes.source).or(o.constant) {
            Some(constant) => OperandSource::Constant(constant.clone()),
            None => OperandSource::Input(o.dtype, extent(o, problem.bounds)),
        };
        let width = problem.result.dtype.on_device().bytes().unsigned_abs();
        Ok(Some(Self {
            problem: tuning::key(problem),
            configuration: tuning::configuration_with_hash(choice),
            launches,
            operands: problem.operands.iter().map(source).collect(),
            result: extent(&problem.result, problem.bounds).saturating_mul(width),
            traffic: problem.traffic_dim(),
            bounds: problem.bounds.clone(),
        }))
    }

    /// The symbols of the function it is of.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Dispatches it takes.
    pub fn dispatches(&self) -> usize {
        self.launches.len()
    }

    /// Bytes of memory it takes, about.
    pub fn bytes(&self) -> u64 {
        let operand = |source: &OperandSource| match source {
            OperandSource::Constant(constant) => constant.bytes.len() as u64,
            OperandSource::Input(dtype, elements) => elements.saturating_mul(dtype.bytes() as u64),
        };
        self.operands.iter().map(operand).fold(self.result, u64::saturating_add)
    }
}

/// Elements from the start of the storage to the last one that the tensor uses, at the upper bounds.
fn extent(operand: &Operand<'_>, bounds: &Bounds) -> u64 {
    let end = match &operand.placement {
        Placement::Strided { strides, offset } => {
            let far = |(stride, size): (&Dim, &Dim)| {
                let (stride, size) = (stride.range(bounds).1, size.range(bounds).1);
                stride.max(0).saturating_mul((size - 1).max(0))
            };
            let last = strides.iter().zip(&operand.shape).map(far).fold(0, i64::saturating_add);
            last.saturating_add(offset.range(bounds).1).saturating_add(1)
        }
        placement => storage_elements(&operand.shape, placement).range(bounds).1,
    };
    u64::try_from(end).unwrap_or(0).max(1).next_multiple_of(4)
}

/// The label of dispatches that belong to no trial.
const WARM_UP: &str = "warm-up";

/// How often the first trial stands before all others.
const WARM_UPS: usize = 16;

/// A plan that runs trials of the same symbols one after the other; each dispatch is labelled with its trial's index. The first
/// trial's dispatches stand before all others several times more, since the first dispatches of a run are timed with the
/// device's waking up, which takes longest where a processor's threads wake one by one.
///
/// # Errors
/// When a trial exceeds a limit of the target.
pub fn plan(trials: &[Trial], target: &TargetProfile) -> Result<Plan> {
    let mut made = Plan {
        bounds: trials.first().map(|trial| trial.bounds.clone()).unwrap_or_default(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        tensors: Vec::new(),
        states: Vec::new(),
        images: images::Images::default(),
        weights: Vec::new(),
        dispatches: Vec::new(),
        records: Vec::new(),
        memory: memory::plan(&[]),
        decisions: Vec::new(),
    };
    let mut inputs = BTreeMap::new();
    let mut records = Vec::new();
    for trial in trials.first().into_iter().cycle().take(WARM_UPS) {
        add(trial, WARM_UP, &mut made, &mut inputs, &mut records, target)?;
    }
    for (i, trial) in trials.iter().enumerate() {
        add(trial, &i.to_string(), &mut made, &mut inputs, &mut records, target)?;
    }
    made.memory = memory::plan(&records);
    made.records = records;
    Ok(made)
}

/// Inputs by operand, element type and size, so that two operands of one problem never share one.
type Inputs = BTreeMap<(usize, &'static str, u64), usize>;

fn add(
    trial: &Trial,
    label: &str,
    plan: &mut Plan,
    inputs: &mut Inputs,
    records: &mut Vec<LiveRange>,
    target: &TargetProfile,
) -> Result<()> {
    let alignment = u64::from(target.limits.storage_buffer_alignment).max(ROUND);
    let (first, last) =
        (plan.dispatches.len(), plan.dispatches.len() + trial.launches.len().saturating_sub(1));
    let mut tensor = |plan: &mut Plan, bytes: u64| {
        let bytes = bytes.max(1).next_multiple_of(ROUND);
        if bytes > target.limits.max_storage_buffer_range {
            let reason = format!("a tensor of {bytes} bytes exceeds what {} can bind", target.name);
            return Err(Error::request(reason, "lower the upper bounds of the symbols with --dim"));
        }
        plan.tensors.push(bytes);
        records.push(LiveRange { size: bytes.next_multiple_of(alignment), first, last });
        Ok(plan.tensors.len() - 1)
    };
    let result = tensor(plan, trial.result)?;
    let mut scratch = Vec::new();
    for launch in &trial.launches {
        for size in &launch.scratch {
            let bytes = u64::try_from(size.range(&plan.bounds).1).unwrap_or(0);
            scratch.push(tensor(plan, bytes)?);
        }
        let mut locations = Vec::with_capacity(launch.bindings.len());
        for binding in &launch.bindings {
            let missing = || Error::internal("trial", "a launch binds what its problem lacks");
            locations.push(match binding.bound {
                Bound::Operand(k) => match trial.operands.get(k).ok_or_else(missing)? {
                    OperandSource::Constant(constant) => weight(plan, Packed::dense(constant)),
                    OperandSource::Input(dtype, elements) => {
                        let ports = &mut plan.inputs;
                        let made = inputs.entry((k, dtype.name(), *elements)).or_insert_with(|| {
                            let elements = i64::try_from(*elements).unwrap_or(i64::MAX);
                            let name = format!("{}", ports.len());
                            let (device, shape) = (dtype.on_device(), vec![Dim::known(elements)]);
                            ports.push(Port { name, dtype: *dtype, device, shape });
                            ports.len() - 1
                        });
                        Location::Input(*made)
                    }
                },
                Bound::Packed(k) => weight(plan, launch.packed.get(k).ok_or_else(missing)?.clone()),
                Bound::Result => Location::Arena(result),
                Bound::Scratch(k) => Location::Arena(*scratch.get(k).ok_or_else(missing)?),
                Bound::Params => Location::Params,
            });
        }
        plan.dispatches.push(Dispatch {
            launch: launch.clone(),
            locations,
            barrier: true,
            label: label.to_string(),
            bytes: trial.traffic.clone(),
        });
    }
    Ok(())
}

fn weight(plan: &mut Plan, packed: Packed) -> Location {
    plan.weights.push(packed);
    Location::Weight(plan.weights.len() - 1)
}
