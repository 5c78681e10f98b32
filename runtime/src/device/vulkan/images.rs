//! Vulkan images, and the upload of the constants that some images hold.
//!
//! An image has the layout GENERAL from load to end, so barriers between dispatches are equal for buffers and
//! images.

use super::context::{Context, Memory};
use super::failed;
use super::memory::{Buffer, MemoryUse, out_of_memory};
use super::record::{Commands, barrier};
use super::texel_format::texel_format;
use crate::codec::section;
use crate::error::{Error, Result};
use crate::format::{self, ImageKind, Manifest, Variant};
use ash::vk;
use std::sync::Arc;

/// Size in bytes of the staging buffer through which constants are copied into images. Each copy has whole rows of
/// texels.
const WINDOW: usize = 8 << 20;

/// An image and its view for shaders.
pub(super) struct Image {
    context: Arc<Context>,
    raw: vk::Image,
    memory: Option<Arc<Memory>>,
    pub(super) view: vk::ImageView,
}

/// Returns the image subresource that has `count` layers from layer `first` on, and the number of its layers. For an
/// image that is not an array, these are layer 0 and the number 1.
fn subresource_layers(kind: ImageKind, first: u32, count: u32) -> (vk::ImageSubresourceLayers, u32) {
    let (base_array_layer, layer_count) = if kind == ImageKind::D2Array { (first, count) } else { (0, 1) };
    let aspect_mask = vk::ImageAspectFlags::COLOR;
    (vk::ImageSubresourceLayers { aspect_mask, mip_level: 0, base_array_layer, layer_count }, layer_count)
}

impl Image {
    fn new(context: &Arc<Context>, image: &format::Image) -> Result<Image> {
        let [width, height, depth] = image.extent;
        let kind = image.texture.kind;
        let (image_type, view_type) = match kind {
            ImageKind::D2 => (vk::ImageType::TYPE_2D, vk::ImageViewType::TYPE_2D),
            ImageKind::D2Array => (vk::ImageType::TYPE_2D, vk::ImageViewType::TYPE_2D_ARRAY),
            ImageKind::D3 => (vk::ImageType::TYPE_3D, vk::ImageViewType::TYPE_3D),
        };
        let (_, array_layers) = subresource_layers(kind, 0, depth);
        let create = vk::ImageCreateInfo {
            image_type,
            format: texel_format(image.texture.element),
            extent: vk::Extent3D { width, height, depth: if kind == ImageKind::D3 { depth } else { 1 } },
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
        let mut created = Image { context: context.clone(), raw, memory: None, view: vk::ImageView::null() };
        // SAFETY: as above.
        let needs = unsafe { context.device.get_image_memory_requirements(raw) };
        let (memory, offset) = context.allocate(&needs, MemoryUse::Image, what)?;
        let bound = memory.raw;
        created.memory = Some(memory);
        // SAFETY: the image is new, and the range was allocated by its requirements.
        unsafe { context.device.bind_image_memory(raw, bound, offset) }
            .map_err(failed("vkBindImageMemory"))?;
        let create = vk::ImageViewCreateInfo {
            image: raw,
            view_type,
            format: create.format,
            subresource_range: all_layers(array_layers),
            ..Default::default()
        };
        // SAFETY: as above.
        let view = unsafe { context.device.create_image_view(&create) };
        created.view = view.map_err(failed("vkCreateImageView"))?;
        Ok(created)
    }
}

fn all_layers(layer_count: u32) -> vk::ImageSubresourceRange {
    let aspect_mask = vk::ImageAspectFlags::COLOR;
    vk::ImageSubresourceRange { aspect_mask, level_count: 1, layer_count, ..Default::default() }
}

impl Drop for Image {
    fn drop(&mut self) {
        // SAFETY: the owner has waited for all submissions that use the image.
        unsafe {
            self.context.device.destroy_image_view(self.view);
            self.context.device.destroy_image(self.raw);
        }
    }
}

/// Creates every image of a variant and fills the images that hold constants.
pub(super) fn create_images(
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
            subresource_range: all_layers(vk::REMAINING_ARRAY_LAYERS),
            ..Default::default()
        };
        let barriers: Vec<_> = images.iter().map(general).collect();
        // SAFETY: the images are live and new; the command is being recorded.
        unsafe { context.device.cmd_image_barriers(command, &barriers) };
    })?;
    if described.iter().all(|image| image.chunk.is_none()) {
        return Ok(images);
    }
    // Exceeds `WINDOW` only if a single row does.
    let row = |image: &format::Image| image.size().unwrap_or(0) / u64::from(image.extent[1].max(1));
    let size = described.iter().map(row).fold(WINDOW as u64, u64::max);
    let mut window = Buffer::new(
        context,
        size,
        vk::BufferUsageFlags::TRANSFER_SRC,
        MemoryUse::Upload,
        "the staging window",
    )?;
    for (image, created) in described.iter().zip(&images) {
        let chunk = image.chunk.and_then(|chunk| usize::try_from(chunk).ok());
        let Some(chunk) = chunk.and_then(|index| manifest.chunks.get(index)) else { continue };
        fill_image(&commands, section(file, chunk.offset, chunk.size)?, image, created, &mut window)?;
    }
    Ok(images)
}

/// Copies texels into an image. Each copy has the maximum number of rows that fit the staging buffer `window`.
fn fill_image(
    commands: &Commands,
    mut bytes: &[u8],
    image: &format::Image,
    created: &Image,
    window: &mut Buffer,
) -> Result<()> {
    let wrong_size = || Error::invalid("images", "the size of a chunk differs from the size of its image");
    let [width, height, depth] = image.extent;
    let row = u64::from(width) * 4 * image.texture.element.size();
    let max_rows = u32::try_from(window.size / row.max(1)).unwrap_or(u32::MAX).max(1);
    for z in 0..depth {
        let mut y = 0;
        while y < height {
            let rows = max_rows.min(height - y);
            let size = usize::try_from(row * u64::from(rows)).map_err(|_| wrong_size())?;
            let (rows_bytes, rest) = bytes.split_at_checked(size).ok_or_else(wrong_size)?;
            let target =
                window.bytes_mut().and_then(|window| window.get_mut(..size)).ok_or_else(wrong_size)?;
            target.copy_from_slice(rows_bytes);
            let (image_subresource, _) = subresource_layers(image.texture.kind, z, 1);
            let offset_z = if image.texture.kind == ImageKind::D3 { z } else { 0 };
            let copy = vk::BufferImageCopy {
                image_subresource,
                image_offset: vk::Offset3D { x: 0, y: y.cast_signed(), z: offset_z.cast_signed() },
                image_extent: vk::Extent3D { width, height: rows, depth: 1 },
                ..Default::default()
            };
            commands.run_once(&mut |command| {
                let context = &created.context;
                // SAFETY: the window holds the rows, which lie in the image; the command is being recorded.
                unsafe { context.device.cmd_copy_buffer_to_image(command, window.raw, created.raw, copy) };
                barrier(context, command, barrier::TRANSFER_TO_ALL);
            })?;
            bytes = rest;
            y += rows;
        }
    }
    Ok(())
}
