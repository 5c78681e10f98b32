//! Arrays without host copies: direct access to transfer memory, which host and device both access, and arrays that
//! stay on the device.
//!
//! [`Session::input_mut`] and [`Session::output`] expose the memory that [`Session::write_input`] and
//! [`Session::read_output`] convert to and from. A [`DeviceArray`] refers to device memory that other sessions
//! on the same device can use as an input.

use super::device_array::DeviceArray;
use super::frames::{RunOutput, Ticket};
use super::open::{find_function, find_name};
use super::{Session, ports};
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::error::{Error, Result};
use crate::format::{DeviceType, Port};

/// An output in transfer memory: row-major elements of the device type ([`Port::device_type`]).
#[derive(Clone, Debug, PartialEq)]
pub struct View<'a> {
    pub dtype: DeviceType,
    pub shape: Vec<usize>,
    pub bytes: &'a [u8],
}

impl Session {
    /// Returns the transfer memory of an input with this shape. The caller fills the memory with elements of the device
    /// type ([`Port::device_type`]). The previous contents are unspecified, and reading may be slow. All runs use these
    /// elements until the input is written again.
    ///
    /// # Errors
    /// If the input does not support the shape. Integer values are not checked.
    pub fn input_mut(&mut self, function: &str, name: &str, shape: &[usize]) -> Result<&mut [u8]> {
        let (index, described) = find_function(self.bundle.manifest().variants.get(self.variant), function)?;
        let known = described.inputs.iter().map(|port| port.name.as_str());
        let position = find_name(described, "input", known, name)?;
        let Some(port) = described.inputs.get(position) else { return Ok(&mut []) };
        let (start, length) = ports::input_range(described, port, shape)?;
        let frame = self.frames_in_flight.next();
        self.replayer.wait(frame)?;
        self.frames_in_flight.written(frame, index, position, shape);
        let memory = self.replayer.input(frame, index, position).unwrap_or_default();
        let memory = memory.get_mut(start..).unwrap_or_default();
        let (elements, rest) = memory.split_at_mut_checked(length).unwrap_or_default();
        // Shaders may read whole 32-bit words.
        rest.iter_mut().take(length.next_multiple_of(4) - length).for_each(|byte| *byte = 0);
        Ok(elements)
    }

    /// Returns an output of the function's last run, in transfer memory, which host and device both access.
    pub fn output(&self, function: &str, name: &str) -> Result<View<'_>> {
        self.output_of(self.last_ticket(function, name)?, name)
    }

    /// Returns a requested output of a finished run, in transfer memory, which host and device both access.
    pub fn output_of(&self, ticket: Ticket, name: &str) -> Result<View<'_>> {
        let (output, memory) = self.host_output(ticket, name)?;
        let (shape, range) = ports::output_range(output.port, output.symbols)?;
        let too_large = || Error::TooLarge { place: format!("size of `{name}`"), value: i64::MAX };
        let bytes = memory.get(range).ok_or_else(too_large)?;
        Ok(View { dtype: output.port.device_type, shape, bytes })
    }

    /// Returns an output of the function's last run as an array in device memory. The output need not have been
    /// requested.
    pub fn device_output(&self, function: &str, name: &str) -> Result<DeviceArray> {
        self.device_output_of(self.last_ticket(function, name)?, name)
    }

    /// Returns an output of a submitted run as an array in device memory. The run may be in flight.
    pub fn device_output_of(&self, ticket: Ticket, name: &str) -> Result<DeviceArray> {
        let RunOutput { function, index, port, symbols, .. } = self.run_output(ticket, name)?;
        let (shape, _) = ports::output_range(port, symbols)?;
        let (_, offset, size) = ports::slot_range(0, port, symbols)?;
        let range = self.replayer.device_output(ticket.frame(), function, index, (offset, size));
        let range = range.ok_or_else(|| Error::NotRun(name.to_owned()))?;
        Ok(DeviceArray { range, dtype: port.device_type, shape })
    }

    /// Uses a device array as an input of all runs until the input is written again. The array is copied on the
    /// device at the start of a run, after all previously submitted work, so the producing run need not be
    /// waited for.
    ///
    /// # Errors
    /// If the input has another shape or type, or the array belongs to a device that another session opened;
    /// see [`Session::load_together`].
    pub fn feed(&mut self, function: &str, name: &str, array: &DeviceArray) -> Result<()> {
        let (index, described) = find_function(self.bundle.manifest().variants.get(self.variant), function)?;
        let known = described.inputs.iter().map(|port| port.name.as_str());
        let position = find_name(described, "input", known, name)?;
        let Some(port) = described.inputs.get(position) else { return Ok(()) };
        self.check_device_array(name, array, port)?;
        ports::input_range(described, port, &array.shape)?;
        self.frames_in_flight.fed(index, position, array);
        Ok(())
    }

    /// Copies an output of the function's last run to a device array, and waits for the copy.
    ///
    /// # Errors
    /// As for [`Session::feed`].
    pub fn copy_output(&mut self, function: &str, name: &str, to: &DeviceArray) -> Result<()> {
        let from = self.device_output(function, name)?;
        let described = self.function(function)?;
        let known = described.outputs.iter().map(|port| port.name.as_str());
        let position = find_name(described, "output", known, name)?;
        let Some(port) = described.outputs.get(position) else { return Ok(()) };
        self.check_device_array(name, to, port)?;
        if from.shape != to.shape {
            let expected = from.shape.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
            return Err(Error::WrongShape { port: name.to_owned(), expected, given: to.shape.clone() });
        }
        self.replayer.copy(&from.range, &to.range)
    }

    fn check_device_array(&self, name: &str, array: &DeviceArray, port: &Port) -> Result<()> {
        if !self.replayer.owns(&array.range) {
            return Err(Error::OtherDevice { port: name.to_owned() });
        }
        if array.dtype != port.device_type {
            return Err(Error::WrongDeviceType {
                port: name.to_owned(),
                expected: port.device_type,
                given: array.dtype,
            });
        }
        Ok(())
    }
}
