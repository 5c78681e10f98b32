//! An array that stays in device memory.

use crate::device::backend::DeviceRange;
use crate::format::DeviceType;

/// An array in device memory: an output of a run, or external memory. It keeps the memory alive but not the
/// contents: a later run in the same frame overwrites an output.
#[derive(Clone)]
pub struct DeviceArray {
    pub(super) range: DeviceRange,
    pub(super) dtype: DeviceType,
    pub(super) shape: Vec<usize>,
}

impl DeviceArray {
    pub fn dtype(&self) -> DeviceType {
        self.dtype
    }

    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}
