//! GroupNorm of `x [N, C, spatial..]`: normalizes over groups of channels and all spatial axes, then applies
//! `* scale [C] + bias [C]`.
//!
//! With `groups == C` it is InstanceNorm.

use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSlice, ParallelSliceMut};
use serde::{Deserialize, Serialize};

use super::check;
use super::layer_norm::mean_and_rstd;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// GroupNorm of `x [N, C, spatial..]`: normalizes over groups of channels and all spatial axes, then applies
/// `* scale [C] + bias [C]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupNorm {
    /// Number of channel groups.
    pub groups: usize,
    /// Epsilon, which is added to the variance.
    pub epsilon: f32,
}

impl Operation for GroupNorm {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 3..=3)?;
        check::float(x, "the input")?;
        check::same_type(inputs)?;
        let [_, channels, ..] = x.shape.as_slice() else {
            return Err(OpError::new(format!("the input must have rank two or more, found {x}")));
        };
        let groups = check::checked_attribute(self.groups, "groups")?;
        if groups == 0 {
            return Err(OpError::new("groups must not be 0"));
        }
        if channels.as_known().is_some_and(|c| c % groups != 0) {
            return Err(OpError::new(format!("{channels} channels do not divide into {groups} groups")));
        }
        check::vector(inputs[1], channels, "the scale")?;
        check::vector(inputs[2], channels, "the bias")?;
        Ok(TensorDesc::new(x.dtype, x.shape.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Reduce
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::ImageSlices, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let x = inputs[0];
            let (scale, bias) = (inputs[1].floats()?, inputs[2].floats()?);
            let channels = x.shape[1];
            let per_group = channels / self.groups;
            let plane = x.len() / (x.shape[0] * channels);
            let n = per_group * plane;
            let mut y = vec![0.0; x.len()];
            y.par_chunks_mut(n).zip(x.floats()?.par_chunks(n)).enumerate().for_each(|(group, (y, x))| {
                let (mean, factor) = mean_and_rstd(x, self.epsilon, false);
                let first = group % self.groups * per_group;
                for (c, (y, x)) in y.chunks_mut(plane).zip(x.chunks(plane)).enumerate() {
                    let (scale, bias) = (f64::from(scale[first + c]), f64::from(bias[first + c]));
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = ((f64::from(*x) - mean) * factor * scale + bias) as f32;
                    }
                }
            });
            Ok(Data::Float(y))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::GroupNorm;
    use crate::ir::array::Array;
    use crate::ir::dim::Bindings;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn groups_of_channels() {
        let x = Array::f32(&[1, 4, 1, 2], vec![0.0, 0.0, 2.0, 2.0, 5.0, 9.0, 5.0, 9.0]);
        let scale = Array::f32(&[4], vec![1.0, 2.0, 3.0, 4.0]);
        let bias = Array::f32(&[4], vec![0.0, 0.0, 0.0, 1.0]);
        let norm = GroupNorm { groups: 2, epsilon: 0.0 };
        let y = norm.eval(&[&x, &scale, &bias], &[1, 4, 1, 2], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap(), [-1.0, -1.0, 2.0, 2.0, -3.0, 3.0, -3.0, 5.0]);
        let instance = GroupNorm { groups: 4, epsilon: 1.0 };
        let y = instance.eval(&[&x, &scale, &bias], &[1, 4, 1, 2], &Bindings::new()).unwrap();
        assert_eq!(y.floats().unwrap()[..4], [0.0; 4]);
    }

    #[test]
    fn refuses() {
        let x = TensorDesc::from_sizes(DType::F32, &[1, 4, 3]);
        let c = TensorDesc::from_sizes(DType::F32, &[4]);
        let infer = |groups, scale: &TensorDesc| GroupNorm { groups, epsilon: 0.0 }.infer(&[&x, scale, &c]);
        assert!(infer(2, &c).is_ok());
        assert!(infer(0, &c).is_err());
        assert!(infer(3, &c).is_err());
        assert!(infer(2, &TensorDesc::from_sizes(DType::F32, &[2])).is_err());
        assert!(GroupNorm { groups: 2, epsilon: 0.0 }.infer(&[&x, &c]).is_err());
    }
}
