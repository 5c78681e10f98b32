//! Types of the functions for pictures.

use std::ffi::{c_char, c_int, c_void};

/// Handle of an image pipeline: a diffusion model on a device. The id 0 stands for no pipeline.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagePipeline {
    pub id: u64,
}

/// Picture with 8 bits for each of red, green and blue, and 1 to 16384 pixels a side. All zeros stand for no picture.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Picture {
    /// Red, green and blue of each pixel, row by row from the top: `3 * width * height` bytes.
    pub rgb: *const u8,
    /// Width in pixels.
    pub width: usize,
    /// Height in pixels.
    pub height: usize,
}

/// Request of a picture. All fields except `prompt` and `prompt_size` may be zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImageRequest {
    /// Text that the picture shows: UTF-8 without a zero byte at the end.
    pub prompt: *const c_char,
    /// Byte size of the prompt.
    pub prompt_size: usize,
    /// Text that the picture avoids, or null.
    pub negative_prompt: *const c_char,
    /// Byte size of the negative prompt.
    pub negative_prompt_size: usize,
    /// Name of the scheduler: `pndm`, `ddim`, `euler`, `euler-a`, `dpm++2m`, `dpm++2m-karras` or `lcm`. Null selects the
    /// scheduler of the model.
    pub scheduler: *const c_char,
    /// Image to start from, or no picture. A picture of another size than the pipeline's is resized.
    pub image: Picture,
    /// Mask of the image, or no picture: white where the picture is new, black where the image is kept. A mask of another
    /// size than the pipeline's is resized.
    pub mask: Picture,
    /// Number of denoising steps; 0 means the default of the model.
    pub steps: usize,
    /// Seed of the noise. Equal seeds give equal pictures.
    pub seed: u64,
    /// Fraction of the steps that change the image, at most 1; 0 means 0.8, or 1 with a mask. Ignored without an image.
    pub strength: f64,
    /// Scale of classifier-free guidance. Values up to 1 turn it off. Ignored if `has_guidance` is 0.
    pub guidance: f32,
    /// If 0, the guidance is the default of the model.
    pub has_guidance: u8,
}

/// Callback for a denoising step that the device finished: `step` counts the steps from 0, `steps` is the number of steps
/// that run, and `step_ns` is the time of this step in nanoseconds. `user` is the pointer that was passed with the
/// callback. If the callback returns 0, the run ends without a picture.
pub type EachStep =
    Option<unsafe extern "C" fn(step: usize, steps: usize, step_ns: u64, user: *mut c_void) -> c_int>;

/// Result of a run: the settings after defaults. If the callback cancelled the run, all other fields are zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImageResult {
    /// Number of denoising steps of the schedule. With an image, only a part of them ran.
    pub steps: usize,
    /// Name of the scheduler's class in diffusers. The string is valid until the next call for the pipeline.
    pub scheduler: *const c_char,
    /// Number of prompts whose ends were cut off; drift_image_pipeline_cut returns the ends.
    pub cut_count: usize,
    /// Scale of classifier-free guidance.
    pub guidance: f32,
    /// If not 0, the callback returned 0, and there is no picture.
    pub cancelled: u8,
}
