//! The models that random changes start from.

use std::fs;
use std::path::{Path, PathBuf};

use driftc::import::onnx::schema::{ModelProto, TensorProto};
use prost::Message;

use crate::random_graph::Rng;

/// Maximum bytes of a small model. Small models are drawn more often, and their nodes are grafted into others.
const SMALL: u64 = 1 << 16;

/// Models on disk, by size.
#[derive(Debug)]
pub struct Pool {
    small: Vec<PathBuf>,
    large: Vec<PathBuf>,
}

/// A model with stored values for some of its inputs.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// The model.
    pub model: ModelProto,
    /// Values of inputs.
    pub inputs: Vec<TensorProto>,
}

impl Pool {
    /// Lists every `model.onnx` in the subfolders, by name.
    pub fn new(folders: &[PathBuf]) -> Self {
        let mut models: Vec<PathBuf> = folders
            .iter()
            .flat_map(|f| fs::read_dir(f).into_iter().flatten())
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|folder| folder.join("model.onnx").is_file())
            .collect();
        models.sort();
        let bytes = |folder: &PathBuf| fs::metadata(folder.join("model.onnx")).map_or(0, |m| m.len());
        let (small, large) = models.into_iter().partition(|m| bytes(m) <= SMALL);
        Self { small, large }
    }

    /// Number of models.
    pub fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// True if there are no models.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the unchanged model at an index, with its name; `None` if its file is not a model.
    pub fn unchanged(&self, index: usize) -> Option<(String, ModelProto)> {
        let folder = self.small.iter().chain(&self.large).nth(index)?;
        Some((folder.file_name()?.to_string_lossy().into_owned(), read(folder)?.model))
    }

    /// Draws a small model.
    pub fn small(&self, rng: &mut Rng) -> Option<Stored> {
        read(self.small.get(rng.below(self.small.len().max(1)))?)
    }

    /// Draws a model, rarely a large one, with its name.
    pub(super) fn any(&self, rng: &mut Rng) -> Option<(String, Stored)> {
        let large = !self.large.is_empty() && (self.small.is_empty() || rng.once_in(40));
        let list = if large { &self.large } else { &self.small };
        let folder = list.get(rng.below(list.len().max(1)))?;
        Some((folder.file_name()?.to_string_lossy().into_owned(), read(folder)?))
    }
}

fn read(folder: &Path) -> Option<Stored> {
    let model = ModelProto::decode(fs::read(folder.join("model.onnx")).ok()?.as_slice()).ok()?;
    let names = model.graph.iter().flat_map(|g| &g.input).map(|i| i.name().to_string());
    let inputs = names.enumerate().filter_map(|(i, name)| {
        let raw = fs::read(folder.join(format!("test_data_set_0/input_{i}.pb"))).ok()?;
        let tensor = TensorProto::decode(raw.as_slice()).ok()?;
        Some(TensorProto { name: Some(name), ..tensor })
    });
    let inputs = inputs.collect();
    Some(Stored { model, inputs })
}
