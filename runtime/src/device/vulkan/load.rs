//! Loads a variant: memory, weights, pipelines and frames, in parallel.
//!
//! Drivers serialize memory allocation and pipeline lookup, and a thread's first driver call is slow.
//! Allocating takes about as long as writing. Therefore the thread that calls `load` allocates and records, while other
//! threads write weights into memory that is already allocated.

use super::context::Context;
use super::frame::{Frame, FrameResources};
use super::images::{self, Image};
use super::memory::{Buffer, MemoryUse};
use super::pipelines::Pipelines;
use super::port_memory::BOUND;
use super::record::Commands;
use super::replay::Replayer;
use super::states::States;
use super::upload::Weights;
use crate::device::backend::LoadRequest;
use crate::error::{Error, Result};
use crate::threads;
use ash::vk;
use std::sync::{Arc, OnceLock};

/// Maximum number of threads while loading: the thread that calls `load`, one thread that creates pipelines (with helper
/// threads of its own), and threads that write weights.
const N_THREADS: usize = 16;

impl Replayer {
    /// Allocates memory, uploads weights, creates pipelines and records functions.
    pub(crate) fn load(context: &Arc<Context>, source: &LoadRequest<'_>) -> Result<Replayer> {
        let LoadRequest { manifest, variant, file, .. } = *source;
        let weights = Weights::new(context, manifest, variant, file)?;
        // The first thread that needs the pipelines creates them; other threads wait.
        let pipelines = OnceLock::new();
        let create = || pipelines.get_or_init(|| Pipelines::create(context, source)).as_ref().ok();
        let job = |index: usize| match index.checked_sub(1) {
            None => _ = create(),
            Some(index) => weights.fill(index),
        };
        let mut resources = Err(job_failed());
        threads::run_jobs(N_THREADS, 1 + weights.n_jobs(), &job, &mut || {
            resources = LoadedResources::create(context, source, &weights, &create);
        });
        let pipelines = pipelines.into_inner().ok_or_else(job_failed)??;
        let weights = weights.finish()?;
        let LoadedResources { frames, states, arenas, images } = resources?;
        Ok(Replayer {
            frames,
            pipelines,
            commands: Commands::new(context)?,
            _weights: weights,
            states,
            _arenas: arenas,
            _images: images,
            context: context.clone(),
        })
    }
}

/// Placeholder result of a loading job that failed because another job failed. The other job reports the actual error.
fn job_failed() -> Error {
    Error::Driver { call: "loading", code: "a thread failed".to_owned() }
}

/// Objects that the thread that calls `load` creates, while other threads create pipelines and write weights.
struct LoadedResources {
    frames: Vec<Frame>,
    states: States,
    arenas: Vec<Buffer>,
    images: Vec<Image>,
}

impl LoadedResources {
    fn create<'a>(
        context: &Arc<Context>,
        source: &LoadRequest<'_>,
        weights: &Weights<'_>,
        pipelines: &dyn Fn() -> Option<&'a Pipelines>,
    ) -> Result<LoadedResources> {
        let LoadRequest { manifest, variant, file, frames, conversations, .. } = *source;
        let weights = weights.allocate().ok_or_else(job_failed)?;
        let states = States::new(context, variant, conversations)?;
        states.zero(context, &Commands::new(context)?, None)?;
        let usage = BOUND | vk::BufferUsageFlags::TRANSFER_DST;
        let mut arenas = Vec::new();
        for size in variant.arena_sizes() {
            arenas.push(Buffer::new(context, size, usage, MemoryUse::Device, "arena")?);
        }
        let images = images::create_images(context, manifest, variant, file)?;
        let (_, indices) = variant.images();
        let views: Vec<Option<vk::ImageView>> =
            indices.into_iter().map(|index| images.get(index).map(|image| image.view)).collect();
        let shared = FrameResources {
            context,
            variant,
            pipelines: pipelines().ok_or_else(job_failed)?,
            weights: &weights,
            states: &states.sets,
            arenas: &arenas,
            views: &views,
        };
        let frames = (0..frames).map(|_| Frame::load(&shared)).collect::<Result<_>>()?;
        Ok(LoadedResources { frames, states, arenas, images })
    }
}
