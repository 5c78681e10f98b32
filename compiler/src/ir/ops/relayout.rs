//! The same tensor in another layout.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::Bindings;
use crate::ir::op::{Fusion, Operation};
use crate::ir::ops::check::{self, exactly};
use crate::ir::tensor::{Layout, TensorDesc};

/// The same tensor in another layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relayout {
    /// The result's layout.
    pub layout: Layout,
}

impl Operation for Relayout {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exactly(inputs)?;
        if !self.layout.holds(&x.shape) {
            return Err(OpError::new(format!("slices of channels need 2 to 5 axes, not {x}")));
        }
        Ok(TensorDesc { layout: self.layout, ..x.clone() })
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        // A host array is always row-major.
        let [x] = inputs else { return Err(OpError::new("one operand is needed")) };
        check::concrete(self, inputs, out)?;
        Ok((*x).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::Relayout;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, Layout, TensorDesc};

    #[test]
    fn needs_channels() {
        let op = Relayout { layout: Layout::SLICES4 };
        let image = TensorDesc::of(DType::F32, &[1, 5, 2, 2]);
        assert_eq!(op.infer(&[&image]).unwrap().to_string(), "f32[1, 5, 2, 2]@slices4");
        assert!(op.infer(&[&TensorDesc::of(DType::F32, &[5])]).is_err());
    }
}
