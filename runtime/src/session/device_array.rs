//! An array that stays in device memory.

use crate::device::backend::DeviceRange;
use crate::format::DeviceType;

/// An array in device memory: an output of a run, or external memory. The array keeps the memory allocated but does not
/// protect its contents: the next run that uses the same frame (set of buffers for one run in flight) overwrites an output.
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
