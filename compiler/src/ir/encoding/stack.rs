//! Constants of one shape as one constant: matrices that a file holds one by one, and that kernels pick by a number.

use crate::error::OpError;
use crate::ir::op::Constant;
use crate::ir::tensor::DType;

use super::{Coding, Stored, float};

/// The parts in order, in row-major order each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    parts: Vec<Constant>,
    /// Elements of a part.
    each: usize,
}

impl Stack {
    /// The parts of a stack.
    ///
    /// # Errors
    /// When there are none, or they are not floats of one shape that are stored alike.
    pub(in crate::ir) fn new(parts: Vec<Constant>) -> Result<Self, OpError> {
        let Some(first) = parts.first() else { return Err(OpError::new("a stack of nothing")) };
        let alike = |part: &Constant| {
            part.shape == first.shape
                && part.dtype == first.dtype
                && part.strides.is_none()
                && part.stored.element() == first.stored.element()
                && !matches!(part.stored, Stored::Stack(_))
        };
        let floats = matches!(first.stored.element(), DType::F32 | DType::F16 | DType::Bf16);
        if !parts.iter().all(alike) || !floats || first.elements() == 0 {
            return Err(OpError::new("parts of a stack that are no floats of one shape in one type"));
        }
        let each = first.elements();
        Ok(Self { parts, each })
    }

    /// The parts.
    pub fn parts(&self) -> &[Constant] {
        &self.parts
    }

    /// The type in which elements come out.
    pub(super) fn element(&self) -> DType {
        self.parts.first().map_or(DType::F32, |part| part.stored.element())
    }

    /// The part with an element, and the element's number in it.
    fn part(&self, index: usize) -> Option<(&Constant, usize)> {
        Some((self.parts.get(index / self.each.max(1))?, index % self.each.max(1)))
    }

    pub(super) fn value(&self, index: usize) -> f32 {
        self.part(index).map_or(0.0, |(part, at)| match part.stored {
            Stored::Plain(dtype) => float(&part.bytes, dtype, at),
            _ => part.stored.value(&part.bytes, at),
        })
    }

    /// That of all parts, where they agree.
    pub(super) fn coding(&self) -> Option<Coding> {
        let mut codings = self.parts.iter().map(|part| part.stored.coding());
        let first = codings.next()??;
        codings.all(|coding| coding == Some(first)).then_some(first)
    }

    pub(super) fn code(&self, index: usize) -> u8 {
        self.part(index).map_or(0, |(part, at)| part.stored.code(&part.bytes, at))
    }

    pub(super) fn codes(&self, index: usize, out: &mut [u8]) {
        if let Some((part, at)) = self.part(index) {
            part.stored.codes(&part.bytes, at, out);
        }
    }

    pub(super) fn scale_and_bias(&self, index: usize) -> [f32; 2] {
        self.part(index).map_or([1.0, 0.0], |(part, at)| part.stored.scale_and_bias(&part.bytes, at))
    }

    /// Lets the system forget the pages of all parts.
    pub(super) fn release(&self) {
        for part in &self.parts {
            part.bytes.release();
            part.stored.release();
        }
    }
}
