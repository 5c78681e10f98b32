//! `driftc targets`: lists or shows target profiles, or creates one for this device.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use drift_runtime::device::{DeviceInfo, devices, probe};
use driftc::target::TargetProfile;
use serde::Serialize;

use crate::failure::Result;
use crate::output::{Out, write_file};
use crate::session::DeviceArgs;
use crate::target_args::load_target;

/// Maximum number of device names to list for each profile.
const SHOWN_PRODUCTS: usize = 3;

#[derive(Debug, Args)]
pub(crate) struct TargetsArgs {
    #[command(subcommand)]
    command: Option<TargetsCommand>,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum TargetsCommand {
    /// List the built-in profiles
    List,
    /// Print a target profile with all its fields
    Show {
        /// Name of a profile or of a device, path of a TOML file, or `here`
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Create a profile of this device from its driver's properties
    Probe(ProbeArgs),
}

#[derive(Debug, Args)]
struct ProbeArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Set the name of the profile (default: derived from the device's name)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Write the profile to this file instead of standard output
    #[arg(short, long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
    /// List the devices of this machine instead of creating a profile
    #[arg(long)]
    list: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    summary: String,
    /// Names under which the devices are sold.
    products: Vec<String>,
}

pub(crate) fn run(args: &TargetsArgs, out: &mut Out) -> Result<()> {
    match args.command.as_ref().unwrap_or(&TargetsCommand::List) {
        TargetsCommand::List => list(args.json, out),
        TargetsCommand::Show { name } => show(name, args.json, out),
        TargetsCommand::Probe(probe) if probe.list => list_devices(args.json, out),
        TargetsCommand::Probe(probe) => write_probe(probe, args.json, out),
    }
}

fn list(json: bool, out: &mut Out) -> Result<()> {
    let mut rows = Vec::new();
    for name in driftc::target::names() {
        let TargetProfile { summary, device, .. } = TargetProfile::load(name)?;
        rows.push(Row { name, summary, products: device.products });
    }
    if json {
        return out.json(&rows);
    }
    let cells = |row: Row| vec![row.name.to_owned(), row.summary, some_products(&row.products)];
    let table: Vec<Vec<String>> = rows.into_iter().map(cells).collect();
    out.table(&[false, false, false], &table)?;
    let hint = "-t also takes the name of a device, and `here` for the device of this machine";
    Ok(writeln!(out, "\n{hint}")?)
}

/// Returns the first names of a list of devices as text.
fn some_products(products: &[String]) -> String {
    let shown: Vec<&str> = products.iter().take(SHOWN_PRODUCTS).map(String::as_str).collect();
    let more = if products.len() > SHOWN_PRODUCTS { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn show(name: &str, json: bool, out: &mut Out) -> Result<()> {
    let profile = load_target(name, &DeviceArgs::default())?;
    if json { out.json(&profile) } else { Ok(out.write_all(profile.to_toml()?.as_bytes())?) }
}

fn list_devices(json: bool, out: &mut Out) -> Result<()> {
    let devices: Vec<DeviceInfo> = devices()?;
    if json {
        return out.json(&devices);
    }
    for (i, d) in devices.iter().enumerate() {
        let driver = format!("{} {}", d.driver_name, d.driver_info);
        writeln!(out, "{i}  {} ({:?}, Vulkan {}, {})", d.name, d.kind, d.api_version, driver.trim())?;
    }
    Ok(())
}

fn write_probe(args: &ProbeArgs, json: bool, out: &mut Out) -> Result<()> {
    let device = probe(args.device.device.as_deref())?;
    let text = driftc::target::from_device(&device, args.name.as_deref())?;
    if json {
        return out.json(&TargetProfile::from_toml(&text, "this device")?);
    }
    match &args.output {
        Some(path) => write_file(path, |file| file.write_all(text.as_bytes())),
        None => Ok(out.write_all(text.as_bytes())?),
    }
}
