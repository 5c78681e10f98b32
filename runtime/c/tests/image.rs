//! Pictures through C, with a small diffusion model whose pictures diffusers made too.

#![allow(unsafe_code)]

use drift::{
    ImagePipeline, ImageRequest, ImageResult, Picture, Status, drift_image_pipeline_close,
    drift_image_pipeline_cut, drift_image_pipeline_latent, drift_image_pipeline_open,
    drift_image_pipeline_run, drift_image_pipeline_sizes, drift_last_error, drift_last_help,
};
use driftc::compile::{Options, compile};
use driftc::target::TargetProfile;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

/// Width and height of the model's pictures in pixels.
const SIDE: usize = 32;
/// Byte size of a picture of the model.
const SIZE: usize = 3 * SIDE * SIDE;
/// Number of elements of a latent of the model.
const LATENT: usize = 4 * 16 * 16;
/// Largest difference of a picture to the picture of diffusers.
const TOLERANCE: u8 = 2;

fn string(text: *const c_char) -> String {
    // SAFETY: the library returns a string that is valid until the next failure on this thread.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

fn message() -> String {
    string(drift_last_error())
}

fn model_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/diffusion")
}

/// Compiles the model into `folder`, and returns the bundle's path.
fn bundle(folder: &Path) -> CString {
    let name = std::env::var("DRIFT_TEST_TARGET").unwrap_or_else(|_| "lavapipe".to_owned());
    let target = TargetProfile::load(&name).unwrap();
    let (model, _) = drift_models::load(&model_folder().join("sd"), &BTreeMap::new()).unwrap();
    let path = folder.join("sd.drift");
    let options = Options { finish: Some(drift_spirv_tools::validate), ..Options::default() };
    compile(&model, &[target], &options, &path).unwrap();
    CString::new(path.to_str().unwrap()).unwrap()
}

fn open(path: &CStr) -> ImagePipeline {
    let mut pipeline = ImagePipeline { id: 0 };
    // SAFETY: a string, and memory for a pipeline.
    let status = unsafe { drift_image_pipeline_open(path.as_ptr(), null(), &raw mut pipeline) };
    assert_eq!(status, Status::Ok, "{}", message());
    pipeline
}

fn request(prompt: &str, steps: usize) -> ImageRequest {
    let (prompt, prompt_size) = (prompt.as_ptr().cast(), prompt.len());
    // SAFETY: all zeros are a valid request.
    ImageRequest { prompt, prompt_size, steps, ..unsafe { std::mem::zeroed() } }
}

fn picture(pixels: &drift_image::Picture) -> Picture {
    let [width, height] = [pixels.width, pixels.height].map(|side| usize::try_from(side).unwrap());
    Picture { rgb: pixels.rgb.as_ptr(), width, height }
}

fn read(name: &str) -> drift_image::Picture {
    drift_image::Picture::read(&model_folder().join(name)).unwrap()
}

/// Steps that a callback received, and the number of steps after which the callback cancels the run.
struct Received {
    pipeline: ImagePipeline,
    steps: Vec<(usize, usize)>,
    limit: usize,
    latents: Vec<Vec<f32>>,
}

unsafe extern "C" fn receive(step: usize, steps: usize, _: u64, user: *mut c_void) -> c_int {
    // SAFETY: the tests pass a `Received` as `user`.
    let received = unsafe { &mut *user.cast::<Received>() };
    received.steps.push((step, steps));
    let mut latent = vec![0f32; LATENT];
    // SAFETY: memory for the stated number of elements, or null.
    unsafe {
        let status = drift_image_pipeline_latent(received.pipeline, latent.as_mut_ptr(), LATENT);
        assert_eq!(status, Status::Ok, "{}", message());
        let status = drift_image_pipeline_sizes(received.pipeline, null_mut(), null_mut(), null_mut());
        assert_eq!(status, Status::Busy);
    }
    received.latents.push(latent);
    c_int::from(received.steps.len() < received.limit)
}

/// Makes a picture, and returns the status, the pixels and the result. The callback cancels after `limit` steps.
fn run(
    pipeline: ImagePipeline,
    request: &ImageRequest,
    limit: usize,
) -> (Status, Vec<u8>, ImageResult, Received) {
    let mut received = Received { pipeline, steps: Vec::new(), limit, latents: Vec::new() };
    let mut rgb = vec![1u8; SIZE];
    // SAFETY: a request, and memory for a picture and a result.
    unsafe {
        let mut result = std::mem::zeroed::<ImageResult>();
        let (user, first) = ((&raw mut received).cast(), rgb.as_mut_ptr());
        let status =
            drift_image_pipeline_run(pipeline, request, Some(receive), user, first, SIZE, &raw mut result);
        (status, rgb, result, received)
    }
}

#[track_caller]
fn assert_close(rgb: &[u8], name: &str) {
    let wanted = read(name).rgb;
    assert_eq!(rgb.len(), wanted.len());
    let error = rgb.iter().zip(&wanted).map(|(got, wanted)| got.abs_diff(*wanted)).max();
    assert!(error <= Some(TOLERANCE), "{name}: the picture differs by {error:?}");
}

#[test]
fn pictures_equal_the_references() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = open(&bundle(folder.path()));
    let (mut width, mut height, mut shape) = (0, 0, [0usize; 4]);
    // SAFETY: memory for the stated numbers.
    let status =
        unsafe { drift_image_pipeline_sizes(pipeline, &raw mut width, &raw mut height, shape.as_mut_ptr()) };
    assert_eq!((status, width, height, shape), (Status::Ok, SIDE, SIDE, [1, 4, 16, 16]));

    let prompt = "the red cat on the dog";
    let negative = "blurry";
    let asked = ImageRequest {
        negative_prompt: negative.as_ptr().cast(),
        negative_prompt_size: negative.len(),
        seed: 7,
        ..request(prompt, 5)
    };
    let (status, rgb, result, received) = run(pipeline, &asked, usize::MAX);
    assert_eq!(status, Status::Ok, "{}", message());
    assert_close(&rgb, "text.png");
    assert_eq!((result.steps, result.guidance, result.cut_count, result.cancelled), (5, 7.5, 0, 0));
    assert_eq!(string(result.scheduler), "PNDMScheduler");
    assert_eq!(received.steps.len(), received.steps[0].1);
    let mut latent = vec![0f32; LATENT];
    // SAFETY: memory for the stated number of elements.
    let status = unsafe { drift_image_pipeline_latent(pipeline, latent.as_mut_ptr(), LATENT) };
    assert_eq!(status, Status::Ok, "{}", message());
    assert_eq!(received.latents.last(), Some(&latent));
    assert_ne!(received.latents.first(), Some(&latent));

    let (image, mask) = (read("input.png"), read("input-mask.png"));
    let asked = ImageRequest {
        scheduler: c"euler".as_ptr(),
        image: picture(&image),
        mask: picture(&mask),
        seed: 9,
        guidance: 7.5,
        has_guidance: 1,
        ..request(prompt, 4)
    };
    let (status, rgb, result, _) = run(pipeline, &asked, usize::MAX);
    assert_eq!(status, Status::Ok, "{}", message());
    assert_close(&rgb, "mask.png");
    assert_eq!(string(result.scheduler), "EulerDiscreteScheduler");
    assert_eq!(drift_image_pipeline_close(pipeline), Status::Ok);
}

#[test]
fn runs_are_cancelled_and_long_prompts_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = open(&bundle(folder.path()));
    let (status, rgb, result, received) = run(pipeline, &request("a cat", 3), 2);
    assert_eq!((status, result.cancelled, received.steps.len()), (Status::Ok, 1, 2));
    assert!(rgb.iter().all(|value| *value == 1), "a cancelled run writes no pixels");

    let long = "cat ".repeat(100);
    let (status, _, result, _) = run(pipeline, &request(&long, 1), usize::MAX);
    assert_eq!((status, result.cut_count), (Status::Ok, 1), "{}", message());
    let mut end = null();
    // SAFETY: memory for a pointer.
    unsafe {
        assert_eq!(drift_image_pipeline_cut(pipeline, 0, &raw mut end), Status::Ok);
        assert!(string(end).starts_with("cat cat"));
        assert_eq!(drift_image_pipeline_cut(pipeline, 1, &raw mut end), Status::Request);
    }
    drift_image_pipeline_close(pipeline);
}

#[test]
fn refused_requests_name_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let pipeline = open(&bundle(folder.path()));
    let black = vec![0u8; SIZE];
    let small = Picture { rgb: black.as_ptr(), width: 8, height: 8 };
    let flat = Picture { width: 0, ..small };
    let huge = Picture { width: 1 << 15, ..small };
    let base = || request("a cat", 2);
    let cases = [
        (ImageRequest { mask: small, ..base() }, Status::Request, "a mask needs an image"),
        (ImageRequest { image: flat, ..base() }, Status::Argument, "image has 0 x 8 pixels"),
        (ImageRequest { image: small, mask: huge, ..base() }, Status::Argument, "mask has 32768 x 8 pixels"),
        (
            ImageRequest { image: Picture { rgb: null(), ..small }, ..base() },
            Status::Argument,
            "image is null",
        ),
        (ImageRequest { image: small, strength: 1.5, ..base() }, Status::Request, "the strength is 1.5"),
        (ImageRequest { has_guidance: 1, guidance: f32::NAN, ..base() }, Status::Request, "finite"),
        (
            ImageRequest { scheduler: c"heun".as_ptr(), ..base() },
            Status::Request,
            "no scheduler has the name",
        ),
        (ImageRequest { prompt: null(), ..base() }, Status::Argument, "prompt is null"),
        (ImageRequest { prompt: c"\xff".as_ptr(), prompt_size: 1, ..base() }, Status::Argument, "not UTF-8"),
    ];
    for (asked, wanted, reason) in cases {
        let (status, rgb, ..) = run(pipeline, &asked, usize::MAX);
        assert_eq!(status, wanted, "{reason}: {}", message());
        assert!(message().contains(reason), "{}", message());
        assert!(rgb.iter().all(|value| *value == 1), "{reason}");
    }
    let endless = ImageRequest { has_guidance: 1, guidance: 1e38, ..base() };
    assert_eq!(run(pipeline, &endless, usize::MAX).0, Status::Request);
    assert!(message().contains("not finite after step"), "{}", message());
    assert!(string(drift_last_help()).contains("--precision f32"));
}

#[test]
fn wrong_arguments_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = bundle(folder.path());
    let pipeline = open(&path);
    let mut rgb = vec![0u8; SIZE];
    let asked = request("a cat", 1);
    let none = null_mut();
    // SAFETY: pointers are null, or lead to strings or memory.
    unsafe {
        let first = rgb.as_mut_ptr();
        let status = drift_image_pipeline_run(pipeline, &raw const asked, None, none, first, 5, null_mut());
        assert_eq!(status, Status::Request);
        assert!(message().contains("has 3072 bytes, but there is memory for 5"), "{}", message());
        let status =
            drift_image_pipeline_run(pipeline, &raw const asked, None, none, null_mut(), SIZE, null_mut());
        assert_eq!(status, Status::Argument);
        let status = drift_image_pipeline_run(pipeline, null(), None, none, first, SIZE, null_mut());
        assert_eq!(status, Status::Argument);
        let mut latent = [0f32; 3];
        assert_eq!(drift_image_pipeline_latent(pipeline, latent.as_mut_ptr(), 3), Status::Request);
        assert!(message().contains("1024 elements"), "{}", message());
        assert_eq!(drift_image_pipeline_open(path.as_ptr(), null(), null_mut()), Status::Argument);
        let nowhere = c"/nowhere/at/all".as_ptr();
        let mut other = ImagePipeline { id: 0 };
        assert_eq!(drift_image_pipeline_open(nowhere, null(), &raw mut other), Status::Io);
        assert_eq!(drift_image_pipeline_close(pipeline), Status::Ok);
        assert_eq!(drift_image_pipeline_close(pipeline), Status::Ok);
        assert_eq!(drift_image_pipeline_latent(pipeline, latent.as_mut_ptr(), 3), Status::Argument);
        assert!(message().contains("the image pipeline was closed"), "{}", message());
    }
}
