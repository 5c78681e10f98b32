//! Cache of bundles that commands compile from models.
//!
//! `model path, options, device -> import -> key -> KEY.drift in the user's cache folder`. The key hashes the model's
//! bytes, the options, the input sizes and constants, the target profile and the program itself, so a cached file is
//! never stale. Files appear atomically and can be deleted at any time.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use drift_runtime::Bundle;
use drift_runtime::device::{DeviceInfo, probe, unmet};
use driftc::compile::{Options, write};
use driftc::content::Content;
use driftc::ir::array::Array;
use driftc::target::TargetProfile;

use crate::environment::{CACHE_HOME, HOME, LOCAL_APP_DATA};
use crate::failure::{Failure, Result};
use crate::lowering::lower_all;
use crate::model::Loaded;
use crate::model_args::ModelArgs;
use crate::output::{file_name, show_notes};
use crate::progress::Progress;
use crate::session::DeviceArgs;
use crate::target_args::load_target;
use crate::tokenizer_notes::tokenizer_notes;
use crate::variant_name::HERE;

/// A bundle in the cache, compiled from a model.
#[derive(Debug)]
pub(crate) struct CachedBundle {
    /// Path of the cached bundle.
    pub(crate) bundle: PathBuf,
    /// Path of the driver's pipeline cache.
    pub(crate) pipelines: PathBuf,
    /// Compile time. `None` if the bundle was already cached.
    pub(crate) compiled: Option<Duration>,
    /// Names of the inputs that the importer or `--const` replaced with constants.
    pub(crate) constants: Vec<String>,
}

/// Returns the cached bundle of a model for a device. Compiles the model if no cached bundle is valid.
pub(crate) fn cached_bundle(
    model: &ModelArgs,
    samples: &BTreeMap<String, Array>,
    target: Option<&str>,
    device: &DeviceArgs,
    folder: Option<&Path>,
) -> Result<CachedBundle> {
    let progress = Progress::start("importing");
    let loaded = model.options.load(&model.path, samples)?;
    cached_bundle_of(model, loaded, target, device, folder, &progress)
}

/// Returns the cached bundle of a loaded model for a device, as [`cached_bundle`] does.
pub(crate) fn cached_bundle_of(
    model: &ModelArgs,
    loaded: Loaded,
    target: Option<&str>,
    device: &DeviceArgs,
    folder: Option<&Path>,
    progress: &Progress,
) -> Result<CachedBundle> {
    let options = loaded.compile_options(&model.options, false)?;
    let folder = make_private(folder)?;
    let device = probe(device.device.as_deref())?;
    let mut reasons = Vec::new();
    for profile in profiles(&device, target)? {
        let key = key(&loaded, &options, &profile, &model.path)?;
        let bundle = folder.join(format!("{key}.drift"));
        let mut compiled = None;
        if Bundle::open(&bundle).and_then(|b| b.verify()).is_err() {
            show_notes(&loaded.notes);
            show_notes(&tokenizer_notes(&loaded.model));
            progress.stage(&format!("compiling for {}", profile.name));
            let start = Instant::now();
            let functions = lower_all(model, &loaded, &profile, &options)?;
            write(&loaded.model, std::slice::from_ref(&profile), &[functions.as_slice()], &options, &bundle)?;
            compiled = Some(start.elapsed());
        }
        let opened = Bundle::open(&bundle)?;
        let manifest = opened.manifest();
        reasons = manifest.variants.iter().flat_map(|v| unmet(manifest, v, &device)).collect::<Vec<_>>();
        if reasons.is_empty() {
            let pipelines = folder.join(format!("{key}.pipelines"));
            return Ok(CachedBundle { bundle, pipelines, compiled, constants: loaded.constants });
        }
    }
    Err(Failure::input(format!("the model cannot run on {}", device.name))
        .because(reasons.join("\n"))
        .help("select another profile with --target or another device with --device"))
}

/// Path of the driver's pipeline cache for a bundle. Returns `None` without a cache folder; loading then takes longer.
pub(crate) fn pipeline_cache_path(bundle: &Bundle, folder: Option<&Path>) -> Option<PathBuf> {
    let folder = make_private(folder).ok()?;
    let hash = blake3::Hash::from_bytes(bundle.hash().0).to_hex();
    Some(folder.join(format!("{}.pipelines", hash.get(..32)?)))
}

/// Path of the file with earlier inputs of `driftc chat`. Returns `None` without a cache folder.
pub(crate) fn chat_history_path(folder: Option<&Path>) -> Option<PathBuf> {
    Some(make_private(folder).ok()?.join("chat_history"))
}

/// Target profiles to compile for, best first: the requested profile, or the built-in profile of the device followed by
/// a profile that is generated from the driver's properties.
pub(crate) fn profiles(device: &DeviceInfo, target: Option<&str>) -> Result<Vec<TargetProfile>> {
    if let Some(name) = target.filter(|name| !name.eq_ignore_ascii_case(HERE)) {
        return Ok(vec![load_target(name, &DeviceArgs::default())?]);
    }
    let generated = driftc::target::from_device(device, None)?;
    let generated = TargetProfile::from_toml(&generated, "this device")?;
    Ok(TargetProfile::for_device(device)?.into_iter().chain([generated]).collect())
}

/// Cache key: the model's file name and a hash of everything that the bundle depends on.
fn key(loaded: &Loaded, options: &Options, profile: &TargetProfile, path: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(env!("CARGO_PKG_VERSION").as_bytes());
    add(program_id().as_bytes());
    add(&loaded.model.hash);
    add(loaded.model.name.as_bytes());
    for file in &loaded.external {
        let content = Content::map(file).map_err(|e| Failure::file(file, &e))?;
        add(blake3::hash(&content).as_bytes());
        content.release();
    }
    for (name, bytes) in &loaded.model.attachments {
        add(name.as_bytes());
        add(bytes);
    }
    for (key, value) in &loaded.model.metadata {
        add(key.as_bytes());
        add(value.as_bytes());
    }
    add(profile.name.as_bytes());
    add(&profile.hash()?);
    for flag in &options.flags {
        add(flag.as_bytes());
    }
    // The graph carries the sizes, types and constants that samples and files determine.
    let graph = &loaded.model.graph;
    for id in graph.inputs() {
        add(graph.node(*id).name.as_bytes());
        add(graph.tensor(*id).to_string().as_bytes());
    }
    for (symbol, bounds) in &graph.bounds {
        add(format!("{symbol} {bounds:?}").as_bytes());
    }
    let whole = hasher.finalize().to_hex();
    let stem = path.file_stem().map_or_else(String::new, |s| file_name(&s.to_string_lossy()));
    let stem: String = stem.chars().take(40).collect();
    Ok(format!("{stem}-{}", whole.get(..32).unwrap_or_default()))
}

/// Size and modification time of the program `driftc` as text, which differ between two builds of one version.
fn program_id() -> String {
    let found = std::env::current_exe().and_then(std::fs::metadata);
    found.map_or_else(|_| String::new(), |m| format!("{} {:?}", m.len(), m.modified().ok()))
}

/// Creates the cache folder and its parents, readable only by the user.
pub(crate) fn make_private(folder: Option<&Path>) -> Result<PathBuf> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => default_folder().ok_or_else(|| {
            Failure::input("no cache folder: neither XDG_CACHE_HOME nor HOME is set")
                .help("choose a folder for compiled models with --cache-dir DIR")
        })?,
    };
    let made = make(&folder);
    made.map_err(|e| {
        Failure::file(&folder, &e).help("choose a folder for compiled models with --cache-dir DIR")
    })?;
    Ok(folder)
}

fn make(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

fn default_folder() -> Option<PathBuf> {
    let cache = CACHE_HOME.absolute_path().or_else(|| LOCAL_APP_DATA.absolute_path());
    Some(cache.or_else(|| Some(HOME.absolute_path()?.join(".cache")))?.join("driftc"))
}
