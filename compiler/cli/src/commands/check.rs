//! `driftc check`: checks whether a bundle is intact and runs on this device, or whether a model compiles for this
//! device and could run on it.

mod model;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use drift_runtime::device::{choose_variant, probe, unmet};
use drift_runtime::{Bundle, Options};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::model::is_model;
use crate::model_args::ModelOptions;
use crate::output::Out;
use crate::session::{DeviceArgs, open};
use crate::signing::read_public_key;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Bundle or model to check; a model is compiled, but nothing is written
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    /// Compile the model for this target profile: a name or a TOML file (default: best fit for the device)
    #[arg(short, long, value_name = "TARGET")]
    target: Option<String>,
    #[command(flatten)]
    options: ModelOptions,
    /// Require a signature by this public key: a file, or the base64 line of the key (repeatable)
    #[arg(long = "key", value_name = "PUBLIC")]
    keys: Vec<String>,
    /// Run the bundle's self-test on this device, and compare its outputs with the CPU reference
    #[arg(long)]
    self_test: bool,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    /// Id of the key that the bundle names as its signer.
    signer: Option<String>,
    /// True if a key of `--key` made the signature.
    trusted: bool,
    device: String,
    driver: String,
    /// Target of the variant that would run on the device.
    fits: Option<String>,
    variants: Vec<Variant>,
    /// Number of self-test vectors whose outputs agree with the CPU reference. `None` if no self-test was run.
    self_test_vectors: Option<usize>,
    self_test_error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Variant {
    target: String,
    /// Requirements of the variant that the device does not meet. Empty if the variant can run.
    unmet: Vec<String>,
}

pub(crate) fn run(args: &CheckArgs, out: &mut Out) -> Result<()> {
    if is_model(&args.path) {
        if !args.keys.is_empty() || args.self_test {
            return Err(Failure::usage("--key and --self-test need a bundle, but this is a model")
                .help("compile the model, then check the bundle"));
        }
        return model::run(args, out);
    }
    args.options.refuse_for_bundle(&args.path)?;
    if args.target.is_some() {
        return Err(Failure::usage("--target needs a model, but this is a bundle")
            .help("leave out --target: the command checks every variant of a bundle"));
    }
    let bundle = Bundle::open(&args.path)?;
    let keys = args.keys.iter().map(|key| read_public_key(key)).collect::<Result<Vec<_>>>()?;
    if !keys.is_empty() {
        bundle.check_signature(&keys)?;
    }
    bundle.verify()?;
    let mut report = report(&bundle, args, !keys.is_empty())?;
    let mut failure = None;
    if args.self_test && report.fits.is_some() {
        match self_test(bundle, args) {
            Ok(n_vectors) => report.self_test_vectors = Some(n_vectors),
            Err(error) => {
                report.self_test_error = Some(error.text());
                failure = Some(error);
            }
        }
    }
    if report.fits.is_none() {
        let reason = format!("no variant of the bundle runs on {}", report.device);
        let help = "compile for this device: `driftc targets probe > here.toml`, then `-t ./here.toml`";
        failure = Some(Failure::input(reason).help(help));
    }
    match args.json {
        true => out.json(&report)?,
        false => print(&report, args, out)?,
    }
    match failure {
        None => Ok(()),
        Some(_) if args.json => Err(Failure::reported()),
        Some(failure) => Err(failure),
    }
}

/// Compares the bundle's variants with the device.
fn report(bundle: &Bundle, args: &CheckArgs, trusted: bool) -> Result<Report> {
    let device = probe(args.device.device.as_deref())?;
    let manifest = bundle.manifest();
    let chosen = choose_variant(manifest, &device).ok().and_then(|index| manifest.variants.get(index));
    let variants = manifest.variants.iter();
    let variants = variants.map(|v| Variant { target: v.target.clone(), unmet: unmet(manifest, v, &device) });
    Ok(Report {
        signer: bundle.signer()?.map(|id| id.to_string()),
        trusted,
        device: device.name.clone(),
        driver: format!("{} {}", device.driver_name, device.driver_info).trim().to_owned(),
        fits: chosen.map(|v| v.target.clone()),
        variants: variants.collect(),
        self_test_vectors: None,
        self_test_error: None,
    })
}

/// Loads the bundle and runs its self-test. Returns the number of vectors.
fn self_test(bundle: Bundle, args: &CheckArgs) -> Result<usize> {
    let options = Options { device: args.device.device.clone(), ..Options::default() };
    match open(bundle, options)?.self_test()? {
        0 => Err(Failure::input("the bundle has no self-test")
            .help("compile the model with --self-test 1, or leave out --self-test")),
        n_vectors => Ok(n_vectors),
    }
}

fn print(report: &Report, args: &CheckArgs, out: &mut Out) -> Result<()> {
    writeln!(out, "bundle   {}, intact", args.path.display())?;
    match (&report.signer, report.trusted) {
        (Some(id), true) => writeln!(out, "signed   by key {id}, which is trusted")?,
        (Some(id), false) => writeln!(out, "signed   by key {id}; give --key to check the signature")?,
        (None, _) => writeln!(out, "signed   no")?,
    }
    writeln!(out, "device   {} ({})", report.device, report.driver)?;
    for variant in &report.variants {
        let chosen = report.fits.as_deref() == Some(&variant.target);
        match (variant.unmet.is_empty(), chosen) {
            (true, true) => writeln!(out, "variant  {}: fits, selected", variant.target)?,
            (true, false) => writeln!(out, "variant  {}: fits", variant.target)?,
            (false, _) => writeln!(out, "variant  {}: cannot run", variant.target)?,
        }
        for reason in &variant.unmet {
            writeln!(out, "         - {reason}")?;
        }
    }
    match (report.self_test_vectors, &report.self_test_error) {
        (Some(n_vectors), _) => writeln!(
            out,
            "outputs  equal to the CPU reference in {n_vectors} self-test vector{s}",
            s = if n_vectors == 1 { "" } else { "s" }
        )?,
        (None, Some(_)) => writeln!(out, "outputs  the self-test fails")?,
        (None, None) => {}
    }
    Ok(())
}
