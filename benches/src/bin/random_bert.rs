//! Writes a Hugging Face folder of a `BertModel` with random f16 weights, to compile models of any size:
//! `cargo run -p drift-benches --bin random-bert -- FOLDER` writes a model of 6.9 billion parameters.
//!
//! The random weights are generated and written tensor by tensor, into safetensors files of 5 GB with an index, as in large
//! checkpoints.

use std::path::PathBuf;

use clap::Parser;
use drift_models::random::bert::{Bert, write};

/// Maximum bytes of one safetensors file of the checkpoint.
const FILE: usize = 5_000_000_000;

/// Writes a Hugging Face folder of a BertModel with random f16 weights.
#[derive(Debug, Parser)]
struct Args {
    /// Folder to write the model to
    folder: PathBuf,
    /// Hidden size; the feed-forward size is four times as large
    #[arg(long, default_value_t = 4096)]
    hidden: usize,
    /// Layers
    #[arg(long, default_value_t = 34)]
    layers: usize,
    /// Attention heads
    #[arg(long, default_value_t = 32)]
    heads: usize,
    /// Vocabulary size
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
