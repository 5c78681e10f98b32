//! Built-in architectures, which need no model files. They have their published sizes, and no weights (for planning) or random
//! weights.

use std::path::Path;

use driftc::compile::Model;
use driftc::error::{Error, Result};
use driftc::import::safetensors::Weights;
use driftc::ir::builder::Builder;
use driftc::ir::graph::Graph;
use driftc::ir::tensor::DType;

use crate::diffusion::published;
use crate::weights::{ShapeOnlyWeights, StoredWeights, Tensors};
use crate::{mobilenet, random};

/// Built-in architecture, which needs no model files.
#[derive(Debug)]
pub struct Builtin {
    /// Name for [`find_builtin`].
    pub name: &'static str,
    build: fn(&mut Builder<'_>, &dyn Tensors) -> Result<()>,
}

/// All built-in architectures.
pub const BUILTIN: &[Builtin] = &[
    Builtin { name: "mobilenet-v1", build: mobilenet::v1 },
    Builtin { name: "mobilenet-v2", build: mobilenet::v2 },
    Builtin { name: "deeplab-v3", build: mobilenet::deeplab },
    Builtin { name: "sd14-text-encoder", build: published::text_encoder },
    Builtin { name: "sd14-unet", build: published::unet },
    Builtin { name: "sd14-vae-decoder", build: published::vae_decoder },
];

/// Finds a built-in architecture by name.
///
/// # Errors
/// If no built-in architecture has this name.
pub fn find_builtin(name: &str) -> Result<&'static Builtin> {
    BUILTIN.iter().find(|b| b.name == name).ok_or_else(|| {
        let names: Vec<&str> = BUILTIN.iter().map(|b| b.name).collect();
        Error::request(
            format!("there is no built-in architecture `{name}`"),
            format!("known architectures: {}", names.join(", ")),
        )
    })
}

impl Builtin {
    /// Builds the graph with weights that have a shape but no content and take no memory. Also returns the weights, which record
    /// the names and shapes that the graph requests.
    ///
    /// # Errors
    /// If the graph cannot be built, which is a bug in the built-in architecture.
    pub fn shapes(&self, element: DType) -> Result<(Graph, ShapeOnlyWeights)> {
        let shapes = ShapeOnlyWeights::new(element);
        let graph = self.graph(&shapes)?;
        Ok((graph, shapes))
    }

    /// Builds the model with random weights, which are written to `model.safetensors` in a folder and mapped from there.
    ///
    /// # Errors
    /// If the file `model.safetensors` cannot be written.
    pub fn random(&self, element: DType, folder: &Path) -> Result<Model> {
        let (_, shapes) = self.shapes(element)?;
        random::write(folder, &shapes.requested(), element)?;
        let stored = StoredWeights { weights: Weights::open(folder)?, element };
        let graph = self.graph(&stored)?;
        Ok(Model { graph, name: self.name.into(), hash: stored.weights.hash(), ..Model::default() })
    }

    fn graph(&self, weights: &dyn Tensors) -> Result<Graph> {
        let mut graph = Graph::default();
        (self.build)(&mut Builder::new(&mut graph, self.name), weights)?;
        Ok(graph)
    }
}

#[cfg(test)]
mod tests {
    use driftc::ir::tensor::DType;

    use super::find_builtin;

    #[test]
    fn random_weights_are_reproducible_and_scaled_to_their_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let build = || find_builtin("mobilenet-v1").unwrap().random(DType::F16, folder.path()).unwrap();
        let model = build();
        assert_eq!(model.hash, build().hash);
        let graph = &model.graph;
        let filter = graph.ids().into_iter().filter_map(|id| graph.constant(id)).find(|c| c.shape.len() == 4);
        let values = filter.unwrap().to_array().unwrap().to_floats();
        let variance = values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32;
        // The expected variance is 2 over the 3 x 3 x 3 inputs of the first filter.
        assert!((variance * 27.0 / 2.0 - 1.0).abs() < 0.15, "{variance}");
    }

    #[test]
    fn architectures_have_their_published_number_of_parameters() {
        let published = [
            // Batch norms are folded: one bias per channel instead of a scale and a shift.
            ("mobilenet-v1", 4_222_057),
            ("mobilenet-v2", 3_489_097),
            ("sd14-text-encoder", 123_060_480),
            ("sd14-unet", 859_520_964),
            ("sd14-vae-decoder", 49_490_199),
        ];
        for (name, parameters) in published {
            let (_, shapes) = find_builtin(name).unwrap().shapes(DType::F16).unwrap();
            assert_eq!(shapes.parameters(), parameters, "{name}");
        }
    }
}
