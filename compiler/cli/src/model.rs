//! Reading a model: an `.onnx` file or a Hugging Face folder, with what the command line says about its inputs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use clap::Args;
use driftc::compile::{Model, Options};
use driftc::import::onnx::{self, Declaration, DimSpec};
use driftc::ir::array::Array;
use driftc::ir::graph::Graph;
use driftc::language::onnx::Language;
use driftc::passes::Precision;
use driftc::quantise::Weights;
use driftc::quantise::calibration::Calibration;

use crate::arrays::{NamedFile, named_file, read_all, to_host};
use crate::calibration::calibrated;
use crate::constants::{ConstArg, brief, parse_const, replace, value};
use crate::failure::{Failure, Result};
use crate::finish::finish;
use crate::output::note;

/// A model and how to compile it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArgs {
    /// An .onnx file, a .gguf file, or a Hugging Face folder (config.json, *.safetensors, tokenizer.json)
    #[arg(value_name = "MODEL")]
    pub(crate) path: PathBuf,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// What is said about a model's inputs, and how floats are stored.
#[derive(Debug, Clone, Args)]
pub(crate) struct Given {
    /// A symbolic size of the model: its value, or its bounds (both inclusive)
    #[arg(long = "dim", value_name = "NAME=N | NAME=LOW..HIGH", value_parser = parse_dim)]
    pub(crate) dims: Vec<DimArg>,
    /// An input becomes a constant: a number for all its elements, numbers with commas between them, or a file
    #[arg(long = "const", value_name = "NAME=VALUE | NAME=FILE.npy", value_parser = parse_const)]
    pub(crate) consts: Vec<ConstArg>,
    /// An array as an input is going to be: symbolic sizes become those it has, and where its values decide shapes or
    /// conditions they are compiled in. Several arrays for one input give symbolic sizes the bounds that hold them all
    #[arg(long = "like", value_name = "NAME=FILE.npy", value_parser = named_file)]
    pub(crate) likes: Vec<NamedFile>,
    /// How floats are stored between input and output: f32, f16 or mixed (arithmetic is f32 in any case)
    #[arg(long, value_name = "f32|f16|mixed", default_value = "f32", value_parser = parse_precision)]
    pub(crate) precision: Precision,
    /// How weights of products and embeddings are stored: f16, codes of 8 bits (q8), of 8 for attention and of 4 elsewhere
    /// (q844), or of 4 in groups of 32, 64 or 128 inputs (w4:128; w4:128:zeros with zero points)
    #[arg(long, value_name = "f16|q8|q844|w4[:GROUP[:zeros]]", value_parser = parse_weights)]
    pub(crate) weights: Option<Weights>,
    /// How caches of keys and values of a language model are kept: floats (f16), or codes of 8 bits (q8)
    #[arg(long, value_name = "f16|q8", default_value = "f16")]
    pub(crate) kv_cache: KvCache,
    /// A text, or ids, by which codes of a language model are made to err least where it matters
    #[arg(long, value_name = "FILE.txt | IDS.npy", requires = "weights")]
    pub(crate) calibrate: Option<PathBuf>,
    /// Let `decode` of a language model compute a token as `verify` does, so that text with a draft is exactly the text
    /// without; `decode` takes longer
    #[arg(long)]
    pub(crate) batch_invariant: bool,
}

/// `--kv-cache`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum KvCache {
    /// As `--precision` stores floats.
    F16,
    /// Codes of 8 bits.
    Q8,
}

/// A model that was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) model: Model,
    /// What was assumed, for the user to read.
    pub(crate) notes: Vec<String>,
    /// Inputs that became constants.
    pub(crate) constants: Vec<String>,
    /// Symbols whose bounds were assumed, each with a usual size.
    pub(crate) assumed: BTreeMap<String, i64>,
    /// Files besides the model's own that it was read from.
    pub(crate) external: Vec<PathBuf>,
    /// What the command line says about the model's inputs, for the bundle's provenance.
    flags: Vec<String>,
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

fn parse_weights(text: &str) -> Result<Weights, String> {
    text.parse()
        .map_err(|_| "write `f16`, `q8`, `q844`, or `w4:128` (groups of 32, 64 or 128; `w4:128:zeros` with zero points)".to_owned())
}

impl ModelArgs {
    /// Reads the model.
    pub(crate) fn load(&self) -> Result<Loaded> {
        self.given.load(&self.path, &BTreeMap::new())
    }

    /// The model's inputs that `--const` leaves open.
    pub(crate) fn inputs(&self) -> Result<Vec<Declaration>> {
        let mut inputs = declarations(&self.path)?;
        inputs.retain(|input| self.given.consts.iter().all(|c| c.name != input.name));
        Ok(inputs)
    }
}

impl Loaded {
    /// How to compile it.
    ///
    /// # Errors
    /// Where SPIRV-Tools are asked for and do not start.
    pub(crate) fn options(&self, given: &Given, optimize: bool) -> Result<Options> {
        let mut flags = vec![format!("--precision {}", given.precision)];
        flags.extend(self.flags.iter().cloned());
        if optimize {
            flags.push("--optimize".to_owned());
        }
        let finish = finish(optimize)?;
        Ok(Options { precision: given.precision, finish, flags, ..Options::default() })
    }
}

impl Given {
    /// Whether nothing is said.
    pub(crate) fn is_empty(&self) -> bool {
        self.dims.is_empty() && self.consts.is_empty() && self.likes.is_empty()
    }

    /// Reads a model; samples are arrays of inputs, as `--like` gives them.
    pub(crate) fn load(&self, path: &Path, samples: &BTreeMap<String, Array>) -> Result<Loaded> {
        let mut dims: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        let mut flags = Vec::new();
        for DimArg { name, low, high } in &self.dims {
            if dims.insert(name.clone(), (*low, *high)).is_some() {
                return Err(Failure::usage(format!("--dim {name} is given twice")));
            }
            flags.push(match low == high {
                true => format!("--dim {name}={low}"),
                false => format!("--dim {name}={low}..{high}"),
            });
        }
        let mut samples = samples.clone();
        let declared = match self.consts.is_empty() && self.likes.is_empty() {
            true => Vec::new(),
            false => declarations(path)?,
        };
        let constants = self.constants(&declared, &dims)?;
        let names: Vec<String> = declared.iter().map(|d| d.name.clone()).collect();
        let mut likes: BTreeMap<usize, Vec<Array>> = BTreeMap::new();
        for (position, array) in read_all(&self.likes, &names, "input")? {
            likes.entry(position).or_default().push(to_host(&array)?);
        }
        let mut spans = BTreeMap::new();
        for (position, mut arrays) in likes {
            let Some(input) = declared.get(position) else { continue };
            match arrays.pop() {
                Some(array) if arrays.is_empty() => drop(samples.insert(input.name.clone(), array)),
                last => span(input, arrays.iter().chain(&last), &mut spans)?,
            }
        }
        for (name, (low, high)) in spans {
            if let Entry::Vacant(open) = dims.entry(name) {
                flags.push(format!("--dim {}={low}..{high}", open.key()));
                open.insert((low, high));
            }
        }
        samples.retain(|name, _| !constants.contains_key(name));
        flags.extend(constants.iter().map(|(name, array)| format!("--const {name}={}", brief(array))));
        flags.extend(samples.iter().map(|(name, array)| format!("--like {name}={:?}", array.shape)));
        let found = std::fs::metadata(path).map_err(|e| Failure::file(path, &e))?;
        let mut loaded = match found.is_dir() || drift_models::is_model(path) {
            true => folder(path, dims, constants, &samples)?,
            false => self.onnx(path, dims, constants, &samples)?,
        };
        let pinned = loaded.constants.iter().filter_map(|name| Some((name, samples.get(name)?)));
        flags.extend(pinned.map(|(name, array)| format!("--const {name}={}", brief(array))));
        if let Some(weights) = self.weights {
            let mut calibration = Calibration::default();
            if let Some(path) = &self.calibrate {
                let (found, flag) = calibrated(&loaded.model, weights, path)?;
                calibration = found;
                flags.push(flag);
            }
            let model = &mut loaded.model;
            let graphs = model.functions.iter_mut().map(|(_, graph)| graph);
            driftc::quantise::run([&mut model.graph].into_iter().chain(graphs), weights, &calibration)?;
            flags.push(format!("--weights {weights}"));
        }
        if self.kv_cache == KvCache::Q8 {
            let functions = loaded.model.functions.iter_mut().map(|(name, graph)| (name.as_str(), graph));
            driftc::quantise::caches::run(functions)?;
            flags.push("--kv-cache q8".to_owned());
        }
        if self.batch_invariant {
            driftc::language::batch_invariant::run(&mut loaded.model)?;
            flags.push("--batch-invariant".to_owned());
        }
        loaded.flags = flags;
        Ok(loaded)
    }

    /// The arrays of `--const`.
    fn constants(
        &self,
        declared: &[Declaration],
        dims: &BTreeMap<String, (i64, i64)>,
    ) -> Result<BTreeMap<String, Array>> {
        let mut constants = BTreeMap::new();
        for given in &self.consts {
            if constants.insert(given.name.clone(), value(given, declared, dims)?).is_some() {
                return Err(Failure::usage(format!("--const {} is given twice", given.name)));
            }
        }
        Ok(constants)
    }

    fn onnx(
        &self,
        path: &Path,
        dims: BTreeMap<String, (i64, i64)>,
        constants: BTreeMap<String, Array>,
        samples: &BTreeMap<String, Array>,
    ) -> Result<Loaded> {
        if constants.is_empty()
            && samples.is_empty()
            && let Some(loaded) = language(path, &dims)?
        {
            return Ok(loaded);
        }
        let spec = |(low, high)| if low == high { DimSpec::Fixed(low) } else { DimSpec::Range(low, high) };
        let dims: BTreeMap<String, DimSpec> = dims.into_iter().map(|(name, d)| (name, spec(d))).collect();
        let mut fixed: Vec<String> = constants.keys().cloned().collect();
        let options = onnx::Options { dims, constants, samples: samples.clone(), ..onnx::Options::default() };
        let imported = onnx::load(path, &options).map_err(|error| with_remedies(error, path, &options))?;
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let model = Model { graph: imported.graph, name, hash: imported.hash, ..Model::default() };
        fixed.extend(imported.constants);
        Ok(Loaded {
            model,
            notes: imported.notes,
            constants: fixed,
            assumed: imported.assumed,
            external: imported.external,
            flags: Vec::new(),
        })
    }
}

/// An ONNX language model that takes and gives its caches, as functions that keep them.
fn language(path: &Path, dims: &BTreeMap<String, (i64, i64)>) -> Result<Option<Loaded>> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let attachments = drift_models::folder::attachments(folder)?;
    let longest = drift_models::folder::longest(&attachments);
    let Some(language) = driftc::language::onnx::load(path, dims, longest)? else { return Ok(None) };
    drift_models::folder::check_attachments(folder, &attachments)?;
    let Language { whole, functions, spare, notes } = language;
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let model = Model {
        graph: whole.graph,
        functions,
        spare,
        name,
        hash: whole.hash,
        attachments,
        ..Model::default()
    };
    Ok(Some(Loaded {
        model,
        notes: whole.notes.into_iter().chain(notes).collect(),
        constants: Vec::new(),
        assumed: BTreeMap::new(),
        external: whole.external,
        flags: Vec::new(),
    }))
}

/// The error of a refused model, with what would make it import.
fn with_remedies(error: driftc::Error, path: &Path, options: &onnx::Options) -> Failure {
    let refused = matches!(error, driftc::Error::Unsupported { .. });
    let failure = Failure::from(error);
    if !refused {
        return failure;
    }
    let found = onnx::remedies(path, options).unwrap_or_default();
    let said: Vec<String> = found.list.iter().map(ToString::to_string).collect();
    match (said.is_empty(), found.left) {
        (true, _) => failure,
        (false, 0) => failure.help(format!("add {}: with that it imports", said.join(" "))),
        (false, left) => failure.help(format!(
            "add {}: with that {left} of these nodes are left; `driftc ops` lists what is supported",
            said.join(" ")
        )),
    }
}

/// Whether a path is a model's: a folder, or a file whose name ends as those of models do.
pub(crate) fn is_model(path: &Path) -> bool {
    drift_models::is_model(path) || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx"))
}

/// The inputs that a model declares.
pub(crate) fn declarations(path: &Path) -> Result<Vec<Declaration>> {
    let found = std::fs::metadata(path).map_err(|e| Failure::file(path, &e))?;
    if !found.is_dir() && !drift_models::is_model(path) {
        return Ok(onnx::inputs(path)?);
    }
    let (model, _) = drift_models::load(path, &drift_models::Dims::new())?;
    let inputs = model.graph.inputs().iter().filter_map(|id| model.graph.input(*id));
    Ok(inputs
        .map(|i| Declaration { name: i.name.clone(), dtype: Some(i.dtype), shape: Some(i.shape.clone()) })
        .collect())
}

fn folder(
    path: &Path,
    mut dims: BTreeMap<String, (i64, i64)>,
    constants: BTreeMap<String, Array>,
    samples: &BTreeMap<String, Array>,
) -> Result<Loaded> {
    let (mut model, mut notes) = drift_models::load(path, &dims)?;
    let before = dims.len();
    bind(&model.graph, samples.iter().chain(&constants), &mut dims)?;
    if dims.len() > before {
        (model, notes) = drift_models::load(path, &dims)?;
    }
    let open = model.graph.bounds.iter().filter(|(name, _)| !dims.contains_key(*name));
    let assumed = open.map(|(name, (low, _))| (name.clone(), *low)).collect();
    for (name, array) in &constants {
        replace(&mut model.graph, name, array)?;
    }
    let constants = constants.into_keys().collect();
    Ok(Loaded { model, notes, constants, assumed, external: Vec::new(), flags: Vec::new() })
}

/// The least and the largest size of arrays for one input, for the symbols that are plain sizes of it.
fn span<'a>(
    input: &Declaration,
    arrays: impl Iterator<Item = &'a Array>,
    spans: &mut BTreeMap<String, (i64, i64)>,
) -> Result<()> {
    let name = &input.name;
    let Some(shape) = &input.shape else {
        let reason = format!("input `{name}` has no shape in the model");
        return Err(Failure::usage(reason).help("give one sample of it"));
    };
    for array in arrays {
        if shape.len() != array.shape.len() {
            return Err(Failure::usage(other_rank(name, shape.len(), &array.shape)));
        }
        for (dim, size) in shape.iter().zip(&array.shape) {
            let size = i64::try_from(*size).unwrap_or(i64::MAX);
            if let Some(symbol) = dim.as_symbol() {
                let (low, high) = spans.entry(symbol.to_owned()).or_insert((size, size));
                (*low, *high) = (size.min(*low), size.max(*high));
            } else if dim.as_known().is_some_and(|known| known != size) {
                let reason = format!("input `{name}` has the size {dim} where a sample has {size}");
                return Err(Failure::usage(reason));
            }
        }
    }
    Ok(())
}

fn other_rank(name: &str, axes: usize, got: &[usize]) -> String {
    format!("input `{name}` has {axes} axes, the array given {got:?}")
}

/// Sizes of arrays for the symbols that are plain sizes of inputs and have no bounds yet.
fn bind<'a>(
    graph: &Graph,
    arrays: impl Iterator<Item = (&'a String, &'a Array)>,
    dims: &mut BTreeMap<String, (i64, i64)>,
) -> Result<()> {
    for (name, array) in arrays {
        let input = graph.inputs().iter().filter_map(|id| graph.input(*id)).find(|i| i.name == *name);
        let Some(input) = input else { continue };
        if input.shape.len() != array.shape.len() {
            return Err(Failure::usage(other_rank(name, input.shape.len(), &array.shape)));
        }
        for (dim, size) in input.shape.iter().zip(&array.shape) {
            if let Some(symbol) = dim.as_symbol() {
                let size = i64::try_from(*size).unwrap_or(i64::MAX);
                dims.entry(symbol.to_owned()).or_insert((size, size));
            }
        }
    }
    Ok(())
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
