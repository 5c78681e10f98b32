//! Loads a variant: memory, weights, pipelines and frames, made beside each other.
//!
//! Drivers serve one caller at a time where memory is allocated or a pipeline is looked up, and take long over a thread's
//! first call, while allocating takes about as long as writing: so this thread allocates and records, and others write what
//! is there already.

use super::context::Context;
use super::frame::{BOUND, Frame, Shared};
use super::images::{self, Image};
use super::memory::{Buffer, Place};
use super::pipelines::Pipelines;
use super::record::Commands;
use super::replay::Replayer;
use super::states::States;
use super::upload::Weights;
use crate::device::backend::Loading;
use crate::error::{Error, Result};
use crate::threads;
use ash::vk;
use std::sync::{Arc, OnceLock};

/// This one, one that creates pipelines with others, and those that write.
const N_THREADS: usize = 16;

impl Replayer {
    /// Allocates, uploads, creates pipelines and records.
    pub(crate) fn load(context: &Arc<Context>, source: &Loading<'_>) -> Result<Replayer> {
        let Loading { manifest, variant, file, cache: (cache_path, cache_key), .. } = *source;
        let weights = Weights::new(context, manifest, variant, file)?;
        // Whoever needs the pipelines first creates them, and others wait.
        let pipelines = OnceLock::new();
        let create = || {
            let create = || Pipelines::create(context, manifest, variant, file, cache_path, cache_key);
            pipelines.get_or_init(create).as_ref().ok()
        };
        let job = |index: usize| match index.checked_sub(1) {
            None => _ = create(),
            Some(index) => weights.fill(index),
        };
        let mut rest = Err(failed());
        threads::beside(N_THREADS, 1 + weights.n_jobs(), &job, &mut || {
            rest = Rest::make(context, source, &weights, &create);
        });
        let pipelines = pipelines.into_inner().ok_or_else(failed)??;
        let weights = weights.finish()?;
        let Rest { frames, states, arenas, images } = rest?;
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

/// What stands for an error that another job reports.
fn failed() -> Error {
    Error::Driver { call: "loading", code: "a thread failed".to_owned() }
}

/// What is made beside pipelines and the bytes of weights.
struct Rest {
    frames: Vec<Frame>,
    states: States,
    arenas: Vec<Buffer>,
    images: Vec<Image>,
}

impl Rest {
    fn make<'a>(
        context: &Arc<Context>,
        source: &Loading<'_>,
        weights: &Weights<'_>,
        pipelines: &dyn Fn() -> Option<&'a Pipelines>,
    ) -> Result<Rest> {
        let Loading { manifest, variant, file, frames, conversations, .. } = *source;
        let weights = weights.allocate().ok_or_else(failed)?;
        let states = States::new(context, variant, conversations)?;
        states.zero(context, &Commands::new(context)?, None)?;
        let usage = BOUND | vk::BufferUsageFlags::TRANSFER_DST;
        let mut arenas = Vec::new();
        for size in variant.arena_sizes() {
            arenas.push(Buffer::new(context, size, usage, Place::Device, "arena")?);
        }
        let images = images::create(context, manifest, variant, file)?;
        let (_, places) = variant.images();
        let views: Vec<Option<vk::ImageView>> =
            places.into_iter().map(|place| images.get(place).map(|image| image.view)).collect();
        let shared = Shared {
            context,
            variant,
            pipelines: pipelines().ok_or_else(failed)?,
            weights: &weights,
            states: &states.sets,
            arenas: &arenas,
            views: &views,
        };
        let frames = (0..frames).map(|_| Frame::load(&shared)).collect::<Result<_>>()?;
        Ok(Rest { frames, states, arenas, images })
    }
}
