//! Inverse Winograd transform: `[n * n, tiles, O]` to `[N, O, H, W]`, with an optional bias `[O]`. Results outside the
//! image are dropped.

use serde::{Deserialize, Serialize};

use super::check;
use super::winograd::transform_tile;
use super::winograd_input::matrices;
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Inverse Winograd transform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WinogradOutput {
    /// Convolution results per side of a tile: 2 or 4.
    pub outputs: usize,
    /// Shape of the resulting image.
    pub shape: Vec<Dim>,
}

impl Operation for WinogradOutput {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let x = check::operands(inputs, 1..=2)?;
        check::float(x, "the transformed tiles")?;
        check::same_type(inputs)?;
        let side = matrices(self.outputs)?.side;
        let ([elements, tiles, channels], [batch, filters, height, width]) =
            (x.shape.as_slice(), self.shape.as_slice())
        else {
            return Err(OpError::new(format!(
                "expected tiles of rank three and an image of rank four, found the tiles {x}"
            )));
        };
        check::equal_sizes(elements, &Dim::from(side * side), "elements of a tile")?;
        check::equal_sizes(channels, filters, "channels")?;
        let outputs = check::checked_attribute(self.outputs, "tiles")?;
        let wanted = batch.mul(&height.ceil_div(outputs)).mul(&width.ceil_div(outputs));
        check::equal_sizes(tiles, &wanted, "tiles")?;
        if let Some(bias) = inputs.get(1) {
            check::vector(bias, filters, "the bias")?;
        }
        Ok(TensorDesc::new(x.dtype, self.shape.clone()))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        self.shape.iter_mut().collect()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Anchor
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], symbols: &Bindings) -> Result<Array, OpError> {
        let bound = Self { shape: check::substitute(&self.shape, symbols), ..self.clone() };
        check::evaluate(&bound, inputs, out, || {
            let (x, m) = (inputs[0], matrices(self.outputs)?);
            let values = x.floats()?;
            let bias = inputs.get(1).map(|b| b.floats()).transpose()?;
            let (channels, height, width) = (out[1], out[2], out[3]);
            let (down, across) = (height.div_ceil(self.outputs), width.div_ceil(self.outputs));
            let mut image = vec![0.0; out.iter().product()];
            for tile in 0..x.shape[1] {
                let (n, row, column) = (tile / (down * across), tile / across % down, tile % across);
                for c in 0..channels {
                    let elements: Vec<f64> = (0..x.shape[0])
                        .map(|p| f64::from(values[(p * x.shape[1] + tile) * channels + c]))
                        .collect();
                    let shift = bias.map_or(0.0, |b| f64::from(b[c]));
                    for (i, value) in transform_tile(&m.output, m.side, &elements).into_iter().enumerate() {
                        let y = row * self.outputs + i / self.outputs;
                        let x = column * self.outputs + i % self.outputs;
                        if y < height && x < width {
                            image[((n * channels + c) * height + y) * width + x] = (value + shift) as f32;
                        }
                    }
                }
            }
            Ok(Data::Float(image))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::WinogradOutput;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn checks_tiles() {
        let shape = [2usize, 5, 7, 4].map(Into::into).to_vec();
        let op = WinogradOutput { outputs: 4, shape };
        let infer = |shape: &[usize]| op.infer(&[&TensorDesc::from_sizes(DType::F32, shape)]);
        assert_eq!(infer(&[36, 4, 5]).unwrap().to_string(), "f32[2, 5, 7, 4]");
        assert!(infer(&[36, 5, 5]).is_err());
        assert!(infer(&[16, 4, 5]).is_err());
        assert!(infer(&[36, 4, 6]).is_err());
        assert!(infer(&[36, 4]).is_err());
        let (x, bias) =
            (TensorDesc::from_sizes(DType::F32, &[36, 4, 5]), TensorDesc::from_sizes(DType::F32, &[4]));
        assert!(op.infer(&[&x, &bias]).is_err());
    }
}
