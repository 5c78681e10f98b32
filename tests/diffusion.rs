//! Tests of diffusion models: small folders give the latents and pictures of diffusers, and malformed folders are errors.
//!
//! `tests/diffusion/make.py` makes the folders and the references.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drift_image::{ImagePipeline, ImageRequest, Picture};
use drift_runtime::{Array, Bundle, Session};
use drift_tests::device;
use drift_tests::stored::npy;
use driftc::compile::{Options, compile};
use driftc::ir::graph::{Graph, NodeId};
use driftc::pass::Precision;
use serde::Deserialize;

/// Largest difference of a latent to the reference, relative to the largest element.
const TOLERANCE: f32 = 1e-4;
/// Largest difference of a text embedding or an output of the UNet to the reference, relative to the largest element.
const NETWORK_TOLERANCE: f32 = 1e-5;
/// Largest difference of a picture to the reference.
const PICTURE_TOLERANCE: u8 = 2;
/// Least peak signal-to-noise ratio of a picture in f16, in dB.
const LEAST_PSNR: f64 = 35.0;

/// Run of `tests/diffusion/runs.json`.
#[derive(Debug, Deserialize)]
struct Run {
    folder: String,
    steps: usize,
    guidance: f32,
    seed: u64,
    negative: Option<String>,
    scheduler: Option<String>,
    #[serde(default)]
    image: bool,
    #[serde(default)]
    mask: bool,
    strength: Option<f64>,
}

fn place() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("diffusion")
}

fn runs(folder: &str) -> BTreeMap<String, Run> {
    let text = std::fs::read_to_string(place().join("runs.json")).unwrap();
    let all: BTreeMap<String, Run> = serde_json::from_str(&text).unwrap();
    all.into_iter().filter(|(_, run)| run.folder == folder).collect()
}

fn request(run: &Run) -> ImageRequest {
    let picture = |name: &str| Picture::read(&place().join(name)).unwrap();
    ImageRequest {
        prompt: "the red cat on the dog".to_owned(),
        negative_prompt: run.negative.clone(),
        steps: Some(run.steps),
        guidance: Some(run.guidance),
        seed: run.seed,
        scheduler: run.scheduler.clone(),
        image: run.image.then(|| picture("input.png")),
        mask: run.mask.then(|| picture("input-mask.png")),
        strength: run.strength.unwrap_or(1.0),
    }
}

/// Compiles a folder into `to` and opens it on the device.
fn open(folder: &Path, precision: Precision, to: &Path) -> ImagePipeline {
    let (model, _) = drift_models::load(folder, &BTreeMap::new()).unwrap_or_else(|e| panic!("{e}"));
    let options = device::validated(&Options { precision, ..Options::default() });
    let path = to.join("model.drift");
    compile(&model, &[device::target()], &options, &path).unwrap_or_else(|e| panic!("{e}"));
    ImagePipeline::open(&path, &drift_runtime::Options::default()).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the picture and the last latent of a run.
fn make(pipeline: &mut ImagePipeline, run: &Run) -> (Picture, Vec<f32>) {
    let made = pipeline.run(&request(run), &mut |_| Ok(true)).unwrap_or_else(|e| panic!("{e}"));
    (made.0, pipeline.latent().unwrap_or_else(|e| panic!("{e}")).0)
}

fn expected(name: &str) -> (Picture, Vec<f32>) {
    let latent = std::fs::read(place().join(format!("{name}.latent"))).unwrap();
    let latent = latent.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    (Picture::read(&place().join(format!("{name}.png"))).unwrap(), latent)
}

/// Runs all runs of a folder and compares them with diffusers.
fn check(folder: &str) {
    let to = tempfile::tempdir().unwrap();
    let mut pipeline = open(&place().join(folder), Precision::F32, to.path());
    let runs = runs(folder);
    assert!(!runs.is_empty());
    for (name, run) in runs {
        let (picture, latent) = make(&mut pipeline, &run);
        let (wanted_picture, wanted) = expected(&name);
        assert_eq!(latent.len(), wanted.len(), "{name}");
        let largest = wanted.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        let pairs = latent.iter().zip(&wanted);
        let error = pairs.fold(0.0f32, |error, (got, wanted)| error.max((got - wanted).abs())) / largest;
        assert!(error < TOLERANCE, "{name}: the latent differs by {error}");
        let pairs = picture.rgb.iter().zip(&wanted_picture.rgb);
        let error = pairs.fold(0, |error, (got, wanted)| error.max(got.abs_diff(*wanted)));
        assert!(error <= PICTURE_TOLERANCE, "{name}: the picture differs by {error}");
    }
}

#[test]
fn stable_diffusion_agrees_with_diffusers() {
    check("sd");
}

#[test]
fn sdxl_agrees_with_diffusers() {
    check("xl");
}

/// Token ids of two prompts, as `make.py` computes them.
fn ids() -> Vec<i32> {
    let words = 522;
    let id = |row: i32, i: i32| match i {
        0 => words - 2,
        1..20 => (7 * i + 50 * row) % 300,
        _ => words - 1,
    };
    (0..2).flat_map(|row| (0..77).map(move |i| id(row, i))).collect()
}

/// Returns the text embedding in the graph of `encode`: the operand of the matmul whose result is stored first.
fn embedding(graph: &Graph) -> NodeId {
    let update = graph.stores()[0].node;
    let keys = graph.operands(update)[1];
    graph.operands(keys)[0]
}

/// Checks an array against a file of `make.py`.
fn check_array(name: &str, got: &[f32]) {
    let wanted = npy(&place().join(format!("{name}.npy"))).unwrap();
    let wanted = wanted.floats().unwrap();
    assert_eq!(got.len(), wanted.len(), "{name}");
    let largest = wanted.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let pairs = got.iter().zip(wanted);
    let error = pairs.fold(0.0f32, |error, (got, wanted)| error.max((got - wanted).abs())) / largest;
    println!("{name}: {error:e}");
    assert!(error < NETWORK_TOLERANCE, "{name} differs by {error}");
}

/// Text encoders and single calls of the UNet. A step with these coefficients stores the output of the UNet as the latent.
#[test]
fn networks_agree_with_diffusers() {
    for folder in ["sd", "xl"] {
        let (mut model, _) = drift_models::load(&place().join(folder), &BTreeMap::new()).unwrap();
        let encode = model.entry_points.iter_mut().find(|entry| entry.name == "encode").unwrap();
        let text = embedding(&encode.graph);
        encode.graph.add_output("embedding", text);
        let to = tempfile::tempdir().unwrap();
        let path = to.path().join("model.drift");
        let options = device::validated(&Options { precision: Precision::F32, ..Options::default() });
        compile(&model, &[device::target()], &options, &path).unwrap_or_else(|e| panic!("{e}"));
        let options = drift_runtime::Options::default();
        let mut session = Session::from_bundle(Bundle::open(&path).unwrap(), &options).unwrap();
        let ids = Array::from_i32(&[2, 77], &ids());
        let mut inputs = vec![("ids", ids.as_ref())];
        let sizes = Array::from_f32(&[2, 6], &[32.0, 32.0, 0.0, 0.0, 32.0, 32.0].repeat(2));
        let scales = Array::from_f32(&[2], &[1.0; 2]);
        if folder == "xl" {
            let more = [("ids_2", &ids), ("time_ids", &sizes), ("prompt_scales", &scales)];
            inputs.extend(more.map(|(name, array)| (name, array.as_ref())));
        }
        let outputs = session.run("encode", &inputs).unwrap();
        check_array(&format!("{folder}-embedding"), &floats(&outputs[0]));

        let shape = [1, 4, 16, 16];
        let sample: Vec<f32> = (0..1024u16).map(|i| f32::from(i * 37 % 101) / 50.0 - 1.0).collect();
        let sample = Array::from_f32(&shape, &sample);
        let mask = Array::from_f32(&[1, 1, 16, 16], &[1.0; 256]);
        let scales = Array::from_f32(&[2], &[0.0, 1.0]);
        let start = [("noise", &sample), ("image", &sample), ("mask", &mask), ("scales", &scales)];
        let mut noise = Vec::new();
        for time_step in [1.0, 500.0, 999.0] {
            session.run("start", &start.map(|(name, array)| (name, array.as_ref()))).unwrap();
            let mut coefficients = [0.0; 16];
            coefficients[..8].copy_from_slice(&[1.0, time_step, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
            let coefficients = Array::from_f32(&[16], &coefficients);
            session.run("denoise_unguided", &[("coefficients", coefficients.as_ref())]).unwrap();
            noise.extend(floats(&session.run("latent", &[]).unwrap()[0]));
        }
        check_array(&format!("{folder}-unet"), &noise);
    }
}

fn floats(array: &Array) -> Vec<f32> {
    array.bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The folder is an export in f16. The UNet has external data.
#[test]
fn onnx_files_agree_with_diffusers() {
    check("onnx");
}

#[test]
fn f16_pictures_are_close() {
    let to = tempfile::tempdir().unwrap();
    let mut pipeline = open(&place().join("sd"), Precision::F16, to.path());
    let run = &runs("sd")["text"];
    let (picture, _) = make(&mut pipeline, run);
    let (wanted, _) = expected("text");
    let pairs = picture.rgb.iter().zip(&wanted.rgb);
    let squares: f64 = pairs.map(|(got, wanted)| f64::from(got.abs_diff(*wanted)).powi(2)).sum();
    let error = (squares / picture.rgb.len() as f64).max(1e-9);
    let psnr = 10.0 * (255.0f64.powi(2) / error).log10();
    assert!(psnr > LEAST_PSNR, "the peak signal-to-noise ratio is {psnr} dB");
}

#[test]
fn requests_that_cannot_be_met_are_errors() {
    let to = tempfile::tempdir().unwrap();
    let mut pipeline = open(&place().join("sd"), Precision::F32, to.path());
    let base = || ImageRequest { prompt: "a cat".to_owned(), steps: Some(2), ..ImageRequest::default() };
    let mask = Picture { width: 8, height: 8, rgb: vec![0; 192] };
    let cases = [
        (ImageRequest { mask: Some(mask.clone()), ..base() }, "a mask needs an image"),
        (ImageRequest { guidance: Some(f32::NAN), ..base() }, "finite"),
        (ImageRequest { steps: Some(0), ..base() }, "0 denoising steps"),
        (ImageRequest { scheduler: Some("heun".to_owned()), ..base() }, "no scheduler has the name `heun`"),
        (ImageRequest { image: Some(mask), strength: 1.5, ..base() }, "strength"),
        (ImageRequest { guidance: Some(1e38), ..base() }, "not finite after step"),
    ];
    for (request, reason) in cases {
        let error = pipeline.run(&request, &mut |_| Ok(true)).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
    let error = pipeline.run(&base(), &mut |_| Ok(false)).expect_err("cancelled").to_string();
    assert!(error.contains("cancelled"), "{error}");
    let long = ImageRequest { prompt: "cat ".repeat(100), steps: Some(1), ..base() };
    let (_, settings) = pipeline.run(&long, &mut |_| Ok(true)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(settings.cut.len(), 1);
    assert!(settings.cut[0].starts_with("cat cat"), "{:?}", settings.cut);
}

/// Copies a folder of `tests/diffusion`.
fn copied(name: &str, to: &Path) -> PathBuf {
    let folder = to.join("model");
    let from = place().join(name);
    let inner = std::fs::read_dir(&from).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir());
    let parts: Vec<PathBuf> = inner.map(|entry| PathBuf::from(entry.file_name())).collect();
    for part in std::iter::once(PathBuf::new()).chain(parts) {
        let part = &part;
        std::fs::create_dir_all(folder.join(part)).unwrap();
        for entry in std::fs::read_dir(from.join(part)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                std::fs::copy(entry.path(), folder.join(part).join(entry.file_name())).unwrap();
            }
        }
    }
    folder
}

/// Copies a folder and changes one of its files.
fn edited(to: &Path, file: &str, edit: impl Fn(&str) -> Option<String>) -> PathBuf {
    let folder = copied("sd", to);
    let path = folder.join(file);
    match edit(&std::fs::read_to_string(&path).unwrap_or_default()) {
        Some(text) => std::fs::write(path, text).unwrap(),
        None => std::fs::remove_file(path).unwrap(),
    }
    folder
}

#[test]
fn malformed_folders_are_errors() {
    let unet = "unet/config.json";
    let cases: [(&str, &str, Option<&str>, &str); 12] = [
        ("unet/diffusion_pytorch_model.safetensors", "", None, "the file is missing"),
        ("vae/config.json", "", None, "the file is missing"),
        (
            "model_index.json",
            "\"UNet2DConditionModel\"",
            Some("\"FluxModel\""),
            "class FluxModel is not supported",
        ),
        ("model_index.json", "\"CLIPTextModel\"", Some("null"), "the part is missing"),
        ("model_index.json", "{", Some("[{"), "not JSON"),
        (unet, "\"CrossAttnDownBlock2D\"", Some("\"AttnDownBlock2D\""), "is not supported"),
        (unet, "\"act_fn\": \"silu\"", Some("\"act_fn\": \"gelu\""), "supported: silu"),
        (unet, "\"cross_attention_dim\": 16", Some("\"cross_attention_dim\": 17"), "compute 16 numbers"),
        (unet, "\"in_channels\": 4", Some("\"in_channels\": 5"), "5 input"),
        (unet, "\"norm_num_groups\": 4", Some("\"norm_num_groups\": 3"), "3 does not divide 8"),
        (unet, "\"attention_head_dim\": 2", Some("\"attention_head_dim\": 0"), "0 does not divide"),
        ("vae/config.json", "\"AutoencoderKL\"", Some("\"AutoencoderDC\""), "AutoencoderTiny"),
    ];
    for (file, old, new, reason) in cases {
        let to = tempfile::tempdir().unwrap();
        let folder = edited(to.path(), file, |text| {
            assert!(new.is_none() || text.contains(old), "{file} has no {old}");
            new.map(|new| text.replacen(old, new, 1))
        });
        let error = drift_models::load(&folder, &BTreeMap::new()).expect_err(reason);
        let text = format!("{error:?}");
        assert!(text.contains(reason), "{file}: {text}");
    }
}

/// Without a VAE encoder, the bundle makes pictures from texts only.
#[test]
fn onnx_files_without_vae_encoder_make_pictures_from_texts() {
    let to = tempfile::tempdir().unwrap();
    let folder = copied("onnx", to.path());
    std::fs::remove_dir_all(folder.join("vae_encoder")).unwrap();
    let mut pipeline = open(&folder, Precision::F32, to.path());
    let request = ImageRequest { prompt: "a cat".to_owned(), steps: Some(1), ..ImageRequest::default() };
    pipeline.run(&request, &mut |_| Ok(true)).unwrap_or_else(|e| panic!("{e}"));
    let picture = Picture::read(&place().join("input.png")).unwrap();
    let request = ImageRequest { image: Some(picture), ..request };
    let error = pipeline.run(&request, &mut |_| Ok(true)).expect_err("no encoder").to_string();
    assert!(error.contains("the model has no VAE encoder"), "{error}");
}

#[test]
fn malformed_onnx_folders_are_errors() {
    type Edit = fn(&Path) -> std::io::Result<()>;
    let cases: [(Edit, &str); 5] = [
        (|folder| std::fs::remove_dir_all(folder.join("vae_decoder")), "the file is missing"),
        (|folder| std::fs::remove_dir_all(folder.join("text_encoder")), "the file is missing"),
        (|folder| std::fs::remove_file(folder.join("unet/model.onnx_data")), "model.onnx_data"),
        (
            |folder| {
                let from = folder.join("vae_encoder/model.onnx");
                std::fs::copy(from, folder.join("vae_decoder/model.onnx")).map(drop)
            },
            "there is no input `latent_sample`; the file has `sample`",
        ),
        (
            |folder| std::fs::write(folder.join("vae_decoder/config.json"), "{\"block_out_channels\": []}"),
            "it has 0 numbers",
        ),
    ];
    for (edit, reason) in cases {
        let to = tempfile::tempdir().unwrap();
        let folder = copied("onnx", to.path());
        edit(&folder).unwrap();
        let error = drift_models::load(&folder, &BTreeMap::new()).expect_err(reason);
        let text = error.to_string();
        assert!(text.contains(reason), "{text}");
    }
}

#[test]
fn sizes_of_pictures_are_checked() {
    let load_from = |folder: &str, name: &str, bounds| {
        let dims = BTreeMap::from([(name.to_owned(), bounds)]);
        drift_models::load(&place().join(folder), &dims).map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(load_from("onnx", "width", (40, 40)), Ok(()));
    let error = load_from("onnx", "width", (34, 34)).expect_err("the UNet halves the sides");
    assert!(error.contains("give a multiple of 4 from 4"), "{error}");
    let load = |name: &str, bounds| load_from("sd", name, bounds);
    assert_eq!(load("height", (48, 48)), Ok(()));
    for (name, bounds, reason) in [
        ("height", (33, 33), "cannot have a height of 33 pixels"),
        ("width", (0, 0), "cannot have a width of 0 pixels"),
        ("width", (1 << 40, 1 << 40), "cannot have a width"),
        ("width", (16, 32), "cannot vary in one bundle"),
        ("batch", (1, 1), "has no size `batch`"),
    ] {
        let error = load(name, bounds).expect_err(reason);
        assert!(error.contains(reason), "{error}");
    }
}
