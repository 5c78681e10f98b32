//! Windows of a recording: the samples that the front end of the model reads.
//!
//! Frames are 160 samples apart, and a frame covers half an FFT before and after its place. At its start, the recording is
//! mirrored. Recordings of one window are padded with silence and then mirrored. Longer recordings are mirrored at their end,
//! and frames after the end are not valid, as in transformers.

use std::sync::Arc;

use crate::{Audio, Recording, Result};

/// Number of samples between two frames.
pub(crate) const HOP: usize = 160;
/// Number of samples that are read at once.
const BLOCK: usize = 16_000;

/// Sizes of a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowSize {
    /// Number of frames.
    pub(crate) frames: usize,
    /// Number of samples before the first frame, and after the last one.
    pub(crate) margin: usize,
}

/// Window of a recording.
pub(crate) struct WindowSamples {
    /// Samples with both margins.
    pub(crate) samples: Vec<f32>,
    /// Number of frames that the recording has in this window.
    pub(crate) recorded: usize,
    /// Number of frames before the frames that the model reads as zeros.
    pub(crate) valid: usize,
}

/// Source of samples.
enum Source {
    Recording(Box<Recording>),
    Memory { samples: Arc<[f32]>, read: usize },
}

/// Recording that is read window by window.
pub(crate) struct Windows {
    source: Source,
    size: WindowSize,
    /// Samples from the index `first` on.
    samples: Vec<f32>,
    first: usize,
    /// Number of samples of the recording, once its end was read.
    total: Option<usize>,
}

impl Windows {
    /// Opens a recording.
    ///
    /// # Errors
    /// If the file cannot be read or is no recording.
    pub(crate) fn open(audio: &Audio, size: WindowSize) -> Result<Self> {
        let source = match audio {
            Audio::File(path) => Source::Recording(Box::new(Recording::open(path)?)),
            Audio::Samples(samples) => Source::Memory { samples: Arc::clone(samples), read: 0 },
        };
        Ok(Self { source, size, samples: Vec::new(), first: 0, total: None })
    }

    /// Returns the window that starts at a frame, or `None` after the end of the recording. Starts must not decrease.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) fn window(&mut self, start: usize) -> Result<Option<WindowSamples>> {
        let WindowSize { frames, margin } = self.size;
        let begin = (start * HOP).saturating_sub(margin);
        self.fill((start + frames) * HOP + margin + 1)?;
        let unused = begin.saturating_sub(self.first).min(self.samples.len());
        self.samples.drain(..unused);
        self.first += unused;
        let all = self.total_frames();
        if all.is_some_and(|all| start >= all) {
            return Ok(None);
        }
        let left = |all: usize| all.saturating_sub(start).min(frames);
        let recorded = all.map_or(frames, left);
        let valid = all.map_or(frames, |all| left(all.max(frames)));
        let samples = (0..frames * HOP + 2 * margin).map(|i| self.sample(start * HOP + i, margin));
        Ok(Some(WindowSamples { samples: samples.collect(), recorded, valid }))
    }

    /// Returns true if the recording is longer than one window. Known after the first window was read.
    pub(crate) fn is_long(&self) -> bool {
        self.total.is_none_or(|total| total > self.size.frames * HOP)
    }

    /// Length of the recording in seconds: exact after its end was read, else as the file states it.
    pub(crate) fn seconds(&self) -> Option<f64> {
        let exact = self.total.map(|total| total as f64 / crate::SAMPLE_RATE as f64);
        exact.or_else(|| match &self.source {
            Source::Recording(recording) => recording.stated_seconds(),
            Source::Memory { samples, .. } => Some(samples.len() as f64 / crate::SAMPLE_RATE as f64),
        })
    }

    /// Returns warnings about damaged or missing data.
    pub(crate) fn notes(&self) -> Vec<String> {
        match &self.source {
            Source::Recording(recording) => recording.notes(),
            Source::Memory { .. } => Vec::new(),
        }
    }

    /// Number of frames of the recording, once its end was read. A recording has at least one frame.
    fn total_frames(&self) -> Option<usize> {
        self.total.map(|total| if total == 0 { 0 } else { (total / HOP).max(1) })
    }

    /// Reads samples until the index `end` or the end of the recording.
    fn fill(&mut self, end: usize) -> Result<()> {
        while self.total.is_none() && self.first + self.samples.len() < end {
            let block = match &mut self.source {
                Source::Recording(recording) => recording.read(BLOCK)?,
                Source::Memory { samples, read } => {
                    let block: Vec<f32> = samples.iter().skip(*read).take(BLOCK).copied().collect();
                    *read += block.len();
                    block
                }
            };
            if block.is_empty() {
                self.total = Some(self.first + self.samples.len());
            }
            self.samples.extend(block.into_iter().map(|s| if s.is_finite() { s } else { 0.0 }));
        }
        Ok(())
    }

    /// Returns the sample at `index - margin`, mirrored at the ends.
    fn sample(&self, index: usize, margin: usize) -> f32 {
        let index = index.abs_diff(margin);
        let at = |index: usize| index.checked_sub(self.first).and_then(|i| self.samples.get(i)).copied();
        // A recording of one window is mirrored where its padding ends.
        let end = match self.total {
            Some(total) if self.is_long() => total,
            Some(_) => self.size.frames * HOP,
            None => usize::MAX,
        };
        if index < end {
            return at(index).unwrap_or(0.0);
        }
        let beyond = index - end;
        match end.checked_sub(beyond + 2) {
            Some(mirrored) if beyond < margin => at(mirrored).unwrap_or(0.0),
            _ => 0.0,
        }
    }
}
