//! Stored models changed at random: a seed makes one model, and says what was changed.
//!
//! The models are the ONNX project's operator tests and folders of exported networks. Most changes leave a model
//! well-formed (another size everywhere, another element type, one node more), since whatever is refused at the door
//! says nothing about what lies behind it; others do not. [`changes`] lists them, [`outcome`] compiles.

pub mod changes;
pub mod outcome;

use std::fs;
use std::path::{Path, PathBuf};

use driftc::import::onnx::schema::{ModelProto, TensorProto};
use prost::Message;

use crate::random_graph::Rng;
use changes::CHANGES;

/// Most changes of one model.
const MOST_CHANGES: usize = 4;

/// Models up to this many bytes are small: they come more often, and lend their nodes to others.
const SMALL: u64 = 1 << 16;

/// The models that are changed.
#[derive(Debug)]
pub struct Pool {
    small: Vec<PathBuf>,
    large: Vec<PathBuf>,
}

/// A model with constants for its inputs, as far as they are stored beside it.
#[derive(Debug, Clone, Default)]
pub struct Stored {
    /// The model.
    pub model: ModelProto,
    /// Values of inputs.
    pub inputs: Vec<TensorProto>,
}

impl Pool {
    /// Every `model.onnx` in the folders' folders, by name.
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

    /// How many models there are.
    pub fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The model at a place of the list as it is, with its name; `None` when its file is no model.
    pub fn unchanged(&self, index: usize) -> Option<(String, ModelProto)> {
        let folder = self.small.iter().chain(&self.large).nth(index)?;
        Some((folder.file_name()?.to_string_lossy().into_owned(), read(folder)?.model))
    }

    /// A small model.
    pub fn small(&self, rng: &mut Rng) -> Option<Stored> {
        read(self.small.get(rng.below(self.small.len().max(1)))?)
    }

    /// A model of either kind, large ones rarely, with its name.
    fn any(&self, rng: &mut Rng) -> Option<(String, Stored)> {
        let large = !self.large.is_empty() && (self.small.is_empty() || rng.once_in(40));
        let list = if large { &self.large } else { &self.small };
        let folder = list.get(rng.below(list.len().max(1)))?;
        Some((folder.file_name()?.to_string_lossy().into_owned(), read(folder)?))
    }

    /// The model of a seed, and a line that says from what and how it was made; `None` when its file is no model.
    pub fn model(&self, seed: u64) -> Option<(String, ModelProto)> {
        let rng = &mut Rng::new(seed);
        let (mut story, mut stored) = self.any(rng)?;
        if !rng.once_in(8) {
            changes::pin_small(&mut stored);
        }
        for _ in 0..1 + rng.below(MOST_CHANGES) {
            let (name, change) = rng.pick(CHANGES);
            if change(&mut stored, rng, self).is_some() {
                story = format!("{story} {name}");
            }
        }
        Some((story, stored.model))
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
