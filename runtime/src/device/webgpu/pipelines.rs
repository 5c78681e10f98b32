//! Creates every pipeline of a variant, on several threads.

use super::context::Context;
use super::memory::{dimension, format};
use crate::codec::section;
use crate::device::backend::LoadRequest;
use crate::error::{Error, Result};
use crate::format::{BindingKind, DeviceType, Manifest, Pipeline};
use crate::threads;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use wgpu::{
    BindGroupLayout, BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType, BufferBindingType,
    ComputePipeline, ComputePipelineDescriptor, PipelineLayout, PipelineLayoutDescriptor,
    ShaderModuleDescriptor, ShaderSource, ShaderStages, StorageTextureAccess, TextureSampleType,
};

/// All pipelines of a variant and their layouts.
pub(super) struct Pipelines {
    /// Pipeline layouts: one per distinct list of binding kinds.
    layouts: Vec<(BindGroupLayout, PipelineLayout)>,
    /// Compiled pipelines, each with the index of its layout.
    pipelines: Vec<(ComputePipeline, usize)>,
}

impl Pipelines {
    pub(super) fn create(context: &Context, source: &LoadRequest<'_>) -> Result<Pipelines> {
        let LoadRequest { manifest, variant, file, progress, .. } = *source;
        let mut known: Vec<&[BindingKind]> = Vec::new();
        let mut layouts = Vec::new();
        let mut jobs = Vec::with_capacity(variant.pipelines.len());
        for pipeline in &variant.pipelines {
            let kinds = pipeline.bindings.as_slice();
            let layout = known.iter().position(|known| *known == kinds).unwrap_or(known.len());
            if layout == known.len() {
                known.push(kinds);
                layouts.push(make_layout(context, kinds)?);
            }
            jobs.push((pipeline, layout, Mutex::new(None)));
        }
        threads::parallel_for(jobs.len(), &|index| {
            let Some((pipeline, layout, result)) = jobs.get(index) else { return };
            let Some((_, layout)) = layouts.get(*layout) else { return };
            let created = compile(context, manifest, pipeline, layout, file);
            progress.step();
            if let Ok(mut result) = result.lock() {
                *result = Some(created);
            }
        });
        context.check("creating pipelines", 0)?;
        let unfinished = || Error::Driver { call: "loading", code: "a thread failed".to_owned() };
        let finish = |(_, layout, result): (&Pipeline, usize, Mutex<Option<Result<ComputePipeline>>>)| {
            let created = result.into_inner().ok().flatten().ok_or_else(unfinished)??;
            Ok((created, layout))
        };
        let pipelines = jobs.into_iter().map(finish).collect::<Result<Vec<_>>>()?;
        Ok(Pipelines { layouts, pipelines })
    }

    /// Returns a pipeline, its bind group layout, and the layout's index.
    pub(super) fn get(&self, index: u32) -> Option<(&ComputePipeline, &BindGroupLayout, usize)> {
        let (pipeline, layout) = usize::try_from(index).ok().and_then(|index| self.pipelines.get(index))?;
        self.layouts.get(*layout).map(|(group, _)| (pipeline, group, *layout))
    }
}

fn make_layout(context: &Context, kinds: &[BindingKind]) -> Result<(BindGroupLayout, PipelineLayout)> {
    let mut entries = Vec::with_capacity(kinds.len());
    for (binding, kind) in (0u32..).zip(kinds) {
        let ty = binding_type(*kind)?;
        entries.push(BindGroupLayoutEntry { binding, visibility: ShaderStages::COMPUTE, ty, count: None });
    }
    let described = BindGroupLayoutDescriptor { label: None, entries: &entries };
    let group = context.device.create_bind_group_layout(&described);
    let described = PipelineLayoutDescriptor {
        bind_group_layouts: &[Some(&group)],
        ..PipelineLayoutDescriptor::default()
    };
    let pipeline = context.device.create_pipeline_layout(&described);
    context.check("creating layouts", 0)?;
    Ok((group, pipeline))
}

fn binding_type(kind: BindingKind) -> Result<BindingType> {
    let buffer = |ty| BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None };
    Ok(match kind {
        BindingKind::StorageRead => buffer(BufferBindingType::Storage { read_only: true }),
        BindingKind::StorageReadWrite => buffer(BufferBindingType::Storage { read_only: false }),
        BindingKind::Uniform => buffer(BufferBindingType::Uniform),
        BindingKind::Texels(_) => return Err(Error::invalid("pipelines", "texel buffers need Vulkan")),
        BindingKind::ImageRead(texture) => BindingType::Texture {
            sample_type: match texture.element {
                DeviceType::F32 | DeviceType::F16 => TextureSampleType::Float { filterable: false },
                DeviceType::I32 | DeviceType::I8 => TextureSampleType::Sint,
                DeviceType::U32 | DeviceType::U8 => TextureSampleType::Uint,
            },
            view_dimension: dimension(texture.kind),
            multisampled: false,
        },
        BindingKind::ImageWrite(texture) => BindingType::StorageTexture {
            access: StorageTextureAccess::WriteOnly,
            format: format(texture),
            view_dimension: dimension(texture.kind),
        },
    })
}

fn compile(
    context: &Context,
    manifest: &Manifest,
    pipeline: &Pipeline,
    layout: &PipelineLayout,
    file: &[u8],
) -> Result<ComputePipeline> {
    let place = || format!("pipeline `{}`", pipeline.name);
    let artifact = usize::try_from(pipeline.artifact).ok().and_then(|index| manifest.artifacts.get(index));
    let artifact =
        artifact.ok_or_else(|| Error::invalid(place(), "the pipeline's artifact does not exist"))?;
    let wgsl = std::str::from_utf8(section(file, artifact.offset, artifact.size)?)
        .map_err(|_| Error::invalid(place(), "the pipeline's shader is not UTF-8"))?;
    let label = Some(pipeline.name.as_str());
    let module = context
        .device
        .create_shader_module(ShaderModuleDescriptor { label, source: ShaderSource::Wgsl(wgsl.into()) });
    let created = context.device.create_compute_pipeline(&ComputePipelineDescriptor {
        label,
        layout: Some(layout),
        module: &module,
        entry_point: Some(&pipeline.entry),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    context.counts.pipelines.fetch_add(1, Ordering::Relaxed);
    Ok(created)
}
