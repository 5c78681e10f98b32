//! Check of a model: import, passes and plan for each profile that suits the device, without writing a bundle. The
//! requirements of the plan are compared with the device.

use std::io::Write;

use drift_runtime::device::{DeviceInfo, probe, unmet};
use driftc::compile::{Options, outline};
use driftc::target::TargetProfile;
use serde::Serialize;

use super::CheckArgs;
use crate::cache::profiles;
use crate::failure::{Failure, Result};
use crate::lowering::lower_all;
use crate::model::Loaded;
use crate::model_args::ModelArgs;
use crate::output::{Out, bytes, show_notes};
use crate::progress::Progress;

#[derive(Debug, Default, Serialize)]
struct Report {
    model: String,
    /// Reasons why the model cannot be imported. Empty if it can be imported.
    refused: Vec<String>,
    device: Option<String>,
    driver: Option<String>,
    /// Reason why no device can be used. `None` if there is a device.
    no_device: Option<String>,
    /// First target for which the model compiles and whose requirements the device meets.
    fits: Option<String>,
    targets: Vec<TargetReport>,
}

#[derive(Debug, Default, Serialize)]
struct TargetReport {
    target: String,
    compiles: bool,
    /// Reasons why the model does not compile for the target. Empty if it compiles.
    refused: Vec<String>,
    /// Requirements of the compiled model that the device does not meet.
    unmet: Vec<String>,
    /// Maximum device memory in bytes that a loaded bundle takes. Equal constants count separately.
    device_memory: u64,
    dispatches: usize,
}

/// Checks a model and prints the report.
pub(super) fn run(args: &CheckArgs, out: &mut Out) -> Result<()> {
    let (report, failure) = check(args)?;
    if args.json {
        out.json(&report)?;
    } else {
        print(&report, out)?;
    }
    match failure {
        None => Ok(()),
        Some(_) if args.json => Err(Failure::reported()),
        Some(failure) => Err(failure),
    }
}

/// Returns the report, and the failure to report unless the device can run the model.
fn check(args: &CheckArgs) -> Result<(Report, Option<Failure>)> {
    let model = ModelArgs { path: args.path.clone(), options: args.options.clone() };
    let mut report = Report { model: args.path.display().to_string(), ..Report::default() };
    let device = match probe(args.device.device.as_deref()) {
        Ok(device) => Some(device),
        // Without a device, a model can still be compiled for a named target.
        Err(error) if args.target.is_some() => {
            report.no_device = Some(error.to_string());
            None
        }
        Err(error) => return Err(error.into()),
    };
    report.device = device.as_ref().map(|device| device.name.clone());
    let driver = |d: &DeviceInfo| format!("{} {}", d.driver_name, d.driver_info).trim().to_owned();
    report.driver = device.as_ref().map(driver);
    let profiles = match (&args.target, &device) {
        (Some(name), _) => vec![TargetProfile::load(name)?],
        (None, Some(device)) => profiles(device, None)?,
        (None, None) => Vec::new(),
    };
    let progress = Progress::start("importing");
    let loaded = match model.load() {
        Ok(loaded) => loaded,
        Err(failure) if failure.is_usage() => return Err(failure),
        Err(failure) => {
            report.refused = failure.lines();
            let advice = failure.advice().map(str::to_owned);
            let failure = Failure::input("the model cannot be imported");
            return Ok((report, Some(with_advice(failure, advice))));
        }
    };
    show_notes(&loaded.notes);
    let options = loaded.compile_options(&model.options, false)?;
    let mut advice = None;
    for profile in &profiles {
        progress.stage(&format!("planning for {}", profile.name));
        let target = check_target(&model, &loaded, profile, &options, device.as_ref(), &mut advice);
        let fits = target.compiles && target.unmet.is_empty() && device.is_some();
        report.targets.push(target);
        if fits {
            report.fits = Some(profile.name.clone());
            break;
        }
    }
    drop(progress);
    let reason = match (&report.fits, &report.device) {
        (Some(_), _) => return Ok((report, None)),
        (None, Some(device)) => format!("the model does not run on {device}"),
        (None, None) => "there is no device to run the model on".to_owned(),
    };
    Ok((report, Some(with_advice(Failure::input(reason), advice))))
}

/// Compiles the model for a target and compares its requirements with the device. `advice` receives the advice of the
/// first failure.
fn check_target(
    model: &ModelArgs,
    loaded: &Loaded,
    profile: &TargetProfile,
    options: &Options,
    device: Option<&DeviceInfo>,
    advice: &mut Option<String>,
) -> TargetReport {
    let mut report = TargetReport { target: profile.name.clone(), ..TargetReport::default() };
    let outlined = lower_all(model, loaded, profile, options).and_then(|functions| {
        report.dispatches = functions.iter().map(|f| f.plan.dispatches.len()).sum();
        Ok(outline(std::slice::from_ref(profile), &[functions.as_slice()])?)
    });
    match outlined {
        Ok(manifest) => {
            report.compiles = true;
            for variant in &manifest.variants {
                report.device_memory = variant.device_memory();
                report.unmet.extend(device.into_iter().flat_map(|d| unmet(&manifest, variant, d)));
            }
        }
        Err(failure) => {
            report.refused = failure.lines();
            *advice = advice.take().or_else(|| failure.advice().map(str::to_owned));
        }
    }
    report
}

fn with_advice(failure: Failure, advice: Option<String>) -> Failure {
    match advice {
        Some(advice) => failure.help(advice),
        None => failure,
    }
}

fn print(report: &Report, out: &mut Out) -> Result<()> {
    match report.refused.is_empty() {
        true => writeln!(out, "model    {}: can be imported", report.model)?,
        false => writeln!(out, "model    {}: cannot be imported", report.model)?,
    }
    for reason in &report.refused {
        writeln!(out, "         - {reason}")?;
    }
    match (&report.device, &report.driver, &report.no_device) {
        (Some(device), Some(driver), _) => writeln!(out, "device   {device} ({driver})")?,
        (_, _, Some(reason)) => writeln!(out, "device   none: {reason}")?,
        _ => {}
    }
    for target in &report.targets {
        let fits = report.fits.as_deref() == Some(&target.target);
        let (n, memory) = (target.dispatches, bytes(target.device_memory));
        let compiled = format!("compiles, {n} dispatches, {memory} of device memory");
        match (target.compiles, fits) {
            (true, true) => writeln!(out, "target   {}: {compiled}; the device can run it", target.target)?,
            (true, false) => writeln!(out, "target   {}: {compiled}; cannot run", target.target)?,
            (false, _) => writeln!(out, "target   {}: does not compile", target.target)?,
        }
        for reason in target.refused.iter().chain(&target.unmet) {
            writeln!(out, "         - {reason}")?;
        }
    }
    Ok(())
}
