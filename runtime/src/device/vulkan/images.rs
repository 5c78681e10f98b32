//! Images, each with memory of its own, and the upload of the constants that some of them hold.
//!
//! An image is in the layout GENERAL from load to end, so that barriers between dispatches are the same for buffers
//! and images.

use super::blocks::Memory;
use super::context::Context;
use super::failed;
use super::memory::{Buffer, Place, out_of_memory};
use super::record::{Commands, barrier};
use crate::codec::section;
use crate::error::{Error, Result};
use crate::format::{self, DeviceType, ImageKind, Manifest, Variant};
use ash::vk;
use std::sync::Arc;

/// Bytes of the window that constants pass through; rows of texels are never split.
const WINDOW: usize = 8 << 20;

/// An image and the view that shaders have of it.
pub(super) struct Image {
    context: Arc<Context>,
    raw: vk::Image,
    memory: Option<Arc<Memory>>,
    pub(super) view: vk::ImageView,
}

/// What a shader sees as a texel of four elements.
pub(super) fn texel_format(element: DeviceType) -> vk::Format {
    match element {
        DeviceType::F32 => vk::Format::R32G32B32A32_SFLOAT,
        DeviceType::F16 => vk::Format::R16G16B16A16_SFLOAT,
        DeviceType::I32 => vk::Format::R32G32B32A32_SINT,
        DeviceType::U32 => vk::Format::R32G32B32A32_UINT,
    }
}

/// All of an image of one level, from one layer on.
fn layers(kind: ImageKind, first: u32, count: u32) -> (vk::ImageSubresourceLayers, u32) {
    let (base_array_layer, layer_count) = if kind == ImageKind::D2Array { (first, count) } else { (0, 1) };
    let aspect_mask = vk::ImageAspectFlags::COLOR;
    (vk::ImageSubresourceLayers { aspect_mask, mip_level: 0, base_array_layer, layer_count }, layer_count)
}

impl Image {
    fn new(context: &Arc<Context>, image: &format::Image) -> Result<Image> {
        let [width, height, deep] = image.extent;
        let kind = image.texture.kind;
        let (image_type, view_type) = match kind {
            ImageKind::D2 => (vk::ImageType::TYPE_2D, vk::ImageViewType::TYPE_2D),
            ImageKind::D2Array => (vk::ImageType::TYPE_2D, vk::ImageViewType::TYPE_2D_ARRAY),
            ImageKind::D3 => (vk::ImageType::TYPE_3D, vk::ImageViewType::TYPE_3D),
        };
        let (_, array_layers) = layers(kind, 0, deep);
        let create = vk::ImageCreateInfo {
            image_type,
            format: texel_format(image.texture.element),
            extent: vk::Extent3D { width, height, depth: if kind == ImageKind::D3 { deep } else { 1 } },
            mip_levels: 1,
            array_layers,
            samples: vk::SampleCountFlags::TYPE_1,
            usage: vk::ImageUsageFlags::SAMPLED
                | vk::ImageUsageFlags::STORAGE
                | vk::ImageUsageFlags::TRANSFER_DST,
            ..Default::default()
        };
        let what = "an image";
        // SAFETY: the device is live, and the extent was compared with its limits; here and below.
        let raw = unsafe { context.device.create_image(&create) }
            .map_err(out_of_memory(what, image.size().unwrap_or(0)))?;
        let mut made = Image { context: context.clone(), raw, memory: None, view: vk::ImageView::null() };
        // SAFETY: as above.
        let needs = unsafe { context.device.get_image_memory_requirements(raw) };
        let (memory, offset) = context.allocate(&needs, Place::Image, what)?;
        let bound = memory.raw;
        made.memory = Some(memory);
        // SAFETY: the image is new, and the range was allocated by its requirements.
        unsafe { context.device.bind_image_memory(raw, bound, offset) }
            .map_err(failed("vkBindImageMemory"))?;
        let create = vk::ImageViewCreateInfo {
            image: raw,
            view_type,
            format: create.format,
            subresource_range: all(array_layers),
            ..Default::default()
        };
        // SAFETY: as above.
        let view = unsafe { context.device.create_image_view(&create) };
        made.view = view.map_err(failed("vkCreateImageView"))?;
        Ok(made)
    }
}

fn all(layer_count: u32) -> vk::ImageSubresourceRange {
    let aspect_mask = vk::ImageAspectFlags::COLOR;
    vk::ImageSubresourceRange { aspect_mask, level_count: 1, layer_count, ..Default::default() }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: whoever drops an image has waited for the submissions that use it.
        unsafe {
            self.context.device.destroy_image_view(self.view);
            self.context.device.destroy_image(self.raw);
        }
    }
}

/// Creates every image of a variant and fills those that hold constants.
pub(super) fn create(
    context: &Arc<Context>,
    manifest: &Manifest,
    variant: &Variant,
    file: &[u8],
) -> Result<Vec<Image>> {
    let (described, _) = variant.images();
    if described.is_empty() {
        return Ok(Vec::new());
    }
    let mut images = Vec::with_capacity(described.len());
    for image in &described {
        images.push(Image::new(context, image)?);
    }
    let commands = Commands::new(context)?;
    commands.run_once(&mut |command| {
        let general = |image: &Image| vk::ImageMemoryBarrier {
            dst_access_mask: vk::AccessFlags::TRANSFER_WRITE
                | vk::AccessFlags::SHADER_READ
                | vk::AccessFlags::SHADER_WRITE,
            new_layout: vk::ImageLayout::GENERAL,
            image: image.raw,
            subresource_range: all(vk::REMAINING_ARRAY_LAYERS),
            ..Default::default()
        };
        let barriers: Vec<_> = images.iter().map(general).collect();
        // SAFETY: the images are live and new; the command is being recorded.
        unsafe { context.device.cmd_image_barriers(command, &barriers) };
    })?;
    if described.iter().all(|image| image.chunk.is_none()) {
        return Ok(images);
    }
    // Larger only where a single row is.
    let row = |image: &format::Image| image.size().unwrap_or(0) / u64::from(image.extent[1].max(1));
    let size = described.iter().map(row).fold(WINDOW as u64, u64::max);
    let mut window =
        Buffer::new(context, size, vk::BufferUsageFlags::TRANSFER_SRC, Place::Upload, "the staging window")?;
    for (image, made) in described.iter().zip(&images) {
        let chunk = image.chunk.and_then(|chunk| usize::try_from(chunk).ok());
        let Some(chunk) = chunk.and_then(|index| manifest.chunks.get(index)) else { continue };
        fill(&commands, section(file, chunk.offset, chunk.size)?, image, made, &mut window)?;
    }
    Ok(images)
}

/// Copies texels into an image, as many whole rows at a time as the window holds.
fn fill(
    commands: &Commands,
    mut bytes: &[u8],
    image: &format::Image,
    made: &Image,
    window: &mut Buffer,
) -> Result<()> {
    let short = || Error::invalid("images", "a chunk of another size");
    let [width, height, deep] = image.extent;
    let row = u64::from(width) * 4 * image.texture.element.size();
    let most = u32::try_from(window.size / row.max(1)).unwrap_or(u32::MAX).max(1);
    for z in 0..deep {
        let mut y = 0;
        while y < height {
            let rows = most.min(height - y);
            let size = usize::try_from(row * u64::from(rows)).map_err(|_| short())?;
            let (now, later) = bytes.split_at_checked(size).ok_or_else(short)?;
            let target = window.bytes_mut().and_then(|window| window.get_mut(..size)).ok_or_else(short)?;
            target.copy_from_slice(now);
            let (image_subresource, _) = layers(image.texture.kind, z, 1);
            let place = if image.texture.kind == ImageKind::D3 { z } else { 0 };
            let copy = vk::BufferImageCopy {
                image_subresource,
                image_offset: vk::Offset3D { x: 0, y: y.cast_signed(), z: place.cast_signed() },
                image_extent: vk::Extent3D { width, height: rows, depth: 1 },
                ..Default::default()
            };
            commands.run_once(&mut |command| {
                let context = &made.context;
                // SAFETY: the window holds the rows, which lie in the image; the command is being recorded.
                unsafe { context.device.cmd_copy_buffer_to_image(command, window.raw, made.raw, copy) };
                barrier(context, command, barrier::TRANSFER_TO_ALL);
            })?;
            bytes = later;
            y += rows;
        }
    }
    Ok(())
}
