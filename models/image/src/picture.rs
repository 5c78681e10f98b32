//! Pictures: PNG, JPEG and WebP files, previews of latents, and output in terminals.

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use image::imageops::{FilterType, resize};
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, RgbImage};

use crate::{Error, Result};

/// Maximum width and height of a picture file, in pixels.
const MAX_SIDE: u32 = 16_384;
/// Maximum memory for decoding a picture file, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Picture with 8 bits for each of red, green and blue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Red, green and blue of each pixel, row by row: `3 * width * height` bytes.
    pub rgb: Vec<u8>,
}

impl Picture {
    /// Reads a PNG, JPEG or WebP file. Transparency is dropped, and the orientation in the file is applied.
    ///
    /// # Errors
    /// If the file cannot be read or decoded, or has more than 16384 pixels on a side.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let bytes = fs::read(path).map_err(|e| picture_error(&name, e))?;
        Self::decode(&bytes, &name)
    }

    /// Decodes the content of a PNG, JPEG or WebP file. Error messages call it `name`.
    ///
    /// # Errors
    /// If the content cannot be decoded or has more than 16384 pixels on a side.
    pub fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let fail = |e: image::ImageError| picture_error(name, e);
        let format =
            format_of(bytes).ok_or_else(|| picture_error(name, "the file is not PNG, JPEG or WebP"))?;
        let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
        let mut limits = Limits::default();
        limits.max_image_width = Some(MAX_SIDE);
        limits.max_image_height = Some(MAX_SIDE);
        limits.max_alloc = Some(MAX_BYTES);
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(fail)?;
        let (width, height) = decoder.dimensions();
        if width.max(height) > MAX_SIDE || decoder.total_bytes() > MAX_BYTES {
            let reason = format!(
                "the picture has {width} x {height} pixels; the limits are {MAX_SIDE} x {MAX_SIDE} pixels and {MAX_BYTES} bytes in memory"
            );
            return Err(picture_error(name, reason));
        }
        let orientation = decoder.orientation().map_err(fail)?;
        let mut image = DynamicImage::from_decoder(decoder).map_err(fail)?;
        image.apply_orientation(orientation);
        Ok(Self::from_image(image.into_rgb8()))
    }

    /// Resizes to a width and height in pixels by Lanczos interpolation.
    ///
    /// # Errors
    /// If the size is 0 or above 16384, or the picture does not hold `3 * width * height` bytes.
    pub fn resized(&self, width: u32, height: u32) -> Result<Self> {
        self.resized_with(width, height, FilterType::Lanczos3)
    }

    /// Returns the brightness of each pixel, by the weights of ITU-R 601-2. A mask for inpainting is such a picture.
    pub fn gray(&self) -> Vec<u8> {
        let (pixels, _) = self.rgb.as_chunks::<3>();
        let gray = |[r, g, b]: &[u8; 3]| {
            let sum = u32::from(*r) * 19_595 + u32::from(*g) * 38_470 + u32::from(*b) * 7_471 + 0x8000;
            (sum >> 16) as u8
        };
        pixels.iter().map(gray).collect()
    }

    /// Encodes as PNG, with keywords and texts such as the prompt. Equal pictures and texts give equal bytes.
    ///
    /// # Errors
    /// If the picture does not hold `3 * width * height` bytes, or a keyword or text is not valid in PNG.
    pub fn encode_png(&self, texts: &[(&str, &str)]) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.encode_png_to(&mut bytes, texts).map_err(|e| picture_error("PNG", e))?;
        Ok(bytes)
    }

    /// Writes a PNG file. The content goes to a temporary file in the folder first, which is renamed then.
    ///
    /// # Errors
    /// If the picture cannot be encoded, or the file cannot be written.
    pub fn write_png(&self, path: &Path, texts: &[(&str, &str)]) -> Result<()> {
        let name = path.display().to_string();
        let mut bytes = Vec::new();
        self.encode_png_to(&mut bytes, texts).map_err(|e| picture_error(&name, e))?;
        let temporary = temporary_path(path).ok_or_else(|| picture_error(&name, "the path names no file"))?;
        let written = fs::File::create_new(&temporary)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&temporary, path));
        written.map_err(|e| {
            // The write has failed already, so an error of the removal says nothing more.
            let _ = fs::remove_file(&temporary);
            picture_error(&name, e)
        })
    }

    /// Encodes as PNG.
    fn encode_png_to(
        &self,
        bytes: &mut Vec<u8>,
        texts: &[(&str, &str)],
    ) -> std::result::Result<(), png::EncodingError> {
        let mut encoder = png::Encoder::new(bytes, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        for (keyword, text) in texts {
            // A NUL character would end the text.
            let text = text.replace('\0', " ");
            if text.chars().all(|c| u32::from(c) < 256) {
                encoder.add_text_chunk((*keyword).to_owned(), text)?;
            } else {
                encoder.add_itxt_chunk((*keyword).to_owned(), text)?;
            }
        }
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.rgb)?;
        writer.finish()
    }

    /// Resizes with a filter.
    fn resized_with(&self, width: u32, height: u32, filter: FilterType) -> Result<Self> {
        let sides = 1..=MAX_SIDE;
        if !sides.contains(&width) || !sides.contains(&height) {
            let reason =
                format!("the size {width} x {height} is not possible; use 1 to {MAX_SIDE} pixels a side");
            return Err(picture_error("picture", reason));
        }
        let image =
            RgbImage::from_raw(self.width, self.height, self.rgb.clone()).filter(|image| !image.is_empty());
        let Some(image) = image else {
            let reason = format!(
                "the picture has no pixels, or {} bytes are too few for {} x {} pixels with 3 bytes each",
                self.rgb.len(),
                self.width,
                self.height
            );
            return Err(picture_error("picture", reason));
        };
        Ok(Self::from_image(resize(&image, width, height, filter)))
    }

    /// Takes the pixels of an image.
    fn from_image(image: RgbImage) -> Self {
        Self { width: image.width(), height: image.height(), rgb: image.into_raw() }
    }
}

/// Returns the format that the first bytes of a file belong to.
fn format_of(bytes: &[u8]) -> Option<ImageFormat> {
    let webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    match bytes {
        [0x89, b'P', b'N', b'G', ..] => Some(ImageFormat::Png),
        [0xff, 0xd8, 0xff, ..] => Some(ImageFormat::Jpeg),
        _ if webp => Some(ImageFormat::WebP),
        _ => None,
    }
}

/// Returns an error for a file, or for a source that the name describes.
fn picture_error(name: &str, reason: impl std::fmt::Display) -> Error {
    Error::Picture { path: name.to_owned(), reason: reason.to_string() }
}

/// Returns a path for a temporary file in the folder of `path`. Each call in a process returns another path.
fn temporary_path(path: &Path) -> Option<PathBuf> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".{}-{}.tmp", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    Some(path.with_file_name(name))
}

/// Red, green and blue of each latent channel of Stable Diffusion, found by linear regression.
const LATENT_COLORS: [[f32; 3]; 4] =
    [[0.298, 0.207, 0.208], [0.187, 0.286, 0.173], [-0.158, 0.189, 0.264], [-0.184, -0.271, -0.473]];

/// Makes a small picture from a latent, one pixel for each position, without the VAE decoder. The colors are approximate. The
/// latent holds `channels` planes of `height` rows with `width` elements. Latents without 4 channels become gray.
pub fn preview(latent: &[f32], channels: usize, height: usize, width: usize) -> Picture {
    let size = height.saturating_mul(width);
    let planes: Vec<&[f32]> = latent.chunks_exact(size.max(1)).take(channels).collect();
    let size = if planes.len() == channels && channels > 0 { size } else { 0 };
    let weights = |channel: usize| match channels {
        4 => LATENT_COLORS.get(channel).copied().unwrap_or_default(),
        _ => [0.5 / channels as f32; 3],
    };
    let mut rgb = Vec::with_capacity(3 * size);
    for position in 0..size {
        let mut color = [0.0_f32; 3];
        for (channel, plane) in planes.iter().enumerate() {
            let value = plane.get(position).copied().unwrap_or(0.0);
            color.iter_mut().zip(weights(channel)).for_each(|(sum, weight)| *sum += weight * value);
        }
        rgb.extend(color.map(|value| ((value + 1.0) * 127.5).round() as u8));
    }
    let side = |side: usize| if size == 0 { 0 } else { u32::try_from(side).unwrap_or(0) };
    Picture { width: side(width), height: side(height), rgb }
}

/// Makes text that shows a picture in a terminal with 24-bit colors. Each character shows two pixels, one above the other.
/// Returns an empty text for pictures without pixels.
pub fn to_ansi(picture: &Picture, columns: u32) -> String {
    let rows = u64::from(picture.height) * u64::from(columns) / u64::from(picture.width.max(1)) / 2;
    let rows = u32::try_from(rows.max(1)).unwrap_or(MAX_SIDE).min(MAX_SIDE / 2);
    let Ok(small) = picture.resized_with(columns, 2 * rows, FilterType::Triangle) else {
        return String::new();
    };
    let (pixels, _) = small.rgb.as_chunks::<3>();
    let lines: Vec<&[[u8; 3]]> = pixels.chunks_exact(columns.max(1) as usize).collect();
    let (pairs, _) = lines.as_chunks::<2>();
    let mut text = String::new();
    for [upper, lower] in pairs {
        for ([r, g, b], [below_r, below_g, below_b]) in upper.iter().zip(*lower) {
            text.push_str(&format!("\x1b[38;2;{r};{g};{b}m\x1b[48;2;{below_r};{below_g};{below_b}m\u{2580}"));
        }
        text.push_str("\x1b[0m\n");
    }
    text
}
