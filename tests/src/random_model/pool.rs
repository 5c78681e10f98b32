//! Stored ONNX models, from which random changes start.

use std::fs;
use std::path::{Path, PathBuf};

use driftc::import::onnx::schema::{ModelProto, TensorProto};
use prost::Message;

use crate::random_graph::Rng;

/// Maximum bytes of a small model. Small models are drawn more often, and only their nodes are inserted into other models.
const SMALL: u64 = 1 << 16;

/// Folders of stored ONNX models, in two lists: models of at most `SMALL` bytes, and larger models.
#[derive(Debug)]
pub struct Pool {
    small: Vec<PathBuf>,
    large: Vec<PathBuf>,
}

/// ONNX model with stored values for some of its inputs.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// The model.
    pub model: ModelProto,
    /// Stored values of inputs.
    pub inputs: Vec<TensorProto>,
}

impl Pool {
    /// Lists the subfolders of some folders that contain a `model.onnx`, in the order of their paths.
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

    /// Number of stored models.
    pub fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// True if there are no stored models.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the unchanged model at an index, with its name. Returns `None` if the file is not an ONNX model.
    pub fn unchanged(&self, index: usize) -> Option<(String, ModelProto)> {
        let folder = self.small.iter().chain(&self.large).nth(index)?;
        Some((folder.file_name()?.to_string_lossy().into_owned(), read(folder)?.model))
    }

    /// Draws a random small model.
    pub fn small(&self, rng: &mut Rng) -> Option<Stored> {
        read(self.small.get(rng.below(self.small.len().max(1)))?)
    }

    /// Draws a random model, rarely a large one; returns its name too.
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
