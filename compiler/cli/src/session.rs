//! Loading of a bundle onto the selected device.

use std::path::{Path, PathBuf};

use clap::Args;
use drift_runtime::{Bundle, Options, Session};

use crate::cli_help::DEVICE_OPTIONS;
use crate::failure::Result;
use crate::progress::Progress;
use crate::variant_name::variant_name;

/// Device selection.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct DeviceArgs {
    /// Use this device, by number or part of its name (default: $DRIFT_DEVICE, or the most capable device)
    #[arg(long, value_name = "DEVICE", help_heading = DEVICE_OPTIONS)]
    pub(crate) device: Option<String>,
}

/// Pipeline cache selection.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CacheArgs {
    /// Keep the driver's compiled pipelines in this file, valid for any machine with the same device and driver
    #[arg(long, value_name = "FILE", help_heading = DEVICE_OPTIONS)]
    pub(crate) pipeline_cache: Option<PathBuf>,
}

/// Loads a bundle's variant for `target`, or the variant that fits the device best.
pub(crate) fn load(
    bundle: &Path,
    device: &DeviceArgs,
    target: Option<&str>,
    cache: &CacheArgs,
) -> Result<Session> {
    let options = Options {
        device: device.device.clone(),
        target: variant_name(target),
        pipeline_cache: cache.pipeline_cache.clone(),
        ..Options::default()
    };
    open(Bundle::open(bundle)?, options)
}

/// Loads an opened bundle, and shows the progress of its pipelines.
pub(crate) fn open(bundle: Bundle, options: Options) -> Result<Session> {
    let progress = Progress::start("loading");
    let options = Options { on_progress: progress.on_progress(), ..options };
    Ok(Session::from_bundle(bundle, &options)?)
}
