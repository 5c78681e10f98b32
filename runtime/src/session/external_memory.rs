//! Device memory shared with other APIs and processes by file descriptor.
//!
//! The descriptors are Vulkan's opaque file descriptors. CUDA, OpenCL and other Vulkan programs can import and export
//! them on the same driver and device. Writes by other APIs must be complete before a run that reads the data is
//! submitted.

use super::Session;
use super::device_array::DeviceArray;
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::error::{Error, Result};
use crate::format::{DeviceType, element_count};
use std::os::fd::OwnedFd;

impl Session {
    /// Allocates an array in device memory that can be exported, and returns a file descriptor for other APIs. The
    /// exported size is the array's size rounded up to a multiple of 4.
    ///
    /// # Errors
    /// If the driver cannot export memory, or memory is exhausted.
    pub fn export_memory(&self, dtype: DeviceType, shape: &[usize]) -> Result<(DeviceArray, OwnedFd)> {
        let size = byte_size(dtype, shape)?;
        let (range, descriptor) = self.replayer.export(size)?;
        Ok((DeviceArray { range, dtype, shape: shape.to_vec() }, descriptor))
    }

    /// Imports an array from another API or process by an opaque file descriptor of the same driver and device.
    /// `allocation` is the byte size of the exported allocation if it is larger than the array.
    ///
    /// # Errors
    /// If the driver cannot import the memory.
    pub fn import_memory(
        &self,
        descriptor: OwnedFd,
        allocation: Option<u64>,
        dtype: DeviceType,
        shape: &[usize],
    ) -> Result<DeviceArray> {
        let size = byte_size(dtype, shape)?;
        let range = self.replayer.import(size, allocation, descriptor)?;
        Ok(DeviceArray { range, dtype, shape: shape.to_vec() })
    }
}

fn byte_size(dtype: DeviceType, shape: &[usize]) -> Result<u64> {
    let dims: Vec<i64> = shape.iter().map(|dim| i64::try_from(*dim).unwrap_or(-1)).collect();
    let size = element_count(&dims).and_then(|count| count.checked_mul(dtype.size()));
    let size = size.filter(|size| *size > 0).and_then(|size| size.checked_next_multiple_of(4));
    size.ok_or_else(|| Error::TooLarge { place: "size of external memory".to_owned(), value: 0 })
}
