//! Conversion of a tensor to another memory layout.

use serde::{Deserialize, Serialize};

use crate::error::OpError;
use crate::ir::array::Array;
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::ops::check::{self, exact_operands};
use crate::ir::tensor::{Layout, TensorDesc};

/// Conversion of a tensor to another memory layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relayout {
    /// Memory layout of the converted tensor.
    pub layout: Layout,
}

impl Operation for Relayout {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = exact_operands(inputs)?;
        if !self.layout.holds(&x.shape) {
            return Err(OpError::new(format!(
                "the layout of a relayout's result needs 2 to 5 axes, found {x}"
            )));
        }
        Ok(TensorDesc { layout: self.layout, ..x.clone() })
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Injective
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        // Host arrays are always row-major.
        let [x] = inputs else { return Err(OpError::new("expected one operand")) };
        check::check_arrays(self, inputs, out)?;
        Ok((*x).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::Relayout;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, Layout, TensorDesc};

    #[test]
    fn slices_need_a_channel_axis() {
        let op = Relayout { layout: Layout::SLICES4 };
        let image = TensorDesc::from_sizes(DType::F32, &[1, 5, 2, 2]);
        assert_eq!(op.infer(&[&image]).unwrap().to_string(), "f32[1, 5, 2, 2]@slices4");
        assert!(op.infer(&[&TensorDesc::from_sizes(DType::F32, &[5])]).is_err());
    }
}
