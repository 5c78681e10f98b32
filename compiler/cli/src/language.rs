//! Language models for the commands that generate: opened from a bundle or compiled from a model, with their tokenizer.
//!
//! `OUT.drift | MODEL -> Session -> Generator`, and `tokenizer.json` and what is beside it `-> Text`.

mod reading;
mod text;

pub(crate) use reading::{ids_of, ids_to};
pub(crate) use text::{Printer, Text, notes};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use drift_runtime::{Bundle, Draft, Generator, Options, Report, Request, Sampling, Session};

use crate::cache::{bundle_of, pipelines_of};
use crate::failure::{Failure, Result};
use crate::model::{Given, ModelArgs, is_model};
use crate::output::{note, three_digits, time};
use crate::progress::Progress;
use crate::session::{CacheArgs, DeviceArgs};

/// Steps that are in flight where the device needs nothing from the host.
const FRAMES: usize = 4;

/// Which model, and where it runs.
#[derive(Debug, Args)]
pub(crate) struct LanguageArgs {
    /// A language model's bundle, or the model: a Hugging Face folder, a .gguf file or an .onnx file, which is compiled for
    /// the device and kept for the next time
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    /// Use the variant for this target, or compile a model for this one (default: what fits the device best)
    #[arg(short, long, value_name = "TARGET")]
    target: Option<String>,
    #[command(flatten)]
    given: Given,
    /// Folder where compiled models, and what the driver compiles from bundles, are kept (default: driftc in the user's
    /// cache folder)
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    cache: CacheArgs,
}

/// How tokens are chosen, and how many.
#[derive(Debug, Args)]
pub(crate) struct ChoiceArgs {
    /// The most tokens of an answer
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_tokens: usize,
    /// Draw tokens, the more freely the higher it is (default: take the most likely one each time)
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,
    /// Draw from the N most likely tokens (default: from all)
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    top_k: usize,
    /// Draw from the most likely tokens that together have probability P
    #[arg(long, value_name = "P", default_value_t = 1.0, allow_negative_numbers = true)]
    top_p: f32,
    /// Make tokens that the text has less likely
    #[arg(long, value_name = "R", default_value_t = 1.0, allow_negative_numbers = true)]
    repetition_penalty: f32,
    /// Equal seeds draw equal texts
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Where guesses come from that the model checks several at a time: `ngram` (the text so far), or the bundle or
    /// the folder of a smaller model with the same tokens. The text stays the same
    #[arg(long, value_name = "ngram | OUT.drift | MODEL")]
    draft: Option<String>,
}

/// A bundle, where it is, and how to load it.
struct Found {
    path: PathBuf,
    bundle: Bundle,
    options: Options,
}

impl Found {
    fn load(self) -> Result<Generator> {
        let session = {
            let _progress = Progress::start("loading");
            Session::from_bundle(self.bundle, &self.options)?
        };
        Ok(Generator::new(session)?)
    }
}

impl ChoiceArgs {
    /// What to generate, up to these ids.
    pub(crate) fn request(&self, stops: &[u32]) -> Result<Request> {
        let sampling = Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
        };
        sampling.check().map_err(|e| Failure::usage(e.to_string()))?;
        Ok(Request { max_tokens: self.max_tokens, stops: stops.to_vec(), sampling })
    }

    /// Where guesses come from.
    pub(crate) fn draft(&self, args: &LanguageArgs) -> Result<Draft> {
        match self.draft.as_deref() {
            None => Ok(Draft::None),
            Some("ngram") => Ok(Draft::NGram),
            Some(path) => {
                let generator = args.open_at(Path::new(path), &CacheArgs::default())?;
                Ok(Draft::Model(Box::new(generator)))
            }
        }
    }
}

impl LanguageArgs {
    /// Loads the model for a command that has ids.
    pub(crate) fn open(&self) -> Result<Generator> {
        self.open_at(&self.path, &self.cache)
    }

    /// The same with its tokenizer, where it has one. Reading a large vocabulary takes as long as a small model, so both are
    /// done at the same time.
    pub(crate) fn open_with_any_text(&self) -> Result<(Generator, Option<Text>)> {
        let found = self.find(&self.path, &self.cache)?;
        let path = found.path.clone();
        let (generator, text) = std::thread::scope(|scope| {
            let text = scope.spawn(|| Text::of(&Bundle::open(&path)?));
            (found.load(), text.join())
        });
        let generator = generator?;
        let text = text.map_err(|_| Failure::input("the tokenizer could not be read"))??;
        let vocabulary = generator.vocabulary();
        Ok((generator, text.map(|text| text.with_vocabulary(vocabulary))))
    }

    /// The same for a command that needs the tokenizer.
    pub(crate) fn open_with_text(&self) -> Result<(Generator, Text)> {
        let (generator, text) = self.open_with_any_text()?;
        let reason = || format!("{} has no tokenizer, so texts mean nothing to it", self.path.display());
        let text = text.ok_or_else(|| {
            Failure::input(reason()).help("give ids instead: --ids IDS.npy, where the command has it")
        })?;
        Ok((generator, text))
    }

    fn open_at(&self, path: &Path, cache: &CacheArgs) -> Result<Generator> {
        self.find(path, cache)?.load()
    }

    /// The bundle, which is compiled where a model is given, and how to load it.
    fn find(&self, path: &Path, cache: &CacheArgs) -> Result<Found> {
        let compiled = is_model(path);
        let (path, pipelines) = if compiled {
            self.compiled(path)?
        } else if self.given.is_empty() {
            (path.to_owned(), None)
        } else {
            return Err(Failure::usage("--dim, --const and --like are for models, this is a bundle")
                .help("compile the model again with them"));
        };
        let bundle = Bundle::open(&path)?;
        let pipelines = cache.pipeline_cache.clone().or(pipelines);
        let options = Options {
            device: self.device.device.clone(),
            target: self.target.clone().filter(|_| !compiled),
            pipeline_cache: pipelines.or_else(|| pipelines_of(&bundle, self.cache_dir.as_deref())),
            frames: FRAMES,
            ..Options::default()
        };
        Ok(Found { path, bundle, options })
    }

    /// The bundle of a model, and where what the driver compiles from it is kept.
    fn compiled(&self, path: &Path) -> Result<(PathBuf, Option<PathBuf>)> {
        let model = ModelArgs { path: path.to_owned(), given: self.given.clone() };
        let (target, folder) = (self.target.as_deref(), self.cache_dir.as_deref());
        let cached = bundle_of(&model, &BTreeMap::new(), target, &self.device, folder)?;
        if let Some(took) = cached.compiled {
            note(&format!("compiled in {} and kept as {}", time(took), cached.bundle.display()));
        }
        Ok((cached.bundle, Some(cached.pipelines)))
    }
}

/// Says how fast it was.
pub(crate) fn note_speed(report: &Report) {
    let rate = |n: usize, seconds: f64| match seconds > 0.0 {
        true => format!("{} tokens/s", three_digits(n as f64 / seconds)),
        false => "no time".to_owned(),
    };
    let prompt = (report.prompt_tokens, report.prompt_time);
    let decode = (report.tokens.saturating_sub(1), report.decode_time);
    let part = |(n, took): (usize, std::time::Duration)| {
        format!("{n} tokens in {} ({})", time(took), rate(n, took.as_secs_f64()))
    };
    let mut text = format!("prompt {}, decode {}", part(prompt), part(decode));
    if !report.accepted.is_empty() {
        let right: usize = report.accepted.iter().sum();
        let runs = report.accepted.len();
        let mean = three_digits(right as f64 / runs as f64);
        text.push_str(&format!(
            "; {right} of {} guesses were right, {mean} in a run on average of {runs}",
            report.drafted
        ));
        let mut lengths = report.accepted.clone();
        lengths.sort_unstable();
        let counts = lengths.chunk_by(|a, b| a == b);
        let counts = counts.map(|runs| format!("{} in {}", runs.first().unwrap_or(&0), runs.len()));
        let counts: Vec<String> = counts.collect();
        text.push_str(&format!(" ({})", counts.join(", ")));
    }
    note(&text);
}
