//! Loading a bundle onto the device that the command line names.

use std::path::{Path, PathBuf};

use clap::Args;
use drift_runtime::{Options, Session};

use crate::failure::Result;
use crate::progress::Progress;

/// Which device runs it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DeviceArgs {
    /// Device to use: its number or part of its name, as `driftc targets probe --list` shows them
    /// (default: $DRIFT_DEVICE, or the most capable one)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,
}

/// Where what the driver compiles is kept.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CacheArgs {
    /// Keep what the driver compiles in this file: a start that finds it compiles nothing. It serves every machine
    /// of the same device and driver, so it can be made once and shipped beside the bundle
    #[arg(long, value_name = "FILE")]
    pub(crate) pipeline_cache: Option<PathBuf>,
}

/// Loads a bundle; with a target, its variant, else the one that fits the device best.
pub(crate) fn load(
    bundle: &Path,
    device: &DeviceArgs,
    target: Option<&str>,
    cache: &CacheArgs,
) -> Result<Session> {
    let _progress = Progress::start("loading");
    let options = Options {
        device: device.device.clone(),
        target: target.map(str::to_owned),
        pipeline_cache: cache.pipeline_cache.clone(),
        ..Options::default()
    };
    Ok(Session::load(bundle, &options)?)
}
