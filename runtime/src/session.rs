//! A bundle on a device: load once, run many times.
//!
//! Loading maps and verifies the file, selects the variant that fits the device, uploads weights, creates every
//! pipeline and records every function. Much of this happens in parallel. Afterwards no pipeline is created and
//! no device memory is allocated for any input shapes within the bounds that the bundle was compiled for.
//!
//! Runs are synchronous ([`Session::run`], [`Session::replay`]) or asynchronous ([`Session::submit`]). Each run
//! in flight uses a frame with its own inputs, outputs and parameters. Each conversation has its own set of
//! states, such as KV caches.

mod device_array;
#[cfg(unix)]
mod external_memory;
mod frames;
mod memory;
mod open;
mod options;
mod params;
mod ports;
mod self_test;
mod states;
mod symbols;

use crate::array::{Array, ArrayRef};
use crate::bundle::Bundle;
use crate::device::DeviceInfo;
#[cfg(not(feature = "wgpu"))]
use crate::device::backend::Replay;
use crate::device::backend::{self, LoadRequest, Replayer};
use crate::error::{Error, Result};
use crate::format::{Function, Port, Variant};
use crate::progress::PipelineCounter;
use crate::threads;
use open::{find_function, find_name, open_device};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use device_array::DeviceArray;
pub use frames::Ticket;
pub use memory::View;
pub use options::Options;

/// Durations of the steps of loading a session, and numbers of resources that loading created.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Time to map the file and read its manifest.
    pub open_time: Duration,
    /// Time to find and open the device.
    pub device_time: Duration,
    /// Time to upload weights, create pipelines and record functions. Hash verification runs in parallel; if it takes
    /// longer, its additional time is included.
    pub prepare_time: Duration,
    /// Number of pipelines created. It does not change after loading.
    pub pipelines: u32,
    /// Number of allocations of device or staging memory. It does not change after loading.
    pub allocations: u32,
    pub allocated_bytes: u64,
}

/// Start and end of a dispatch, in nanoseconds since the start of its run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DispatchTime {
    /// Index into [`Function::dispatches`].
    pub dispatch: usize,
    pub start: f64,
    pub end: f64,
}

/// A bundle loaded on a device.
pub struct Session {
    replayer: Replayer,
    bundle: Bundle,
    variant: usize,
    frames_in_flight: frames::FramesInFlight,
    conversations: usize,
    stats: Stats,
}

/// A variant loaded on a device, with load times.
struct Prepared {
    variant: usize,
    replayer: Replayer,
    device_time: Duration,
    time: Duration,
}

/// Opens one device for all bundles, and loads a variant of each bundle.
fn prepare_all(bundles: &[Bundle], options: &Options) -> Result<Vec<Prepared>> {
    let start = Instant::now();
    let (variants, context) = open_device(bundles, options)?;
    let device_time = start.elapsed();
    let loaded = bundles.iter().zip(&variants);
    let loaded = loaded.filter_map(|(bundle, index)| bundle.manifest().variants.get(*index));
    let total = loaded.map(|variant| variant.pipelines.len()).sum();
    let progress = PipelineCounter::new(options.on_progress.as_ref(), total);
    let mut all = Vec::with_capacity(bundles.len());
    for (bundle, variant) in bundles.iter().zip(variants) {
        let start = Instant::now();
        let loading = LoadRequest {
            manifest: bundle.manifest(),
            variant: bundle.manifest().variants.get(variant).ok_or(Error::NotABundle)?,
            file: bundle.bytes(),
            cache: (options.pipeline_cache.as_deref(), &bundle.hash().0),
            frames: options.frames.max(1),
            conversations: options.conversations.max(1),
            progress: &progress,
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
        Session::load_single(bundle, options, start)
    }

    /// Loads a bundle that is already open.
    pub fn from_bundle(bundle: Bundle, options: &Options) -> Result<Session> {
        Session::load_single(bundle, options, Instant::now())
    }

    /// Loads several bundles onto one device, so that outputs of one session can be [fed](Session::feed) to
    /// another. The counts in [`Session::stats`] are totals for the device.
    pub fn load_together(bundles: Vec<Bundle>, options: &Options) -> Result<Vec<Session>> {
        Session::load_all(bundles, options, Instant::now())
    }

    /// Returns the bundle's variant in use.
    pub fn variant(&self) -> &Variant {
        // Loading found the index in this list.
        static NONE: std::sync::LazyLock<Variant> = std::sync::LazyLock::new(Variant::default);
        self.bundle.manifest().variants.get(self.variant).unwrap_or(&NONE)
    }

    /// The bundle that was loaded.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Properties of the device.
    pub fn device(&self) -> &DeviceInfo {
        self.replayer.info()
    }

    /// Durations of the steps of loading this session, and numbers of resources that loading created.
    pub fn stats(&self) -> Stats {
        let counts = self.replayer.counts();
        Stats {
            pipelines: counts.pipelines.load(Ordering::Relaxed),
            allocations: counts.allocations.load(Ordering::Relaxed),
            allocated_bytes: counts.allocated.load(Ordering::Relaxed),
            ..self.stats
        }
    }

    /// Returns all functions of the variant, including specializations.
    pub fn functions(&self) -> &[Function] {
        &self.variant().functions
    }

    /// Returns the general function of this name. It supports all symbol values that the entry point was
    /// compiled for.
    pub fn function(&self, name: &str) -> Result<&Function> {
        self.function_index(name).map(|(_, function)| function)
    }

    /// Returns the function of this name that ran last: the general function or a specialization.
    /// [`Session::replay_timed`] returns times of its dispatches. Before any run, returns the general function.
    pub fn last_replayed(&self, name: &str) -> Result<&Function> {
        let (index, first) = self.function_index(name)?;
        let last = self.frames_in_flight.last_replayed(index);
        Ok(last.and_then(|index| self.functions().get(index)).unwrap_or(first))
    }

    /// Input ports of a function.
    pub fn inputs(&self, function: &str) -> Result<&[Port]> {
        self.function(function).map(|function| function.inputs.as_slice())
    }

    /// Output ports of a function.
    pub fn outputs(&self, function: &str) -> Result<&[Port]> {
        self.function(function).map(|function| function.outputs.as_slice())
    }

    /// Returns an array of zeros with the smallest shape that an input supports.
    pub fn smallest_input(&self, function: &str, name: &str) -> Result<Array> {
        let (_, described) = self.function_index(function)?;
        let known = described.inputs.iter().map(|port| port.name.as_str());
        let port = described.inputs.get(find_name(described, "input", known, name)?);
        let smallest: Vec<i64> = described.symbols.iter().map(|symbol| symbol.min).collect();
        let shape = port.map_or(Ok(Vec::new()), |port| symbols::array_shape(port, &smallest))?;
        let array = port.and_then(|port| Array::zeros(port.host_type, &shape));
        array.ok_or_else(|| Error::TooLarge { place: format!("size of `{name}`"), value: i64::MAX })
    }

    /// Runs a function and waits for the end of the run. Returns all outputs in the order of [`Session::outputs`].
    pub fn run(&mut self, function: &str, inputs: &[(&str, ArrayRef<'_>)]) -> Result<Vec<Array>> {
        let names: Vec<String> = self.outputs(function)?.iter().map(|port| port.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.run_for(function, inputs, &names)
    }

    /// Runs a function and waits for the end of the run. Returns only the named outputs; other outputs are not copied
    /// to the host.
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

    fn load_single(bundle: Bundle, options: &Options, start: Instant) -> Result<Session> {
        let mut sessions = Session::load_all(vec![bundle], options, start)?;
        sessions.pop().ok_or(Error::NotABundle)
    }

    fn load_all(bundles: Vec<Bundle>, options: &Options, start: Instant) -> Result<Vec<Session>> {
        let open_time = start.elapsed();
        #[cfg(feature = "signatures")]
        if let Some(keys) = &options.trusted_keys {
            bundles.iter().try_for_each(|bundle| bundle.check_signature(keys).map(|_| ()))?;
        }
        let verify = |weights: bool| match options.skips_hashes() {
            true => Ok(()),
            false => bundles.iter().try_for_each(|bundle| bundle.verify_weights(weights)),
        };
        verify(false)?;
        // Weights are verified during the upload, since nothing computes with them before the session is
        // returned.
        let (verified, prepared) = threads::join(|| verify(true), || prepare_all(&bundles, options));
        let failed = || Error::corrupt("file", 0, "verification did not finish");
        // A damaged file is the likely cause of any other error.
        verified.ok_or_else(failed)??;
        let prepared = prepared.ok_or_else(failed)??;
        let waited = start.elapsed() - open_time;
        let own_time = prepared.iter().map(|prepared| prepared.time).sum::<Duration>();
        let (frames, conversations) = (options.frames.max(1), options.conversations.max(1));
        let session = |(bundle, prepared): (Bundle, Prepared)| {
            let Prepared { variant, replayer, device_time, time } = prepared;
            let functions =
                bundle.manifest().variants.get(variant).map_or(&[][..], |variant| &variant.functions);
            let frames_in_flight = frames::FramesInFlight::new(functions, frames);
            let prepare_time = time + waited.saturating_sub(device_time + own_time);
            let stats = Stats { open_time, device_time, prepare_time, ..Stats::default() };
            Session { replayer, bundle, variant, frames_in_flight, conversations, stats }
        };
        Ok(bundles.into_iter().zip(prepared).map(session).collect())
    }

    /// Checks that the names in `inputs` are exactly the inputs of a function.
    fn check_names(&self, function: &str, inputs: &[(&str, ArrayRef<'_>)]) -> Result<()> {
        let (_, described) = self.function_index(function)?;
        for (name, _) in inputs {
            find_name(described, "input", described.inputs.iter().map(|port| port.name.as_str()), name)?;
        }
        match described.inputs.iter().find(|port| !inputs.iter().any(|(name, _)| *name == port.name)) {
            Some(port) => {
                Err(Error::Missing { function: function.to_owned(), kind: "input", name: port.name.clone() })
            }
            None => Ok(()),
        }
    }

    fn function_index(&self, name: &str) -> Result<(usize, &Function)> {
        find_function(self.bundle.manifest().variants.get(self.variant), name)
    }
}
