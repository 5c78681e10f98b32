//! Loading of models: `.onnx` files, `.gguf` files and Hugging Face folders, with the options of the command line.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use driftc::compile::{Model, Options};
use driftc::import::onnx::{self, Declaration, DimSpec};
use driftc::ir::array::Array;
use driftc::language::onnx::{OnnxLanguageModel, is_decoder};
use driftc::metadata::Metadata;
use driftc::quantize::calibration::Calibration;

use crate::arrays::{read_all, to_host};
use crate::calibration::calibrate_weights;
use crate::constants::{constant_array, replace_input, values_or_hash};
use crate::failure::{Failure, Result};
use crate::finish::finish;
use crate::import_remedies::with_remedies;
use crate::model_args::{Activations, DimArg, KvCache, ModelArgs, ModelOptions, QUANTIZED_ACTIVATIONS};
use crate::sample_sizes::{fix_unbound_symbols, widen_bounds};
use crate::shape_args::{Shapes, apply_shapes, separate_axes};
use crate::weight_report::{WeightSizes, weighted_graphs};

/// Imported model.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) model: Model,
    /// Assumptions of the importer, as notes for the user.
    pub(crate) notes: Vec<String>,
    /// Names of the inputs that the importer or `--const` replaced with constants.
    pub(crate) constants: Vec<String>,
    /// Symbols whose bounds the importer assumed, each with a typical size.
    pub(crate) assumed: BTreeMap<String, i64>,
    /// Files that the importer read besides the model file.
    pub(crate) external: Vec<PathBuf>,
    /// Sample arrays by input name for which the model was loaded, in addition to `--like`.
    pub(crate) samples: BTreeMap<String, Array>,
    /// Model options of the command line, for the bundle's provenance.
    pub(crate) flags: Vec<String>,
}

impl ModelArgs {
    /// Loads the model.
    pub(crate) fn load(&self) -> Result<Loaded> {
        self.options.load(&self.path, &BTreeMap::new())
    }

    /// Inputs of the model that `--const` does not replace.
    pub(crate) fn inputs(&self) -> Result<Vec<Declaration>> {
        let mut inputs = declarations(&self.path)?;
        apply_shapes(&self.options.shapes, &mut inputs)?;
        inputs.retain(|input| self.options.consts.iter().all(|c| c.name != input.name));
        Ok(inputs)
    }
}

impl Loaded {
    /// Adds model options that are not recorded yet.
    pub(crate) fn add_flags(&mut self, flags: Vec<String>) {
        for flag in flags {
            if !self.flags.contains(&flag) {
                self.flags.push(flag);
            }
        }
    }

    /// Compile options for the model.
    ///
    /// # Errors
    /// If SPIRV-Tools are requested and do not start.
    pub(crate) fn compile_options(&self, options: &ModelOptions, optimize: bool) -> Result<Options> {
        let mut flags = vec![format!("--precision {}", options.precision())];
        flags.extend(self.flags.iter().cloned());
        if optimize {
            flags.push("--optimize".to_owned());
        }
        let finish = finish(optimize)?;
        Ok(Options { precision: options.precision(), finish, flags, ..Options::default() })
    }
}

impl ModelOptions {
    /// Loads a model. `samples` are arrays by input name, with the effect of `--like` options.
    pub(crate) fn load(&self, path: &Path, samples: &BTreeMap<String, Array>) -> Result<Loaded> {
        self.load_as(path, samples, true)
    }

    /// Loads an ONNX model as one function. Its KV caches stay inputs and outputs.
    pub(crate) fn load_unsplit(&self, path: &Path) -> Result<Loaded> {
        self.load_as(path, &BTreeMap::new(), false)
    }

    fn load_as(&self, path: &Path, samples: &BTreeMap<String, Array>, splits: bool) -> Result<Loaded> {
        let metadata = std::fs::metadata(path).map_err(|e| Failure::file(path, &e))?;
        let is_onnx = !metadata.is_dir() && !drift_models::is_model(path);
        let mut flags = Vec::new();
        let (request, mut notes) = self.request(path, is_onnx, samples, &mut flags)?;
        let mut loaded = match is_onnx {
            true => load_onnx(path, &request, splits)?,
            false => load_folder(path, &request)?,
        };
        if is_onnx && splits && self.has_input_options() && is_decoder(declarations(path)?) {
            notes.push(
                "with --const, --like or --shape, the model is compiled unchanged, without functions that generate text"
                    .to_owned(),
            );
        }
        loaded.notes.splice(0..0, notes);
        let pinned = loaded.constants.iter().filter_map(|name| Some((name, request.samples.get(name)?)));
        flags.extend(pinned.map(|(name, array)| format!("--const {name}={}", values_or_hash(array))));
        self.check_effect(&loaded.model)?;
        loaded.notes.extend(self.quantize(&mut loaded.model, &mut flags)?);
        loaded.samples.clone_from(samples);
        loaded.flags = flags;
        Ok(loaded)
    }

    /// True if `--const`, `--like` or `--shape` is given.
    fn has_input_options(&self) -> bool {
        !(self.consts.is_empty() && self.likes.is_empty() && self.shapes.is_empty())
    }

    /// Returns the sizes and values that the options and the sample arrays give, and notes for the user. Adds the options
    /// to `flags`, which the bundle's provenance records.
    fn request(
        &self,
        path: &Path,
        is_onnx: bool,
        samples: &BTreeMap<String, Array>,
        flags: &mut Vec<String>,
    ) -> Result<(Request, Vec<String>)> {
        let mut dims = self.bounds(flags)?;
        let mut samples = samples.clone();
        let mut declared = match self.has_input_options() || is_onnx && !samples.is_empty() {
            true => declarations(path)?,
            false => Vec::new(),
        };
        if !is_onnx && !self.consts.is_empty() {
            self.check_effect(&drift_models::load(path, &dims)?.0)?;
        }
        if let Some(shape) = self.shapes.first().filter(|_| !is_onnx) {
            let reason = format!("{shape} needs an ONNX model, but {} is none", path.display());
            return Err(Failure::usage(reason).help("give the sizes by name: --dim NAME=N"));
        }
        let mut shapes = apply_shapes(&self.shapes, &mut declared)?;
        flags.extend(self.shapes.iter().map(ToString::to_string));
        let constants = self.constants(&declared, &dims)?;
        let likes = self.likes(&declared)?;
        let mut notes = Vec::new();
        if is_onnx {
            let name = |position: &usize| declared.get(*position).map(|input| input.name.clone());
            let all = likes.iter().filter_map(|(position, arrays)| Some((name(position)?, arrays)));
            let all: Vec<(String, &Vec<Array>)> = all.collect();
            let liked = all.iter().flat_map(|(name, arrays)| arrays.iter().map(move |a| (name.as_str(), a)));
            let given = liked.chain(samples.iter().map(|(name, array)| (name.as_str(), array)));
            notes = separate_axes(&mut declared, given, &mut dims, &mut shapes);
        }
        let mut sample_bounds = BTreeMap::new();
        for (position, mut arrays) in likes {
            let Some(input) = declared.get(position) else { continue };
            match arrays.pop() {
                Some(array) if arrays.is_empty() => drop(samples.insert(input.name.clone(), array)),
                last => widen_bounds(input, arrays.iter().chain(&last), &mut sample_bounds)?,
            }
        }
        for (name, (low, high)) in sample_bounds {
            if let Entry::Vacant(unset) = dims.entry(name) {
                flags.push(format!("--dim {}={low}..{high}", unset.key()));
                unset.insert((low, high));
            }
        }
        samples.retain(|name, _| !constants.contains_key(name));
        let constant = |(name, array): (&String, &Array)| format!("--const {name}={}", values_or_hash(array));
        flags.extend(constants.iter().map(constant));
        flags.extend(samples.iter().map(|(name, array)| format!("--like {name}={:?}", array.shape)));
        Ok((Request { dims, constants, samples, shapes }, notes))
    }

    /// Arrays of `--like`, by the position of their input.
    fn likes(&self, declared: &[Declaration]) -> Result<BTreeMap<usize, Vec<Array>>> {
        let names: Vec<String> = declared.iter().map(|d| d.name.clone()).collect();
        let mut likes: BTreeMap<usize, Vec<Array>> = BTreeMap::new();
        for (position, array) in read_all(&self.likes, &names, "input")? {
            likes.entry(position).or_default().push(to_host(&array)?);
        }
        Ok(likes)
    }

    /// Fails if an option cannot have an effect on the model.
    fn check_effect(&self, model: &Model) -> Result<()> {
        let generates_text = !model.entry_points.is_empty();
        let (option, reason, help) = match (&self.consts.first(), self.kv_cache) {
            (Some(given), _) if generates_text => (
                format!("--const {}", given.name),
                "the functions that generate text have other inputs",
                "leave out --const",
            ),
            _ if !generates_text && self.activations.is_some() => (
                "--activations".to_owned(),
                "the model has no functions that generate text",
                "leave out --activations",
            ),
            (_, Some(_)) if !generates_text => {
                ("--kv-cache".to_owned(), "the model has no KV cache", "leave out --kv-cache")
            }
            _ => return Ok(()),
        };
        Err(Failure::usage(format!("{option} has no effect: {reason}")).help(help))
    }

    /// Returns the bounds of the symbols that `--dim` names. Adds these options to `flags`, which the bundle's
    /// provenance records.
    fn bounds(&self, flags: &mut Vec<String>) -> Result<BTreeMap<String, (i64, i64)>> {
        let mut dims: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for DimArg { name, low, high } in &self.dims {
            if dims.insert(name.clone(), (*low, *high)).is_some() {
                return Err(Failure::usage(format!("--dim {name} is given twice")));
            }
            flags.push(match low == high {
                true => format!("--dim {name}={low}"),
                false => format!("--dim {name}={low}..{high}"),
            });
        }
        Ok(dims)
    }

    /// Applies `--weights`, `--calibrate`, `--activations`, `--kv-cache` and `--batch-invariant` to the model's graphs. Adds
    /// the options that are given to `flags`, which the bundle's provenance records. Returns notes for the user.
    fn quantize(&self, model: &mut Model, flags: &mut Vec<String>) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        if let Some(weights) = self.weights {
            let sizes = WeightSizes::from_graphs(&weighted_graphs(model));
            let mut calibration = Calibration::default();
            if let Some(path) = &self.calibrate {
                let rounds_activations = self.activations == Some(Activations::Q8);
                let (statistics, flag) = calibrate_weights(model, weights, rounds_activations, path)?;
                calibration = statistics;
                flags.push(flag);
            }
            let graphs = model.entry_points.iter_mut().map(|entry| &mut entry.graph);
            driftc::quantize::run([&mut model.graph].into_iter().chain(graphs), weights, &calibration)?;
            notes.extend(sizes.report(&weighted_graphs(model), weights)?);
            flags.push(format!("--weights {weights}"));
        }
        if self.activations == Some(Activations::Q8) {
            driftc::quantize::activations::run(model.entry_points.iter_mut().map(|entry| &mut entry.graph))?;
            flags.push(QUANTIZED_ACTIVATIONS.to_owned());
        }
        if self.kv_cache == Some(KvCache::Q8) {
            let functions =
                model.entry_points.iter_mut().map(|entry| (entry.name.as_str(), &mut entry.graph));
            driftc::quantize::caches::run(functions)?;
            flags.push("--kv-cache q8".to_owned());
        }
        if self.batch_invariant {
            driftc::language::batch_invariant::run(model)?;
            flags.push("--batch-invariant".to_owned());
        }
        Ok(notes)
    }

    /// Arrays of `--const`.
    fn constants(
        &self,
        declared: &[Declaration],
        dims: &BTreeMap<String, (i64, i64)>,
    ) -> Result<BTreeMap<String, Array>> {
        let mut constants = BTreeMap::new();
        for given in &self.consts {
            if constants.insert(given.name.clone(), constant_array(given, declared, dims)?).is_some() {
                return Err(Failure::usage(format!("--const {} is given twice", given.name)));
            }
        }
        Ok(constants)
    }
}

/// Sizes and values that the user gives for a model.
struct Request {
    /// Bounds of symbols by name.
    dims: BTreeMap<String, (i64, i64)>,
    /// Values of inputs that become constants.
    constants: BTreeMap<String, Array>,
    /// Sample values of inputs.
    samples: BTreeMap<String, Array>,
    /// Sizes of inputs that replace the declared sizes.
    shapes: Shapes,
}

/// Loads an ONNX model. With `splits`, a language model becomes the functions that generate text.
fn load_onnx(path: &Path, request: &Request, splits: bool) -> Result<Loaded> {
    let Request { dims, constants, samples, shapes } = request;
    if splits
        && constants.is_empty()
        && samples.is_empty()
        && shapes.is_empty()
        && let Some(loaded) = load_onnx_language_model(path, dims)?
    {
        return Ok(loaded);
    }
    let spec =
        |(low, high): (i64, i64)| if low == high { DimSpec::Fixed(low) } else { DimSpec::Range(low, high) };
    let dims: BTreeMap<String, DimSpec> = dims.iter().map(|(name, d)| (name.clone(), spec(*d))).collect();
    let mut fixed: Vec<String> = constants.keys().cloned().collect();
    let (constants, samples, shapes) = (constants.clone(), samples.clone(), shapes.clone());
    let options = onnx::Options { dims, constants, samples, shapes, ..onnx::Options::default() };
    let imported = onnx::load(path, &options).map_err(|error| with_remedies(error, path, &options))?;
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let (metadata, mut notes) = with_labels(path, imported.metadata);
    notes.splice(0..0, imported.notes);
    let model = Model { graph: imported.graph, name, hash: imported.hash, metadata, ..Model::default() };
    fixed.extend(imported.constants);
    Ok(Loaded {
        model,
        notes,
        constants: fixed,
        assumed: imported.assumed,
        external: imported.external,
        samples: BTreeMap::new(),
        flags: Vec::new(),
    })
}

/// Adds the labels of files beside an ONNX file to its metadata. Returns the metadata and notes for the user.
fn with_labels(path: &Path, entries: BTreeMap<String, String>) -> (BTreeMap<String, String>, Vec<String>) {
    let mut metadata = Metadata { entries, notes: Vec::new() };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    drift_models::labels::add_labels(folder, &mut metadata);
    (metadata.entries, metadata.notes)
}

/// Loads an ONNX language model with KV caches as inputs and outputs. Its functions keep the caches as states. Returns
/// `None` for any other model.
fn load_onnx_language_model(path: &Path, dims: &BTreeMap<String, (i64, i64)>) -> Result<Option<Loaded>> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let attachments = drift_models::folder::attachments(folder)?;
    let max_positions = drift_models::folder::max_positions(&attachments);
    let Some(language) = driftc::language::onnx::load(path, dims, max_positions)? else { return Ok(None) };
    drift_models::folder::check_attachments(folder, &attachments)?;
    let OnnxLanguageModel { whole, entry_points, notes } = language;
    let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let metadata = whole.metadata;
    let model = Model { graph: whole.graph, entry_points, name, hash: whole.hash, attachments, metadata };
    Ok(Some(Loaded {
        model,
        notes: whole.notes.into_iter().chain(notes).collect(),
        constants: Vec::new(),
        assumed: BTreeMap::new(),
        external: whole.external,
        samples: BTreeMap::new(),
        flags: Vec::new(),
    }))
}

/// Returns true for a folder or a file name with the extension of a model.
pub(crate) fn is_model(path: &Path) -> bool {
    drift_models::is_model(path) || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx"))
}

/// Returns the inputs that a model declares.
pub(crate) fn declarations(path: &Path) -> Result<Vec<Declaration>> {
    let metadata = std::fs::metadata(path).map_err(|e| Failure::file(path, &e))?;
    if !metadata.is_dir() && !drift_models::is_model(path) {
        return Ok(onnx::inputs(path)?);
    }
    let (model, _) = drift_models::load(path, &drift_models::Dims::new())?;
    let inputs = model.graph.inputs().iter().filter_map(|id| model.graph.input(*id));
    Ok(inputs
        .map(|i| Declaration { name: i.name.clone(), dtype: Some(i.dtype), shape: Some(i.shape.clone()) })
        .collect())
}

fn load_folder(path: &Path, request: &Request) -> Result<Loaded> {
    let Request { samples, constants, .. } = request;
    let mut dims = request.dims.clone();
    let (mut model, mut notes) = drift_models::load(path, &dims)?;
    let before = dims.len();
    fix_unbound_symbols(&model.graph, samples.iter().chain(constants), &mut dims)?;
    if dims.len() > before {
        (model, notes) = drift_models::load(path, &dims)?;
    }
    let unbound = model.graph.bounds.iter().filter(|(name, _)| !dims.contains_key(*name));
    let assumed = unbound.map(|(name, (low, _))| (name.clone(), *low)).collect();
    for (name, array) in constants {
        replace_input(&mut model.graph, name, array)?;
    }
    let constants = constants.keys().cloned().collect();
    let (external, samples, flags) = (Vec::new(), BTreeMap::new(), Vec::new());
    Ok(Loaded { model, notes, constants, assumed, external, samples, flags })
}
