//! Pictures of diffusion models. This module is part of builds with the Cargo feature `image`.

use crate::c_text::c_text;
use crate::errors::{Failure, Result, argument, call};
use crate::handles::Shared;
use crate::picture_types::{EachStep, ImagePipeline, ImageRequest, ImageResult, Picture};
use crate::pointers::{check, copy, elements, elements_mut, put, put_unless_null};
use crate::pointers::{text, text_of, text_of_or_none, text_or_none};
use crate::types::{Options, Status, nanoseconds};
use drift_image::{Error, ImagePipeline as Model, ImageRequest as Converted, Progress, Settings};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::ptr::null;

/// Maximum width and height of an image or a mask, in pixels.
const MAX_SIDE: u32 = 16_384;

/// Open pipeline, with the strings that C may read until the next call.
struct Opened {
    model: Model,
    scheduler: CString,
    /// Ends of prompts that the last run cut off.
    cut: Vec<CString>,
}

static PIPELINES: Shared<Opened> = Shared::new();

thread_local! {
    /// Steps whose callback runs on this thread, each with the id of its pipeline.
    static STEPS: RefCell<Vec<(u64, *mut Progress<'static>)>> = const { RefCell::new(Vec::new()) };
}

/// Opens the bundle of a diffusion model. `options` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_image_pipeline_open(
    path: *const c_char,
    options: *const Options,
    pipeline: *mut ImagePipeline,
) -> Status {
    call(|| {
        check("pipeline", pipeline, 1)?;
        // SAFETY: C passes a string, and options or null.
        let (path, options) = unsafe { (text("path", path)?, crate::runs::load_options(options)?) };
        let model = Model::open(Path::new(path), &options)?;
        let id = PIPELINES.add(Opened { model, scheduler: CString::default(), cut: Vec::new() });
        // SAFETY: C passes memory for a pipeline.
        unsafe { put("pipeline", pipeline, ImagePipeline { id }) }
    })
}

/// Closes an image pipeline. Does nothing if the id is 0 or the pipeline is closed already.
#[unsafe(no_mangle)]
pub extern "C" fn drift_image_pipeline_close(pipeline: ImagePipeline) -> Status {
    call(|| {
        PIPELINES.remove(pipeline.id);
        Ok(())
    })
}

/// Calls `work` with an open pipeline, and returns the status of the call.
fn with(pipeline: ImagePipeline, work: impl FnOnce(&mut Opened) -> Result<()>) -> Status {
    call(|| PIPELINES.with(pipeline.id, "image pipeline", work))
}

/// Returns the width and height of pictures in pixels, and the shape of a latent: four numbers, 1, channels, height and
/// width. Each pointer may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_image_pipeline_sizes(
    pipeline: ImagePipeline,
    width: *mut usize,
    height: *mut usize,
    latent_shape: *mut usize,
) -> Status {
    // SAFETY: C passes memory for a number, a number and four numbers, or null.
    with(pipeline, |opened| unsafe {
        let size = opened.model.size();
        put_unless_null(width, size.0)?;
        put_unless_null(height, size.1)?;
        put_unless_null(latent_shape.cast::<[usize; 4]>(), opened.model.latent_shape())
    })
}

/// Makes a picture. `rgb` receives red, green and blue of each pixel, row by row from the top; `size` is the byte size of
/// this memory, `3 * width * height`. `callback` receives `user` and each step as soon as the device finished it; it may be
/// null, and must not call functions for this pipeline except drift_image_pipeline_latent. `result` receives the settings
/// of the run, or is null. If the callback returns 0, the run ends, and `rgb` stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_image_pipeline_run(
    pipeline: ImagePipeline,
    request: *const ImageRequest,
    callback: EachStep,
    user: *mut c_void,
    rgb: *mut u8,
    size: usize,
    result: *mut ImageResult,
) -> Status {
    // SAFETY: C passes a request, memory for `size` bytes, and memory for a result or null.
    with(pipeline, |opened| unsafe {
        let request = image_request(request)?;
        let (width, height) = opened.model.size();
        let needed = 3 * width * height;
        if size != needed {
            let message = format!(
                "a picture of {width} x {height} pixels has {needed} bytes, but there is memory for {size}"
            );
            return Err(Failure::new(Status::Request, message));
        }
        let rgb = elements_mut("rgb", rgb, size)?;
        opened.cut.clear();
        let mut listener = |step: &mut Progress<'_>| Ok(call_back(pipeline.id, step, callback, user));
        let (picture, settings) = match opened.model.run(&request, &mut listener) {
            Ok(made) => made,
            Err(Error::Cancelled) => return put_unless_null(result, cancelled()),
            Err(error) => return Err(error.into()),
        };
        copy(&picture.rgb, rgb);
        put_unless_null(result, opened.keep(&settings))
    })
}

/// Copies the latent after the last finished step. `count` is the number of elements of `latent`: channels times height
/// times width of the shape that drift_image_pipeline_sizes returns. The callback of a run may call this function for its
/// pipeline.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_image_pipeline_latent(
    pipeline: ImagePipeline,
    latent: *mut f32,
    count: usize,
) -> Status {
    call(|| {
        // SAFETY: C passes memory for `count` elements.
        let to = unsafe { elements_mut("latent", latent, count) }?;
        match running_step(pipeline.id) {
            // SAFETY: the step exists while its callback runs, and `call_back` does not use it meanwhile.
            Some(step) => copy_latent(unsafe { &mut *step }.latent(), to),
            None => {
                PIPELINES.with(pipeline.id, "image pipeline", |opened| copy_latent(opened.model.latent(), to))
            }
        }
    })
}

/// Returns the end of a prompt that the last run cut off, because the text encoder takes no more tokens. `index` counts
/// the ends from 0. The string is valid until the next call for the pipeline. If the index is out of range, the status is
/// DRIFT_STATUS_REQUEST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drift_image_pipeline_cut(
    pipeline: ImagePipeline,
    index: usize,
    text: *mut *const c_char,
) -> Status {
    with(pipeline, |opened| {
        let found = opened.cut.get(index).ok_or_else(|| {
            let count = opened.cut.len();
            let message = format!("the last run cut off {count} prompts; index {index} is out of range");
            Failure::new(Status::Request, message)
        })?;
        // SAFETY: C passes memory for a pointer.
        unsafe { put("text", text, found.as_ptr()) }
    })
}

impl Opened {
    /// Keeps the strings of the settings, and returns the settings for C.
    fn keep(&mut self, settings: &Settings) -> ImageResult {
        self.scheduler = c_text(settings.scheduler);
        self.cut = settings.cut.iter().map(|end| c_text(end)).collect();
        ImageResult {
            steps: settings.steps,
            scheduler: self.scheduler.as_ptr(),
            cut_count: self.cut.len(),
            guidance: settings.guidance,
            cancelled: 0,
        }
    }
}

/// Returns the result of a run that the callback cancelled.
fn cancelled() -> ImageResult {
    ImageResult { steps: 0, scheduler: null(), cut_count: 0, guidance: 0.0, cancelled: 1 }
}

/// Calls the callback of C after a step. Returns false if the run ends.
fn call_back(id: u64, step: &mut Progress<'_>, callback: EachStep, user: *mut c_void) -> bool {
    let Some(callback) = callback else { return true };
    let (index, steps, took) = (step.step, step.steps, nanoseconds(step.took));
    // The pointer is removed before the lifetime of the step ends.
    STEPS.with_borrow_mut(|running| running.push((id, std::ptr::from_mut(step).cast())));
    // SAFETY: the callback accepts the `user` that C passes with it.
    let continues = unsafe { callback(index, steps, took, user) } != 0;
    STEPS.with_borrow_mut(Vec::pop);
    continues
}

/// Returns the step of a pipeline whose callback runs on this thread.
fn running_step(id: u64) -> Option<*mut Progress<'static>> {
    STEPS.with_borrow(|running| running.iter().find(|(other, _)| *other == id).map(|(_, step)| *step))
}

/// Copies a latent to memory of C.
fn copy_latent(latent: drift_image::Result<(Vec<f32>, Vec<usize>)>, to: &mut [f32]) -> Result<()> {
    let (latent, _) = latent?;
    if latent.len() != to.len() {
        let (size, given) = (latent.len(), to.len());
        let message = format!("a latent has {size} elements, but there is memory for {given}");
        return Err(Failure::new(Status::Request, message));
    }
    copy(&latent, to);
    Ok(())
}

/// Converts a request.
unsafe fn image_request(request: *const ImageRequest) -> Result<Converted> {
    // SAFETY: C passes a request.
    let request = unsafe { elements("request", request, 1) }?;
    let Some(request) = request.first() else { return Err(argument("request is null")) };
    // SAFETY: C passes texts of the stated sizes, a string or null, and pictures.
    let (prompt, negative, scheduler, image, mask) = unsafe {
        (
            text_of("prompt", request.prompt, request.prompt_size)?,
            text_of_or_none("negative_prompt", request.negative_prompt, request.negative_prompt_size)?,
            text_or_none("scheduler", request.scheduler)?,
            picture_or_none("image", &request.image)?,
            picture_or_none("mask", &request.mask)?,
        )
    };
    let default_strength = Converted::default_strength(mask.is_some());
    Ok(Converted {
        prompt: prompt.to_owned(),
        negative_prompt: negative.map(str::to_owned),
        steps: Some(request.steps).filter(|steps| *steps > 0),
        guidance: Some(request.guidance).filter(|_| request.has_guidance != 0),
        seed: request.seed,
        scheduler: scheduler.map(str::to_owned),
        image,
        mask,
        strength: if request.strength == 0.0 { default_strength } else { request.strength },
    })
}

/// Copies a picture. All zeros become `None`.
unsafe fn picture_or_none(what: &str, picture: &Picture) -> Result<Option<drift_image::Picture>> {
    let Picture { rgb, width, height } = *picture;
    if rgb.is_null() && width == 0 && height == 0 {
        return Ok(None);
    }
    let side = |pixels: usize| u32::try_from(pixels).ok().filter(|pixels| (1..=MAX_SIDE).contains(pixels));
    let (Some(wide), Some(tall)) = (side(width), side(height)) else {
        return Err(argument(format!(
            "{what} has {width} x {height} pixels; give a picture with 1 to {MAX_SIDE} pixels a side"
        )));
    };
    // SAFETY: C passes `3 * width * height` bytes.
    let rgb = unsafe { elements(what, rgb, 3 * width * height) }?.to_vec();
    Ok(Some(drift_image::Picture { width: wide, height: tall, rgb }))
}
