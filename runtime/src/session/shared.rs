//! Memory of the device that is shared with other interfaces and processes, by file descriptor.
//!
//! The descriptors are Vulkan's opaque ones: those of the same driver and device, which CUDA, OpenCL and other Vulkan
//! programs take and give. What the other side writes must be complete before a run that is fed with it is submitted.

use super::Session;
use super::memory::DeviceArray;
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::error::{Error, Result};
use crate::format::{DeviceType, element_count};
use std::os::fd::OwnedFd;

impl Session {
    /// New memory for an array, and a descriptor under which others import as many bytes as it takes, rounded up to 4.
    ///
    /// # Errors
    /// When the driver shares no memory, or there is not enough.
    pub fn share(&self, dtype: DeviceType, shape: &[usize]) -> Result<(DeviceArray, OwnedFd)> {
        let size = size_of(dtype, shape)?;
        let (range, descriptor) = self.replayer.export(size)?;
        Ok((DeviceArray { range, dtype, shape: shape.to_vec() }, descriptor))
    }

    /// An array in memory that another program or interface shares: an opaque descriptor of the same driver and device, and
    /// what lies there. `allocation` is the size of the memory as it was allocated, where that is more than the array.
    ///
    /// # Errors
    /// When the driver imports no memory, or not this.
    pub fn import(
        &self,
        descriptor: OwnedFd,
        allocation: Option<u64>,
        dtype: DeviceType,
        shape: &[usize],
    ) -> Result<DeviceArray> {
        let size = size_of(dtype, shape)?;
        let range = self.replayer.import(size, allocation, descriptor)?;
        Ok(DeviceArray { range, dtype, shape: shape.to_vec() })
    }
}

fn size_of(dtype: DeviceType, shape: &[usize]) -> Result<u64> {
    let dims: Vec<i64> = shape.iter().map(|dim| i64::try_from(*dim).unwrap_or(-1)).collect();
    let size = element_count(&dims).and_then(|count| count.checked_mul(dtype.size()));
    let size = size.filter(|size| *size > 0).and_then(|size| size.checked_next_multiple_of(4));
    size.ok_or_else(|| Error::TooLarge { place: "size of shared memory".to_owned(), value: 0 })
}
