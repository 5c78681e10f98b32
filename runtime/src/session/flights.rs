//! Runs: inputs in, submission, waiting, outputs out.
//!
//! Frames take turns, and each remembers what it holds: which version of each input, which parameters, and which run's
//! outputs. A frame that another run needs is waited for.

use super::memory::DeviceArray;
use super::open::{find, position};
use super::{DispatchTime, Session, params, ports, symbols};
use crate::array::{Array, ArrayRef};
use crate::device::backend::Launch;
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::error::{Error, Result};
use crate::format::{Function, HostType, Port};

/// A run that was submitted. Its outputs can be read until as many further runs as there are frames were submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    frame: usize,
    /// Which of all runs it is.
    serial: u64,
}

impl Ticket {
    pub(super) fn frame(self) -> usize {
        self.frame
    }
}

/// What the next runs will use, and what the last ones did.
pub(super) struct Flights {
    runs: Vec<Run>,
    frames: Vec<Frame>,
    /// The frame of the next run.
    next: usize,
    /// Whose states the next run uses.
    pub(super) conversation: usize,
    /// Counts runs and written inputs.
    clock: u64,
}

/// A function. Of functions of one name the first has all.
#[derive(Default)]
struct Run {
    inputs: Vec<Input>,
    /// Symbol values set by name.
    given: Vec<Option<i64>>,
    /// The function of this name that ran last.
    replayed: Option<usize>,
    /// The last run.
    last: Option<Ticket>,
}

/// What was last written to an input.
#[derive(Clone, Default)]
struct Input {
    shape: Option<Vec<usize>>,
    /// The frame that it was written to, and when; 0 before it was.
    frame: usize,
    version: u64,
    /// Where it comes from on the device, instead of the host.
    fed: Option<DeviceArray>,
}

/// What a frame holds.
struct Frame {
    /// The run whose outputs it has.
    serial: u64,
    result: Option<Outcome>,
    /// For each function.
    functions: Vec<Held>,
}

/// What a run was.
struct Outcome {
    first: usize,
    symbols: Vec<i64>,
    /// Which outputs come to the host.
    outputs: Vec<bool>,
}

/// An output of a run.
pub(super) struct Produced<'a> {
    /// The indices of the function and of the output.
    pub(super) function: usize,
    pub(super) index: usize,
    pub(super) port: &'a Port,
    pub(super) symbols: &'a [i64],
    wanted: bool,
}

/// What a frame holds of a function.
#[derive(Clone)]
struct Held {
    /// The versions of the inputs that the host has written, and those that the device has.
    written: Vec<u64>,
    uploaded: Vec<u64>,
    /// What parameters and grids were last computed for.
    symbols: Option<Vec<i64>>,
}

impl Flights {
    pub(super) fn new(functions: &[Function], n_frames: usize) -> Flights {
        let held = |function: &Function| Held {
            written: vec![0; function.inputs.len()],
            uploaded: vec![0; function.inputs.len()],
            symbols: None,
        };
        let frame = |_| Frame { serial: 0, result: None, functions: functions.iter().map(held).collect() };
        let run = |function: &Function| Run {
            inputs: vec![Input::default(); function.inputs.len()],
            given: vec![None; function.symbols.len()],
            ..Run::default()
        };
        Flights {
            runs: functions.iter().map(run).collect(),
            frames: (0..n_frames).map(frame).collect(),
            next: 0,
            conversation: 0,
            clock: 0,
        }
    }

    /// The function that ran last where the one of this index was asked for.
    pub(super) fn replayed(&self, function: usize) -> Option<usize> {
        self.runs.get(function).and_then(|run| run.replayed)
    }

    /// The frame that inputs are written to.
    pub(super) fn next(&self) -> usize {
        self.next
    }

    /// Notes that an input of this shape was written to a frame.
    pub(super) fn written(&mut self, frame: usize, function: usize, input: usize, shape: &[usize]) {
        self.clock += 1;
        let held = self.frames.get_mut(frame).and_then(|frame| frame.functions.get_mut(function));
        if let Some(written) = held.and_then(|held| held.written.get_mut(input)) {
            *written = self.clock;
        }
        self.set(
            function,
            input,
            Input { shape: Some(shape.to_vec()), frame, version: self.clock, fed: None },
        );
    }

    /// Notes that an input comes from memory of the device.
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

    /// The frame of a run, while it has its outputs.
    fn outcome(&self, ticket: Ticket) -> Result<&Outcome> {
        let frame = self.frames.get(ticket.frame).filter(|frame| frame.serial == ticket.serial);
        frame.and_then(|frame| frame.result.as_ref()).ok_or(Error::Overwritten)
    }
}

impl Session {
    /// How many runs may be in flight at once.
    pub fn frames(&self) -> usize {
        self.flights.frames.len()
    }

    /// Sets a symbol that no input's shape gives, for all runs until it is set again.
    pub fn set_symbol(&mut self, function: &str, name: &str, value: i64) -> Result<()> {
        let (index, described) = self.index(function)?;
        let known = described.symbols.iter().map(|symbol| symbol.name.as_str());
        let position = position(described, "symbol", known, name)?;
        if let Some(given) = self.flights.runs.get_mut(index).and_then(|run| run.given.get_mut(position)) {
            *given = Some(value);
        }
        Ok(())
    }

    /// Sets an input for all runs until it is set again.
    pub fn write_input(&mut self, function: &str, name: &str, array: ArrayRef<'_>) -> Result<()> {
        let (index, described) = find(self.bundle.manifest().variants.get(self.variant), function)?;
        let known = described.inputs.iter().map(|port| port.name.as_str());
        let position = position(described, "input", known, name)?;
        let Some(port) = described.inputs.get(position) else { return Ok(()) };
        let shape = ports::check_array(described, port, array)?;
        let flights = &mut self.flights;
        let frame = flights.next;
        self.replayer.wait(frame)?;
        // What is half written must not pass for the array of before.
        flights.set(index, position, Input::default());
        let memory = self.replayer.input(frame, index, position).unwrap_or_default();
        ports::write(described, port, &shape, array, memory)?;
        flights.written(frame, index, position, array.shape);
        Ok(())
    }

    /// Runs a function on the inputs that were written, and makes its outputs readable.
    pub fn replay(&mut self, function: &str) -> Result<()> {
        self.replay_with(function, None).map(|_| ())
    }

    /// The same for the outputs that are named alone; others are not copied to the host.
    pub fn replay_for(&mut self, function: &str, outputs: &[&str]) -> Result<()> {
        self.replay_with(function, Some(outputs)).map(|_| ())
    }

    /// Runs a function without copying its outputs to the host, for benches and for functions that only change
    /// states; outputs cannot be read afterwards.
    pub fn replay_on_device(&mut self, function: &str) -> Result<()> {
        self.replay_with(function, Some(&[])).map(|_| ())
    }

    /// Starts a run of a function on the inputs that were written, and returns without waiting for it. Only the outputs
    /// named come to the host. Runs are carried out in the order of their submission; where as many are in flight as there
    /// are frames, the oldest is waited for.
    pub fn submit(&mut self, function: &str, outputs: &[&str]) -> Result<Ticket> {
        let (ticket, _) = self.launch(function, Some(outputs))?;
        self.flights.next = (ticket.frame + 1) % self.flights.frames.len().max(1);
        Ok(ticket)
    }

    /// Waits for a run.
    ///
    /// # Errors
    /// When its frame was used again since, or the device fails.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        self.flights.outcome(ticket)?;
        self.replayer.wait(ticket.frame)
    }

    /// Waits for a run, and writes an output that was asked for over `array`, whose memory is used again.
    pub fn collect(&mut self, ticket: Ticket, output: &str, array: &mut Array) -> Result<()> {
        self.wait(ticket)?;
        self.read_from(ticket, output, array)
    }

    /// Runs a function on the inputs of the last run, with the time of every dispatch of what
    /// [`Session::replayed`] names. The first call for a function records a command buffer for it.
    pub fn replay_timed(&mut self, function: &str) -> Result<Vec<DispatchTime>> {
        let (ticket, index) = self.replay_with(function, None)?;
        let functions = self.bundle.manifest().variants.get(self.variant).map(|variant| &variant.functions);
        let Some(described) = functions.and_then(|list| list.get(index)) else { return Ok(Vec::new()) };
        let conversation = self.flights.conversation;
        let ends = self.replayer.replay_timed(ticket.frame, conversation, index, described)?;
        let starts = std::iter::once(0.0).chain(ends.iter().copied());
        let times = starts.zip(&ends).enumerate();
        Ok(times.map(|(dispatch, (start, end))| DispatchTime { dispatch, start, end: *end }).collect())
    }

    /// The value of an output in the last run.
    pub fn read_output(&self, function: &str, name: &str) -> Result<Array> {
        let mut array = Array { dtype: HostType::F32, shape: Vec::new(), bytes: Vec::new() };
        self.read_output_into(function, name, &mut array)?;
        Ok(array)
    }

    /// The same of a run that was waited for.
    pub fn read_output_of(&self, ticket: Ticket, name: &str, bytes: &mut [u8]) -> Result<()> {
        let (produced, memory) = self.returned(ticket, name)?;
        ports::read_to(produced.port, produced.symbols, memory, bytes)
    }

    /// The value of an output in the last run, written over as many bytes as its elements take.
    ///
    /// # Errors
    /// When there are more or fewer.
    pub fn read_output_to(&self, function: &str, name: &str, bytes: &mut [u8]) -> Result<()> {
        self.read_output_of(self.last(function, name)?, name, bytes)
    }

    /// The value of an output in the last run, written over `array`: its memory is used again, which for large
    /// outputs saves the time of getting fresh pages from the system.
    pub fn read_output_into(&self, function: &str, name: &str, array: &mut Array) -> Result<()> {
        self.read_from(self.last(function, name)?, name, array)
    }

    /// The last run of a function, which has an output of this name.
    pub(super) fn last(&self, function: &str, name: &str) -> Result<Ticket> {
        let (index, described) = self.index(function)?;
        position(described, "output", described.outputs.iter().map(|port| port.name.as_str()), name)?;
        let last = self.flights.runs.get(index).and_then(|run| run.last);
        last.ok_or_else(|| Error::NotRun(name.to_owned()))
    }

    fn read_from(&self, ticket: Ticket, name: &str, array: &mut Array) -> Result<()> {
        let (produced, memory) = self.returned(ticket, name)?;
        ports::read(produced.port, produced.symbols, memory, array)
    }

    /// An output of a run, whether or not the host has it.
    pub(super) fn produced(&self, ticket: Ticket, name: &str) -> Result<Produced<'_>> {
        let Outcome { first, symbols, outputs } = self.flights.outcome(ticket)?;
        let Some(described) = self.functions().get(*first) else { return Err(Error::Overwritten) };
        let known = described.outputs.iter().map(|port| port.name.as_str());
        let index = position(described, "output", known, name)?;
        let port = described.outputs.get(index).ok_or(Error::Overwritten)?;
        let wanted = outputs.get(index).is_some_and(|wanted| *wanted);
        Ok(Produced { function: *first, index, port, symbols, wanted })
    }

    /// An output of a run that the host has, and its memory.
    pub(super) fn returned(&self, ticket: Ticket, name: &str) -> Result<(Produced<'_>, &[u8])> {
        let produced = self.produced(ticket, name)?;
        if !produced.wanted || self.replayer.pending(ticket.frame) {
            return Err(Error::NotRun(name.to_owned()));
        }
        let memory = self.replayer.output(ticket.frame, produced.function, produced.index);
        Ok((produced, memory.unwrap_or_default()))
    }

    /// Runs and waits; the frame stays the next one.
    fn replay_with(&mut self, name: &str, outputs: Option<&[&str]>) -> Result<(Ticket, usize)> {
        let launched = self.launch(name, outputs)?;
        self.replayer.wait(launched.0.frame)?;
        Ok(launched)
    }

    /// Submits a run in the next frame, and returns the index of the function that runs. `outputs` are those that come to
    /// the host; none: all.
    fn launch(&mut self, name: &str, outputs: Option<&[&str]>) -> Result<(Ticket, usize)> {
        let variant = self.bundle.manifest().variants.get(self.variant);
        let (first, function) = find(variant, name)?;
        let flights = &mut self.flights;
        let wanted = wanted(function, outputs)?;
        let frame = flights.next;
        self.replayer.wait(frame)?;
        let (Some(run), Some(held)) = (flights.runs.get_mut(first), flights.frames.get_mut(frame)) else {
            return Err(Error::Overwritten);
        };
        // A run that fails leaves nothing to read.
        (run.last, run.replayed, held.result) = (None, None, None);
        let shapes = run.inputs.iter().map(|input| input.shape.as_deref());
        let symbols = symbols::solve(function, shapes, &run.given)?;
        let index = variant.map_or(first, |variant| variant.specialized(first, &symbols));
        let special = variant.and_then(|variant| variant.functions.get(index)).unwrap_or(function);
        if let Some(held) = held.functions.get_mut(index)
            && held.symbols.as_ref() != Some(&symbols)
        {
            // What is half written must not pass for the parameters of before.
            let known = held.symbols.take();
            let max_grid = self.replayer.info().limits.max_grid;
            let (slot, grids) = self.replayer.params(frame, index).unwrap_or_default();
            params::write(special, &symbols, known.is_some(), max_grid, slot, grids)?;
            held.symbols = Some(symbols.clone());
        }
        let (mut uploads, mut feeds) = (Vec::new(), Vec::new());
        if let Some(held) = held.functions.get_mut(first) {
            let versions = held.written.iter_mut().zip(&mut held.uploaded);
            let inputs = function.inputs.iter().zip(&run.inputs).zip(versions).enumerate();
            for (position, ((port, input), (written, uploaded))) in inputs {
                let range = ports::range(position, port, &symbols)?;
                if let Some(fed) = &input.fed {
                    feeds.push((position, range.1, &fed.range));
                    continue;
                }
                if *written != input.version {
                    self.replayer.carry((input.frame, frame), (first, position), (range.1, range.2));
                    *written = input.version;
                }
                if *uploaded != input.version {
                    *uploaded = 0;
                    uploads.push(range);
                }
            }
        }
        let outputs = function.outputs.iter().zip(&wanted).enumerate().filter(|(_, (_, wanted))| **wanted);
        let downloads = outputs.map(|(position, (port, _))| ports::range(position, port, &symbols));
        let downloads = downloads.collect::<Result<Vec<_>>>()?;
        let conversation = flights.conversation;
        let launch = Launch {
            described: special,
            frame,
            conversation,
            first,
            index,
            uploads: &uploads,
            feeds: &feeds,
            downloads: &downloads,
        };
        self.replayer.submit(&launch)?;
        if let Some(held) = held.functions.get_mut(first) {
            held.uploaded.clone_from(&held.written);
        }
        flights.clock += 1;
        let ticket = Ticket { frame, serial: flights.clock };
        held.serial = ticket.serial;
        held.result = Some(Outcome { first, symbols, outputs: wanted });
        (run.replayed, run.last) = (Some(index), Some(ticket));
        Ok((ticket, index))
    }
}

/// For each output whether it is among those named; without names all are.
fn wanted(function: &Function, names: Option<&[&str]>) -> Result<Vec<bool>> {
    let mut wanted = vec![names.is_none(); function.outputs.len()];
    for name in names.unwrap_or_default() {
        let known = function.outputs.iter().map(|port| port.name.as_str());
        if let Some(wanted) = wanted.get_mut(position(function, "output", known, name)?) {
            *wanted = true;
        }
    }
    Ok(wanted)
}
