//! `driftc audit`: compiles every pipeline of a bundle with the compiler of a GPU's driver, and reports refusals, crashes,
//! compile times, spills, registers and occupancy. The GPU itself is not needed (`make drivers`).

mod print;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use drift_runtime::Bundle;
use drift_runtime::format::{Manifest, Variant};
use driftc::compile::write;
use tempfile::TempDir;

use crate::audit_report::Report;
use crate::cli_help::DEVICE_OPTIONS;
use crate::driver_compiler::{DriverCompiler, distinct_pipelines, worker};
use crate::drivers::table;
use crate::failure::{Failure, Result};
use crate::lowering::lower_all;
use crate::model::is_model;
use crate::model_args::{ModelArgs, ModelOptions};
use crate::output::{Out, show_notes};
use crate::progress::Progress;
use crate::session::DeviceArgs;
use crate::target_args::load_target;
use crate::variant_name::variant_name;
use report::{Limits, report, violations};

#[derive(Debug, Args)]
pub(crate) struct AuditArgs {
    /// Bundle, or model to compile for --target
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    /// Audit the variant for this target, or compile the model for it (default: the first variant)
    #[arg(short, long, value_name = "TARGET")]
    target: Option<String>,
    #[command(flatten)]
    options: ModelOptions,
    /// Compile with the driver of this device, which need not be here (default: a device of the target; `make drivers`)
    #[arg(long, value_name = "NAME", help_heading = DEVICE_OPTIONS, conflicts_with = "device")]
    driver: Option<String>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Fail if a pipeline has more spills
    #[arg(long, value_name = "N")]
    max_spills: Option<u32>,
    /// Fail if a pipeline takes longer to compile, in milliseconds
    #[arg(long, value_name = "MS")]
    max_compile_ms: Option<u32>,
    /// Fail if a pipeline has a lower occupancy, in subgroups per execution unit
    #[arg(long, value_name = "N")]
    min_occupancy: Option<u32>,
    /// Give up a pipeline after this processor time, in seconds
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    time_limit: u16,
    /// Compile with N processes at once (default: one per processor)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Compile pipelines of the variant with this index as a child process of another audit
    #[arg(long, value_name = "VARIANT", hide = true)]
    worker: Option<usize>,
    /// List all pipelines
    #[arg(long)]
    all: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &AuditArgs, out: &mut Out) -> Result<()> {
    if let Some(variant) = args.worker {
        return worker::run(&args.path, variant, &args.device, out);
    }
    let report = audit(args)?;
    let limits = Limits {
        spills: args.max_spills.map(f64::from),
        compile_ms: args.max_compile_ms.map(f64::from),
        occupancy: args.min_occupancy.map(f64::from),
    };
    if args.json {
        out.json(&report)?;
    } else {
        print::print(&report, args.all, out)?;
    }
    match violations(&report, limits).as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::input(one)),
        [first, others @ ..] => Err(others.iter().fold(Failure::input(first), Failure::because)),
    }
}

fn audit(args: &AuditArgs) -> Result<Report> {
    let table = table()?;
    let (path, _folder) = bundle_path(args)?;
    let bundle = Bundle::open(&path)?;
    let manifest = bundle.manifest();
    let (index, variant) = find_variant(manifest, args)?;
    let device = table.selected(args.driver.as_deref(), &args.device, &variant.target)?;
    let audited = distinct_pipelines(&bundle, variant)?;
    let progress = Progress::steps("compiling shaders", audited.len());
    let compiler = DriverCompiler {
        path: &path,
        variant: index,
        driver: device,
        device: &args.device,
        limit: Duration::from_secs(args.time_limit.into()),
        processes: args.threads,
    };
    let (opened, outcomes) = compiler.compile(&audited, &|| progress.step()).map_err(|failure| {
        let name = device.map_or_else(|| "this machine".to_owned(), |device| device.name.clone());
        failure.context(format!("{} for {} was not compiled on {name}", args.path.display(), variant.target))
    })?;
    drop(progress);
    let driver = table.driver(&opened.driver);
    let shown = args.path.display().to_string();
    Ok(report(&shown, (manifest, variant), opened, driver, &audited, outcomes))
}

/// Returns the path of the bundle: the given one, or the one of a model that is compiled into a temporary folder, which is
/// deleted when it is dropped.
fn bundle_path(args: &AuditArgs) -> Result<(PathBuf, Option<TempDir>)> {
    if !is_model(&args.path) {
        args.options.refuse_for_bundle(&args.path)?;
        return Ok((args.path.clone(), None));
    }
    let name = args.target.as_deref().ok_or_else(|| {
        Failure::usage("a model needs a target to be compiled for")
            .help("add -t NAME; `driftc targets` lists the names")
    })?;
    let target = load_target(name, &DeviceArgs::default())?;
    let folder = tempfile::tempdir().map_err(|e| Failure::input(format!("a temporary folder: {e}")))?;
    let path = folder.path().join("model.drift");
    let progress = Progress::start("importing");
    let model = ModelArgs { path: args.path.clone(), options: args.options.clone() };
    let loaded = model.load()?;
    show_notes(&loaded.notes);
    let options = loaded.compile_options(&model.options, false)?;
    progress.stage(&format!("compiling for {}", target.name));
    let functions = lower_all(&model, &loaded, &target, &options)?;
    write(&loaded.model, std::slice::from_ref(&target), &[functions.as_slice()], &options, &path)?;
    Ok((path, Some(folder)))
}

/// Returns the variant to audit and its index.
fn find_variant<'a>(manifest: &'a Manifest, args: &AuditArgs) -> Result<(usize, &'a Variant)> {
    let wanted = variant_name(args.target.as_deref());
    let mut variants = manifest.variants.iter().enumerate();
    let found = variants.find(|(_, variant)| wanted.as_ref().is_none_or(|name| variant.target == *name));
    found.ok_or_else(|| {
        let names: Vec<&str> = manifest.variants.iter().map(|v| v.target.as_str()).collect();
        let wanted = wanted.unwrap_or_default();
        Failure::usage(format!("{} has no variant for {wanted}", args.path.display()))
            .help(format!("its variants: {}", names.join(", ")))
    })
}
