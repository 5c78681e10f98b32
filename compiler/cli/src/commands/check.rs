//! `driftc check`: checks whether a bundle is intact and runs on this device, or whether a model compiles for this
//! device and could run on it.

mod model;

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use drift_runtime::Bundle;
use drift_runtime::device::{choose_variant, probe, unmet};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::model::is_model;
use crate::model_args::ModelOptions;
use crate::output::Out;
use crate::session::DeviceArgs;
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
}

#[derive(Debug, Serialize)]
struct Variant {
    target: String,
    /// Requirements of the variant that the device does not meet. Empty if the variant can run.
    unmet: Vec<String>,
}

pub(crate) fn run(args: &CheckArgs, out: &mut Out) -> Result<()> {
    if is_model(&args.path) {
        if !args.keys.is_empty() {
            return Err(Failure::usage("--key needs a bundle, but this is a model").help("leave out --key"));
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
    let device = probe(args.device.device.as_deref())?;
    let manifest = bundle.manifest();
    let chosen = choose_variant(manifest, &device).ok().and_then(|index| manifest.variants.get(index));
    let report = Report {
        signer: bundle.signer()?.map(|id| id.to_string()),
        trusted: !keys.is_empty(),
        device: device.name.clone(),
        driver: format!("{} {}", device.driver_name, device.driver_info).trim().to_owned(),
        fits: chosen.map(|v| v.target.clone()),
        variants: manifest
            .variants
            .iter()
            .map(|v| Variant { target: v.target.clone(), unmet: unmet(manifest, v, &device) })
            .collect(),
    };
    if args.json {
        out.json(&report)?;
    } else {
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
    }
    match report.fits {
        Some(_) => Ok(()),
        None if args.json => Err(Failure::reported()),
        None => Err(Failure::input(format!("no variant of the bundle runs on {}", report.device))
            .help("compile for this device: `driftc targets probe > here.toml`, then `-t ./here.toml`")),
    }
}
