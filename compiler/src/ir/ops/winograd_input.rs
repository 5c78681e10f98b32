//! Winograd transform of an image: `[N, C, H, W]` to `[n * n, tiles, C]`, a matrix of tiles by channels for each of the
//! `n * n` elements of a tile. Tiles overlap by two pixels and are counted row by row through each image. Pixels
//! outside the image are zero.

use serde::{Deserialize, Serialize};

use super::check;
use super::winograd::{Matrices, transform_tile};
use crate::error::OpError;
use crate::ir::array::{Array, Data};
use crate::ir::dim::{Bindings, Dim};
use crate::ir::op::{Exactness, Facts, Fusion, LayoutClass, Operation, PrecisionClass};
use crate::ir::tensor::TensorDesc;

/// Winograd transform of an image, for convolution windows of 3 x 3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WinogradInput {
    /// Convolution results per side of a tile: 2 or 4.
    pub outputs: usize,
    /// Zero padding before the image, per spatial axis.
    pub pads_begin: [usize; 2],
    /// Zero padding after the image, per spatial axis.
    pub pads_end: [usize; 2],
}

impl WinogradInput {
    /// Returns the number of Winograd tiles along each spatial axis.
    ///
    /// # Errors
    /// If no window fits the padded image.
    pub fn tiles(&self, x: &TensorDesc) -> Result<[Dim; 2], OpError> {
        let [_, _, height, width] = x.shape.as_slice() else {
            return Err(OpError::new(format!("the image must have rank four, found {x}")));
        };
        let along = |size: &Dim, i: usize| {
            let pads = check::checked_attribute(self.pads_begin[i], "padding")?
                + check::checked_attribute(self.pads_end[i], "padding")?;
            let windows = size.plus(pads - 2);
            if windows.as_known().is_some_and(|n| n < 1) {
                return Err(OpError::new(format!(
                    "a window of 3 x 3 pixels does not fit an image of size {size} with {pads} padding pixels"
                )));
            }
            Ok(windows.ceil_div(check::checked_attribute(self.outputs, "tiles")?))
        };
        Ok([along(height, 0)?, along(width, 1)?])
    }
}

/// Returns the Winograd matrices; fails for unsupported tile sizes.
pub(crate) fn matrices(outputs: usize) -> Result<Matrices, OpError> {
    Matrices::new(outputs).ok_or_else(|| {
        OpError::new(format!("Winograd tiles must have 2 or 4 results per side, found {outputs}"))
    })
}

impl Operation for WinogradInput {
    fn infer(&self, inputs: &[&TensorDesc]) -> Result<TensorDesc, OpError> {
        let [x] = check::exact_operands(inputs)?;
        check::float(x, "the image")?;
        let side = matrices(self.outputs)?.side;
        let [down, across] = self.tiles(x)?;
        let tiles = x.shape[0].mul(&down).mul(&across);
        Ok(TensorDesc::new(x.dtype, vec![Dim::from(side * side), tiles, x.shape[1].clone()]))
    }

    fn sizes_mut(&mut self) -> Vec<&mut Dim> {
        Vec::new()
    }

    fn fusion(&self) -> Fusion {
        Fusion::Opaque
    }

    fn facts(&self, _inputs: &[&TensorDesc]) -> Facts {
        Facts::new(LayoutClass::RowMajor, PrecisionClass::Other, Exactness::Independent)
    }

    fn eval(&self, inputs: &[&Array], out: &[usize], _symbols: &Bindings) -> Result<Array, OpError> {
        check::evaluate(self, inputs, out, || {
            let (x, m) = (inputs[0], matrices(self.outputs)?);
            let (values, side) = (x.floats()?, m.side);
            let (channels, height, width) = (x.shape[1], x.shape[2], x.shape[3]);
            let count = |size: usize, i: usize| {
                (size + self.pads_begin[i] + self.pads_end[i]).saturating_sub(2).div_ceil(self.outputs)
            };
            let (down, across) = (count(height, 0), count(width, 1));
            let mut tiles = vec![0.0; out.iter().product()];
            for tile in 0..out[1] {
                let (image, row, column) = (tile / (down * across), tile / across % down, tile % across);
                for c in 0..channels {
                    let pixel = |i: usize| {
                        let y = (row * self.outputs + i / side).checked_sub(self.pads_begin[0]);
                        let x = (column * self.outputs + i % side).checked_sub(self.pads_begin[1]);
                        let inside = y.zip(x).filter(|(y, x)| *y < height && *x < width);
                        let at = inside.map(|(y, x)| ((image * channels + c) * height + y) * width + x);
                        at.map_or(0.0, |at| f64::from(values[at]))
                    };
                    let pixels: Vec<f64> = (0..side * side).map(pixel).collect();
                    for (p, value) in transform_tile(&m.input, side, &pixels).into_iter().enumerate() {
                        tiles[(p * out[1] + tile) * channels + c] = value as f32;
                    }
                }
            }
            Ok(Data::Float(tiles))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::WinogradInput;
    use crate::ir::dim::Dim;
    use crate::ir::op::Operation;
    use crate::ir::tensor::{DType, TensorDesc};

    #[test]
    fn counts_tiles() {
        let op = |outputs| WinogradInput { outputs, pads_begin: [1, 0], pads_end: [1, 1] };
        let x = TensorDesc::from_sizes(DType::F32, &[2, 3, 9, 8]);
        assert_eq!(op(4).infer(&[&x]).unwrap().to_string(), "f32[36, 12, 3]");
        assert_eq!(op(2).infer(&[&x]).unwrap().to_string(), "f32[16, 40, 3]");
        assert!(op(3).infer(&[&x]).is_err());
        assert!(op(4).infer(&[&TensorDesc::from_sizes(DType::F32, &[2, 3, 9, 1])]).is_err());
        let dims = vec![Dim::symbol("n"), Dim::known(3), Dim::symbol("h"), Dim::known(8)];
        let x = TensorDesc::new(DType::F32, dims);
        assert_eq!(op(4).infer(&[&x]).unwrap().to_string(), "f32[36, 2*n*(h+3)//4, 3]");
        let huge = WinogradInput { outputs: 4, pads_begin: [usize::MAX, 0], pads_end: [0, 0] };
        assert!(huge.infer(&[&x]).is_err());
    }
}
