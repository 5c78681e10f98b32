//! Command-line arguments that name a model and say how to import and quantize it.

use std::path::{Path, PathBuf};

use clap::Args;
use driftc::ir::dim::Dim;
use driftc::passes::Precision;
use driftc::quantize::Weights;

use crate::arrays::{NamedFile, named_file};
use crate::cli_help::{LANGUAGE_MODEL_OPTIONS, MODEL_OPTIONS};
use crate::constants::{ConstArg, parse_const};
use crate::failure::Failure;

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
#[derive(Debug, Clone, Default, Args)]
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
    /// Replace the declared sizes of an ONNX model's input; a name makes a size symbolic
    #[arg(long = "shape", value_name = "INPUT=SIZE,..", value_parser = parse_shape, help_heading = MODEL_OPTIONS)]
    pub(crate) shapes: Vec<ShapeArg>,
    /// Store intermediate floats as f32, f16 or mixed; arithmetic stays f32 [default: f32]
    #[arg(long, value_name = "f32|f16|mixed", value_parser = parse_precision, help_heading = MODEL_OPTIONS)]
    precision: Option<Precision>,
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
    /// Multiply quantized weights by floats (f16), or in prefill by values rounded to 8 bits (q8) [default: f16]
    #[arg(long, value_name = "f16|q8", conflicts_with = "batch_invariant", help_heading = LANGUAGE_MODEL_OPTIONS)]
    pub(crate) activations: Option<Activations>,
    /// Store the KV cache as floats (f16) or as 8-bit values (q8) [default: f16]
    #[arg(long, value_name = "f16|q8", help_heading = LANGUAGE_MODEL_OPTIONS)]
    pub(crate) kv_cache: Option<KvCache>,
    /// Round in `decode` as in `verify`: identical text with and without draft tokens, but slower decoding
    #[arg(long, help_heading = LANGUAGE_MODEL_OPTIONS)]
    pub(crate) batch_invariant: bool,
}

impl ModelOptions {
    /// Storage type of intermediate floats.
    pub(crate) fn precision(&self) -> Precision {
        self.precision.unwrap_or_default()
    }

    /// Fails if any of these options is given, because a bundle is compiled already.
    pub(crate) fn refuse_for_bundle(&self, bundle: &Path) -> Result<(), Failure> {
        self.refuse(bundle, &[(!self.dims.is_empty(), "--dim")])
    }

    /// Fails if any of these options except `--dim` is given, or an option of `more`, because a bundle is compiled already.
    pub(crate) fn refuse(&self, bundle: &Path, more: &[(bool, &str)]) -> Result<(), Failure> {
        let given = [
            (!self.consts.is_empty(), "--const"),
            (!self.likes.is_empty(), "--like"),
            (!self.shapes.is_empty(), "--shape"),
            (self.precision.is_some(), "--precision"),
            (self.weights.is_some(), "--weights"),
            (self.calibrate.is_some(), "--calibrate"),
            (self.activations.is_some(), "--activations"),
            (self.kv_cache.is_some(), "--kv-cache"),
            (self.batch_invariant, "--batch-invariant"),
        ];
        let given: Vec<&str> =
            more.iter().chain(&given).filter(|(given, _)| *given).map(|(_, option)| *option).collect();
        let verb = match given.as_slice() {
            [] => return Ok(()),
            [_] => "needs",
            _ => "need",
        };
        let reason = format!("{} {verb} a model, but {} is a bundle", given.join(", "), bundle.display());
        Err(Failure::usage(reason)
            .help("a bundle is compiled already; compile its model again with these options"))
    }
}

/// Flag of the provenance of bundles with quantized activations.
pub(crate) const QUANTIZED_ACTIVATIONS: &str = "--activations q8";

/// Value of `--activations`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Activations {
    /// Unquantized floats of the type that `--precision` selects
    F16,
    /// 8-bit quantized values in the functions of many rows
    Q8,
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

/// Value of `--shape`: an input, by name or by position from 0, and its sizes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ShapeArg {
    pub(crate) input: String,
    pub(crate) sizes: Vec<Dim>,
}

impl std::fmt::Display for ShapeArg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        write!(f, "--shape {}={}", self.input, sizes.join(","))
    }
}

/// Parses `INPUT=SIZE,SIZE,..`, with a number or a name for each size.
fn parse_shape(text: &str) -> Result<ShapeArg, String> {
    let wrong = || "write INPUT=SIZE,SIZE,.. with numbers and names, for example image=1,3,H,W".to_owned();
    let size = |text: &str| {
        let text = text.trim();
        let name = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
        match text.parse::<i64>() {
            Ok(n) if n >= 0 => Ok(Dim::known(n)),
            _ if name => Ok(Dim::symbol(text)),
            _ => Err(wrong()),
        }
    };
    match text.rsplit_once('=') {
        Some((input, sizes)) if !input.is_empty() => {
            let sizes = sizes.split(',').map(size).collect::<Result<_, _>>()?;
            Ok(ShapeArg { input: input.to_owned(), sizes })
        }
        _ => Err(wrong()),
    }
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
    use super::{DimArg, parse_dim, parse_shape};

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

    #[test]
    fn shapes_are_numbers_and_names() {
        let shape = parse_shape("a=b:0=1,3,H, W").unwrap();
        assert_eq!((shape.input.as_str(), shape.sizes.len()), ("a=b:0", 4));
        assert_eq!(shape.to_string(), "--shape a=b:0=1,3,H,W");
        for bad in ["x", "x=", "=1", "x=1,,2", "x=-1", "x=3H", "x=1..2", "x=a-b"] {
            assert!(parse_shape(bad).is_err(), "{bad}");
        }
    }
}
