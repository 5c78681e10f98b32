//! One ONNX file of a diffusion model: its declared inputs, and its imported graph.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use driftc::error::{Error, Result};
use driftc::import::onnx::{self, Declaration, DimSpec, Options};
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::graph::{Graph, NodeId, Replacement};
use driftc::ir::op::{Element, Op};
use driftc::ir::tensor::DType;

/// Name of the ONNX file of a part.
pub(crate) const MODEL_FILE: &str = "model.onnx";
/// Remedy for a file with other inputs or outputs than expected.
const EXPORT_AGAIN: &str = "export the folder again with `optimum-cli export onnx`";

/// ONNX file of a part, before it is imported.
#[derive(Debug)]
pub(super) struct PartFile {
    /// Name of the part's folder.
    pub(super) part: String,
    path: PathBuf,
    inputs: Vec<Declaration>,
}

impl PartFile {
    /// Reads the inputs of a part's file.
    ///
    /// # Errors
    /// If the file is missing or malformed.
    pub(super) fn open(folder: &Path, part: &str) -> Result<Self> {
        let path = folder.join(part).join(MODEL_FILE);
        if !path.is_file() {
            return Err(fault(&path, "file", "the file is missing".into()));
        }
        Ok(Self { part: part.to_owned(), inputs: onnx::inputs(&path)?, path })
    }

    /// Creates an error about the file.
    pub(super) fn fault(&self, place: &str, reason: impl Into<String>) -> Error {
        fault(&self.path, place, reason.into())
    }

    /// Returns true if the file has an input.
    pub(super) fn has(&self, input: &str) -> bool {
        self.inputs.iter().any(|declared| declared.name == input)
    }

    fn shape(&self, input: &str) -> Option<&[Dim]> {
        self.inputs.iter().find(|declared| declared.name == input)?.shape.as_deref()
    }

    /// Returns the declared size of an input's axis; `None` if it is no number.
    pub(super) fn size(&self, input: &str, axis: usize) -> Option<usize> {
        self.shape(input)?.get(axis)?.as_known().and_then(|size| usize::try_from(size).ok())
    }

    /// Returns the shape that the input `timestep` gets: one number for all prompts, unless its size is the number of prompts.
    pub(super) fn timestep_shape(&self, batch: &Dim) -> Vec<Dim> {
        match (self.shape("timestep"), self.shape("sample")) {
            (None | Some([]), _) => Vec::new(),
            (Some([steps]), Some([prompts, ..])) if steps == prompts && steps.as_known().is_none() => {
                vec![batch.clone()]
            }
            (Some(_), _) => vec![Dim::known(1)],
        }
    }

    /// Imports the file with these shapes of its inputs, and bounds of the symbols in the shapes. All floats become f32.
    ///
    /// # Errors
    /// If the file has other inputs, a size is fixed to another number, or the file has nodes that cannot be compiled.
    pub(super) fn import(
        &self,
        shapes: &[(&str, Vec<Dim>)],
        bounds: BTreeMap<String, DimSpec>,
    ) -> Result<Part> {
        let list = self.inputs.iter().map(|input| format!("`{}`", input.name)).collect::<Vec<_>>().join(", ");
        if let Some((name, _)) = shapes.iter().find(|(name, _)| !self.has(name)) {
            return Err(self.fault("inputs", format!("there is no input `{name}`; the file has {list}")));
        }
        let is_known = |input: &&Declaration| !shapes.iter().any(|(name, _)| *name == input.name);
        if let Some(unknown) = self.inputs.iter().find(is_known) {
            let known = shapes.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let reason = format!("the input is not one of {known}");
            return Err(self.fault(&format!("input `{}`", unknown.name), reason));
        }
        for (name, shape) in shapes {
            // The importer replaces a fixed number of prompts.
            let pairs = self.shape(name).unwrap_or_default().iter().zip(shape).skip(1);
            for (declared, wanted) in pairs.filter(|(declared, _)| declared.as_known().is_some()) {
                if declared != wanted {
                    let reason =
                        format!("it has the fixed size {declared}, but the other parts need {wanted}");
                    return Err(self.fault(&format!("input `{name}`"), reason));
                }
            }
        }
        let shapes = shapes.iter().map(|(name, shape)| ((*name).to_owned(), shape.clone())).collect();
        let options = Options { shapes, dims: bounds, random_inputs: true, ..Options::default() };
        let mut imported = onnx::load_unhashed(&self.path, &options).map_err(|error| self.named(error))?;
        widen(&mut imported.graph)?;
        let notes = imported.notes.into_iter().map(|note| format!("{}: {note}", self.part)).collect();
        let files = std::iter::once(self.path.clone()).chain(imported.external).collect();
        Ok(Part { path: self.path.clone(), graph: imported.graph, notes, files })
    }

    /// Adds the name of the part to the nodes of an error.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Unsupported { mut nodes } => {
                nodes.iter_mut().for_each(|node| node.node = format!("{}: {}", self.part, node.node));
                Error::Unsupported { nodes }
            }
            Error::Node { node, operator, reason } => {
                Error::Node { node: format!("{}: {node}", self.part), operator, reason }
            }
            other => other,
        }
    }
}

fn fault(path: &Path, place: &str, reason: String) -> Error {
    Error::Model { path: path.to_path_buf(), place: place.into(), reason, help: EXPORT_AGAIN.into() }
}

/// Turns all floats of a graph into f32. The compiler's precision decides how they are stored, not the precision of the
/// export. Constants keep their bytes.
fn widen(graph: &mut Graph) -> Result<()> {
    for id in graph.topological() {
        let (mut op, operands) = (graph.op(id).clone(), graph.operands(id));
        match &mut op {
            Op::Input(input) if input.dtype.is_float() => input.dtype = DType::F32,
            Op::Constant(constant) if constant.dtype.is_float() => constant.dtype = DType::F32,
            Op::Elementwise(function) => match &mut function.element {
                Element::Cast(to) if to.is_float() => *to = DType::F32,
                _ => {}
            },
            _ => {}
        }
        let (arity, epilogue) = (graph.node(id).arity, graph.node(id).epilogue.clone());
        graph.set_op(id, Replacement { op, operands, arity, epilogue })?;
    }
    Ok(())
}

/// Imported ONNX file of a part.
#[derive(Debug, Clone)]
pub(super) struct Part {
    path: PathBuf,
    pub(super) graph: Graph,
    /// Notes of the importer for the user.
    pub(super) notes: Vec<String>,
    /// The file, and the files with its external data.
    pub(super) files: Vec<PathBuf>,
}

impl Part {
    /// Returns the node of an input.
    pub(super) fn input(&self, name: &str) -> Option<NodeId> {
        let is_named = |id: &NodeId| self.graph.input(*id).is_some_and(|input| input.name == name);
        self.graph.inputs().iter().copied().find(is_named)
    }

    /// Returns true if the file has an output.
    pub(super) fn has_output(&self, name: &str) -> bool {
        self.graph.outputs().iter().any(|output| output.name == name)
    }

    /// Returns the value of an output.
    ///
    /// # Errors
    /// If the file has no such output.
    pub(super) fn output(&self, name: &str) -> Result<NodeId> {
        let outputs = self.graph.outputs();
        outputs.iter().find(|output| output.name == name).map(|output| output.node).ok_or_else(|| {
            let list = outputs.iter().map(|output| format!("`{}`", output.name)).collect::<Vec<_>>();
            let reason = format!("there is no output `{name}`; the file has {}", list.join(", "));
            fault(&self.path, "outputs", reason)
        })
    }

    /// Returns the name of the text encoder's output that conditions the UNet: the hidden state before the last layer, or the
    /// last hidden state. If the file does not have the hidden states of all layers, it has no output of this name.
    pub(super) fn embedding(&self, penultimate: bool) -> String {
        if !penultimate {
            return "last_hidden_state".into();
        }
        let states = (0..).take_while(|i| self.has_output(&format!("hidden_states.{i}"))).count();
        format!("hidden_states.{}", states.checked_sub(2).unwrap_or(states))
    }

    /// Returns the sizes of an output.
    ///
    /// # Errors
    /// If there is no such output, or its sizes vary.
    pub(super) fn sizes(&self, output: &str) -> Result<Vec<usize>> {
        let shape = &self.graph.tensor(self.output(output)?).shape;
        let size = |dim: &Dim| dim.as_known().and_then(|size| usize::try_from(size).ok());
        let sizes: Option<Vec<usize>> = shape.iter().map(size).collect();
        sizes.filter(|sizes| sizes.len() > 1).ok_or_else(|| {
            let shape = shape.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
            fault(&self.path, &format!("output `{output}`"), format!("its shape is [{shape}]"))
        })
    }

    /// Checks the sizes of an output.
    ///
    /// # Errors
    /// If there is no such output, or it has other sizes.
    pub(super) fn check_output(&self, output: &str, wanted: &[usize]) -> Result<()> {
        let sizes = self.sizes(output)?;
        match sizes == wanted {
            true => Ok(()),
            false => {
                let reason = format!("its shape is {sizes:?}, but the other parts need {wanted:?}");
                Err(fault(&self.path, &format!("output `{output}`"), reason))
            }
        }
    }

    /// Adds the nodes of the part for values of its inputs. Returns the values of outputs.
    ///
    /// # Errors
    /// If the file lacks an output, or an operator does not accept its operands.
    pub(super) fn call(
        &self,
        g: &mut Builder<'_>,
        inputs: &[(&str, NodeId)],
        outputs: &[&str],
    ) -> Result<Vec<NodeId>> {
        let known = inputs.iter().filter_map(|(name, value)| Some((self.input(name)?, *value))).collect();
        let wanted: Vec<NodeId> = outputs.iter().map(|name| self.output(name)).collect::<Result<_>>()?;
        g.inline(&self.graph, &known, &wanted)
    }
}
