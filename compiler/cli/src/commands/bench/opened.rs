//! Opening of the bundle to measure: a given bundle, or a model that is compiled into the cache. Symbolic dimensions
//! without an option get a typical size.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use drift_runtime::{Bundle, Options, Session};
use driftc::entry_points::MAIN;
use serde::Serialize;

use super::BenchArgs;
use crate::cache::cached_bundle_of;
use crate::failure::Result;
use crate::model::is_model;
use crate::model_args::{DimArg, ModelArgs};
use crate::output::{note, time};
use crate::progress::Progress;
use crate::session;
use crate::variant_name::variant_name;

/// Bundle to measure.
pub(super) struct Opened {
    pub(super) bundle: Bundle,
    pipelines: Option<PathBuf>,
    /// Target of the variant to load. `None` for a compiled model, whose bundle has one variant.
    target: Option<String>,
    /// Sizes of runs of a bundle, by symbol.
    pub(super) dims: Vec<DimArg>,
    /// Sizes for which a model was compiled.
    pub(super) fixed: Vec<Size>,
}

/// Value of a symbolic dimension, and its origin.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Size {
    pub(super) name: String,
    pub(super) value: i64,
    /// `--dim`, `typical` or `upper bound`.
    pub(super) from: &'static str,
}

impl Opened {
    /// True if the bundle has the functions of a language model.
    pub(super) fn is_language_model(&self) -> bool {
        let variants = &self.bundle.manifest().variants;
        let has = |name: &str| variants.iter().any(|v| v.functions.iter().any(|f| f.name == name));
        has("decode") && !has(MAIN)
    }

    /// Loads the bundle onto the device, with `frames` runs in flight at most. Returns the session and the time that
    /// loading took.
    pub(super) fn load(self, args: &BenchArgs, frames: usize) -> Result<(Session, Duration)> {
        let start = Instant::now();
        let options = Options {
            device: args.device.device.clone(),
            target: self.target,
            pipeline_cache: args.cache.pipeline_cache.clone().or(self.pipelines),
            frames,
            ..Options::default()
        };
        Ok((session::open(self.bundle, options)?, start.elapsed()))
    }
}

/// Opens the bundle, or compiles the model.
pub(super) fn open(args: &BenchArgs) -> Result<Opened> {
    if is_model(&args.path) {
        return compile(args);
    }
    let options = &args.options;
    options.refuse(&args.path, &[(args.cache_dir.is_some(), "--cache-dir")])?;
    Ok(Opened {
        bundle: Bundle::open(&args.path)?,
        pipelines: None,
        target: variant_name(args.target.as_deref()),
        dims: options.dims.clone(),
        fixed: Vec::new(),
    })
}

fn compile(args: &BenchArgs) -> Result<Opened> {
    let progress = Progress::start("importing");
    let mut model = ModelArgs { path: args.path.clone(), options: args.options.clone() };
    let mut loaded = model.load()?;
    let given = args.options.dims.iter().filter(|dim| dim.low == dim.high);
    let mut fixed: Vec<Size> =
        given.map(|dim| Size { name: dim.name.clone(), value: dim.low, from: "--dim" }).collect();
    if loaded.model.entry_points.is_empty() && !loaded.assumed.is_empty() {
        for (name, size) in &loaded.assumed {
            model.options.dims.push(DimArg { name: name.clone(), low: *size, high: *size });
            fixed.push(Size { name: name.clone(), value: *size, from: "typical" });
        }
        let typical = fixed.iter().filter(|size| size.from == "typical");
        let typical: Vec<String> =
            typical.map(|size| format!("--dim {}={}", size.name, size.value)).collect();
        note(&format!("sizes without an option are measured as with {}", typical.join(" ")));
        loaded = model.options.load(&model.path, &BTreeMap::new())?;
    }
    let folder = args.cache_dir.as_deref();
    let cached = cached_bundle_of(&model, loaded, args.target.as_deref(), &args.device, folder, &progress)?;
    drop(progress);
    match cached.compiled {
        Some(took) => note(&format!("compiled in {} and cached as {}", time(took), cached.bundle.display())),
        None => note(&format!("compiled before: {}", cached.bundle.display())),
    }
    Ok(Opened {
        bundle: Bundle::open(&cached.bundle)?,
        pipelines: Some(cached.pipelines),
        target: None,
        dims: Vec::new(),
        fixed,
    })
}
