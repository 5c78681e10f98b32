//! A bundle on a device: load once, run many times.
//!
//! Loading maps and verifies the file, picks the variant that fits the device, uploads weights, creates every
//! pipeline and records every function. After that no pipeline is created and no device memory is allocated,
//! whatever shapes arrive within the bounds that the bundle was compiled for.

mod params;
mod ports;
mod symbols;

use crate::array::{Array, ArrayRef};
use crate::bundle::Bundle;
use crate::device::vulkan::{Context, Replayer, Source};
use crate::device::{DeviceInfo, choose_variant, unmet};
use crate::error::{Error, Result, Unmet};
use crate::format::{Function, Port, Variant};
use crate::threads;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How to load. The default is right for most programs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An index into [`crate::device::devices`], or part of a device's name; none: `DRIFT_DEVICE`, or the best.
    pub device: Option<String>,
    /// The target whose variant to use; none: the one that fits best.
    pub target: Option<String>,
    /// A file in which the driver's compiled pipelines are kept between starts.
    pub pipeline_cache: Option<PathBuf>,
    /// Do not compare weights and shaders with their hashes: for files whose integrity is known otherwise.
    pub trust_file: bool,
    /// Copy everything through staging buffers, as on devices whose memory the host cannot reach. For tests and
    /// for measuring what direct access is worth.
    pub always_stage: bool,
}

/// What loading took and made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Mapping the file and reading its manifest.
    pub open_time: Duration,
    /// Finding and opening the device, and meanwhile comparing hashes.
    pub device_time: Duration,
    /// Uploading weights, and meanwhile creating pipelines; then recording.
    pub prepare_time: Duration,
    /// Pipelines created so far; it does not change after loading.
    pub pipelines: u32,
    /// Allocations of device or staging memory so far; it does not change after loading.
    pub allocations: u32,
    pub allocated_bytes: u64,
}

/// When a dispatch ran, in nanoseconds since the start of its run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchTime {
    /// Index into [`Function::dispatches`].
    pub dispatch: usize,
    pub start: f64,
    pub end: f64,
}

pub struct Session {
    replayer: Replayer,
    bundle: Bundle,
    variant: usize,
    runs: Vec<Run>,
    stats: Stats,
}

/// What the next run of a function will use, and what the last one did. Of functions of one name the first has all but
/// `symbols`.
#[derive(Default)]
struct Run {
    /// The shape of the array last written to each input.
    shapes: Vec<Option<Vec<usize>>>,
    /// Inputs that were written since they were last copied to the device.
    fresh: Vec<bool>,
    /// Symbol values set by name.
    given: Vec<Option<i64>>,
    /// What parameters and grids were last computed for.
    symbols: Option<Vec<i64>>,
    /// The function of this name that ran last.
    replayed: Option<usize>,
    /// What the outputs hold the result of.
    result: Option<Vec<i64>>,
}

impl Session {
    /// Loads a bundle onto a device.
    pub fn load(path: &Path, options: &Options) -> Result<Session> {
        let start = Instant::now();
        let bundle = Bundle::open(path)?;
        Session::start(bundle, options, start)
    }

    /// Loads a bundle that is already open.
    pub fn from_bundle(bundle: Bundle, options: &Options) -> Result<Session> {
        Session::start(bundle, options, Instant::now())
    }

    /// The variant in use.
    pub fn variant(&self) -> &Variant {
        // The index was found in this list when loading.
        static NONE: std::sync::LazyLock<Variant> = std::sync::LazyLock::new(Variant::default);
        self.bundle.manifest().variants.get(self.variant).unwrap_or(&NONE)
    }

    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    pub fn device(&self) -> &DeviceInfo {
        &self.replayer.context.info
    }

    pub fn stats(&self) -> Stats {
        let context = &self.replayer.context;
        Stats {
            pipelines: context.n_pipelines.load(Ordering::Relaxed),
            allocations: context.n_allocations.load(Ordering::Relaxed),
            allocated_bytes: context.allocated.load(Ordering::Relaxed),
            ..self.stats
        }
    }

    pub fn functions(&self) -> &[Function] {
        &self.variant().functions
    }

    /// The first function of a name, which takes all sizes that any of them takes.
    pub fn function(&self, name: &str) -> Result<&Function> {
        self.index(name).map(|(_, function)| function)
    }

    /// The function of a name that ran last, whose dispatches [`Session::replay_timed`] counts; the first one before any
    /// run.
    pub fn replayed(&self, name: &str) -> Result<&Function> {
        let (index, first) = self.index(name)?;
        let last = self.runs.get(index).and_then(|run| run.replayed);
        Ok(last.and_then(|index| self.functions().get(index)).unwrap_or(first))
    }

    pub fn inputs(&self, function: &str) -> Result<&[Port]> {
        self.function(function).map(|function| function.inputs.as_slice())
    }

    pub fn outputs(&self, function: &str) -> Result<&[Port]> {
        self.function(function).map(|function| function.outputs.as_slice())
    }

    /// Zeros of the smallest shape that an input takes.
    pub fn smallest_input(&self, function: &str, name: &str) -> Result<Array> {
        let (_, described) = self.index(function)?;
        let known = described.inputs.iter().map(|port| port.name.as_str());
        let port = described.inputs.get(position(described, "input", known, name)?);
        let smallest: Vec<i64> = described.symbols.iter().map(|symbol| symbol.min).collect();
        let shape = port.map_or(Ok(Vec::new()), |port| symbols::array_shape(port, &smallest))?;
        let array = port.and_then(|port| Array::zeros(port.host_type, &shape));
        array.ok_or_else(|| Error::TooLarge { place: format!("size of `{name}`"), value: i64::MAX })
    }

    /// Runs a function on arrays and returns its outputs, in the order of [`Session::outputs`].
    pub fn run(&mut self, function: &str, inputs: &[(&str, ArrayRef<'_>)]) -> Result<Vec<Array>> {
        self.check_names(function, inputs)?;
        for (name, array) in inputs {
            self.write_input(function, name, *array)?;
        }
        self.replay(function)?;
        let names: Vec<String> = self.outputs(function)?.iter().map(|port| port.name.clone()).collect();
        names.iter().map(|name| self.read_output(function, name)).collect()
    }

    /// Sets a symbol that no input's shape gives, for all runs until it is set again.
    pub fn set_symbol(&mut self, function: &str, name: &str, value: i64) -> Result<()> {
        let (index, described) = self.index(function)?;
        let known = described.symbols.iter().map(|symbol| symbol.name.as_str());
        let position = position(described, "symbol", known, name)?;
        if let Some(given) = self.runs.get_mut(index).and_then(|run| run.given.get_mut(position)) {
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
        let Some(run) = self.runs.get_mut(index) else { return Ok(()) };
        let (Some(known), Some(fresh)) = (run.shapes.get_mut(position), run.fresh.get_mut(position)) else {
            return Ok(());
        };
        // What is half written must not pass for the array of before.
        *known = None;
        let memory = self.replayer.input(index, position).unwrap_or_default();
        ports::write(described, port, &shape, array, memory)?;
        *known = Some(array.shape.to_vec());
        *fresh = true;
        Ok(())
    }

    /// Runs a function on the inputs that were written, and makes its outputs readable.
    pub fn replay(&mut self, function: &str) -> Result<()> {
        self.replay_with(function, true).map(|_| ())
    }

    /// Runs a function without copying its outputs to the host, for benches and for functions that only change
    /// states; outputs cannot be read afterwards.
    pub fn replay_on_device(&mut self, function: &str) -> Result<()> {
        self.replay_with(function, false).map(|_| ())
    }

    /// Runs a function on the inputs of the last run, with the time of every dispatch of what
    /// [`Session::replayed`] names. The first call for a function records a command buffer for it.
    pub fn replay_timed(&mut self, function: &str) -> Result<Vec<DispatchTime>> {
        let index = self.replay_with(function, true)?;
        let functions = self.bundle.manifest().variants.get(self.variant).map(|variant| &variant.functions);
        let Some(described) = functions.and_then(|list| list.get(index)) else { return Ok(Vec::new()) };
        let ends = self.replayer.replay_timed(index, described)?;
        let starts = std::iter::once(0.0).chain(ends.iter().copied());
        let times = starts.zip(&ends).enumerate();
        Ok(times.map(|(dispatch, (start, end))| DispatchTime { dispatch, start, end: *end }).collect())
    }

    /// The value of an output in the last run.
    pub fn read_output(&self, function: &str, name: &str) -> Result<Array> {
        let mut array = Array { dtype: crate::format::HostType::F32, shape: Vec::new(), bytes: Vec::new() };
        self.read_output_into(function, name, &mut array)?;
        Ok(array)
    }

    /// The value of an output in the last run, written over `array`: its memory is used again, which for large
    /// outputs saves the time of getting fresh pages from the system.
    pub fn read_output_into(&self, function: &str, name: &str, array: &mut Array) -> Result<()> {
        let (index, described) = self.index(function)?;
        let known = described.outputs.iter().map(|port| port.name.as_str());
        let position = position(described, "output", known, name)?;
        let symbols = self.runs.get(index).and_then(|run| run.result.as_deref());
        let (Some(symbols), Some(port)) = (symbols, described.outputs.get(position)) else {
            return Err(Error::NotRun(name.to_owned()));
        };
        ports::read(port, symbols, self.replayer.output(index, position).unwrap_or_default(), array)
    }

    /// Sets every state to zero, as after loading.
    pub fn reset_states(&mut self) -> Result<()> {
        self.replayer.reset_states()
    }

    fn start(bundle: Bundle, options: &Options, start: Instant) -> Result<Session> {
        let open_time = start.elapsed();
        let (verified, opened) = threads::both(
            || if options.trust_file { Ok(()) } else { bundle.verify() },
            || open_device(&bundle, options),
        );
        let failed = || Error::corrupt("file", 0, "it could not be read to the end");
        // A damaged file is the better explanation of whatever else went wrong.
        verified.ok_or_else(failed)??;
        let (variant, context) = opened.ok_or_else(failed)??;
        let device_time = start.elapsed() - open_time;
        let chosen = bundle.manifest().variants.get(variant).ok_or(Error::NotABundle)?;
        let replayer = Replayer::load(
            &context,
            &Source {
                manifest: bundle.manifest(),
                variant: chosen,
                file: bundle.bytes(),
                cache_path: options.pipeline_cache.as_deref(),
                cache_key: &bundle.hash().0,
            },
        )?;
        let run = |function: &Function| Run {
            shapes: vec![None; function.inputs.len()],
            fresh: vec![false; function.inputs.len()],
            given: vec![None; function.symbols.len()],
            ..Run::default()
        };
        let runs = chosen.functions.iter().map(run).collect();
        let prepare_time = start.elapsed() - open_time - device_time;
        let stats = Stats { open_time, device_time, prepare_time, ..Stats::default() };
        Ok(Session { replayer, bundle, variant, runs, stats })
    }

    /// Returns the index of the function that ran.
    fn replay_with(&mut self, name: &str, download: bool) -> Result<usize> {
        let variant = self.bundle.manifest().variants.get(self.variant);
        let (first, function) = find(variant, name)?;
        let Some(run) = self.runs.get_mut(first) else { return Ok(first) };
        (run.result, run.replayed) = (None, None);
        let symbols = symbols::solve(function, &run.shapes, &run.given)?;
        let index = variant.map_or(first, |variant| variant.specialized(first, &symbols));
        let special = variant.and_then(|variant| variant.functions.get(index)).unwrap_or(function);
        let Some(known) = self.runs.get_mut(index).map(|run| &mut run.symbols) else { return Ok(first) };
        if known.as_ref() != Some(&symbols) {
            // What is half written must not pass for the parameters of before.
            *known = None;
            let max_grid = self.replayer.context.info.limits.max_grid;
            let (slot, grids) = self.replayer.params(index).unwrap_or_default();
            params::write(special, &symbols, max_grid, slot, grids)?;
            *known = Some(symbols.clone());
        }
        let Some(run) = self.runs.get_mut(first) else { return Ok(first) };
        let fresh = |(position, port)| {
            let fresh = run.fresh.get(position).copied().unwrap_or(false);
            fresh.then_some((position, port))
        };
        let inputs = function.inputs.iter().enumerate().filter_map(fresh);
        let uploads = inputs
            .map(|(position, port)| ports::range(position, port, &symbols))
            .collect::<Result<Vec<_>>>()?;
        let outputs = function.outputs.iter().enumerate().filter(|_| download);
        let downloads = outputs.map(|(position, port)| ports::range(position, port, &symbols));
        self.replayer.replay(first, index, &uploads, &downloads.collect::<Result<Vec<_>>>()?)?;
        run.fresh.fill(false);
        run.replayed = Some(index);
        run.result = download.then_some(symbols);
        Ok(index)
    }

    /// Whether exactly the inputs of a function are given.
    fn check_names(&self, function: &str, inputs: &[(&str, ArrayRef<'_>)]) -> Result<()> {
        let (_, described) = self.index(function)?;
        for (name, _) in inputs {
            position(described, "input", described.inputs.iter().map(|port| port.name.as_str()), name)?;
        }
        match described.inputs.iter().find(|port| !inputs.iter().any(|(name, _)| *name == port.name)) {
            Some(port) => {
                Err(Error::Missing { function: function.to_owned(), kind: "input", name: port.name.clone() })
            }
            None => Ok(()),
        }
    }

    fn index(&self, name: &str) -> Result<(usize, &Function)> {
        find(self.bundle.manifest().variants.get(self.variant), name)
    }
}

/// Chooses a device and a variant, and opens the former for the latter.
fn open_device(bundle: &Bundle, options: &Options) -> Result<(usize, std::sync::Arc<Context>)> {
    let candidate = crate::device::vulkan::Candidate::choose(options.device.as_deref())?;
    let manifest = bundle.manifest();
    let index = match &options.target {
        None => choose_variant(manifest, &candidate.info)?,
        Some(target) => {
            let index = manifest.variants.iter().position(|variant| variant.target == *target);
            let known = || manifest.variants.iter().map(|variant| variant.target.clone()).collect();
            index.ok_or_else(|| Error::NoSuchTarget { name: target.clone(), known: known() })?
        }
    };
    let variant = manifest.variants.get(index).ok_or(Error::NotABundle)?;
    let reasons = unmet(variant, &candidate.info);
    if !reasons.is_empty() {
        let variants = vec![Unmet { target: variant.target.clone(), reasons }];
        return Err(Error::Unmet { device: candidate.info.name.clone(), variants });
    }
    Ok((index, candidate.open(variant, options.always_stage)?))
}

fn find<'a>(variant: Option<&'a Variant>, name: &str) -> Result<(usize, &'a Function)> {
    let functions = variant.map_or(&[][..], |variant| &variant.functions);
    functions.iter().enumerate().find(|(_, function)| function.name == name).ok_or_else(|| {
        Error::NoSuchFunction {
            name: name.to_owned(),
            known: functions.iter().map(|function| function.name.clone()).collect(),
        }
    })
}

fn position<'a>(
    function: &Function,
    kind: &'static str,
    known: impl Iterator<Item = &'a str>,
    name: &str,
) -> Result<usize> {
    let known: Vec<&str> = known.collect();
    known.iter().position(|known| *known == name).ok_or_else(|| Error::NoSuchName {
        function: function.name.clone(),
        kind,
        name: name.to_owned(),
        known: known.into_iter().map(str::to_owned).collect(),
    })
}
