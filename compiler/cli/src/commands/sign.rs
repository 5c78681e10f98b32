//! `driftc sign`: signs a bundle with a secret key in minisign's format.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use drift_runtime::Bundle;

use crate::failure::Result;
use crate::output::{Out, note};
use crate::signing::{read_signer, sign_bundle};

#[derive(Debug, Args)]
pub(crate) struct SignArgs {
    /// Bundle to sign
    #[arg(value_name = "OUT.drift")]
    bundle: PathBuf,
    /// Sign with this secret key of `driftc keygen` or minisign
    #[arg(long, value_name = "SECRET", required = true)]
    key: PathBuf,
    /// Write the signed bundle to this file (default: replace the bundle)
    #[arg(short, long, value_name = "SIGNED.drift")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &SignArgs, out: &mut Out) -> Result<()> {
    let bundle = Bundle::open(&args.bundle)?;
    bundle.verify()?;
    let signer = read_signer(&args.key)?;
    if let Some(before) = bundle.signer()? {
        note(&format!("this replaces the signature of key {before}"));
    }
    let output = args.output.as_ref().unwrap_or(&args.bundle);
    sign_bundle(&bundle, &signer, output)?;
    writeln!(out, "{}: signed by key {}", output.display(), signer.id)?;
    writeln!(out, "hash        {}", bundle.hash())?;
    Ok(())
}
