//! Sources of a model architecture's weights: a checkpoint, or weights that have a shape but no content.

use std::cell::RefCell;

use bytes::Bytes;
use driftc::error::{Error, Result};
use driftc::import::safetensors::Weights;
use driftc::ir::op::Constant;
use driftc::ir::tensor::DType;
use memmap2::MmapMut;

/// Source from which an architecture gets weight tensors by name.
pub trait Tensors {
    /// Returns the weight with this name and shape.
    ///
    /// # Errors
    /// If no weight has this name, or the weight has another shape.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant>;

    /// Returns true if there is a weight with this name.
    fn has(&self, name: &str) -> bool;

    /// Element type to which the architecture casts its weights, whatever type is stored.
    fn element(&self) -> DType {
        DType::F32
    }
}

impl Tensors for Weights {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        self.shaped(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        Weights::has(self, name)
    }
}

/// Checkpoint whose weights are not cast: the architecture computes in the stored type.
#[derive(Debug)]
pub struct StoredWeights {
    /// The checkpoint.
    pub weights: Weights,
    /// Element type of the checkpoint's tensors.
    pub element: DType,
}

impl Tensors for StoredWeights {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        self.weights.shaped(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        self.weights.has(name)
    }

    fn element(&self) -> DType {
        self.element
    }
}

/// Weights that have a shape but no content, with a record of the weights that an architecture requested.
///
/// Their bytes are anonymous pages, which the system allocates only on access. So gigabytes of weights cost nothing if the
/// compiler looks only at their sizes. A serial number in the first bytes of each weight keeps the compiler from merging equal
/// weights.
#[derive(Debug)]
pub struct ShapeOnlyWeights {
    element: DType,
    requested: RefCell<Vec<(String, Vec<usize>)>>,
}

impl ShapeOnlyWeights {
    /// Creates a source of weights with this element type.
    pub fn new(element: DType) -> Self {
        Self { element, requested: RefCell::default() }
    }

    /// Returns the name and shape of every requested weight, in the order of requests.
    pub fn requested(&self) -> Vec<(String, Vec<usize>)> {
        self.requested.borrow().clone()
    }

    /// Returns the total number of elements of all requested weights: the model's number of parameters.
    pub fn parameters(&self) -> usize {
        self.requested.borrow().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }
}

impl Tensors for ShapeOnlyWeights {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        let fail = |reason: String| Error::internal("shapes", format!("weight `{name}`: {reason}"));
        let size = shape.iter().product::<usize>() * self.element.bytes();
        let mut pages = MmapMut::map_anon(size.max(1)).map_err(|e| fail(e.to_string()))?;
        let mut requested = self.requested.borrow_mut();
        requested.push((name.to_string(), shape.to_vec()));
        // The serial number starts at 1, so no weight consists of equal elements.
        for (byte, serial) in pages.iter_mut().zip((requested.len() as u64).to_le_bytes()) {
            *byte = serial;
        }
        let pages = pages.make_read_only().map_err(|e| fail(e.to_string()))?;
        let bytes = Bytes::from_owner(pages).slice(..size);
        Constant::new(self.element, shape.to_vec(), bytes).map_err(|e| fail(e.0))
    }

    fn has(&self, _name: &str) -> bool {
        true
    }

    fn element(&self) -> DType {
        self.element
    }
}
