//! `driftc inspect`: shows the contents of a bundle.

mod html;
mod live_ranges;
mod print;
mod report;

use std::path::PathBuf;

use clap::Args;
use drift_runtime::Bundle;

use crate::failure::Result;
use crate::output::{Out, write_file};
use print::print;
use report::bundle_report;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Bundle to inspect
    #[arg(value_name = "OUT.drift")]
    bundle: PathBuf,
    /// List every dispatch
    #[arg(long)]
    dispatches: bool,
    /// Write an HTML page with sections, memory over time and dispatches
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &InspectArgs, out: &mut Out) -> Result<()> {
    let bundle = Bundle::open(&args.bundle)?;
    bundle.verify()?;
    let report = bundle_report(&bundle, args.bundle.display().to_string(), args.dispatches)?;
    if let Some(path) = &args.html {
        let page = html::page(&report, &bundle.manifest().variants);
        return write_file(path, |file| file.write_all(page.as_bytes()));
    }
    if args.json { out.json(&report) } else { print(&report, out) }
}
