//! Audio files as mono samples at their own sample rate.

use symphonia::core::codecs::audio::well_known::{
    CODEC_ID_AAC, CODEC_ID_AC3, CODEC_ID_ADPCM_IMA_WAV, CODEC_ID_ADPCM_MS, CODEC_ID_ALAC, CODEC_ID_MP1,
    CODEC_ID_MP2, CODEC_ID_MP3, CODEC_ID_OPUS, CODEC_ID_SPEEX,
};
use symphonia::core::codecs::audio::{AudioCodecId, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as MediaError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, Track, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;

use crate::RecordingFault;

/// Maximum number of frames of silence that replace a damaged packet.
const MAX_SILENCE: u64 = 1 << 16;
/// Number of bytes from which the stated length of a track counts as unknown.
const UNKNOWN_LENGTH: u64 = 0x7fff_0000;
/// Sample rates in Hz that can be converted.
const RATES: std::ops::RangeInclusive<u32> = 1000..=768_000;
/// Codecs without a decoder, with their names.
const UNSUPPORTED: &[(AudioCodecId, &str)] = &[
    (CODEC_ID_AAC, "AAC"),
    (CODEC_ID_AC3, "AC-3"),
    (CODEC_ID_ADPCM_IMA_WAV, "IMA ADPCM"),
    (CODEC_ID_ADPCM_MS, "Microsoft ADPCM"),
    (CODEC_ID_ALAC, "ALAC"),
    (CODEC_ID_MP1, "MP1"),
    (CODEC_ID_MP2, "MP2"),
    (CODEC_ID_OPUS, "Opus"),
    (CODEC_ID_SPEEX, "Speex"),
];
/// Formats without a reader: position of the mark in the file, mark, name.
const UNREADABLE: &[(usize, &[u8], &str)] = &[
    (4, b"ftyp", "MP4 or M4A"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
    (0, b"FORM", "AIFF"),
    (0, b"caff", "Core Audio"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA"),
    (0, b"#!AMR", "AMR"),
];

/// Result of decoding one packet.
pub(super) enum Packet {
    /// [`Source::mono`] has the samples.
    Samples,
    /// The file has no more packets.
    End,
}

/// Audio file with a decoder for its first audio track.
pub(super) struct Source {
    format: Box<dyn FormatReader>,
    decoder: Box<dyn AudioDecoder>,
    track: u32,
    rate: u32,
    stated_frames: Option<u64>,
    frames: u64,
    damaged: usize,
    /// True if reading a packet failed before the end of the file.
    is_cut: bool,
    interleaved: Vec<f32>,
    mono: Vec<f32>,
}

impl Source {
    pub(super) fn open(
        mut media: Box<dyn MediaSource>,
        extension: Option<&str>,
    ) -> Result<Self, RecordingFault> {
        let mut start = [0; 16];
        let count = read_start(&mut *media, &mut start)?;
        if count == 0 {
            return Err(RecordingFault::Empty);
        }
        let mut hint = Hint::new();
        if let Some(extension) = extension {
            hint.with_extension(extension);
        }
        let stream = MediaSourceStream::new(media, Default::default());
        let format = symphonia::default::get_probe()
            .probe(&hint, stream, FormatOptions::default(), MetadataOptions::default())
            .map_err(|error| not_audio(&start, &error))?;
        let track = format.default_track(TrackType::Audio).ok_or(RecordingFault::NoTrack)?;
        let (decoder, rate) = decoder(track)?;
        let (track, stated_frames) = (track.id, stated_frames(track));
        Ok(Self {
            format,
            decoder,
            track,
            rate,
            stated_frames,
            frames: 0,
            damaged: 0,
            is_cut: false,
            interleaved: Vec::new(),
            mono: Vec::new(),
        })
    }

    /// Decodes the next packet of the track.
    pub(super) fn next_packet(&mut self) -> Result<Packet, RecordingFault> {
        loop {
            let packet = match self.format.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(Packet::End),
                Err(MediaError::ResetRequired) => {
                    // A chained OGG file continues with another stream.
                    let track = self.format.default_track(TrackType::Audio).ok_or(RecordingFault::NoTrack)?;
                    (self.decoder, self.rate) = decoder(track)?;
                    self.track = track.id;
                    self.stated_frames = None;
                    continue;
                }
                Err(MediaError::IoError(error)) if error.kind() != std::io::ErrorKind::UnexpectedEof => {
                    return Err(error.into());
                }
                Err(_) => {
                    self.is_cut = true;
                    return Ok(Packet::End);
                }
            };
            if packet.track_id != self.track {
                continue;
            }
            match self.decoder.decode(&packet) {
                Ok(samples) => {
                    let channels = samples.spec().channels().count().max(1);
                    let rate = samples.spec().rate();
                    samples.copy_to_vec_interleaved(&mut self.interleaved);
                    if RATES.contains(&rate) {
                        self.rate = rate;
                    }
                    self.mix(channels);
                }
                Err(_) if self.frames == 0 => {
                    self.damaged += 1;
                    continue;
                }
                Err(_) => {
                    self.damaged += 1;
                    self.mono.clear();
                    let silence = packet.dur.get().min(MAX_SILENCE) as usize;
                    self.mono.resize(silence, 0.0);
                }
            }
            self.frames += self.mono.len() as u64;
            return Ok(Packet::Samples);
        }
    }

    /// Computes the mean of the channels. Samples that are infinite or NaN count as 0.
    fn mix(&mut self, channels: usize) {
        let finite = |sample: &f32| if sample.is_finite() { *sample } else { 0.0 };
        let mean = |frame: &[f32]| frame.iter().map(finite).sum::<f32>() / channels as f32;
        self.mono.clear();
        self.mono.extend(self.interleaved.chunks_exact(channels).map(mean));
    }

    /// Samples of the last packet.
    pub(super) fn mono(&self) -> &[f32] {
        &self.mono
    }

    /// Sample rate in Hz.
    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    /// Number of frames that the file states.
    pub(super) fn stated_frames(&self) -> Option<u64> {
        self.stated_frames
    }

    /// Number of packets that could not be decoded.
    pub(super) fn damaged(&self) -> usize {
        self.damaged
    }

    /// True if the file ended early.
    pub(super) fn is_truncated(&self) -> bool {
        self.is_cut || self.stated_frames.is_some_and(|stated| self.frames < stated)
    }
}

/// Reads the first bytes of a file and seeks back. Returns the number of bytes.
fn read_start(media: &mut dyn MediaSource, start: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while let Some(rest) = start.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match media.read(rest)? {
            0 => break,
            read => count += read,
        }
    }
    media.rewind()?;
    Ok(count)
}

/// Returns the number of frames that a track states. WAV files that were written to a pipe state the maximum of their format.
/// For MP3 files without the header of an encoder, the reader estimates the number, so it does not count.
fn stated_frames(track: &Track) -> Option<u64> {
    let params = track.codec_params.as_ref()?.audio()?;
    if params.codec == CODEC_ID_MP3 && track.delay.is_none() {
        return None;
    }
    let channels = params.channels.as_ref().map_or(1, |channels| channels.count() as u64);
    let bytes = u64::from(params.bits_per_sample.unwrap_or(8).div_ceil(8)) * channels.max(1);
    track.num_frames.filter(|frames| frames.saturating_mul(bytes) < UNKNOWN_LENGTH)
}

/// Creates the decoder of a track. Also returns the sample rate.
fn decoder(track: &Track) -> Result<(Box<dyn AudioDecoder>, u32), RecordingFault> {
    let params = track.codec_params.as_ref().and_then(|params| params.audio());
    let params = params.ok_or_else(|| RecordingFault::Codec("of an unknown kind".into()))?;
    let decoder = symphonia::default::get_codecs()
        .make_audio_decoder(params, &AudioDecoderOptions::default())
        .map_err(|error| match error {
            MediaError::IoError(error) => error.into(),
            _ => RecordingFault::Codec(codec_name(params.codec)),
        })?;
    let rate = params.sample_rate.unwrap_or(0);
    if !RATES.contains(&rate) {
        return Err(RecordingFault::Rate(rate));
    }
    Ok((decoder, rate))
}

fn codec_name(codec: AudioCodecId) -> String {
    let known = UNSUPPORTED.iter().find(|(id, _)| *id == codec);
    known.map_or_else(|| format!("with the number {codec}"), |(_, name)| (*name).to_owned())
}

/// Returns the fault of a file that no reader knows.
fn not_audio(start: &[u8], error: &MediaError) -> RecordingFault {
    let has_mark =
        |(at, mark, _): &&(usize, &[u8], &str)| start.get(*at..).is_some_and(|rest| rest.starts_with(mark));
    match (UNREADABLE.iter().find(has_mark), error) {
        (Some((_, _, name)), _) => RecordingFault::NotAudio(format!("{name} files are not supported")),
        (None, MediaError::Unsupported(reason)) => RecordingFault::NotAudio((*reason).to_owned()),
        (None, error) => RecordingFault::NotAudio(error.to_string()),
    }
}
