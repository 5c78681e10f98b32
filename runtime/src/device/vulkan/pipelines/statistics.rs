//! Compiles single pipelines of a variant, and reads what the driver reports about them.

use super::{Job, Pipelines, compile, descriptor_type, pipeline_job};
use crate::bundle::Bundle;
use crate::device::vulkan::context::{Candidate, Context};
use crate::device::vulkan::failed;
use crate::device::vulkan::functions::executables::{Executables, lossy};
use crate::device::vulkan::instance::Instance;
use crate::device::{DeviceInfo, unmet};
use crate::error::{Error, Result, Unmet};
use crate::format::{Pipeline, Variant};
use crate::statistics::{Executable, PipelineStatistics};
use ash::{khr, vk};
use std::sync::Arc;
use std::time::Instant;

/// A device that compiles the pipelines of one variant of a bundle, one at a time. No memory is allocated for weights or
/// tensors.
pub struct PipelineCompiler<'a> {
    bundle: &'a Bundle,
    variant: &'a Variant,
    context: Arc<Context>,
    /// Absent if the driver does not report statistics.
    executables: Option<Executables>,
}

impl<'a> PipelineCompiler<'a> {
    /// Opens the device that `device` selects (as in [`probe`](crate::device::probe)) for a variant of the bundle, given by
    /// its index. Fails if the device does not meet the requirements of the variant.
    pub fn open(bundle: &'a Bundle, variant: usize, device: Option<&str>) -> Result<PipelineCompiler<'a>> {
        let manifest = bundle.manifest();
        let variant = manifest.variants.get(variant).ok_or_else(|| {
            Error::invalid("the bundle".to_owned(), format!("there is no variant with the index {variant}"))
        })?;
        bundle.verify_weights(false)?;
        let candidate = Candidate::select(device)?;
        let reasons = unmet(manifest, variant, &candidate.info);
        if !reasons.is_empty() {
            let variants = vec![Unmet { target: variant.target.clone(), reasons }];
            return Err(Error::Unmet { device: candidate.info.name, variants });
        }
        let reports = candidate.has_extension(khr::pipeline_executable_properties::NAME)?;
        let context = candidate.open_with(&[variant], false, true)?;
        // SAFETY: the device was opened with the extension if it has the extension.
        let load = || unsafe { Executables::load(&Instance::load()?.raw, &context.device) };
        let executables = if reports { Some(load()?) } else { None };
        Ok(PipelineCompiler { bundle, variant, context, executables })
    }

    /// Returns the properties of the device.
    pub fn device(&self) -> &DeviceInfo {
        &self.context.info
    }

    /// True if the driver reports statistics. Without them, the result of [`compile`](Self::compile) has only the time.
    pub fn reports_statistics(&self) -> bool {
        self.executables.is_some()
    }

    /// Compiles a pipeline of the variant, given by its index. With `texts`, the driver also writes its internal
    /// representations, which takes longer.
    pub fn compile(&self, pipeline: usize, texts: bool) -> Result<PipelineStatistics> {
        let described = self.variant.pipelines.get(pipeline).ok_or_else(|| {
            Error::invalid(
                "the variant".to_owned(),
                format!("there is no pipeline with the index {pipeline}"),
            )
        })?;
        let mut created =
            Pipelines { context: self.context.clone(), layouts: Vec::new(), pipelines: Vec::new() };
        let job = self.job(&mut created, described)?;
        let mut flags = vk::PipelineCreateFlags::empty();
        if self.executables.is_some() {
            flags |= vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR;
            if texts {
                flags |= vk::PipelineCreateFlags::CAPTURE_INTERNAL_REPRESENTATIONS_KHR;
            }
        }
        let start = Instant::now();
        let raw = compile(&self.context, &job, vk::PipelineCache::null(), flags)?;
        let compile_ms = start.elapsed().as_secs_f64() * 1e3;
        created.pipelines.push(super::Compiled { raw, layout: 0 });
        let executables = match &self.executables {
            Some(functions) => self.executables(functions, raw, texts)?,
            None => Vec::new(),
        };
        Ok(PipelineStatistics { compile_ms, executables })
    }

    fn job<'p>(&self, created: &mut Pipelines, pipeline: &'p Pipeline) -> Result<Job<'p>> {
        let types: Vec<_> = pipeline.bindings.iter().map(|kind| descriptor_type(*kind)).collect();
        created.add_layout(&types)?;
        let layout = created.layouts.first().map(|layout| layout.pipeline).unwrap_or_default();
        pipeline_job(self.bundle.manifest(), self.variant, pipeline, self.bundle.bytes(), (0, layout))
    }

    fn executables(
        &self,
        functions: &Executables,
        raw: vk::Pipeline,
        texts: bool,
    ) -> Result<Vec<Executable>> {
        let device = &self.context.device;
        // SAFETY: the pipeline is live and was created with captured statistics, here and below.
        let list = unsafe { functions.properties(device, raw) }
            .map_err(failed("vkGetPipelineExecutablePropertiesKHR"))?;
        let mut executables = Vec::with_capacity(list.len());
        for (index, properties) in (0u32..).zip(&list) {
            let info = vk::PipelineExecutableInfoKHR::default().pipeline(raw).executable_index(index);
            // SAFETY: as above.
            let statistics = unsafe { functions.statistics(device, &info) }
                .map_err(failed("vkGetPipelineExecutableStatisticsKHR"))?;
            let texts = if texts {
                // SAFETY: as above; the pipeline was created with captured representations.
                unsafe { functions.texts(device, &info) }
                    .map_err(failed("vkGetPipelineExecutableInternalRepresentationsKHR"))?
            } else {
                Vec::new()
            };
            executables.push(Executable {
                name: properties.name_as_c_str().map_or_else(|_| String::new(), lossy),
                subgroup_size: properties.subgroup_size,
                statistics: statistics
                    .iter()
                    .map(|statistic| (statistic_name(statistic), value(statistic)))
                    .collect(),
                texts,
            });
        }
        Ok(executables)
    }
}

fn statistic_name(statistic: &vk::PipelineExecutableStatisticKHR<'_>) -> String {
    statistic.name_as_c_str().map_or_else(|_| String::new(), lossy)
}

/// Returns the value of a statistic.
fn value(statistic: &vk::PipelineExecutableStatisticKHR<'_>) -> f64 {
    let value = statistic.value;
    // SAFETY: the format names the field of the union that the driver wrote.
    unsafe {
        match statistic.format {
            vk::PipelineExecutableStatisticFormatKHR::BOOL32 => f64::from(value.b32),
            vk::PipelineExecutableStatisticFormatKHR::INT64 => value.i64 as f64,
            vk::PipelineExecutableStatisticFormatKHR::UINT64 => value.u64 as f64,
            _ => value.f64,
        }
    }
}
