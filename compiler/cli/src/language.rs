//! Loading of language models for the commands that generate: from a bundle, or compiled from a model.
//!
//! `OUT.drift | MODEL -> Session -> Generator`, and `tokenizer.json`, its config and the chat template
//! `-> PromptEncoder`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use drift_chat::{PromptEncoder, TextRequest};
use drift_runtime::{Bundle, Draft, Generator, Options, Report, Request, Sampling, Session};

use crate::cache::{cached_bundle, chat_history_path, pipeline_cache_path};
use crate::cli_help::{DEVICE_OPTIONS, GENERATION_OPTIONS};
use crate::failure::{Failure, Result};
use crate::model::is_model;
use crate::model_args::{DimArg, ModelArgs, ModelOptions, QUANTIZED_ACTIVATIONS};
use crate::output::{note, three_digits, time};
use crate::session::{self, CacheArgs, DeviceArgs};
use crate::variant_name::variant_name;

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
#[derive(Debug, Clone, Args)]
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
    /// Sample only from tokens with at least P times the probability of the most likely token (default: no minimum)
    #[arg(long, value_name = "P", default_value_t = 0.0, hide_default_value = true, allow_negative_numbers = true, help_heading = GENERATION_OPTIONS)]
    min_p: f32,
    /// Penalize tokens already in the text by the factor R; 1 disables the penalty
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true, help_heading = GENERATION_OPTIONS)]
    repetition_penalty: f32,
    /// Set the seed of the random numbers for sampling; equal seeds give equal texts
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = GENERATION_OPTIONS)]
    seed: u64,
    /// End the text before this text; can be given several times
    #[arg(long, value_name = "TEXT", help_heading = GENERATION_OPTIONS)]
    stop: Vec<String>,
    /// Use draft tokens from n-grams of the text (ngram) or from a smaller model, which model options also apply to
    #[arg(long, value_name = "ngram | OUT.drift | MODEL", help_heading = GENERATION_OPTIONS)]
    draft: Option<String>,
}

/// Selects the function that computes the logits of every token of a sequence.
#[derive(Debug, Args)]
pub(crate) struct LogitsFunctionArgs {
    /// Compute the logits as for prompts, with one run of `prefill` for each token: slower, includes `--activations q8`
    #[arg(long)]
    prefill: bool,
}

impl LogitsFunctionArgs {
    /// Calls `each` with the logits after every token.
    pub(crate) fn compute(
        &self,
        generator: &mut Generator,
        ids: &[u32],
        each: &mut dyn FnMut(&[f32]),
    ) -> Result<()> {
        let mut each = |logits: &[f32]| {
            each(logits);
            Ok(())
        };
        match self.prefill {
            true => generator.prefill_logits(ids, &mut each)?,
            false => generator.logits(ids, &mut each)?,
        }
        Ok(())
    }

    /// Prints a note if `--prefill` is not given, and the bundle quantizes activations in `prefill` only.
    pub(crate) fn note_float_activations(&self, generator: &Generator) {
        let flags = &generator.session().bundle().manifest().provenance.flags;
        if !self.prefill && flags.iter().any(|flag| flag == QUANTIZED_ACTIVATIONS) {
            note(
                "these logits have float activations, unlike the logits of long prompts; --prefill computes the logits of prompts",
            );
        }
    }
}

/// Bundle with its path and load options.
pub(crate) struct OpenedBundle {
    pub(crate) path: PathBuf,
    pub(crate) bundle: Bundle,
    pub(crate) options: Options,
}

impl OpenedBundle {
    /// Loads the bundle onto the device.
    pub(crate) fn load_session(self) -> Result<Session> {
        session::open(self.bundle, self.options)
    }

    fn load(self) -> Result<Generator> {
        Ok(Generator::new(self.load_session()?)?)
    }
}

impl GenerationArgs {
    /// Converts the arguments to a request for text.
    ///
    /// # Errors
    /// If a sampling parameter is out of range, or a stop string is empty.
    pub(crate) fn text_request(&self) -> Result<TextRequest> {
        let sampling = self.sampling()?;
        if self.stop.iter().any(String::is_empty) {
            return Err(Failure::usage("a text of --stop is empty"));
        }
        let (max_tokens, stop) = (self.max_tokens, self.stop.clone());
        Ok(TextRequest { max_tokens, sampling, stop, ..TextRequest::default() })
    }

    /// Converts the arguments to a request for token ids of a model without tokenizer.
    ///
    /// # Errors
    /// As for [`Self::text_request`], and if stop strings are given.
    pub(crate) fn ids_request(&self) -> Result<Request> {
        if !self.stop.is_empty() {
            return Err(Failure::usage("--stop needs a model with a tokenizer"));
        }
        Ok(Request { max_tokens: self.max_tokens, sampling: self.sampling()?, ..Request::default() })
    }

    fn sampling(&self) -> Result<Sampling> {
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
        };
        sampling.check().map_err(|e| Failure::usage(e.to_string()))?;
        Ok(sampling)
    }

    /// Seed of the random numbers.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the source of draft tokens that `--draft` selects.
    pub(crate) fn draft(&self, args: &LanguageModelArgs) -> Result<Draft> {
        match self.draft.as_deref() {
            None => Ok(Draft::None),
            Some("ngram") => Ok(Draft::NGram),
            Some(path) => {
                let path = Path::new(path);
                let draft = args.load.open_bundle(path, &CacheArgs::default()).and_then(OpenedBundle::load);
                let draft = draft.map_err(|e| e.context(format!("cannot use --draft {}", path.display())))?;
                Ok(Draft::Model(Box::new(draft)))
            }
        }
    }
}

impl LanguageModelArgs {
    /// Path of the model, as given.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the file with earlier inputs of `driftc chat`. Returns `None` without a cache folder.
    pub(crate) fn history_path(&self) -> Option<PathBuf> {
        chat_history_path(self.load.cache_dir.as_deref())
    }

    /// Loads the model without its tokenizer.
    pub(crate) fn open(&self) -> Result<Generator> {
        self.load.open(&self.path)?.load()
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
    /// Sets a symbolic dimension of the model, unless `--dim` sets it.
    pub(crate) fn add_size(&mut self, size: DimArg) {
        if self.options.dims.iter().all(|given| given.name != size.name) {
            self.options.dims.push(size);
        }
    }

    /// Opens a model that generates text or computes embeddings, not a draft model.
    ///
    /// # Errors
    /// If it is a bundle and there are model options, which do not apply to a bundle.
    pub(crate) fn open(&self, path: &Path) -> Result<OpenedBundle> {
        if !is_model(path) {
            self.options.refuse_for_bundle(path)?;
        }
        self.open_bundle(path, &self.cache)
    }

    /// Opens a bundle, or compiles a model into one with the model options, and determines the load options. Model
    /// options do not apply to a bundle.
    fn open_bundle(&self, path: &Path, cache: &CacheArgs) -> Result<OpenedBundle> {
        let compiled = is_model(path);
        let (path, pipelines) = match compiled {
            true => self.compiled_bundle(path)?,
            false => (path.to_owned(), None),
        };
        let bundle = Bundle::open(&path)?;
        let pipelines = cache.pipeline_cache.clone().or(pipelines);
        let options = Options {
            device: self.device.device.clone(),
            target: variant_name(self.target.as_deref().filter(|_| !compiled)),
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

/// Returns the number of tokens per second, or `None` if no time passed.
pub(crate) fn tokens_per_second(tokens: usize, took: Duration) -> Option<f64> {
    let seconds = took.as_secs_f64();
    (seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// Prints a note that the maximum number of tokens ended a text.
pub(crate) fn note_cut(tokens: usize) {
    note(&format!("output was cut after {tokens} tokens; --max-tokens raises the limit"));
}

/// Prints the speed of a generation to standard error, and the acceptance rate of draft tokens.
pub(crate) fn note_speed(report: &Report) {
    let rate = |n: usize, took: Duration| match tokens_per_second(n, took) {
        Some(rate) => format!("{} tokens/s", three_digits(rate)),
        None => "no time".to_owned(),
    };
    let prompt = (report.prompt_tokens, report.prompt_time);
    let decode = (report.tokens.saturating_sub(1), report.decode_time);
    let speed = |(n, took): (usize, Duration)| format!("{n} tokens in {} ({})", time(took), rate(n, took));
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
