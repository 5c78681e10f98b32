//! Runs: write inputs, submit, wait, read outputs.
//!
//! Runs use the frames in turn. For each frame, the session records which version of each input, which parameters and
//! which run's outputs the frame holds. A run waits until its frame is no longer in flight.

use super::device_array::DeviceArray;
use super::open::{find_function, find_name};
use super::{DispatchTime, Session, params, ports, symbols};
use crate::array::{Array, ArrayRef};
use crate::device::backend::Launch;
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::error::{Error, Result};
use crate::format::{Function, HostType, Port};

/// Handle of a submitted run. Its outputs are readable until a later run uses the same frame, which happens
/// after [`Session::frames`] further submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    frame: usize,
    /// Serial number of the run.
    serial: u64,
}

impl Ticket {
    pub(super) fn frame(self) -> usize {
        self.frame
    }
}

/// Inputs and symbols for the next runs, and the state of all frames.
pub(super) struct FramesInFlight {
    pub(super) runs: Vec<FunctionInputs>,
    frames: Vec<Frame>,
    /// Index of the frame that the next run uses.
    next: usize,
    /// Index of the conversation whose states the next run uses.
    pub(super) conversation: usize,
    /// Counter that numbers runs and versions of written inputs.
    clock: u64,
}

/// Current inputs and symbol values of a function. Only the values of general functions are used; the values of
/// specializations stay empty.
#[derive(Default)]
pub(super) struct FunctionInputs {
    inputs: Vec<Input>,
    /// Symbol values that the caller set by name.
    pub(super) given: Vec<Option<i64>>,
    /// Index of the function of this name that ran last: the general function or a specialization.
    replayed: Option<usize>,
    /// The last run.
    last: Option<Ticket>,
}

/// Shape and version of the current value of an input, and the place where the value is stored.
#[derive(Clone, Default)]
struct Input {
    shape: Option<Vec<usize>>,
    /// Index of the frame that the value was written to, and version number of the value. The version is 0 if the input
    /// was never written.
    frame: usize,
    version: u64,
    /// Device array that the input is copied from, instead of a host array.
    fed: Option<DeviceArray>,
}

/// Record of one frame in the session: the run whose outputs the frame holds, and the values in its memory.
struct Frame {
    /// Serial number of the run whose outputs the frame holds.
    serial: u64,
    result: Option<RunOutputs>,
    /// For each function, the versions of its inputs and the symbol values that this frame holds.
    functions: Vec<FunctionInFrame>,
}

/// Outputs of a submitted run.
struct RunOutputs {
    first: usize,
    symbols: Vec<i64>,
    /// For each output of the function, true if the output is copied to the host.
    outputs: Vec<bool>,
}

/// An output of a run.
pub(super) struct RunOutput<'a> {
    /// Index of the function in the variant, and index of the output among the outputs of the function.
    pub(super) function: usize,
    pub(super) index: usize,
    pub(super) port: &'a Port,
    pub(super) symbols: &'a [i64],
    requested: bool,
}

/// Values of a function that a frame holds: versions of its inputs, and symbol values.
#[derive(Clone)]
struct FunctionInFrame {
    /// Version of each input's value in the frame's host memory, and version of each input's value in the frame's
    /// device memory.
    written: Vec<u64>,
    uploaded: Vec<u64>,
    /// Symbol values for which the current parameters and grids were computed.
    symbols: Option<Vec<i64>>,
}

impl FramesInFlight {
    pub(super) fn new(functions: &[Function], n_frames: usize) -> FramesInFlight {
        let function_in_frame = |function: &Function| FunctionInFrame {
            written: vec![0; function.inputs.len()],
            uploaded: vec![0; function.inputs.len()],
            symbols: None,
        };
        let frame = |_| Frame {
            serial: 0,
            result: None,
            functions: functions.iter().map(function_in_frame).collect(),
        };
        let run = |function: &Function| FunctionInputs {
            inputs: vec![Input::default(); function.inputs.len()],
            given: vec![None; function.symbols.len()],
            ..FunctionInputs::default()
        };
        FramesInFlight {
            runs: functions.iter().map(run).collect(),
            frames: (0..n_frames).map(frame).collect(),
            next: 0,
            conversation: 0,
            clock: 0,
        }
    }

    /// Returns the index of the function that ran last: the general function with index `function`, or a specialization
    /// of it. Returns `None` if neither ran.
    pub(super) fn last_replayed(&self, function: usize) -> Option<usize> {
        self.runs.get(function).and_then(|run| run.replayed)
    }

    /// Returns the index of the frame that inputs are written to.
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// Records that an input of this shape was written to a frame.
    pub(super) fn written(&mut self, frame: usize, function: usize, input: usize, shape: &[usize]) {
        self.clock += 1;
        let in_frame = self.frames.get_mut(frame).and_then(|frame| frame.functions.get_mut(function));
        if let Some(written) = in_frame.and_then(|in_frame| in_frame.written.get_mut(input)) {
            *written = self.clock;
        }
        self.set(
            function,
            input,
            Input { shape: Some(shape.to_vec()), frame, version: self.clock, fed: None },
        );
    }

    /// Records that an input comes from a device array.
    pub(super) fn fed(&mut self, function: usize, input: usize, array: &DeviceArray) {
        self.clock += 1;
        let fed = Some(array.clone());
        let shape = Some(array.shape().to_vec());
        self.set(function, input, Input { shape, frame: 0, version: self.clock, fed });
    }

    fn set(&mut self, function: usize, input: usize, to: Input) {
        if let Some(input) = self.runs.get_mut(function).and_then(|run| run.inputs.get_mut(input)) {
            *input = to;
        }
    }

    /// Returns the outputs of a run, or an error if a later run has used the frame of the run.
    fn run_outputs(&self, ticket: Ticket) -> Result<&RunOutputs> {
        let frame = self.frames.get(ticket.frame).filter(|frame| frame.serial == ticket.serial);
        frame.and_then(|frame| frame.result.as_ref()).ok_or(Error::Overwritten)
    }
}

impl Session {
    /// Returns the number of frames, which is the maximum number of runs in flight.
    pub fn frames(&self) -> usize {
        self.frames_in_flight.frames.len()
    }

    /// Sets the value of a symbol that no input shape determines. The value applies to all runs until it is set again.
    pub fn set_symbol(&mut self, function: &str, name: &str, value: i64) -> Result<()> {
        let (index, described) = self.function_index(function)?;
        let known = described.symbols.iter().map(|symbol| symbol.name.as_str());
        let position = find_name(described, "symbol", known, name)?;
        if let Some(given) =
            self.frames_in_flight.runs.get_mut(index).and_then(|run| run.given.get_mut(position))
        {
            *given = Some(value);
        }
        Ok(())
    }

    /// Copies an array into an input, converted to the device type. The input keeps this value for all runs until it is
    /// written again.
    pub fn write_input(&mut self, function: &str, name: &str, array: ArrayRef<'_>) -> Result<()> {
        let (index, described) = find_function(self.bundle.manifest().variants.get(self.variant), function)?;
        let known = described.inputs.iter().map(|port| port.name.as_str());
        let position = find_name(described, "input", known, name)?;
        let Some(port) = described.inputs.get(position) else { return Ok(()) };
        let shape = ports::check_array(described, port, array)?;
        let frames_in_flight = &mut self.frames_in_flight;
        let frame = frames_in_flight.next;
        self.replayer.wait(frame)?;
        // A failed conversion must not leave the old version marked as valid.
        frames_in_flight.set(index, position, Input::default());
        let memory = self.replayer.input(frame, index, position).unwrap_or_default();
        ports::write_array(described, port, &shape, array, memory)?;
        frames_in_flight.written(frame, index, position, array.shape);
        Ok(())
    }

    /// Runs a function on the written inputs and waits for the end of the run. All outputs become readable.
    pub fn replay(&mut self, function: &str) -> Result<()> {
        self.replay_with(function, None).map(|_| ())
    }

    /// Runs a function on the written inputs and waits for the end of the run. Only the named outputs are copied to the
    /// host.
    pub fn replay_for(&mut self, function: &str, outputs: &[&str]) -> Result<()> {
        self.replay_with(function, Some(outputs)).map(|_| ())
    }

    /// Runs a function on the written inputs and waits for the end of the run, without copying outputs to the host. For
    /// benchmarks, and for functions that only update states.
    pub fn replay_on_device(&mut self, function: &str) -> Result<()> {
        self.replay_with(function, Some(&[])).map(|_| ())
    }

    /// Submits a run of a function on the written inputs, and returns without waiting for it. Only the named
    /// outputs are copied to the host. Runs execute in submission order. If all frames are in flight, the call
    /// waits for the oldest run.
    pub fn submit(&mut self, function: &str, outputs: &[&str]) -> Result<Ticket> {
        let (ticket, _) = self.submit_run(function, Some(outputs))?;
        self.frames_in_flight.next = (ticket.frame + 1) % self.frames_in_flight.frames.len().max(1);
        Ok(ticket)
    }

    /// Waits for the end of a submitted run.
    ///
    /// # Errors
    /// If a later run has used the frame of the run, or the device fails.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        self.frames_in_flight.run_outputs(ticket)?;
        self.replayer.wait(ticket.frame)
    }

    /// Waits for the end of a submitted run, and reads a requested output into `array`, reusing the array's memory.
    pub fn collect(&mut self, ticket: Ticket, output: &str, array: &mut Array) -> Result<()> {
        self.wait(ticket)?;
        self.read_from(ticket, output, array)
    }

    /// Runs a function on the written inputs, and then again with a timestamp after every dispatch. Returns start and
    /// end of each dispatch of the function that ran, which is [`Session::last_replayed`]. The first call for a
    /// function takes longer, because it records a command buffer.
    pub fn replay_timed(&mut self, function: &str) -> Result<Vec<DispatchTime>> {
        let (ticket, index) = self.replay_with(function, None)?;
        let functions = self.bundle.manifest().variants.get(self.variant).map(|variant| &variant.functions);
        let Some(described) = functions.and_then(|list| list.get(index)) else { return Ok(Vec::new()) };
        let conversation = self.frames_in_flight.conversation;
        let ends = self.replayer.replay_timed(ticket.frame, conversation, index, described)?;
        let starts = std::iter::once(0.0).chain(ends.iter().copied());
        let times = starts.zip(&ends).enumerate();
        Ok(times.map(|(dispatch, (start, end))| DispatchTime { dispatch, start, end: *end }).collect())
    }

    /// Reads an output of the function's last run into a new array.
    pub fn read_output(&self, function: &str, name: &str) -> Result<Array> {
        let mut array = Array { dtype: HostType::F32, shape: Vec::new(), bytes: Vec::new() };
        self.read_output_into(function, name, &mut array)?;
        Ok(array)
    }

    /// Reads an output of a finished run into `bytes`, whose length must be the byte size of the output in its host
    /// type.
    pub fn read_output_of(&self, ticket: Ticket, name: &str, bytes: &mut [u8]) -> Result<()> {
        let (output, memory) = self.host_output(ticket, name)?;
        ports::read_bytes(output.port, output.symbols, memory, bytes)
    }

    /// Reads an output of the function's last run into `bytes`.
    ///
    /// # Errors
    /// If the length of `bytes` is not the byte size of the output in its host type.
    pub fn read_output_to(&self, function: &str, name: &str, bytes: &mut [u8]) -> Result<()> {
        self.read_output_of(self.last_ticket(function, name)?, name, bytes)
    }

    /// Reads an output of the function's last run into `array`. Reusing the array's memory avoids page faults for large
    /// outputs.
    pub fn read_output_into(&self, function: &str, name: &str, array: &mut Array) -> Result<()> {
        self.read_from(self.last_ticket(function, name)?, name, array)
    }

    /// Returns the ticket of the last run of a function. Checks that the function has an output of this name.
    pub(super) fn last_ticket(&self, function: &str, name: &str) -> Result<Ticket> {
        let (index, described) = self.function_index(function)?;
        find_name(described, "output", described.outputs.iter().map(|port| port.name.as_str()), name)?;
        let last = self.frames_in_flight.runs.get(index).and_then(|run| run.last);
        last.ok_or_else(|| Error::NotRun(name.to_owned()))
    }

    fn read_from(&self, ticket: Ticket, name: &str, array: &mut Array) -> Result<()> {
        let (output, memory) = self.host_output(ticket, name)?;
        ports::read_array(output.port, output.symbols, memory, array)
    }

    /// Describes an output of a run. The output is in device memory, and also in host memory if it was requested.
    pub(super) fn run_output(&self, ticket: Ticket, name: &str) -> Result<RunOutput<'_>> {
        let RunOutputs { first, symbols, outputs } = self.frames_in_flight.run_outputs(ticket)?;
        let Some(described) = self.functions().get(*first) else { return Err(Error::Overwritten) };
        let known = described.outputs.iter().map(|port| port.name.as_str());
        let index = find_name(described, "output", known, name)?;
        let port = described.outputs.get(index).ok_or(Error::Overwritten)?;
        let requested = outputs.get(index).is_some_and(|requested| *requested);
        Ok(RunOutput { function: *first, index, port, symbols, requested })
    }

    /// Returns an output that was copied to the host, and the host memory that holds it.
    pub(super) fn host_output(&self, ticket: Ticket, name: &str) -> Result<(RunOutput<'_>, &[u8])> {
        let output = self.run_output(ticket, name)?;
        if !output.requested || self.replayer.pending(ticket.frame) {
            return Err(Error::NotRun(name.to_owned()));
        }
        let memory = self.replayer.output(ticket.frame, output.function, output.index);
        Ok((output, memory.unwrap_or_default()))
    }

    /// Submits a run and waits for its end. The next run uses the same frame.
    fn replay_with(&mut self, name: &str, outputs: Option<&[&str]>) -> Result<(Ticket, usize)> {
        let submitted = self.submit_run(name, outputs)?;
        self.replayer.wait(submitted.0.frame)?;
        Ok(submitted)
    }

    /// Submits a run in the next frame. Returns the ticket of the run and the index of the function that runs.
    /// `outputs` are the outputs to copy to the host; `None` copies all outputs.
    fn submit_run(&mut self, name: &str, outputs: Option<&[&str]>) -> Result<(Ticket, usize)> {
        let variant = self.bundle.manifest().variants.get(self.variant);
        let (first, function) = find_function(variant, name)?;
        let frames_in_flight = &mut self.frames_in_flight;
        let requested = requested_outputs(function, outputs)?;
        let frame = frames_in_flight.next;
        self.replayer.wait(frame)?;
        let (Some(run), Some(frame_state)) =
            (frames_in_flight.runs.get_mut(first), frames_in_flight.frames.get_mut(frame))
        else {
            return Err(Error::Overwritten);
        };
        // A failed run leaves no readable outputs.
        (run.last, run.replayed, frame_state.result) = (None, None, None);
        let shapes = run.inputs.iter().map(|input| input.shape.as_deref());
        let symbols = symbols::bind_symbols(function, shapes, &run.given)?;
        let index = variant.map_or(first, |variant| variant.select_specialization(first, &symbols));
        let specialization = variant.and_then(|variant| variant.functions.get(index)).unwrap_or(function);
        if let Some(in_frame) = frame_state.functions.get_mut(index)
            && in_frame.symbols.as_ref() != Some(&symbols)
        {
            // Failed writes must not leave the old parameters marked as valid.
            let known = in_frame.symbols.take();
            let max_grid = self.replayer.info().limits.max_grid;
            let (slot, grids) = self.replayer.params(frame, index).unwrap_or_default();
            params::write_params(specialization, &symbols, known.is_some(), max_grid, slot, grids)?;
            in_frame.symbols = Some(symbols.clone());
        }
        let (mut uploads, mut feeds) = (Vec::new(), Vec::new());
        if let Some(in_frame) = frame_state.functions.get_mut(first) {
            let versions = in_frame.written.iter_mut().zip(&mut in_frame.uploaded);
            let inputs = function.inputs.iter().zip(&run.inputs).zip(versions).enumerate();
            for (position, ((port, input), (written, uploaded))) in inputs {
                let range = ports::slot_range(position, port, &symbols)?;
                if let Some(fed) = &input.fed {
                    feeds.push((position, range.1, &fed.range));
                    continue;
                }
                if *written != input.version {
                    self.replayer.copy_input((input.frame, frame), (first, position), (range.1, range.2));
                    *written = input.version;
                }
                if *uploaded != input.version {
                    *uploaded = 0;
                    uploads.push(range);
                }
            }
        }
        let outputs =
            function.outputs.iter().zip(&requested).enumerate().filter(|(_, (_, requested))| **requested);
        let downloads = outputs.map(|(position, (port, _))| ports::slot_range(position, port, &symbols));
        let downloads = downloads.collect::<Result<Vec<_>>>()?;
        let conversation = frames_in_flight.conversation;
        let launch = Launch {
            described: specialization,
            frame,
            conversation,
            first,
            index,
            uploads: &uploads,
            feeds: &feeds,
            downloads: &downloads,
        };
        self.replayer.submit(&launch)?;
        if let Some(in_frame) = frame_state.functions.get_mut(first) {
            in_frame.uploaded.clone_from(&in_frame.written);
        }
        frames_in_flight.clock += 1;
        let ticket = Ticket { frame, serial: frames_in_flight.clock };
        frame_state.serial = ticket.serial;
        frame_state.result = Some(RunOutputs { first, symbols, outputs: requested });
        (run.replayed, run.last) = (Some(index), Some(ticket));
        Ok((ticket, index))
    }
}

/// Returns for each output of a function whether it is named in `names`. `None` stands for all outputs.
fn requested_outputs(function: &Function, names: Option<&[&str]>) -> Result<Vec<bool>> {
    let mut requested = vec![names.is_none(); function.outputs.len()];
    for name in names.unwrap_or_default() {
        let known = function.outputs.iter().map(|port| port.name.as_str());
        if let Some(requested) = requested.get_mut(find_name(function, "output", known, name)?) {
            *requested = true;
        }
    }
    Ok(requested)
}
