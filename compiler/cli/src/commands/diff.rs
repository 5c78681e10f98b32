//! `driftc diff`: compares two bundles, or two reports of `driftc audit --json`.
//!
//! Weights and shaders are compared by hash, dispatches by the name of their node and their index among the node's
//! dispatches, and other values of the manifest by field path.

mod audits;
mod print;
mod report;

use std::path::PathBuf;

use clap::Args;

use crate::failure::Result;
use crate::output::Out;
use print::print;
use report::{Opened, report};

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// First bundle, or first report of `driftc audit --json`
    #[arg(value_name = "A.drift | A.json")]
    a: PathBuf,
    /// Second bundle or report
    #[arg(value_name = "B.drift | B.json")]
    b: PathBuf,
    /// List every changed dispatch or pipeline
    #[arg(long)]
    all: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DiffArgs, out: &mut Out) -> Result<()> {
    if audits::is_report(&args.a)? && audits::is_report(&args.b)? {
        return audits::run(args, out);
    }
    let (a, b) = (Opened::open(&args.a)?, Opened::open(&args.b)?);
    let report = report(&a, &b);
    if args.json { out.json(&report) } else { print(&report, args.all, out) }
}
