//! `driftc inspect`: shows the contents of a bundle or a model.

mod html;
mod live_ranges;
mod model;
mod print;
mod provenance;
mod report;

use std::path::PathBuf;

use clap::Args;
use drift_runtime::Bundle;

use crate::failure::{Failure, Result};
use crate::model::is_model;
use crate::output::{Out, write_file};
use print::print;
use report::bundle_report;

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Bundle or model to inspect; driftc reads no weights of a model
    #[arg(value_name = "OUT.drift | MODEL")]
    path: PathBuf,
    /// List every dispatch of a bundle
    #[arg(long)]
    dispatches: bool,
    /// Write an HTML page of a bundle with its interface, sections, memory over time and dispatches
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Print the provenance of a bundle as an in-toto statement with the SLSA v1 predicate, in JSON
    #[arg(long, conflicts_with_all = ["json", "html", "dispatches"])]
    provenance: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &InspectArgs, out: &mut Out) -> Result<()> {
    if is_model(&args.path) {
        if args.dispatches || args.provenance || args.html.is_some() {
            return Err(Failure::usage(
                "--dispatches, --html and --provenance need a bundle, but this is a model",
            )
            .help("compile the model, then inspect the bundle"));
        }
        return model::run(&args.path, args.json, out);
    }
    let bundle = Bundle::open(&args.path)?;
    bundle.verify()?;
    if args.provenance {
        return out.json(&provenance::statement(&bundle, &args.path));
    }
    let report = bundle_report(&bundle, args.path.display().to_string(), args.dispatches)?;
    if let Some(path) = &args.html {
        let page = html::page(&report, &bundle.manifest().variants);
        return write_file(path, |file| file.write_all(page.as_bytes()));
    }
    if args.json { out.json(&report) } else { print(&report, out) }
}
