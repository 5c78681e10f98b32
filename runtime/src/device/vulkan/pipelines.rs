//! Creates every pipeline of a variant on several threads through one driver cache.
//!
//! Pipeline creation dominates a cold start (0.2–1.5 s for a large kernel on some drivers). It therefore runs
//! in parallel with the upload of weights, and the driver's cache can be kept in a file between starts.

mod cache;
#[cfg(feature = "statistics")]
pub(in super::super) mod statistics;

use super::context::Context;
use super::{failed, spirv};
use crate::codec::section;
use crate::device::backend::LoadRequest;
use crate::error::{Error, Result};
use crate::format::{BindingKind, Feature, Manifest, Pipeline, Variant};
use crate::threads;
use ash::vk;
use std::ffi::CString;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// All pipelines of a variant and their layouts.
pub(super) struct Pipelines {
    context: Arc<Context>,
    /// Pipeline layouts: one per distinct list of binding kinds.
    layouts: Vec<Layout>,
    pipelines: Vec<Compiled>,
}

#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) set: vk::DescriptorSetLayout,
    pub(super) pipeline: vk::PipelineLayout,
}

/// A compiled pipeline and the index of its layout.
#[derive(Clone, Copy)]
pub(super) struct Compiled {
    pub(super) raw: vk::Pipeline,
    pub(super) layout: usize,
}

/// Arguments for the creation of a pipeline, collected before the threads start.
struct Job<'a> {
    pipeline: &'a Pipeline,
    entry: CString,
    words: Vec<u32>,
    layout: usize,
    pipeline_layout: vk::PipelineLayout,
    full_subgroups: bool,
}

impl Pipelines {
    pub(super) fn create(context: &Arc<Context>, source: &LoadRequest<'_>) -> Result<Pipelines> {
        let LoadRequest { manifest, variant, file, cache: (cache_path, cache_key), progress, .. } = *source;
        // From here on, dropping `created` destroys the created objects on every return.
        let mut created = Pipelines { context: context.clone(), layouts: Vec::new(), pipelines: Vec::new() };
        let mut known: Vec<Vec<vk::DescriptorType>> = Vec::new();
        let mut jobs = Vec::with_capacity(variant.pipelines.len());
        for pipeline in &variant.pipelines {
            let types: Vec<_> = pipeline.bindings.iter().map(|kind| descriptor_type(*kind)).collect();
            // There are few distinct lists: most bindings are storage buffers.
            let layout = match known.iter().position(|known| *known == types) {
                Some(layout) => layout,
                None => {
                    created.add_layout(&types)?;
                    known.push(types);
                    known.len() - 1
                }
            };
            let pipeline_layout =
                created.layouts.get(layout).map(|layout| layout.pipeline).unwrap_or_default();
            jobs.push(pipeline_job(manifest, variant, pipeline, file, (layout, pipeline_layout))?);
        }
        let cache = cache::Cache::open(context, cache_path, cache_key)?;
        let results: Vec<Mutex<Result<vk::Pipeline>>> =
            jobs.iter().map(|_| Mutex::new(not_created())).collect();
        threads::parallel_for(jobs.len(), &|index| {
            if let Some((job, result)) = jobs.get(index).zip(results.get(index)) {
                let pipeline = compile(context, job, cache.raw, vk::PipelineCreateFlags::empty());
                progress.step();
                if let Ok(mut result) = result.lock() {
                    *result = pipeline;
                }
            }
        });
        let mut error = None;
        for (result, job) in results.into_iter().zip(&jobs) {
            match result.into_inner().unwrap_or_else(|_| not_created()) {
                Ok(raw) => created.pipelines.push(Compiled { raw, layout: job.layout }),
                Err(failure) => error = error.or(Some(failure)),
            }
        }
        match error {
            Some(error) => Err(error),
            None => {
                cache.save();
                Ok(created)
            }
        }
    }

    pub(super) fn get(&self, index: u32) -> Option<(Compiled, Layout)> {
        let compiled = *usize::try_from(index).ok().and_then(|index| self.pipelines.get(index))?;
        Some((compiled, *self.layouts.get(compiled.layout)?))
    }

    fn add_layout(&mut self, types: &[vk::DescriptorType]) -> Result<()> {
        let device = &self.context.device;
        let binding = |(index, kind): (u32, &vk::DescriptorType)| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(index)
                .descriptor_type(*kind)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: Vec<_> = (0u32..).zip(types).map(binding).collect();
        let create = vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings);
        // SAFETY: the device is live and `create` outlives the call, here and below.
        let set = unsafe { device.create_descriptor_set_layout(&create) }
            .map_err(failed("vkCreateDescriptorSetLayout"))?;
        let sets = [set];
        let create = vk::PipelineLayoutCreateInfo::default().set_layouts(&sets);
        // SAFETY: as above.
        match unsafe { device.create_pipeline_layout(&create) } {
            Ok(pipeline) => {
                self.layouts.push(Layout { set, pipeline });
                Ok(())
            }
            Err(code) => {
                // SAFETY: the layout was just created and nothing uses it.
                unsafe { device.destroy_descriptor_set_layout(set) };
                Err(failed("vkCreatePipelineLayout")(code))
            }
        }
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        let device = &self.context.device;
        // SAFETY: the owner has waited for all submissions that use the pipelines.
        unsafe {
            for pipeline in &self.pipelines {
                device.destroy_pipeline(pipeline.raw);
            }
            for layout in &self.layouts {
                device.destroy_pipeline_layout(layout.pipeline);
                device.destroy_descriptor_set_layout(layout.set);
            }
        }
    }
}

pub(super) fn descriptor_type(kind: BindingKind) -> vk::DescriptorType {
    match kind {
        BindingKind::StorageRead | BindingKind::StorageReadWrite => vk::DescriptorType::STORAGE_BUFFER,
        BindingKind::Uniform => vk::DescriptorType::UNIFORM_BUFFER,
        BindingKind::Texels(_) => vk::DescriptorType::UNIFORM_TEXEL_BUFFER,
        BindingKind::ImageRead(_) => vk::DescriptorType::SAMPLED_IMAGE,
        BindingKind::ImageWrite(_) => vk::DescriptorType::STORAGE_IMAGE,
    }
}

fn pipeline_job<'a>(
    manifest: &Manifest,
    variant: &Variant,
    pipeline: &'a Pipeline,
    file: &[u8],
    (layout, pipeline_layout): (usize, vk::PipelineLayout),
) -> Result<Job<'a>> {
    let place = || format!("pipeline `{}`", pipeline.name);
    let artifact = usize::try_from(pipeline.artifact).ok().and_then(|index| manifest.artifacts.get(index));
    let artifact =
        artifact.ok_or_else(|| Error::invalid(place(), "the pipeline's artifact does not exist"))?;
    let words = spirv::checked_words(
        section(file, artifact.offset, artifact.size)?,
        &pipeline.entry,
        pipeline.artifact,
    )?;
    let entry = CString::new(pipeline.entry.as_str())
        .map_err(|_| Error::invalid(place(), "the entry point's name contains a zero byte"))?;
    let divides = |size: u32| pipeline.workgroup_size[0].is_multiple_of(size);
    let full_subgroups = variant.requirements.features.contains(Feature::FullSubgroups)
        && pipeline.required_subgroup_size.is_some_and(divides);
    Ok(Job { pipeline, entry, words, layout, pipeline_layout, full_subgroups })
}

/// Placeholder for a pipeline that is not created yet.
fn not_created() -> Result<vk::Pipeline> {
    Err(failed("vkCreateComputePipelines")(vk::Result::ERROR_UNKNOWN))
}

fn compile(
    context: &Context,
    job: &Job<'_>,
    cache: vk::PipelineCache,
    flags: vk::PipelineCreateFlags,
) -> Result<vk::Pipeline> {
    let named = |call: &'static str| {
        move |code: vk::Result| match failed(call)(code) {
            Error::Driver { call, code } => {
                Error::Driver { call, code: format!("{code}, `{}`", job.pipeline.name) }
            }
            error => error,
        }
    };
    let create = vk::ShaderModuleCreateInfo::default().code(&job.words);
    // SAFETY: the words are whole SPIR-V instructions, verified by hash.
    let module =
        unsafe { context.device.create_shader_module(&create) }.map_err(named("vkCreateShaderModule"))?;
    let mut stage = vk::PipelineShaderStageCreateInfo::default()
        .stage(vk::ShaderStageFlags::COMPUTE)
        .module(module)
        .name(&job.entry);
    if job.full_subgroups {
        stage = stage.flags(vk::PipelineShaderStageCreateFlags::REQUIRE_FULL_SUBGROUPS);
    }
    let mut size = vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo::default();
    if let Some(required) = job.pipeline.required_subgroup_size {
        size = size.required_subgroup_size(required);
        stage = stage.push_next(&mut size);
    }
    let create =
        vk::ComputePipelineCreateInfo::default().flags(flags).stage(stage).layout(job.pipeline_layout);
    // SAFETY: everything that `create` points to outlives the call; pipeline caches may be used by several
    // threads.
    let pipeline = unsafe { context.device.create_compute_pipeline(cache, &create) };
    // SAFETY: a module may be destroyed once its pipelines are created.
    unsafe { context.device.destroy_shader_module(module) };
    let pipeline = pipeline.map_err(named("vkCreateComputePipelines"))?;
    context.counts.pipelines.fetch_add(1, Ordering::Relaxed);
    Ok(pipeline)
}
