//! Command-line arguments that name a model and say how to import and quantize it.

use std::path::PathBuf;

use clap::Args;
use driftc::passes::Precision;
use driftc::quantize::Weights;

use crate::arrays::{NamedFile, named_file};
use crate::cli_help::{LANGUAGE_MODEL_OPTIONS, MODEL_OPTIONS};
use crate::constants::{ConstArg, parse_const};

/// Arguments: a model, and options for importing and quantizing the model.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArgs {
    /// Model: an .onnx file, a .gguf file or a Hugging Face folder (config.json, *.safetensors, tokenizer.json)
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) options: ModelOptions,
}

/// Options for the inputs of a model, the storage of floats, and quantization.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelOptions {
    /// Set the value or the inclusive bounds of a symbolic dimension
    #[arg(long = "dim", value_name = "NAME=N | NAME=LOW..HIGH", value_parser = parse_dim, help_heading = MODEL_OPTIONS)]
    pub(crate) dims: Vec<DimArg>,
    /// Replace an input with a constant: one number for all elements, comma-separated numbers, or a file
    #[arg(long = "const", value_name = "NAME=VALUE | NAME=FILE.npy", value_parser = parse_const, help_heading = MODEL_OPTIONS)]
    pub(crate) consts: Vec<ConstArg>,
    /// Take symbolic sizes and shape-deciding values from a sample input; several samples give bounds
    #[arg(long = "like", value_name = "NAME=FILE.npy", value_parser = named_file, help_heading = MODEL_OPTIONS)]
    pub(crate) likes: Vec<NamedFile>,
    /// Store intermediate floats as f32, f16 or mixed; arithmetic stays f32
    #[arg(long, value_name = "f32|f16|mixed", default_value = "f32", value_parser = parse_precision, help_heading = MODEL_OPTIONS)]
    pub(crate) precision: Precision,
    /// Quantize weights: f16, 8-bit (q8), 8-bit attention with 4-bit rest (q844), or 4-bit groups (w4:32, :64 or :128)
    #[arg(long, value_name = "f16|q8|q844|w4[:GROUP[:zeros]]", value_parser = parse_weights, help_heading = MODEL_OPTIONS)]
    pub(crate) weights: Option<Weights>,
    /// Minimize the quantization error on a sample text or on token ids
    #[arg(
        long,
        value_name = "FILE.txt | IDS.npy",
        requires = "weights",
        help_heading = LANGUAGE_MODEL_OPTIONS
    )]
    pub(crate) calibrate: Option<PathBuf>,
    /// Store the KV cache as floats (f16) or as 8-bit values (q8)
    #[arg(long, value_name = "f16|q8", default_value = "f16", help_heading = LANGUAGE_MODEL_OPTIONS)]
    pub(crate) kv_cache: KvCache,
    /// Round in `decode` as in `verify`: identical text with and without draft tokens, but slower decoding
    #[arg(long, help_heading = LANGUAGE_MODEL_OPTIONS)]
    pub(crate) batch_invariant: bool,
}

impl ModelOptions {
    /// True if `--dim`, `--const` or `--like` is given.
    pub(crate) fn has_input_options(&self) -> bool {
        !(self.dims.is_empty() && self.consts.is_empty() && self.likes.is_empty())
    }
}

/// Value of `--kv-cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KvCache {
    /// Unquantized floats of the type that `--precision` selects
    F16,
    /// 8-bit quantized values
    Q8,
}

/// Value of `--dim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DimArg {
    pub(crate) name: String,
    pub(crate) low: i64,
    pub(crate) high: i64,
}

/// Parses `NAME=N`, `NAME=LOW..HIGH` and `NAME=LOW..=HIGH`.
pub(crate) fn parse_dim(text: &str) -> Result<DimArg, String> {
    let wrong = || "write NAME=N or NAME=LOW..HIGH, for example seq=1..512".to_owned();
    let (name, sizes) = text.split_once('=').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<i64>().ok().filter(|n| *n >= 0).ok_or_else(wrong);
    let (low, high) = match sizes.split_once("..") {
        None => (number(sizes)?, number(sizes)?),
        Some((low, high)) => (number(low)?, number(high.strip_prefix('=').unwrap_or(high))?),
    };
    if name.is_empty() {
        return Err(wrong());
    }
    if low > high {
        return Err(format!("the range {low}..{high} is empty; write the lower bound first"));
    }
    Ok(DimArg { name: name.to_owned(), low, high })
}

fn parse_precision(text: &str) -> Result<Precision, String> {
    text.parse().map_err(|_| "write `f32`, `f16` or `mixed`".to_owned())
}

fn parse_weights(text: &str) -> Result<Weights, String> {
    text.parse().map_err(|_| {
        "write `f16`, `q8`, `q844`, or `w4:128` (groups of 32, 64 or 128; `w4:128:zeros` with zero points)".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::{DimArg, parse_dim};

    #[test]
    fn dims_are_numbers_or_bounds() {
        let dim = |low, high| Ok(DimArg { name: "seq".into(), low, high });
        assert_eq!(parse_dim("seq=8"), dim(8, 8));
        assert_eq!(parse_dim("seq=1..512"), dim(1, 512));
        assert_eq!(parse_dim("seq=1..=512"), dim(1, 512));
        for bad in
            ["seq", "seq=", "=3", "seq=a", "seq=-1", "seq=5..2", "seq=1..2..3", "seq=99999999999999999999"]
        {
            assert!(parse_dim(bad).is_err(), "{bad}");
        }
    }
}
