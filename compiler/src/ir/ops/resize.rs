//! Resamples a tensor to other extents (ONNX Resize with every mode).

use serde::{Deserialize, Serialize};

use super::check;
use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Fusion, Operation};
use crate::ir::tensor::TensorDesc;

/// How a sample is made from its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Filter {
    /// The nearest element, with ties and fractions rounded as named.
    Nearest(NearestRound),
    /// Linear in each axis.
    Linear,
    /// Cubic in each axis.
    Cubic {
        /// Keys' coefficient, usually -0.75.
        a: f32,
    },
}

/// How a fractional position becomes an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are ONNX's")]
pub enum NearestRound {
    RoundPreferFloor,
    RoundPreferCeil,
    Floor,
    Ceil,
}

/// How an output position maps to an input position, by ONNX's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are ONNX's")]
pub enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfHalfPixelForNn,
    TfCropAndResize,
}

/// Resamples a tensor to other extents (ONNX Resize with every mode).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    /// How a sample is made from its neighbours.
    pub filter: Filter,
    /// How an output position maps to an input position.
    pub coordinates: Coordinates,
    /// Output over input extent as the model states it, per axis.
    pub scales: Vec<f32>,
    /// Output extents.
    pub sizes: Vec<Dim>,
    /// Region for `TfCropAndResize`: starts then ends, per axis; otherwise empty.
    pub roi: Vec<f32>,
    /// Value outside the region for `TfCropAndResize`.
    pub extrapolation: f32,
    /// Whether the filter widens when shrinking.
    pub antialias: bool,
    /// Whether weights outside the input are dropped and the rest renormalised, rather than given to its edge.
    pub exclude_outside: bool,
}

impl Operation for Resize {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=1)?;
        let rank = x.rank();
        if self.sizes.len() != rank || self.scales.len() != rank {
            return Err(OpError::new(format!(
                "{} sizes and {} scales are given for {x}",
                self.sizes.len(),
                self.scales.len()
            )));
        }
        if let Some(scale) = self.scales.iter().find(|s| !s.is_finite() || **s <= 0.0) {
            return Err(OpError::new(format!("scale {scale} is not a positive number")));
        }
        if self.coordinates == Coordinates::TfCropAndResize
            && (self.roi.len() != 2 * rank || self.roi.iter().any(|r| !r.is_finite()))
        {
            return Err(OpError::new(format!("a region of {} finite numbers is needed", 2 * rank)));
        }
        if self.antialias && matches!(self.filter, Filter::Nearest(_)) {
            return Err(OpError::new("nearest neighbours cannot be antialiased"));
        }
        if let Filter::Cubic { a } = self.filter
            && !a.is_finite()
        {
            return Err(OpError::new("the cubic coefficient is not finite"));
        }
        for (d, size) in x.shape.iter().zip(&self.sizes) {
            if size.as_known().is_some_and(|n| n < 0) || (d.is(0) && !size.is(0)) {
                return Err(OpError::new(format!("an extent of {d} cannot be resized to {size}")));
            }
        }
        Ok(TensorDesc::new(x.dtype, self.sizes.clone()))
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, _inputs: &[&Array], _out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        Err(OpError::new("no reference yet"))
    }
}
