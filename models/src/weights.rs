//! Where the weights of an architecture come from: a checkpoint, or nowhere when only shapes matter.

use std::cell::RefCell;

use bytes::Bytes;
use driftc::error::{Error, Result};
use driftc::import::safetensors::Weights;
use driftc::ir::op::Constant;
use driftc::ir::tensor::DType;
use memmap2::MmapMut;

/// A source of weights by name.
pub trait Tensors {
    /// The tensor of a name, which must have the shape.
    ///
    /// # Errors
    /// When there is no such tensor of that shape.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant>;

    /// Whether there is a tensor of a name.
    fn has(&self, name: &str) -> bool;

    /// The type in which the architecture computes, whatever the source holds.
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

/// A checkpoint whose weights are used in the type in which they are stored.
#[derive(Debug)]
pub struct Stored {
    /// The checkpoint.
    pub weights: Weights,
    /// Its type.
    pub element: DType,
}

impl Tensors for Stored {
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

/// Weights of the right shape without content, and a record of what was asked for.
///
/// They are pages that the system provides when they are read, so gigabytes of them cost nothing to a compiler that
/// looks at their sizes alone. A serial number in the first bytes keeps weights apart that would otherwise be merged.
#[derive(Debug)]
pub struct Shapes {
    element: DType,
    asked: RefCell<Vec<(String, Vec<usize>)>>,
}

impl Shapes {
    /// Weights of a type.
    pub fn new(element: DType) -> Self {
        Self { element, asked: RefCell::default() }
    }

    /// Name and shape of every tensor that was asked for, in order.
    pub fn asked(&self) -> Vec<(String, Vec<usize>)> {
        self.asked.borrow().clone()
    }

    /// Elements of all tensors that were asked for.
    pub fn parameters(&self) -> usize {
        self.asked.borrow().iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }
}

impl Tensors for Shapes {
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Constant> {
        let fail = |reason: String| Error::internal("shapes", format!("weight `{name}`: {reason}"));
        let size = shape.iter().product::<usize>() * self.element.bytes();
        let mut pages = MmapMut::map_anon(size.max(1)).map_err(|e| fail(e.to_string()))?;
        let mut asked = self.asked.borrow_mut();
        asked.push((name.to_string(), shape.to_vec()));
        // The number differs from zero, so no weight is a splat, either.
        for (byte, serial) in pages.iter_mut().zip((asked.len() as u64).to_le_bytes()) {
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
