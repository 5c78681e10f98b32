//! Contents of a model, as `driftc inspect` reports them. The weights are not read, so the time does not depend on their
//! size, and models that driftc refuses are reported like others.

mod print;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drift_models::summary::facts_of_config;
use driftc::Error;
use driftc::import::onnx::{self, OpenSize};
use driftc::ir::graph::Graph;
use driftc::ir::tensor::TensorDesc;
use driftc::language;

use crate::failure::{Failure, Result};
use crate::output::{Out, file_name};
use crate::tokenizer_notes::tokenizer_notes;
use print::print;
use report::{FileReport, LanguageReport, OnnxReport, OptionLines, PortReport, Problem, Report, SizeReport};

/// Prints the contents of a model.
pub(super) fn run(path: &Path, json: bool, out: &mut Out) -> Result<()> {
    let report = match path.is_dir() || drift_models::is_model(path) {
        true => checkpoint_report(path)?,
        false => onnx_report(path)?,
    };
    if json { out.json(&report) } else { print(&report, out) }
}

fn onnx_report(path: &Path) -> Result<Report> {
    let summary = onnx::summary(path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut files = vec![file(path.display().to_string(), path)];
    files.extend(summary.external.iter().map(|name| file(name.clone(), &folder.join(name))));
    let has_caches = language::onnx::has_caches(path)?;
    let mut options = match has_caches {
        true => OptionLines::default(),
        false => option_lines(&summary.open_sizes),
    };
    let single = summary.inputs.iter().filter(|input| input.single);
    options.constant = single.map(|input| format!("--const {}=VALUE", input.name)).collect();
    let mut report = Report {
        model: path.display().to_string(),
        format: "onnx",
        files,
        onnx: Some(OnnxReport {
            ir_version: summary.ir_version,
            opsets: summary.opsets,
            producer: summary.producer,
            nodes: summary.nodes,
            local_functions: summary.functions,
        }),
        metadata: summary.metadata,
        inputs: summary.inputs.into_iter().map(PortReport::from).collect(),
        outputs: summary.outputs.into_iter().map(PortReport::from).collect(),
        open_sizes: summary.open_sizes.into_iter().map(size_report).collect(),
        options,
        parameters: summary.weights.iter().map(|stored| stored.elements).sum(),
        weight_bytes: summary.weights.iter().map(|stored| stored.bytes).sum(),
        weights: summary.weights.into_iter().map(Into::into).collect(),
        operators: summary.operators.into_iter().map(Into::into).collect(),
        ..Report::default()
    };
    try_onnx_import(path, &mut report)?;
    if has_caches {
        add_onnx_language(path, folder, &mut report);
    }
    Ok(report)
}

/// Imports the model without reading its weights. Adds the refused nodes, and the options with which fewer are refused.
fn try_onnx_import(path: &Path, report: &mut Report) -> Result<()> {
    let options = onnx::Options::default();
    match onnx::load_unhashed(path, &options) {
        Ok(imported) => {
            report.imports = true;
            report.notes = imported.notes;
        }
        Err(Error::Unsupported { nodes }) => {
            report.refused = nodes.into_iter().map(Into::into).collect();
            let remedies = onnx::remedies(path, &options)?;
            report.options.required = remedies.list.iter().map(ToString::to_string).collect();
            report.options.refused_with_required = remedies.left;
        }
        Err(error) => report.problems.push(Problem::from(Failure::from(error))),
    }
    Ok(())
}

/// Adds the facts of an ONNX language model, from the files of its folder.
fn add_onnx_language(path: &Path, folder: &Path, report: &mut Report) {
    let config = std::fs::read(folder.join("config.json")).ok();
    let config = config.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let mut language = LanguageReport::from(facts_of_config(&config, folder));
    let longest = language.context_length.and_then(|n| i64::try_from(n).ok());
    match language::onnx::load_unhashed(path, &BTreeMap::new(), longest) {
        Ok(Some(model)) => {
            // The functions of a language model replace the inputs that decide the import of the file itself.
            (report.imports, report.refused, report.notes) = (true, Vec::new(), model.notes);
            language.functions = model.entry_points.into_iter().map(|entry| entry.name).collect();
            language.supported = true;
            report.options.dim = vec![context_option(language.context_length)];
        }
        Ok(None) => {}
        Err(error) => report.problems.push(Problem::from(Failure::from(error))),
    }
    report.language = Some(language);
}

fn checkpoint_report(path: &Path) -> Result<Report> {
    let summary = drift_models::summary::summarize(path)?;
    let mut report = Report {
        model: path.display().to_string(),
        format: if path.is_dir() { "huggingface" } else { "gguf" },
        files: checkpoint_files(path)?,
        metadata: summary.metadata,
        parameters: summary.parameters,
        weight_bytes: summary.weights.iter().map(|stored| stored.bytes).sum(),
        weights: summary.weights.into_iter().map(Into::into).collect(),
        ..Report::default()
    };
    let mut language = LanguageReport::from(summary.language);
    match drift_models::load_unhashed(path, &drift_models::Dims::new()) {
        Ok((model, mut notes)) => {
            notes.extend(tokenizer_notes(&model));
            add_graph(&model.graph, &mut report);
            language.functions = model.entry_points.iter().map(|entry| entry.name.clone()).collect();
            (report.imports, report.notes) = (true, notes);
        }
        Err(error) => report.problems.push(Problem::from(Failure::from(error))),
    }
    if !summary.unsupported_types.is_empty() {
        let types = summary.unsupported_types.join(", ");
        let problem = Failure::input(format!("tensors of the types {types} cannot be read"));
        report.problems.push(Problem::from(problem.help("convert the model to another type")));
    }
    if !language.functions.is_empty() {
        report.options.dim = match language.functions.iter().any(|name| name == "denoise_unguided") {
            true => vec!["--dim width=512".to_owned(), "--dim height=512".to_owned()],
            false => vec![context_option(language.context_length)],
        };
        report.options.range.clear();
        report.options.like.clear();
    }
    report.language = Some(language);
    Ok(report)
}

/// Option that sets the context length: the default length, or the maximum of the model if that is smaller.
fn context_option(longest: Option<u64>) -> String {
    let default = language::DEFAULT_CONTEXT;
    let longest = longest.and_then(|n| i64::try_from(n).ok()).unwrap_or(default);
    format!("--dim context={}", longest.min(default))
}

/// Weight files of a checkpoint, with their sizes.
fn checkpoint_files(path: &Path) -> Result<Vec<FileReport>> {
    if path.is_file() {
        return Ok(vec![file(path.display().to_string(), path)]);
    }
    let mut files = Vec::new();
    let parts = drift_models::diffusion_folders(path);
    let is_onnx = drift_models::is_onnx_diffusion_folder(path);
    for part in if parts.is_empty() { vec![""] } else { parts } {
        let folder = path.join(part);
        let entries = std::fs::read_dir(&folder).map_err(|e| Failure::file(&folder, &e))?;
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
        names.retain(|name| name.ends_with(".safetensors") || (is_onnx && name.ends_with(".onnx")));
        names.sort();
        if is_onnx {
            for name in names.clone() {
                names.extend(onnx::summary(&folder.join(name))?.external);
            }
        }
        files.extend(names.into_iter().map(|name| {
            let shown = if part.is_empty() { name.clone() } else { format!("{part}/{name}") };
            file(shown, &folder.join(name))
        }));
    }
    Ok(files)
}

fn file(name: String, path: &Path) -> FileReport {
    FileReport { file: name, bytes: std::fs::metadata(path).ok().map(|metadata| metadata.len()) }
}

/// Adds the inputs, outputs and symbolic dimensions of an imported graph.
fn add_graph(graph: &Graph, report: &mut Report) {
    let port = |name: &str, tensor: &TensorDesc| PortReport {
        name: name.to_owned(),
        element: tensor.dtype.name().to_owned(),
        shape: Some(tensor.shape.iter().map(ToString::to_string).collect()),
    };
    let inputs = graph.inputs().iter().filter_map(|id| Some((graph.input(*id)?, graph.tensor(*id))));
    let inputs: Vec<_> = inputs.collect();
    report.inputs = inputs.iter().map(|(input, tensor)| port(&input.name, tensor)).collect();
    report.outputs = graph.outputs().iter().map(|o| port(&o.name, graph.tensor(o.node))).collect();
    let sizes = graph.bounds.iter().map(|(name, bounds)| {
        let reads = |tensor: &TensorDesc| {
            let mut symbols = BTreeSet::new();
            tensor.shape.iter().for_each(|size| size.symbols(&mut symbols));
            symbols.contains(name)
        };
        let readers = inputs.iter().filter(|(_, tensor)| reads(tensor));
        let inputs = readers.map(|(input, _)| input.name.clone()).collect();
        OpenSize { name: name.clone(), role: "", bounds: *bounds, typical: bounds.0, inputs }
    });
    let sizes: Vec<OpenSize> = sizes.collect();
    report.options = option_lines(&sizes);
    report.open_sizes = sizes.into_iter().map(size_report).collect();
}

fn size_report(size: OpenSize) -> SizeReport {
    let OpenSize { name, role, bounds: (min, max), inputs, .. } = size;
    SizeReport { name, role, min, max, inputs }
}

fn option_lines(sizes: &[OpenSize]) -> OptionLines {
    let mut readers: Vec<&String> = sizes.iter().flat_map(|size| &size.inputs).collect();
    readers.sort();
    readers.dedup();
    OptionLines {
        dim: sizes.iter().map(|size| format!("--dim {}={}", size.name, size.typical)).collect(),
        range: sizes
            .iter()
            .map(|size| format!("--dim {}={}..{}", size.name, size.bounds.0, size.bounds.1))
            .collect(),
        like: readers.iter().map(|name| format!("--like {name}={}.npy", file_name(name))).collect(),
        ..OptionLines::default()
    }
}
