//! `driftc imagine`: makes a picture from a text with a diffusion model.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use drift_image::{ImagePipeline, ImageRequest, Picture, Progress, Settings, preview, to_ansi};
use drift_runtime::Array;
use serde::Serialize;

use crate::cli_help::IMAGE_OPTIONS;
use crate::failure::{Failure, Result};
use crate::language::LoadArgs;
use crate::model::is_model;
use crate::model_args::DimArg;
use crate::npy;
use crate::output::{Out, milliseconds, note, time};
use crate::progress;

/// Number of columns of a preview on the terminal.
const PREVIEW_COLUMNS: u32 = 64;

#[derive(Debug, Args)]
pub(crate) struct ImagineArgs {
    /// Diffusion model: a bundle or a diffusers folder; driftc caches compiled models
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    #[command(flatten)]
    load: LoadArgs,
    /// Make a picture of this text
    #[arg(short, long, value_name = "TEXT")]
    prompt: String,
    /// Write the picture to this file
    #[arg(short, long, value_name = "OUT.png")]
    output: PathBuf,
    #[command(flatten)]
    image: ImageArgs,
    /// Show the picture on the terminal after each step
    #[arg(long)]
    preview: bool,
    /// Write the latents after each step to this file
    #[arg(long, value_name = "LATENTS.npy")]
    latents: Option<PathBuf>,
    /// Print one JSON object at the end: the settings and the times
    #[arg(long)]
    json: bool,
}

/// Options of making a picture.
#[derive(Debug, Args)]
struct ImageArgs {
    /// Avoid what this text says
    #[arg(long, value_name = "TEXT", help_heading = IMAGE_OPTIONS)]
    negative: Option<String>,
    /// Denoise in N steps (default: 20, or 4 for latent consistency models)
    #[arg(long, value_name = "N", help_heading = IMAGE_OPTIONS)]
    steps: Option<usize>,
    /// Follow the prompt with this strength; values up to 1 turn guidance off (default: as usual for the model)
    #[arg(long, value_name = "G", allow_negative_numbers = true, help_heading = IMAGE_OPTIONS)]
    guidance: Option<f32>,
    /// Draw the noise with this seed
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = IMAGE_OPTIONS)]
    seed: u64,
    /// Make pictures of this size (default: the size that the model was trained for)
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size, help_heading = IMAGE_OPTIONS)]
    size: Option<(i64, i64)>,
    /// Use this scheduler instead of the model's: pndm, ddim, euler, euler-a, dpm++2m, dpm++2m-karras or lcm
    #[arg(long, value_name = "NAME", help_heading = IMAGE_OPTIONS)]
    scheduler: Option<String>,
    /// Start from this image
    #[arg(long, value_name = "IMAGE", help_heading = IMAGE_OPTIONS)]
    image: Option<PathBuf>,
    /// Change only the white parts of this mask in the image
    #[arg(long, value_name = "MASK", requires = "image", help_heading = IMAGE_OPTIONS)]
    mask: Option<PathBuf>,
    /// Change the image by this much, above 0 and at most 1 (default: 0.8, with a mask 1)
    #[arg(long, value_name = "S", requires = "image", help_heading = IMAGE_OPTIONS)]
    strength: Option<f64>,
}

/// Settings and times of a picture, for `--json`.
#[derive(Debug, Serialize)]
struct Made {
    width: usize,
    height: usize,
    seed: u64,
    steps: usize,
    guidance: f32,
    scheduler: &'static str,
    /// Ends of prompts that were cut off.
    cut: Vec<String>,
    load_ms: f64,
    /// Time of each step that ran.
    step_ms: Vec<f64>,
    total_ms: f64,
}

fn parse_size(text: &str) -> std::result::Result<(i64, i64), String> {
    let sides = text.split_once(['x', 'X']).and_then(|(w, h)| Some((w.parse().ok()?, h.parse().ok()?)));
    sides.ok_or_else(|| "write WIDTHxHEIGHT, for example 512x512".to_owned())
}

pub(crate) fn run(args: &ImagineArgs, out: &mut Out) -> Result<()> {
    let request = args.image.request(&args.prompt)?;
    let start = Instant::now();
    let mut pipeline = open(args)?;
    let load = start.elapsed();
    let mut latents = Latents::default();
    let mut step_times = Vec::new();
    let done = {
        let mut bar = None;
        pipeline.run(&request, &mut |step| {
            let bar = bar.get_or_insert_with(|| progress::Progress::steps("denoising", step.steps));
            bar.step();
            bar.stage(&format!("denoising, {} per step", time(step.took)));
            step_times.push(step.took);
            if args.latents.is_some() || args.preview {
                latents.add(step)?;
            }
            if args.preview {
                bar.print(&latents.preview());
            }
            Ok(true)
        })
    };
    if let Some(path) = &args.latents {
        npy::write(path, &latents.array())?;
    }
    let (picture, settings) = done?;
    for cut in &settings.cut {
        note(&format!("the prompt is too long for the text encoder; this end of it was cut off: {cut}"));
    }
    write(args, &picture, &settings)?;
    let total = start.elapsed();
    if args.json {
        let step_ms = step_times.iter().map(|took| milliseconds(*took)).collect();
        let (width, height) = pipeline.size();
        let Settings { steps, guidance, scheduler, cut } = settings;
        let (load_ms, total_ms) = (milliseconds(load), milliseconds(total));
        let seed = request.seed;
        return out.json(&Made {
            width,
            height,
            seed,
            steps,
            guidance,
            scheduler,
            cut,
            load_ms,
            step_ms,
            total_ms,
        });
    }
    let steps: Duration = step_times.iter().sum();
    let each = steps / u32::try_from(step_times.len()).unwrap_or(1).max(1);
    note(&format!(
        "{} steps in {} ({} each), loading in {}, {} in all",
        step_times.len(),
        time(steps),
        time(each),
        time(load),
        time(total),
    ));
    Ok(writeln!(
        out,
        "{} ({} x {}, {})",
        args.output.display(),
        picture.width,
        picture.height,
        settings.scheduler
    )?)
}

/// Opens the model. A folder is compiled for the size of the picture.
fn open(args: &ImagineArgs) -> Result<ImagePipeline> {
    let mut load = args.load.clone();
    if let (Some((width, height)), true) = (args.image.size, is_model(&args.path)) {
        for (name, side) in [("height", height), ("width", width)] {
            load.add_size(DimArg { name: name.to_owned(), low: side, high: side });
        }
    }
    let pipeline = ImagePipeline::new(load.open(&args.path)?.load_session()?)?;
    let (width, height) = pipeline.size();
    match args.image.size {
        Some(size) if size != (i64::try_from(width).unwrap_or(0), i64::try_from(height).unwrap_or(0)) => {
            Err(Failure::input(format!("the bundle makes pictures of {width} x {height} pixels"))
                .help("compile the model again with --dim width=W and --dim height=H, or leave out --size"))
        }
        _ => Ok(pipeline),
    }
}

impl ImageArgs {
    fn request(&self, prompt: &str) -> Result<ImageRequest> {
        let read = |path: &Option<PathBuf>| path.as_deref().map(Picture::read).transpose();
        let default_strength = ImageRequest::default_strength(self.mask.is_some());
        Ok(ImageRequest {
            prompt: prompt.to_owned(),
            negative_prompt: self.negative.clone(),
            steps: self.steps,
            guidance: self.guidance,
            seed: self.seed,
            scheduler: self.scheduler.clone(),
            image: read(&self.image)?,
            mask: read(&self.mask)?,
            strength: self.strength.unwrap_or(default_strength),
        })
    }
}

/// Writes the picture with its settings as text.
fn write(args: &ImagineArgs, picture: &Picture, settings: &Settings) -> Result<()> {
    let Settings { steps, guidance, scheduler, .. } = settings;
    let seed = args.image.seed;
    let parameters = format!("steps: {steps}, scheduler: {scheduler}, guidance: {guidance}, seed: {seed}");
    let mut texts = vec![("prompt", args.prompt.as_str()), ("parameters", &parameters)];
    texts.extend(args.image.negative.as_deref().map(|negative| ("negative prompt", negative)));
    Ok(picture.write_png(&args.output, &texts)?)
}

/// Latents after the steps that ran.
#[derive(Default)]
struct Latents {
    values: Vec<f32>,
    /// Shape of one latent, `[1, channels, height, width]`.
    shape: Vec<usize>,
    count: usize,
}

impl Latents {
    fn add(&mut self, step: &mut Progress<'_>) -> drift_image::Result<()> {
        let (values, shape) = step.latent()?;
        self.values.extend(values);
        self.shape = shape;
        self.count += 1;
        Ok(())
    }

    fn array(&self) -> Array {
        let shape: Vec<usize> = [self.count].into_iter().chain(self.shape.iter().copied()).collect();
        Array::from_f32(&shape, &self.values)
    }

    /// Text that shows the last latent on a terminal.
    fn preview(&self) -> String {
        let [_, channels, height, width] = self.shape.as_slice() else { return String::new() };
        let last = self.values.len().saturating_sub(channels * height * width);
        to_ansi(&preview(&self.values[last..], *channels, *height, *width), PREVIEW_COLUMNS)
    }
}
