//! How the bytes of a constant say its elements: one after the other, or as codes of few bits with scales.
//!
//! An encoding belongs to the constant: whoever reads a file describes what it found and leaves the bytes where they
//! are. Every element can be computed by itself, from its number in the order of the file, so that constants of any size
//! are decoded in pieces. Decoded elements are f32.

mod blocks;
mod coding;
mod groups;
mod rounded;
mod stack;
mod stretch;

use std::fmt;
use std::sync::Arc;

pub use blocks::BlockKind;
pub use coding::Coding;
pub use groups::{CodeOrder, Codes, Groups, Scales, Zeros};
pub use rounded::{Factors, Rounded, Scheme};
pub use stack::Stack;

use crate::content::Content;
use crate::error::OpError;
use crate::ir::array::{Array, Data, count};
use crate::ir::op::Constant;
use crate::ir::tensor::DType;

use rayon::prelude::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

/// How the bytes of a constant say its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stored {
    /// One element of a type after the other.
    Plain(DType),
    /// Blocks of consecutive elements, each with its scales.
    Blocks(BlockKind),
    /// Codes of a matrix; scales and zero points lie elsewhere.
    Groups(Arc<Groups>),
    /// Floats of a matrix that are rounded to codes when they are read.
    Rounded(Arc<Rounded>),
    /// Constants of one shape, one after the other; the bytes are those of the first.
    Stack(Arc<Stack>),
}

impl Stored {
    /// The type in which elements come out.
    pub fn element(&self) -> DType {
        match self {
            Self::Plain(dtype) => *dtype,
            Self::Blocks(_) | Self::Groups(_) | Self::Rounded(_) => DType::F32,
            Self::Stack(stack) => stack.element(),
        }
    }

    /// The type of elements that are stored one after the other.
    pub fn plain(&self) -> Option<DType> {
        match self {
            Self::Plain(dtype) => Some(*dtype),
            Self::Blocks(_) | Self::Groups(_) | Self::Rounded(_) | Self::Stack(_) => None,
        }
    }

    /// Fails unless so many bytes hold the elements of a shape.
    ///
    /// # Errors
    /// With what does not fit.
    pub fn check(&self, shape: &[usize], bytes: usize) -> Result<(), OpError> {
        let elements = count(shape);
        let needed = match self {
            Self::Plain(dtype) => elements.checked_mul(dtype.bytes()),
            Self::Blocks(kind) => {
                let row = shape.last().copied().unwrap_or(1);
                if row % kind.elements() != 0 {
                    return Err(OpError::new(format!(
                        "rows of {row} elements are no whole blocks of {} in {}",
                        kind.elements(),
                        kind.name()
                    )));
                }
                (elements / kind.elements()).checked_mul(kind.bytes())
            }
            Self::Groups(groups) => {
                if Some(elements) != groups.codes.rows.checked_mul(groups.codes.columns) {
                    let Codes { rows, columns, .. } = groups.codes;
                    return Err(OpError::new(format!(
                        "{rows} x {columns} codes do not make {elements} elements"
                    )));
                }
                groups.check()?;
                groups.codes.bytes()
            }
            // Rows may be a part of what the file has.
            Self::Rounded(rounded) => {
                rounded.check(bytes)?;
                Some(bytes).filter(|_| rounded.elements() == Some(elements))
            }
            Self::Stack(stack) => {
                let first = stack.parts().first().map(|part| part.bytes.len());
                first.filter(|_| stack.parts().iter().map(Constant::elements).sum::<usize>() == elements)
            }
        };
        if needed == Some(bytes) {
            return Ok(());
        }
        let what = match self {
            Self::Plain(dtype) => dtype.name().to_owned(),
            Self::Blocks(_) | Self::Groups(_) | Self::Rounded(_) | Self::Stack(_) => self.to_string(),
        };
        Err(OpError::new(format!("{bytes} bytes do not make {elements} elements of {what}")))
    }

    /// The element with a number in the order of the file, of an encoding that passed its check; plain ones are no
    /// floats and give zero.
    pub fn value(&self, bytes: &[u8], index: usize) -> f32 {
        match self {
            Self::Plain(_) => 0.0,
            Self::Blocks(kind) => kind.value(bytes, index),
            Self::Groups(groups) => groups.value(bytes, index),
            Self::Rounded(rounded) => {
                let [scale, bias] = rounded.scale_and_bias(index);
                (f32::from(rounded.code(bytes, index)) - f32::from(rounded.coding().zero)) * scale + bias
            }
            Self::Stack(stack) => stack.value(index),
        }
    }

    /// All elements in the order of the file.
    ///
    /// # Errors
    /// When the bytes do not fit the shape.
    pub fn array(&self, shape: &[usize], bytes: &[u8]) -> Result<Array, OpError> {
        match self {
            Self::Plain(dtype) => Array::from_bytes(*dtype, shape, bytes),
            Self::Blocks(_) | Self::Groups(_) | Self::Rounded(_) | Self::Stack(_) => {
                self.check(shape, bytes.len())?;
                let values = (0..count(shape)).into_par_iter().with_min_len(1 << 12);
                let values = values.map(|i| self.value(bytes, i)).collect();
                Ok(Array { dtype: self.element(), shape: shape.to_vec(), data: Data::Float(values) })
            }
        }
    }

    /// Where scales lie that are not among the codes: what tells apart constants whose codes are the same bytes.
    pub fn aside(&self) -> Option<usize> {
        match self {
            Self::Plain(_) | Self::Blocks(_) => None,
            Self::Groups(groups) => Some(groups.scales.bytes.as_ptr() as usize),
            Self::Rounded(rounded) => Some(rounded.place()),
            // A stack is told apart from its first part, whose bytes it has.
            Self::Stack(stack) => {
                let aside = stack
                    .parts()
                    .last()
                    .map(|part| part.stored.aside().unwrap_or(part.bytes.as_ptr() as usize));
                Some(aside.unwrap_or(0))
            }
        }
    }

    /// Lets the system forget pages of scales, as [`Content::release`].
    pub fn release(&self) {
        match self {
            Self::Groups(groups) => groups.scales.bytes.release(),
            Self::Stack(stack) => stack.release(),
            Self::Plain(_) | Self::Blocks(_) | Self::Rounded(_) => {}
        }
    }
}

impl fmt::Display for Stored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(dtype) => f.write_str(dtype.name()),
            Self::Blocks(kind) => f.write_str(kind.name()),
            Self::Groups(groups) => write!(f, "{groups}"),
            Self::Rounded(rounded) => write!(f, "{rounded}"),
            Self::Stack(stack) => {
                let parts = stack.parts();
                let one = parts.first().map_or_else(String::new, |part| part.stored.to_string());
                write!(f, "{} of {one}", parts.len())
            }
        }
    }
}

/// A byte, or zero beyond the end.
fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// A number of two bytes, or zero beyond the end.
fn two(bytes: &[u8], at: usize) -> [u8; 2] {
    [byte(bytes, at), byte(bytes, at + 1)]
}

/// The part of a file from a place on.
fn from(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

/// Floats of a file.
fn float(bytes: &Content, dtype: DType, index: usize) -> f32 {
    match dtype {
        DType::F16 => half::f16::from_le_bytes(two(bytes, index * 2)).to_f32(),
        DType::Bf16 => half::bf16::from_le_bytes(two(bytes, index * 2)).to_f32(),
        _ => {
            let [a, b] = two(bytes, index * 4);
            let [c, d] = two(bytes, index * 4 + 2);
            f32::from_le_bytes([a, b, c, d])
        }
    }
}
