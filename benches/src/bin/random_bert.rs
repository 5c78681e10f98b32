//! Writes a Hugging Face folder of a `BertModel` with random f16 weights, to compile models of any size:
//! `cargo run -p drift-benches --bin random-bert -- FOLDER` is one of 6.9 billion parameters.
//!
//! The weights are drawn and written in pieces, into files of 5 GB with an index, as large checkpoints are.

use std::path::PathBuf;

use clap::Parser;
use drift_models::random::bert::{Bert, write};

/// Bytes of one file of the checkpoint.
const FILE: usize = 5_000_000_000;

/// Writes a Hugging Face folder of a BertModel with random f16 weights.
#[derive(Debug, Parser)]
struct Args {
    /// The folder to write
    folder: PathBuf,
    /// Elements of a hidden state; the intermediate size is four times as many
    #[arg(long, default_value_t = 4096)]
    hidden: usize,
    /// Layers
    #[arg(long, default_value_t = 34)]
    layers: usize,
    /// Heads of the attention
    #[arg(long, default_value_t = 32)]
    heads: usize,
    /// Words
    #[arg(long, default_value_t = 1024)]
    vocabulary: usize,
    /// Positions
    #[arg(long, default_value_t = 512)]
    positions: usize,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Args { folder, hidden, layers, heads, vocabulary, positions } = Args::parse();
    let parameters = write(&folder, &Bert { hidden, layers, heads, vocabulary, positions }, FILE)?;
    println!("{}: {:.2} billion parameters", folder.display(), parameters as f64 / 1e9);
    Ok(())
}
