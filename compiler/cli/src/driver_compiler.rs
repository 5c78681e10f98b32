//! Compilation of a bundle's pipelines with the compiler of a GPU's driver, in child processes. The GPU itself is not needed
//! (`make drivers`).

mod children;
mod emulated;
mod facts;
mod shader_uses;
pub(crate) mod worker;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use drift_runtime::Bundle;
use drift_runtime::codec::section;
use drift_runtime::format::{Pipeline, Variant};

use crate::drivers::{DriverDevice, program_with_driver, this_program};
use crate::failure::Result;
use crate::session::DeviceArgs;
use children::Children;
pub(crate) use children::Outcome;
pub(crate) use facts::{Facts, facts};
pub(crate) use shader_uses::ShaderUses;
use shader_uses::shader_uses;
use worker::{Device, Request};

/// A variant of a bundle whose pipelines are compiled, and how.
pub(crate) struct DriverCompiler<'a> {
    pub(crate) path: &'a Path,
    /// Index of the variant in the bundle.
    pub(crate) variant: usize,
    /// Device whose driver compiles, or `None` for a device of this machine.
    pub(crate) driver: Option<&'a DriverDevice>,
    /// Device of this machine.
    pub(crate) device: &'a DeviceArgs,
    /// Time after which a pipeline is given up.
    pub(crate) limit: Duration,
    /// Number of child processes at once; by default one per processor.
    pub(crate) processes: Option<u16>,
}

/// A pipeline to compile: its index in the variant, and the instructions that its shader is written for.
pub(crate) struct DistinctPipeline {
    pub(crate) index: usize,
    pub(crate) uses: ShaderUses,
}

impl DriverCompiler<'_> {
    /// Compiles pipelines, and returns the device and the result of each pipeline in the same order. `step` is called after
    /// each pipeline.
    ///
    /// # Errors
    /// If no child process can be started, or the device refuses the variant.
    pub(crate) fn compile(
        &self,
        pipelines: &[DistinctPipeline],
        step: &(dyn Fn() + Sync),
    ) -> Result<(Device, Vec<Outcome>)> {
        let request =
            |p: &DistinctPipeline| Request { pipeline: p.index, texts: p.uses != ShaderUses::default() };
        let requests: Vec<Request> = pipelines.iter().map(request).collect();
        let emulated = self.driver.filter(|device| device.is_emulated());
        let folder = match emulated {
            Some(_) => Some(emulated::write_pipelines(self.path, self.variant, pipelines)?),
            None => None,
        };
        let command = || match (emulated, &folder) {
            (Some(device), Some(folder)) => emulated::worker_command(device, folder.path()),
            _ => self.worker_command(),
        };
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let children = Children {
            command: &command,
            limit: self.limit,
            count: self.processes.map_or(processors, usize::from),
        };
        children::compile_all(&children, &requests, step)
    }

    /// Returns the command of a child process that compiles pipelines of the variant.
    fn worker_command(&self) -> Result<Command> {
        let mut command = match self.driver {
            Some(driver) => program_with_driver(driver)?,
            None => Command::new(this_program()?),
        };
        command.arg("audit").arg(self.path).args(["--worker", &self.variant.to_string()]);
        // A shim has one device, which is selected by the driver.
        match (self.driver, &self.device.device) {
            (Some(_), _) => _ = command.env_remove("DRIFT_DEVICE"),
            (None, Some(name)) => _ = command.args(["--device", name]),
            (None, None) => {}
        }
        Ok(command)
    }
}

/// Returns the distinct pipelines of a variant: one of each group that the driver compiles to the same code.
///
/// # Errors
/// If the bundle lacks the shader of a pipeline.
pub(crate) fn distinct_pipelines(bundle: &Bundle, variant: &Variant) -> Result<Vec<DistinctPipeline>> {
    let mut distinct: Vec<DistinctPipeline> = Vec::new();
    for (index, pipeline) in variant.pipelines.iter().enumerate() {
        let is_known = |known: &DistinctPipeline| {
            variant.pipelines.get(known.index).is_some_and(|known| same_pipeline(known, pipeline))
        };
        if !distinct.iter().any(is_known) {
            distinct.push(DistinctPipeline { index, uses: uses(bundle, pipeline)? });
        }
    }
    Ok(distinct)
}

/// Returns the instructions that the shader of a pipeline is written for.
fn uses(bundle: &Bundle, pipeline: &Pipeline) -> Result<ShaderUses> {
    let artifact = bundle.manifest().artifacts.get(pipeline.artifact as usize);
    let module = artifact.map(|artifact| section(bundle.bytes(), artifact.offset, artifact.size));
    Ok(module.transpose()?.map(shader_uses).unwrap_or_default())
}

/// True if two pipelines are compiled to the same code.
pub(crate) fn same_pipeline(a: &Pipeline, b: &Pipeline) -> bool {
    a.artifact == b.artifact
        && a.entry == b.entry
        && a.bindings == b.bindings
        && a.required_subgroup_size == b.required_subgroup_size
}
