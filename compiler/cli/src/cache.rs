//! Bundles that `driftc run` compiled from models, kept by what they were made of.
//!
//! `path of a model, what is said about it, device -> import -> key -> KEY.drift in the user's cache folder`. The key
//! covers the model's bytes, the options, the sizes and constants of its inputs, the target profile and the program
//! itself, so a file is never stale: it is there or it is not. Files appear whole, and may be deleted at any time.

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

use crate::failure::{Failure, Result};
use crate::language;
use crate::lowering::lower_all;
use crate::model::{Loaded, ModelArgs, show_notes};
use crate::progress::Progress;
use crate::session::DeviceArgs;

/// A model as a bundle.
#[derive(Debug)]
pub(crate) struct Cached {
    /// The bundle.
    pub(crate) bundle: PathBuf,
    /// Where what the driver compiles from it is kept.
    pub(crate) pipelines: PathBuf,
    /// How long compiling took; none when the bundle was there.
    pub(crate) compiled: Option<Duration>,
    /// Inputs that became constants.
    pub(crate) constants: Vec<String>,
}

/// The bundle of a model for a device: the one that is kept, or one compiled now.
pub(crate) fn bundle_of(
    model: &ModelArgs,
    samples: &BTreeMap<String, Array>,
    target: Option<&str>,
    device: &DeviceArgs,
    folder: Option<&Path>,
) -> Result<Cached> {
    let progress = Progress::start("importing");
    let loaded = model.given.load(&model.path, samples)?;
    let options = loaded.options(&model.given, false)?;
    let folder = make_private(folder)?;
    let device = probe(device.device.as_deref())?;
    let mut reasons = Vec::new();
    for profile in profiles(&device, target)? {
        let key = key(&loaded, &options, &profile, &model.path)?;
        let bundle = folder.join(format!("{key}.drift"));
        let mut compiled = None;
        if Bundle::open(&bundle).and_then(|b| b.verify()).is_err() {
            show_notes(&loaded.notes);
            show_notes(&language::notes(&loaded.model));
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
            return Ok(Cached { bundle, pipelines, compiled, constants: loaded.constants });
        }
    }
    Err(Failure::input(format!("the model cannot run on {}", device.name))
        .because(reasons.join("\n"))
        .help("pick another profile with --target, or another device with --device"))
}

/// Where what the driver compiles from a bundle is kept, where there is a cache folder; starts without it take longer.
pub(crate) fn pipelines_of(bundle: &Bundle, folder: Option<&Path>) -> Option<PathBuf> {
    let folder = make_private(folder).ok()?;
    let hash = blake3::Hash::from_bytes(bundle.hash().0).to_hex();
    Some(folder.join(format!("{}.pipelines", hash.get(..32)?)))
}

/// The profiles to compile for, the best first: the one that is asked for, or the built-in one that names the device
/// and the one made from what its driver tells.
fn profiles(device: &DeviceInfo, target: Option<&str>) -> Result<Vec<TargetProfile>> {
    if let Some(name) = target {
        return Ok(vec![TargetProfile::load(name)?]);
    }
    let told = driftc::target::from_device(device, None)?;
    let told = TargetProfile::from_toml(&told, "the present device")?;
    Ok(TargetProfile::for_device(device)?.into_iter().chain([told]).collect())
}

/// What a bundle is made of, as a name.
fn key(loaded: &Loaded, options: &Options, profile: &TargetProfile, path: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut add = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    };
    add(env!("CARGO_PKG_VERSION").as_bytes());
    add(program().as_bytes());
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
    add(profile.name.as_bytes());
    add(&profile.hash()?);
    for flag in &options.flags {
        add(flag.as_bytes());
    }
    // What samples and files said: sizes, types and constants are those of the graph.
    let graph = &loaded.model.graph;
    for id in graph.inputs() {
        add(graph.node(*id).name.as_bytes());
        add(graph.tensor(*id).to_string().as_bytes());
    }
    for (symbol, bounds) in &graph.bounds {
        add(format!("{symbol} {bounds:?}").as_bytes());
    }
    let whole = hasher.finalize().to_hex();
    let stem = path.file_stem().map_or_else(String::new, |s| crate::output::file_name(&s.to_string_lossy()));
    let stem: String = stem.chars().take(40).collect();
    Ok(format!("{stem}-{}", whole.get(..32).unwrap_or_default()))
}

/// What tells this build of the program from others of its version.
fn program() -> String {
    let found = std::env::current_exe().and_then(std::fs::metadata);
    found.map_or_else(|_| String::new(), |m| format!("{} {:?}", m.len(), m.modified().ok()))
}

/// The folder, made with those above it, for the user alone.
fn make_private(folder: Option<&Path>) -> Result<PathBuf> {
    let folder = match folder {
        Some(folder) => folder.to_owned(),
        None => usual_folder().ok_or_else(|| {
            Failure::input("there is no cache folder: neither XDG_CACHE_HOME nor HOME is set")
                .help("say where compiled models are kept: --cache-dir DIR")
        })?,
    };
    let made = make(&folder);
    made.map_err(|e| Failure::file(&folder, &e).help("say where compiled models are kept: --cache-dir DIR"))?;
    Ok(folder)
}

fn make(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

fn usual_folder() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = of("XDG_CACHE_HOME").or_else(|| of("LOCALAPPDATA"));
    Some(cache.or_else(|| Some(of("HOME")?.join(".cache")))?.join("driftc"))
}
