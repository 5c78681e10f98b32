//! `driftc check`: checks whether a bundle is intact and runs on this device.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use drift_runtime::Bundle;
use drift_runtime::device::{choose_variant, probe, unmet};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::output::Out;
use crate::session::DeviceArgs;

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Bundle to check
    #[arg(value_name = "OUT.drift")]
    bundle: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
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
    let bundle = Bundle::open(&args.bundle)?;
    bundle.verify()?;
    let device = probe(args.device.device.as_deref())?;
    let manifest = bundle.manifest();
    let chosen = choose_variant(manifest, &device).ok().and_then(|index| manifest.variants.get(index));
    let report = Report {
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
        writeln!(out, "bundle   {}, intact", args.bundle.display())?;
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
