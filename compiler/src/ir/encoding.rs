//! Encodings of constants: how the bytes of a constant represent its elements, plain or quantized.
//!
//! An encoding belongs to the constant. Importers describe the bytes of a file and leave them in place. Each element
//! can be dequantized alone, from its index in file order, so constants of any size are processed in chunks.
//! Dequantized elements are f32.

mod blocks;
mod bytes;
mod chunk;
mod group_quantized;
mod kinds;
mod matrix_layout;
mod quant_format;
mod quantized_on_read;

pub use blocks::BlockKind;
pub use group_quantized::{GroupQuantized, PackedValues, PackingOrder, Scales, ZeroPoints};
pub use kinds::{Encoding, Stack, StackMember};
pub use matrix_layout::MatrixLayout;
pub use quant_format::QuantFormat;
pub use quantized_on_read::{ChannelFactors, QuantScheme, QuantizedOnRead};
