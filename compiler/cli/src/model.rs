//! Reading a model: an `.onnx` file or a Hugging Face folder, with the sizes that the command line gives.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use driftc::compile::{Model, Options};
use driftc::import::onnx::{self, DimSpec};
use driftc::passes::Precision;

use crate::failure::{Failure, Result};
use crate::output::note;

/// A model and how to compile it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArgs {
    /// An .onnx file, or a Hugging Face folder (config.json, *.safetensors, tokenizer.json)
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
    /// A symbolic size of the model: its value, or its bounds (both inclusive)
    #[arg(long = "dim", value_name = "NAME=N | NAME=LOW..HIGH", value_parser = parse_dim)]
    pub(crate) dims: Vec<DimArg>,
    /// How floats are stored between input and output: f32, f16 or mixed (arithmetic is f32 in any case)
    #[arg(long, value_name = "f32|f16|mixed", default_value = "f32", value_parser = parse_precision)]
    pub(crate) precision: Precision,
}

/// `--dim`.
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
        return Err(format!("{low}..{high} holds nothing; write the lower bound first"));
    }
    Ok(DimArg { name: name.to_owned(), low, high })
}

fn parse_precision(text: &str) -> Result<Precision, String> {
    text.parse().map_err(|_| "write `f32`, `f16` or `mixed`".to_owned())
}

impl ModelArgs {
    /// Reads the model; what was assumed is returned for the user to read.
    pub(crate) fn load(&self) -> Result<(Model, Vec<String>)> {
        self.load_for(&BTreeMap::new())
    }

    /// Reads the model for inputs of known shapes, which fix the sizes that `--dim` leaves open.
    pub(crate) fn load_for(&self, shapes: &BTreeMap<String, Vec<i64>>) -> Result<(Model, Vec<String>)> {
        let mut dims: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for dim in &self.dims {
            if dims.insert(dim.name.clone(), (dim.low, dim.high)).is_some() {
                return Err(Failure::usage(format!("--dim {} is given twice", dim.name)));
            }
        }
        let found = std::fs::metadata(&self.path).map_err(|e| Failure::file(&self.path, &e))?;
        if found.is_dir() { self.folder(dims, shapes) } else { self.onnx(dims, shapes) }
    }

    /// How to compile it.
    pub(crate) fn options(&self, optimize: bool) -> Options {
        let mut flags = vec![format!("--precision {}", self.precision)];
        flags.extend(self.dims.iter().map(|d| match d.low == d.high {
            true => format!("--dim {}={}", d.name, d.low),
            false => format!("--dim {}={}..{}", d.name, d.low, d.high),
        }));
        if optimize {
            flags.push("--optimize".to_owned());
        }
        Options { precision: self.precision, optimize, flags, ..Options::default() }
    }

    fn folder(
        &self,
        mut dims: BTreeMap<String, (i64, i64)>,
        shapes: &BTreeMap<String, Vec<i64>>,
    ) -> Result<(Model, Vec<String>)> {
        let (model, notes) = drift_models::load(&self.path, &dims)?;
        let graph = &model.graph;
        let before = dims.len();
        for input in graph.inputs().iter().filter_map(|id| graph.input(*id)) {
            let Some(shape) = shapes.get(&input.name) else { continue };
            for (dim, size) in input.shape.iter().zip(shape) {
                let name = dim.to_string();
                if graph.bounds.contains_key(&name) {
                    dims.entry(name).or_insert((*size, *size));
                }
            }
        }
        if dims.len() == before {
            return Ok((model, notes));
        }
        Ok(drift_models::load(&self.path, &dims)?)
    }

    fn onnx(
        &self,
        dims: BTreeMap<String, (i64, i64)>,
        shapes: &BTreeMap<String, Vec<i64>>,
    ) -> Result<(Model, Vec<String>)> {
        let spec = |(low, high)| if low == high { DimSpec::Fixed(low) } else { DimSpec::Range(low, high) };
        let dims: BTreeMap<String, DimSpec> = dims.into_iter().map(|(name, d)| (name, spec(d))).collect();
        // Bounds on the command line are meant: shapes of inputs do not narrow them.
        let input_shapes = if dims.is_empty() { shapes.clone() } else { BTreeMap::new() };
        let imported =
            onnx::load(&self.path, &onnx::Options { dims, input_shapes, ..onnx::Options::default() })?;
        let name = self.path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let model = Model { graph: imported.graph, name, hash: imported.hash, attachments: Vec::new() };
        Ok((model, imported.notes))
    }
}

/// Says on standard error what was assumed.
pub(crate) fn show_notes(notes: &[String]) {
    for text in notes {
        note(text);
    }
}

#[cfg(test)]
mod tests {
    use super::{DimArg, parse_dim};

    #[test]
    fn sizes_are_numbers_or_bounds() {
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
