//! A bundle on a device: load once, run many times.
//!
//! Loading maps and verifies the file, picks the variant that fits the device, uploads weights, creates every
//! pipeline and records every function, much of it at the same time. After that no pipeline is created and no
//! device memory is allocated, whatever shapes arrive within the bounds that the bundle was compiled for.
//!
//! Runs are waited for ([`Session::run`], [`Session::replay`]) or submitted ([`Session::submit`]), several at once. What
//! a run has for itself is a frame; they take turns. States come in sets, one for each conversation.

mod flights;
mod memory;
mod open;
mod params;
mod ports;
#[cfg(unix)]
mod shared;
mod states;
mod symbols;

use crate::array::{Array, ArrayRef};
use crate::bundle::Bundle;
use crate::device::DeviceInfo;
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::device::backend::{self, Backend, Loading, Replayer};
use crate::error::{Error, Result};
use crate::format::{Function, Port, Variant};
use crate::threads;
use open::{find, open_device, position};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use flights::Ticket;
pub use memory::{DeviceArray, View};

/// How to load. The default is right for most programs.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// An index into the devices that the backend lists, or part of a device's name; none: `DRIFT_DEVICE`, or the best.
    pub device: Option<String>,
    /// What drives it; Vulkan where this crate is built with that.
    pub backend: Backend,
    /// The target whose variant to use; none: the one that fits best.
    pub target: Option<String>,
    /// A file in which the driver's compiled pipelines are kept between starts.
    pub pipeline_cache: Option<PathBuf>,
    /// Do not compare weights and shaders with their hashes: for files whose integrity is known otherwise.
    pub trust_file: bool,
    /// Copy everything through staging buffers, as on devices whose memory the host cannot reach. For tests and
    /// for measuring what direct access is worth.
    pub always_stage: bool,
    /// How many runs may be in flight at once; 0 counts as 1. Each has inputs, outputs and parameters of its own.
    pub frames: usize,
    /// How many sets of states there are, for as many conversations over one set of weights; 0 counts as 1.
    pub conversations: usize,
}

/// What loading took and made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Mapping the file and reading its manifest.
    pub open_time: Duration,
    /// Finding and opening the device.
    pub device_time: Duration,
    /// Uploading weights, creating pipelines and recording. What comparing hashes takes longer than all of this counts too.
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
    flights: flights::Flights,
    conversations: usize,
    stats: Stats,
}

/// A variant on a device, and what that took.
struct Prepared {
    variant: usize,
    replayer: Replayer,
    device_time: Duration,
    time: Duration,
}

/// Opens a device for all bundles, and loads a variant of each.
fn prepare_all(bundles: &[Bundle], options: &Options) -> Result<Vec<Prepared>> {
    let start = Instant::now();
    let (variants, context) = open_device(bundles, options)?;
    let device_time = start.elapsed();
    let mut all = Vec::with_capacity(bundles.len());
    for (bundle, variant) in bundles.iter().zip(variants) {
        let start = Instant::now();
        let loading = Loading {
            manifest: bundle.manifest(),
            variant: bundle.manifest().variants.get(variant).ok_or(Error::NotABundle)?,
            file: bundle.bytes(),
            cache: (options.pipeline_cache.as_deref(), &bundle.hash().0),
            frames: options.frames.max(1),
            conversations: options.conversations.max(1),
        };
        let replayer = backend::load(&context, &loading)?;
        all.push(Prepared { variant, replayer, device_time, time: start.elapsed() });
    }
    Ok(all)
}

impl Session {
    /// Loads a bundle onto a device.
    pub fn load(path: &Path, options: &Options) -> Result<Session> {
        let start = Instant::now();
        let bundle = Bundle::open(path)?;
        Session::single(bundle, options, start)
    }

    /// Loads a bundle that is already open.
    pub fn from_bundle(bundle: Bundle, options: &Options) -> Result<Session> {
        Session::single(bundle, options, Instant::now())
    }

    /// Loads several bundles onto one device, opened for all of them, so that one session's outputs can be
    /// [fed](Session::feed) to another. Counts of [`Session::stats`] are those of all together.
    pub fn load_together(bundles: Vec<Bundle>, options: &Options) -> Result<Vec<Session>> {
        Session::start(bundles, options, Instant::now())
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
        self.replayer.info()
    }

    pub fn stats(&self) -> Stats {
        let counts = self.replayer.counts();
        Stats {
            pipelines: counts.pipelines.load(Ordering::Relaxed),
            allocations: counts.allocations.load(Ordering::Relaxed),
            allocated_bytes: counts.allocated.load(Ordering::Relaxed),
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
        let last = self.flights.replayed(index);
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
        let names: Vec<String> = self.outputs(function)?.iter().map(|port| port.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.run_for(function, inputs, &names)
    }

    /// Runs a function on arrays and returns the outputs that are named; others are not copied to the host.
    pub fn run_for(
        &mut self,
        function: &str,
        inputs: &[(&str, ArrayRef<'_>)],
        outputs: &[&str],
    ) -> Result<Vec<Array>> {
        self.check_names(function, inputs)?;
        for (name, array) in inputs {
            self.write_input(function, name, *array)?;
        }
        self.replay_for(function, outputs)?;
        outputs.iter().map(|name| self.read_output(function, name)).collect()
    }

    fn single(bundle: Bundle, options: &Options, start: Instant) -> Result<Session> {
        let mut sessions = Session::start(vec![bundle], options, start)?;
        sessions.pop().ok_or(Error::NotABundle)
    }

    fn start(bundles: Vec<Bundle>, options: &Options, start: Instant) -> Result<Vec<Session>> {
        let open_time = start.elapsed();
        let verify = |weights: bool| match options.trust_file {
            true => Ok(()),
            false => bundles.iter().try_for_each(|bundle| bundle.verify_weights(weights)),
        };
        verify(false)?;
        // Nothing computes with the weights before the session is returned, so they are compared on their way.
        let (verified, prepared) = threads::both(|| verify(true), || prepare_all(&bundles, options));
        let failed = || Error::corrupt("file", 0, "it could not be read to the end");
        // A damaged file is the better explanation of whatever else went wrong.
        verified.ok_or_else(failed)??;
        let prepared = prepared.ok_or_else(failed)??;
        let waited = start.elapsed() - open_time;
        let own = prepared.iter().map(|prepared| prepared.time).sum::<Duration>();
        let (frames, conversations) = (options.frames.max(1), options.conversations.max(1));
        let session = |(bundle, prepared): (Bundle, Prepared)| {
            let Prepared { variant, replayer, device_time, time } = prepared;
            let functions =
                bundle.manifest().variants.get(variant).map_or(&[][..], |chosen| &chosen.functions);
            let flights = flights::Flights::new(functions, frames);
            let prepare_time = time + waited.saturating_sub(device_time + own);
            let stats = Stats { open_time, device_time, prepare_time, ..Stats::default() };
            Session { replayer, bundle, variant, flights, conversations, stats }
        };
        Ok(bundles.into_iter().zip(prepared).map(session).collect())
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
