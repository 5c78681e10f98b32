//! Packed constants: weights in the order and type that a kernel reads. They are described first, and their bytes are
//! produced only when the bundle is written, so that peak memory does not grow with the model.
//!
//! An arrangement is an ordered list of axis groups over the constant's logical shape. Iterating the groups, the last one
//! fastest, gives the order of elements in memory. For example, `[(O, rest), (K, rest), (O, 4)]` means slices of 4 outputs; a
//! slice holds, for each position along K, the elements of its 4 outputs. Positions past an axis's end are zero. OHWI, I4O4 and
//! matrix-unit tiles are such lists; [`presets`] names them. A constant may be interleaved over several objects, each with every
//! n-th position of an axis.
//!
//! Bytes are produced in runs of tiles: `tiles` maps packed elements to source elements, and `convert` converts
//! elements. Quantized constants have their own form, [`quantized_panels`], which keeps them quantized. If a kernel
//! asks for another arrangement of a quantized constant, the constant is dequantized.

mod arrangement;
mod convert;
mod identity;
mod packed;
mod packer;
pub mod presets;
pub mod quantized_panels;
mod tiles;

pub use arrangement::{Arrangement, AxisGroup, Interleave, Order};
pub use identity::Identity;
pub use packed::Packed;
pub use packer::{Packer, pack};
