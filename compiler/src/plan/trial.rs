//! Trials: measurements of single candidates without the model around them. One plan holds many trials, so that one bundle
//! measures all of them.
//!
//! Tensors in textures are measured in buffers. Operands that are not constants become inputs of the plan; results and
//! scratch buffers share the arena. Each dispatch waits for the one before, so that dispatches are timed separately.

use std::collections::BTreeMap;

use super::choice::Choice;
use super::device_limits;
use super::memory::{self, LiveRange};
use super::tuning;
use super::{Dispatch, Location, Plan, Port};
use crate::error::{Error, OpError, Result};
use crate::ir::dim::{Bounds, Dim};
use crate::ir::op::Constant;
use crate::ir::tensor::DType;
use crate::shader::launch::specialize_all;
use crate::shader::pack::Packed;
use crate::shader::problem::{Operand, Placement, Problem, storage_elements};
use crate::shader::{Bound, Launch};
use crate::target::TargetProfile;

/// Sizes of tensors are rounded up to this many bytes, so that a vec4 can be read at the end of any tensor.
const TENSOR_ALIGNMENT: u64 = 16;

/// Measurement of the time of one candidate for one problem.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Key of the problem in a tuning database.
    pub problem: String,
    /// Key of the candidate in a tuning database.
    pub configuration: String,
    launches: Vec<Launch>,
    operands: Vec<OperandSource>,
    result: u64,
    traffic: Dim,
    bounds: Bounds,
}

/// Source of an operand of the measured problem.
#[derive(Debug, Clone)]
enum OperandSource {
    Constant(Constant),
    /// An input of the measuring plan, with the operand's element type and number of elements.
    Input(DType, u64),
}

impl Trial {
    /// Creates the measurement of a candidate for a problem. Returns `None` if the candidate exceeds a limit of the target.
    ///
    /// # Errors
    /// If the kernel cannot be specialized.
    pub fn new(problem: &Problem<'_>, choice: &Choice) -> Result<Option<Self>, OpError> {
        let drafts = (choice.kernel.launches)(&problem.in_buffers(), &choice.candidate)?;
        if device_limits::exceeded(&drafts, problem.bounds, problem.target).is_some() {
            return Ok(None);
        }
        let launches = specialize_all(drafts)?;
        let source = |o: &Operand<'_>| match o.quantized.map(|codes| codes.source).or(o.constant) {
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

    /// Bounds of the symbols in the sizes of the measured problem.
    pub fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    /// Number of dispatches in one run of the measured candidate.
    pub fn dispatches(&self) -> usize {
        self.launches.len()
    }

    /// Approximate bytes of the operands and the result of the measured problem.
    pub fn bytes(&self) -> u64 {
        let operand = |source: &OperandSource| match source {
            OperandSource::Constant(constant) => constant.bytes.len() as u64,
            OperandSource::Input(dtype, elements) => elements.saturating_mul(dtype.bytes() as u64),
        };
        self.operands.iter().map(operand).fold(self.result, u64::saturating_add)
    }
}

/// Returns the number of elements from the start of a tensor's storage to the tensor's last element, at the upper
/// bounds of the symbols.
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

/// Label of dispatches that are not measured, because they only warm up the device.
const WARM_UP: &str = "warm-up";

/// Number of times that the first candidate runs, without being measured, to warm up the device.
const WARM_UPS: usize = 16;

/// Returns a plan that runs trials (measurements of single candidates) one after the other; their symbols must have equal bounds.
/// Each dispatch has its trial's index as label. The first trial runs several more times before all others, because the first
/// dispatches of a run include the wake-up time of the device, which is longest on processors that wake their threads one by one.
///
/// # Errors
/// If a trial exceeds a limit of the target.
pub fn plan(trials: &[Trial], target: &TargetProfile) -> Result<Plan> {
    let bounds = trials.first().map(|trial| trial.bounds.clone()).unwrap_or_default();
    let mut plan = Plan { bounds, ..Plan::empty() };
    let mut inputs = BTreeMap::new();
    let mut live_ranges = Vec::new();
    for trial in trials.first().into_iter().cycle().take(WARM_UPS) {
        add_trial(trial, WARM_UP, &mut plan, &mut inputs, &mut live_ranges, target)?;
    }
    for (i, trial) in trials.iter().enumerate() {
        add_trial(trial, &i.to_string(), &mut plan, &mut inputs, &mut live_ranges, target)?;
    }
    plan.memory = memory::plan(&live_ranges);
    plan.live_ranges = live_ranges;
    Ok(plan)
}

/// Index of each input of the measuring plan, by operand index, element type and number of elements. Two operands of one problem
/// never share an input.
type Inputs = BTreeMap<(usize, &'static str, u64), usize>;

fn add_trial(
    trial: &Trial,
    label: &str,
    plan: &mut Plan,
    inputs: &mut Inputs,
    live_ranges: &mut Vec<LiveRange>,
    target: &TargetProfile,
) -> Result<()> {
    let alignment = u64::from(target.limits.storage_buffer_alignment).max(TENSOR_ALIGNMENT);
    let (first, last) =
        (plan.dispatches.len(), plan.dispatches.len() + trial.launches.len().saturating_sub(1));
    let mut add_tensor = |plan: &mut Plan, bytes: u64| {
        let bytes = bytes.max(1).next_multiple_of(TENSOR_ALIGNMENT);
        if bytes > target.limits.max_storage_buffer_range {
            let reason = format!("a tensor of {bytes} bytes is larger than {} can bind", target.name);
            return Err(Error::request(reason, "lower the upper bounds of the symbols with --dim"));
        }
        plan.tensors.push(bytes);
        live_ranges.push(LiveRange { size: bytes.next_multiple_of(alignment), first, last });
        Ok(plan.tensors.len() - 1)
    };
    let result = add_tensor(plan, trial.result)?;
    let mut scratch = Vec::new();
    for launch in &trial.launches {
        for size in &launch.scratch {
            let bytes = u64::try_from(size.range(&plan.bounds).1).unwrap_or(0);
            scratch.push(add_tensor(plan, bytes)?);
        }
        let mut locations = Vec::with_capacity(launch.bindings.len());
        for binding in &launch.bindings {
            let missing =
                || Error::internal("trial", "a launch binds an operand that the measured problem lacks");
            locations.push(match binding.bound {
                Bound::Operand(k) => match trial.operands.get(k).ok_or_else(missing)? {
                    OperandSource::Constant(constant) => add_weight(plan, Packed::dense(constant)),
                    OperandSource::Input(dtype, elements) => {
                        let ports = &mut plan.inputs;
                        let input = inputs.entry((k, dtype.name(), *elements)).or_insert_with(|| {
                            let elements = i64::try_from(*elements).unwrap_or(i64::MAX);
                            let name = format!("{}", ports.len());
                            let (device, shape) = (dtype.on_device(), vec![Dim::known(elements)]);
                            ports.push(Port { name, dtype: *dtype, device, shape });
                            ports.len() - 1
                        });
                        Location::Input(*input)
                    }
                },
                Bound::Packed(k) => add_weight(plan, launch.packed.get(k).ok_or_else(missing)?.clone()),
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
            is_copy: false,
            bytes: trial.traffic.clone(),
        });
    }
    Ok(())
}

fn add_weight(plan: &mut Plan, packed: Packed) -> Location {
    plan.weights.push(packed);
    Location::Weight(plan.weights.len() - 1)
}
