//! Buffers and textures, and their contents at load.

use super::context::Context;
use crate::codec::section;
use crate::error::{Error, Result};
use crate::format::{DeviceType, Image, ImageKind, Manifest, Texture, Variant};
use std::any::Any;
use std::sync::Arc;
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, Extent3d, Origin3d, TexelCopyBufferLayout, TexelCopyTextureInfo,
    TextureAspect, TextureDescriptor, TextureDimension, TextureFormat, TextureUsages, TextureView,
    TextureViewDescriptor, TextureViewDimension,
};

/// wgpu usage flags of buffers that dispatches bind and copies access.
pub(super) const BOUND: BufferUsages = BufferUsages::STORAGE
    .union(BufferUsages::UNIFORM)
    .union(BufferUsages::COPY_SRC)
    .union(BufferUsages::COPY_DST);
/// wgpu usage flags of buffers for reading results back to the host.
pub(super) const READ: BufferUsages = BufferUsages::MAP_READ.union(BufferUsages::COPY_DST);

/// Maximum bytes per upload. wgpu keeps a copy of the bytes until the device has them.
const UPLOAD_BYTES: usize = 16 << 20;

/// A type-erased [`BufferRange`].
pub(crate) type ErasedRange = Arc<dyn Any + Send + Sync>;

/// A range of a buffer, which stays allocated as long as a clone exists.
pub(super) struct BufferRange {
    pub(super) context: Arc<Context>,
    pub(super) buffer: Buffer,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Returns the wgpu range behind a type-erased range, or `None` if the range belongs to another backend.
pub(super) fn buffer_range(range: &ErasedRange) -> Option<&BufferRange> {
    range.downcast_ref()
}

/// Creates a buffer that is filled with zeros.
pub(super) fn create_buffer(
    context: &Context,
    size: u64,
    usage: BufferUsages,
    what: &'static str,
) -> Result<Buffer> {
    let described = BufferDescriptor { label: Some(what), size, usage, mapped_at_creation: false };
    let buffer = context.device.create_buffer(&described);
    context.check(what, size)?;
    context.counts.count_allocation(size);
    Ok(buffer)
}

pub(super) fn create_buffers(
    context: &Context,
    sizes: impl Iterator<Item = u64>,
    usage: BufferUsages,
    what: &'static str,
) -> Result<Vec<Buffer>> {
    sizes.map(|size| create_buffer(context, size, usage, what)).collect()
}

/// Creates the weight buffers and fills them from the file.
pub(super) fn create_weights(
    context: &Context,
    manifest: &Manifest,
    variant: &Variant,
    file: &[u8],
) -> Result<Vec<Buffer>> {
    let slots = create_buffers(context, variant.weights.iter().map(|slot| slot.size), BOUND, "weights")?;
    for placement in &variant.placements {
        let slot = usize::try_from(placement.slot).ok().and_then(|index| slots.get(index));
        let slot = slot.ok_or_else(|| Error::invalid("placements", "a slot does not exist"))?;
        let mut offset = placement.offset;
        for part in chunk(manifest, placement.chunk, file)?.chunks(UPLOAD_BYTES) {
            write_padded(context, slot, offset, part);
            offset += part.len() as u64;
            if part.len() == UPLOAD_BYTES {
                // wgpu frees its copy once the device has the data.
                context.wait(Some(context.queue.submit(None)))?;
            }
        }
    }
    context.check("weights", 0)?;
    Ok(slots)
}

/// Writes bytes at an offset that is a multiple of 4, zero-padded to the next multiple of 4.
pub(super) fn write_padded(context: &Context, to: &Buffer, offset: u64, bytes: &[u8]) {
    let (words, rest) = bytes.split_at(bytes.len() / 4 * 4);
    if !words.is_empty() {
        context.queue.write_buffer(to, offset, words);
    }
    if !rest.is_empty() {
        let mut last = [0; 4];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        context.queue.write_buffer(to, offset + words.len() as u64, &last);
    }
}

/// Creates the textures of a variant and their views, in the order of its images.
pub(super) fn create_views(
    context: &Context,
    manifest: &Manifest,
    variant: &Variant,
    file: &[u8],
) -> Result<Vec<TextureView>> {
    let (images, _) = variant.images();
    images.iter().map(|image| create_view(context, manifest, image, file)).collect()
}

fn create_view(context: &Context, manifest: &Manifest, image: &Image, file: &[u8]) -> Result<TextureView> {
    let [width, height, depth_or_array_layers] = image.extent;
    let size = Extent3d { width, height, depth_or_array_layers };
    let filled = if image.chunk.is_some() { TextureUsages::COPY_DST } else { TextureUsages::STORAGE_BINDING };
    let bytes = image.size().unwrap_or(u64::MAX);
    let texture = context.device.create_texture(&TextureDescriptor {
        label: Some("image"),
        size,
        mip_level_count: 1,
        sample_count: 1,
        dimension: match image.texture.kind {
            ImageKind::D3 => TextureDimension::D3,
            ImageKind::D2 | ImageKind::D2Array => TextureDimension::D2,
        },
        format: format(image.texture),
        usage: TextureUsages::TEXTURE_BINDING | filled,
        view_formats: &[],
    });
    context.check("image", bytes)?;
    context.counts.count_allocation(bytes);
    if let Some(index) = image.chunk {
        let to = TexelCopyTextureInfo {
            texture: &texture,
            mip_level: 0,
            origin: Origin3d::ZERO,
            aspect: TextureAspect::All,
        };
        let row = width
            .checked_mul(4)
            .and_then(|elements| elements.checked_mul(u32::try_from(image.texture.element.size()).ok()?));
        let layout = TexelCopyBufferLayout { offset: 0, bytes_per_row: row, rows_per_image: Some(height) };
        context.queue.write_texture(to, chunk(manifest, index, file)?, layout, size);
    }
    let dimension = Some(dimension(image.texture.kind));
    Ok(texture.create_view(&TextureViewDescriptor { dimension, ..TextureViewDescriptor::default() }))
}

fn chunk<'a>(manifest: &Manifest, index: u32, file: &'a [u8]) -> Result<&'a [u8]> {
    let chunk = usize::try_from(index).ok().and_then(|index| manifest.chunks.get(index));
    let chunk = chunk.ok_or_else(|| Error::invalid("placements", "a chunk does not exist"))?;
    section(file, chunk.offset, chunk.size)
}

pub(super) fn format(texture: Texture) -> TextureFormat {
    match texture.element {
        DeviceType::F32 => TextureFormat::Rgba32Float,
        DeviceType::F16 => TextureFormat::Rgba16Float,
        DeviceType::I32 => TextureFormat::Rgba32Sint,
        DeviceType::U32 => TextureFormat::Rgba32Uint,
        DeviceType::I8 => TextureFormat::Rgba8Sint,
        DeviceType::U8 => TextureFormat::Rgba8Uint,
    }
}

pub(super) fn dimension(kind: ImageKind) -> TextureViewDimension {
    match kind {
        ImageKind::D2 => TextureViewDimension::D2,
        ImageKind::D2Array => TextureViewDimension::D2Array,
        ImageKind::D3 => TextureViewDimension::D3,
    }
}
