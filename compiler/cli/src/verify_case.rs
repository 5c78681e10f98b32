//! One set of inputs that `driftc verify` checks on the device.

use std::collections::BTreeMap;
use std::path::Path;

use drift_runtime::ArrayRef;
use driftc::compile::Options;
use driftc::ir::array::Array;
use driftc::target::TargetProfile;

use crate::arrays::{to_host, to_runtime};
use crate::compare::Tolerance;
use crate::failure::Result;
use crate::session::{CacheArgs, DeviceArgs, load};

/// One comparison of the device with the CPU reference: inputs, target profile, device and tolerance.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) target: &'a TargetProfile,
    pub(crate) options: &'a Options,
    pub(crate) inputs: &'a BTreeMap<String, Array>,
    pub(crate) device: &'a DeviceArgs,
    pub(crate) tolerance: Tolerance,
}

/// Loads a bundle and runs its function `main`. Returns the device's name and the outputs in order.
pub(crate) fn run_bundle(path: &Path, case: &Case<'_>) -> Result<(String, Vec<Array>)> {
    let mut session = load(path, case.device, Some(&case.target.name), &CacheArgs::default())?;
    let arrays: Vec<(&str, drift_runtime::Array)> =
        case.inputs.iter().map(|(name, array)| (name.as_str(), to_runtime(array))).collect();
    let arrays: Vec<(&str, ArrayRef<'_>)> = arrays.iter().map(|(name, a)| (*name, a.as_ref())).collect();
    let outputs = session.run("main", &arrays)?;
    let outputs = outputs.iter().map(to_host).collect::<Result<Vec<Array>>>()?;
    Ok((session.device().name.clone(), outputs))
}
