//! Recordings: audio files as mono samples at 16 kHz.

mod resampler;
mod source;

use std::fs::File;
use std::io::Cursor;
use std::path::Path;

use symphonia::core::io::MediaSource;

use crate::{Error, RecordingFault, Result};
use resampler::Resampler;
use source::{Packet, Source};

/// Sample rate of all recordings in Hz.
pub const SAMPLE_RATE: usize = 16000;
/// Number of samples of a block of [`Recording::next_block`]: one second.
const BLOCK: usize = SAMPLE_RATE;

/// Audio file that is decoded block by block. Memory does not grow with the length of the file.
///
/// WAV, FLAC, MP3 and OGG Vorbis are supported, with any number of channels and any sample rate.
pub struct Recording {
    source: Source,
    name: String,
    resampler: Option<Resampler>,
    /// Sample rate that the resampler converts.
    rate: u32,
    /// Decoded samples that were not read yet.
    waiting: Vec<f32>,
    /// Number of samples in `waiting` that were read.
    consumed: usize,
    delivered: u64,
    has_ended: bool,
}

impl Recording {
    /// Opens an audio file and decodes its first samples.
    ///
    /// # Errors
    /// If the file cannot be read, is empty, is no audio file, has an unsupported codec, or has no samples.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = match File::open(path).and_then(|file| Ok((file.metadata()?, file))) {
            Ok((metadata, _)) if metadata.is_dir() => {
                let error = std::io::Error::other("this is a folder, not a file");
                return Err(Error::Recording { path: name, fault: error.into() });
            }
            Ok((_, file)) => file,
            Err(error) => return Err(Error::Recording { path: name, fault: error.into() }),
        };
        let extension = path.extension().and_then(|extension| extension.to_str());
        Self::from_source(Box::new(file), &name, extension)
    }

    /// Opens an audio file that lies in memory. The name is used in errors; its extension may help to find the format.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn from_bytes(bytes: Vec<u8>, name: &str) -> Result<Self> {
        let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
        Self::from_source(Box::new(Cursor::new(bytes)), name, extension)
    }

    fn from_source(media: Box<dyn MediaSource>, name: &str, extension: Option<&str>) -> Result<Self> {
        let located = |fault| Error::Recording { path: name.to_owned(), fault };
        let source = Source::open(media, extension).map_err(located)?;
        let rate = source.rate();
        let mut recording = Self {
            resampler: resampler(rate),
            rate,
            source,
            name: name.to_owned(),
            waiting: Vec::new(),
            consumed: 0,
            delivered: 0,
            has_ended: false,
        };
        recording.fill(1)?;
        if recording.waiting.is_empty() {
            return Err(located(RecordingFault::NoSamples));
        }
        Ok(recording)
    }

    /// Returns the next samples. There are fewer than requested only at the end, and none after the end.
    ///
    /// # Errors
    /// If the file cannot be read. Damaged or missing data is no error: see [`Self::notes`].
    pub fn read(&mut self, samples: usize) -> Result<Vec<f32>> {
        self.fill(samples)?;
        let rest = self.waiting.get(self.consumed..).unwrap_or_default();
        let block: Vec<f32> = rest.iter().take(samples).copied().collect();
        self.consumed += block.len();
        self.delivered += block.len() as u64;
        Ok(block)
    }

    /// Returns the samples of the next second, or `None` after the end.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub fn next_block(&mut self) -> Result<Option<Vec<f32>>> {
        let block = self.read(BLOCK)?;
        Ok(Some(block).filter(|block| !block.is_empty()))
    }

    /// Decodes packets until a number of samples waits or the file ends.
    fn fill(&mut self, samples: usize) -> Result<()> {
        self.waiting.drain(..self.consumed.min(self.waiting.len()));
        self.consumed = 0;
        while self.waiting.len() < samples && !self.has_ended {
            let packet = self.source.next_packet();
            match packet.map_err(|fault| Error::Recording { path: self.name.clone(), fault })? {
                Packet::Samples => {
                    self.follow_rate();
                    match &mut self.resampler {
                        Some(resampler) => resampler.push(self.source.mono(), &mut self.waiting),
                        None => self.waiting.extend_from_slice(self.source.mono()),
                    }
                }
                Packet::End => {
                    self.has_ended = true;
                    if let Some(resampler) = &mut self.resampler {
                        resampler.finish(&mut self.waiting);
                    }
                }
            }
        }
        Ok(())
    }

    /// Replaces the resampler if the sample rate changes within the file.
    fn follow_rate(&mut self) {
        let rate = self.source.rate();
        if rate != self.rate {
            if let Some(resampler) = &mut self.resampler {
                resampler.finish(&mut self.waiting);
            }
            self.resampler = resampler(rate);
            self.rate = rate;
        }
    }

    /// Returns the length in seconds that the file states, or `None` if it states none.
    pub fn stated_seconds(&self) -> Option<f64> {
        self.source.stated_frames().map(|frames| frames as f64 / f64::from(self.source.rate()))
    }

    /// Returns the number of seconds that were read so far.
    pub fn seconds_read(&self) -> f64 {
        self.delivered as f64 / SAMPLE_RATE as f64
    }

    /// Returns the number of packets so far that could not be decoded. Silence replaces them.
    pub fn damaged_packets(&self) -> usize {
        self.source.damaged()
    }

    /// Returns true if the file ends before the length that it states. This is known after the last block was read.
    pub fn is_truncated(&self) -> bool {
        self.source.is_truncated()
    }

    /// Returns warnings about damaged or missing data, for the user.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.is_truncated() {
            notes.push(format!("{}: the file is truncated; its end is missing", self.name));
        }
        if self.damaged_packets() > 0 {
            let count = self.damaged_packets();
            notes.push(format!("{}: {count} damaged packets were replaced by silence", self.name));
        }
        notes
    }
}

fn resampler(rate: u32) -> Option<Resampler> {
    let rate = rate as usize;
    (rate != SAMPLE_RATE).then(|| Resampler::new(rate, SAMPLE_RATE))
}
