//! Loading of language models for the commands that generate: from a bundle, or compiled from a model.
//!
//! `OUT.drift | MODEL -> Session -> Generator`, and `tokenizer.json`, its config and the chat template
//! `-> PromptEncoder`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use drift_chat::{PromptEncoder, TextRequest};
use drift_runtime::{Bundle, Draft, Generator, Options, Report, Request, Sampling, Session};

use crate::cache::{cached_bundle, pipeline_cache_path};
use crate::cli_help::{DEVICE_OPTIONS, GENERATION_OPTIONS};
use crate::failure::{Failure, Result};
use crate::model::is_model;
use crate::model_args::{ModelArgs, ModelOptions};
use crate::output::{note, three_digits, time};
use crate::progress::Progress;
use crate::session::{CacheArgs, DeviceArgs};

/// Maximum number of decode steps in flight, as long as no step needs data from the host.
const FRAMES: usize = 4;

/// Language model and the device that runs it.
#[derive(Debug, Args)]
pub(crate) struct LanguageModelArgs {
    /// Language model: a bundle, a Hugging Face folder, a .gguf file or an .onnx file; driftc caches compiled models
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    #[command(flatten)]
    load: LoadArgs,
}

/// Options for loading a bundle, or a model that is compiled into one.
#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Select the bundle's variant for this target, or compile the model for it (default: best fit for the device)
    #[arg(short, long, value_name = "TARGET")]
    target: Option<String>,
    #[command(flatten)]
    options: ModelOptions,
    /// Cache compiled models and driver pipelines in this folder (default: driftc in the user's cache folder)
    #[arg(long, value_name = "DIR", help_heading = DEVICE_OPTIONS)]
    cache_dir: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

/// Arguments for sampling, output length and draft tokens.
#[derive(Debug, Args)]
pub(crate) struct GenerationArgs {
    /// Stop after N generated tokens
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = GENERATION_OPTIONS)]
    max_tokens: usize,
    /// Sample with temperature T; 0 always takes the most likely token
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true, help_heading = GENERATION_OPTIONS)]
    temperature: f32,
    /// Sample from the N most likely tokens (default: all)
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, help_heading = GENERATION_OPTIONS)]
    top_k: usize,
    /// Sample from the most likely tokens with total probability P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true, help_heading = GENERATION_OPTIONS)]
    top_p: f32,
    /// Sample only from tokens with at least P times the probability of the most likely token
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true, allow_negative_numbers = true, help_heading = GENERATION_OPTIONS)]
    min_p: f32,
    /// Penalize tokens already in the text by the factor R; 1 disables the penalty
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true, help_heading = GENERATION_OPTIONS)]
    repetition_penalty: f32,
    /// Set the seed of the random numbers for sampling
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = GENERATION_OPTIONS)]
    seed: u64,
    /// Use draft tokens from n-grams of the text (ngram) or from a smaller model with the same tokenizer
    #[arg(long, value_name = "ngram | OUT.drift | MODEL", help_heading = GENERATION_OPTIONS)]
    draft: Option<String>,
}

/// Bundle with its path and load options.
pub(crate) struct OpenedBundle {
    pub(crate) path: PathBuf,
    pub(crate) bundle: Bundle,
    pub(crate) options: Options,
}

impl OpenedBundle {
    fn load(self) -> Result<Generator> {
        let session = {
            let _progress = Progress::start("loading");
            Session::from_bundle(self.bundle, &self.options)?
        };
        Ok(Generator::new(session)?)
    }
}

impl GenerationArgs {
    /// Converts the arguments to a generation request, which ends at any of the `stops` tokens.
    pub(crate) fn request(&self, stops: &[u32]) -> Result<Request> {
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
        };
        sampling.check().map_err(|e| Failure::usage(e.to_string()))?;
        Ok(Request { max_tokens: self.max_tokens, stop_tokens: stops.to_vec(), sampling, ..Request::default() })
    }

    /// Converts the arguments to a request for text.
    pub(crate) fn text_request(&self) -> Result<TextRequest> {
        let Request { max_tokens, sampling, .. } = self.request(&[])?;
        Ok(TextRequest { max_tokens, sampling, ..TextRequest::default() })
    }

    /// Returns the source of draft tokens that `--draft` selects.
    pub(crate) fn draft(&self, args: &LanguageModelArgs) -> Result<Draft> {
        match self.draft.as_deref() {
            None => Ok(Draft::None),
            Some("ngram") => Ok(Draft::NGram),
            Some(path) => {
                let generator = args.load.open_at(Path::new(path), &CacheArgs::default())?;
                Ok(Draft::Model(Box::new(generator)))
            }
        }
    }
}

impl LanguageModelArgs {
    /// Loads the model without its tokenizer.
    pub(crate) fn open(&self) -> Result<Generator> {
        self.load.open_at(&self.path, &self.load.cache)
    }

    /// Loads the model, and its tokenizer if it has one. Model and tokenizer load in parallel, because reading a large
    /// vocabulary takes as long as loading a small model.
    pub(crate) fn open_with_optional_encoder(&self) -> Result<(Generator, Option<PromptEncoder>)> {
        let opened = self.load.open(&self.path)?;
        let path = opened.path.clone();
        let (generator, encoder) = std::thread::scope(|scope| {
            let encoder =
                scope.spawn(|| Ok::<_, Failure>(PromptEncoder::from_bundle(&Bundle::open(&path)?)?));
            (opened.load(), encoder.join())
        });
        let generator = generator?;
        let encoder = encoder.map_err(|_| Failure::input("cannot read the tokenizer"))??;
        let vocabulary = generator.vocabulary_size();
        Ok((generator, encoder.map(|encoder| encoder.with_vocabulary(vocabulary))))
    }

    /// Loads the model and its tokenizer.
    ///
    /// # Errors
    /// If the model has no tokenizer.
    pub(crate) fn open_with_encoder(&self) -> Result<(Generator, PromptEncoder)> {
        let (generator, encoder) = self.open_with_optional_encoder()?;
        let reason = || format!("{} has no tokenizer, so it cannot read a text", self.path.display());
        let encoder = encoder.ok_or_else(|| {
            Failure::input(reason()).help("give token ids with --ids IDS.npy, if the command supports it")
        })?;
        Ok((generator, encoder))
    }

}

impl LoadArgs {
    /// Opens a bundle, or compiles a model into one, and determines the load options.
    pub(crate) fn open(&self, path: &Path) -> Result<OpenedBundle> {
        self.open_bundle(path, &self.cache)
    }

    fn open_at(&self, path: &Path, cache: &CacheArgs) -> Result<Generator> {
        self.open_bundle(path, cache)?.load()
    }

    fn open_bundle(&self, path: &Path, cache: &CacheArgs) -> Result<OpenedBundle> {
        let compiled = is_model(path);
        let (path, pipelines) = if compiled {
            self.compiled_bundle(path)?
        } else if !self.options.has_input_options() {
            (path.to_owned(), None)
        } else {
            return Err(Failure::usage("--dim, --const and --like need a model, but this is a bundle")
                .help("compile the model again with these options"));
        };
        let bundle = Bundle::open(&path)?;
        let pipelines = cache.pipeline_cache.clone().or(pipelines);
        let options = Options {
            device: self.device.device.clone(),
            target: self.target.clone().filter(|_| !compiled),
            pipeline_cache: pipelines.or_else(|| pipeline_cache_path(&bundle, self.cache_dir.as_deref())),
            frames: FRAMES,
            ..Options::default()
        };
        Ok(OpenedBundle { path, bundle, options })
    }

    /// Paths of a model's cached bundle and of its pipeline cache.
    fn compiled_bundle(&self, path: &Path) -> Result<(PathBuf, Option<PathBuf>)> {
        let model = ModelArgs { path: path.to_owned(), options: self.options.clone() };
        let (target, folder) = (self.target.as_deref(), self.cache_dir.as_deref());
        let cached = cached_bundle(&model, &BTreeMap::new(), target, &self.device, folder)?;
        if let Some(took) = cached.compiled {
            note(&format!("compiled in {} and cached as {}", time(took), cached.bundle.display()));
        }
        Ok((cached.bundle, Some(cached.pipelines)))
    }
}

/// Prints the speed of a generation to standard error, and the acceptance rate of draft tokens.
pub(crate) fn note_speed(report: &Report) {
    let rate = |n: usize, seconds: f64| match seconds > 0.0 {
        true => format!("{} tokens/s", three_digits(n as f64 / seconds)),
        false => "no time".to_owned(),
    };
    let prompt = (report.prompt_tokens, report.prompt_time);
    let decode = (report.tokens.saturating_sub(1), report.decode_time);
    let speed = |(n, took): (usize, std::time::Duration)| {
        format!("{n} tokens in {} ({})", time(took), rate(n, took.as_secs_f64()))
    };
    let mut text = format!("prompt {}, decode {}", speed(prompt), speed(decode));
    if !report.accepted.is_empty() {
        let accepted: usize = report.accepted.iter().sum();
        let runs = report.accepted.len();
        let mean = three_digits(accepted as f64 / runs as f64);
        text.push_str(&format!(
            "; {accepted} of {} draft tokens accepted, on average {mean} in each of {runs} verify runs",
            report.draft_tokens
        ));
        let mut lengths = report.accepted.clone();
        lengths.sort_unstable();
        let counts = lengths.chunk_by(|a, b| a == b);
        let counts = counts.map(|runs| format!("{} in {} runs", runs.first().unwrap_or(&0), runs.len()));
        let counts: Vec<String> = counts.collect();
        text.push_str(&format!(" ({})", counts.join(", ")));
    }
    note(&text);
}
