//! Front end of Whisper: samples to log-mel features, as transformers' `WhisperFeatureExtractor`.
//!
//! The short-time Fourier transform is a matmul of the frames, with the cosines and sines of each frequency times the window.

use std::f64::consts::PI;

use driftc::error::{Error, Result};
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Concat, Range};
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::tensor::DType;
use serde::Deserialize;
use serde_json::Value;

use super::mel;
use crate::folder::{Folder, typed};
use crate::function_graph::dims;

const FILE: &str = "preprocessor_config.json";
/// Number of samples between the starts of two frames. Timestamp tokens count steps of two frames.
const HOP: usize = 160;
/// Lowest mel energy. Lower energies count as this energy.
const ENERGY_FLOOR: f32 = 1e-10;
/// Maximum distance in decades below the largest energy of a window. Lower energies are raised to this distance.
const DYNAMIC_RANGE: f32 = 8.0;

#[derive(Debug, Deserialize)]
struct Settings {
    #[serde(default = "default_fft")]
    n_fft: usize,
    #[serde(default = "default_hop")]
    hop_length: usize,
    #[serde(default = "default_rate")]
    sampling_rate: usize,
    #[serde(default)]
    feature_size: Option<usize>,
    #[serde(default)]
    dither: f64,
    #[serde(default)]
    mel_filters: Option<Value>,
}

fn default_fft() -> usize {
    400
}

fn default_hop() -> usize {
    HOP
}

fn default_rate() -> usize {
    mel::SAMPLE_RATE
}

/// Checked settings of the front end.
pub(super) struct FrontEnd {
    mels: usize,
    frames: usize,
    fft: usize,
    hop: usize,
    /// Mel filters `[fft / 2 + 1, mels]`.
    filters: Vec<f64>,
}

impl FrontEnd {
    /// Reads `preprocessor_config.json`. Missing settings have the values of Whisper.
    ///
    /// # Errors
    /// If the file is malformed, a setting is not supported, or the number of mel bands differs from the encoder's.
    pub(super) fn read(folder: &Folder, mels: usize, frames: usize) -> Result<Self> {
        let fields = match folder.json(FILE)? {
            Some(Value::Object(fields)) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
            Some(_) => return Err(folder.error(FILE, "the file is not a JSON object")),
            None => serde_json::Map::new(),
        };
        let settings: Settings = typed(&fields).map_err(|reason| folder.error(FILE, reason))?;
        let Settings { n_fft: fft, hop_length: hop, sampling_rate, feature_size, dither, mel_filters } =
            settings;
        let fail = |name: &str, value: String, supported: &str| Error::Model {
            path: folder.path.join(FILE),
            place: format!("`{name}`"),
            reason: format!("{value} is not supported"),
            help: format!("supported: {supported}"),
        };
        if !(4..=1 << 16).contains(&fft) || !fft.is_multiple_of(2) {
            return Err(fail("n_fft", fft.to_string(), "even numbers from 4 to 65536"));
        }
        if hop != HOP || frames * hop <= fft {
            return Err(fail("hop_length", hop.to_string(), "160, with windows longer than `n_fft`"));
        }
        if sampling_rate != mel::SAMPLE_RATE {
            return Err(fail("sampling_rate", sampling_rate.to_string(), "16000"));
        }
        if dither != 0.0 {
            return Err(fail("dither", dither.to_string(), "0, no dither"));
        }
        if let Some(size) = feature_size.filter(|size| *size != mels) {
            return Err(fail(
                "feature_size",
                size.to_string(),
                &format!("{mels}, `num_mel_bins` of config.json"),
            ));
        }
        let bins = fft / 2 + 1;
        let filters = match mel_filters {
            None => mel::slaney(bins, mels),
            Some(value) => mel::parse(&value, bins, mels).ok_or_else(|| {
                let supported = format!("{bins} rows of {mels} numbers, or {mels} rows of {bins} numbers");
                fail("mel_filters", "a value of another shape".into(), &supported)
            })?,
        };
        Ok(Self { mels, frames, fft, hop, filters })
    }

    /// Adds the front end: the inputs `samples [1, frames * hop + fft]`, `largest [1]` and `valid [1]`, and the outputs
    /// `input_features [1, mels, frames]` and `largest [1]`.
    ///
    /// The samples begin half an FFT before the window and end half an FFT after it. The dynamic range counts from the largest
    /// logarithm of an energy in the window, or from the input `largest` if that is larger. Frames from the number `valid` on
    /// become 0.
    pub(super) fn build(&self, g: &mut Builder<'_>) -> Result<()> {
        let (bins, frames) = (self.fft / 2 + 1, self.frames);
        let x = g.input("samples", DType::F32, dims(&[1, frames * self.hop + self.fft]))?;
        let given = g.input("largest", DType::F32, dims(&[1]))?;
        let valid = g.input("valid", DType::I32, dims(&[1]))?;
        g.name = "stft".into();
        let x = self.split_frames(g, x)?;
        let rows = self.fft.div_ceil(self.hop) * self.hop;
        let basis = g.constant(&Array::float(DType::F32, &[rows, 2 * bins], self.fourier_basis(rows)))?;
        let spectrum = g.matmul(x, basis)?;
        let squares = g.binary(BinaryFn::Mul, spectrum, spectrum)?;
        let real = g.slice(squares, 1, Dim::known(0), bins.into())?;
        let imaginary = g.slice(squares, 1, bins.into(), bins.into())?;
        let power = g.binary(BinaryFn::Add, real, imaginary)?;
        g.name = "mel".into();
        let filters = self.filters.iter().map(|value| *value as f32).collect();
        let filters = g.constant(&Array::float(DType::F32, &[bins, self.mels], filters))?;
        let energies = g.matmul(power, filters)?;
        let energies = g.transpose(energies, vec![1, 0])?;
        let energies = g.reshape(energies, dims(&[1, self.mels, frames]))?;
        let logs = log10(g, energies)?;
        let largest = g.reduce(ReduceKind::Max, logs, vec![0, 1, 2], false)?;
        let largest = g.reshape(largest, dims(&[1]))?;
        let largest = g.binary(BinaryFn::Max, largest, given)?;
        let lowest = g.unary(UnaryFn::Affine { scale: 1.0, shift: -DYNAMIC_RANGE }, largest)?;
        let features = g.binary(BinaryFn::Max, logs, lowest)?;
        let features = g.unary(UnaryFn::Affine { scale: 0.25, shift: 1.0 }, features)?;
        let length = Dim::from(frames);
        let places = g.add(Range { dtype: DType::I32, start: Dim::known(0), step: 1, length }, &[])?;
        let is_valid = g.binary(BinaryFn::Less, places, valid)?;
        let zero = g.scalar(DType::F32, 0.0)?;
        let features = g.select(is_valid, features, zero)?;
        g.graph.add_output("input_features", features);
        g.graph.add_output("largest", largest);
        Ok(())
    }

    /// Adds the overlapping frames `[frames, rows]` of samples `[1, frames * hop + fft]`. `rows` is `fft` rounded up to a multiple
    /// of `hop`. The last frame of the samples is left out, as transformers does.
    fn split_frames(&self, g: &mut Builder<'_>, samples: NodeId) -> Result<NodeId> {
        let parts = self.fft.div_ceil(self.hop);
        let blocks = self.frames + parts - 1;
        let x = g.slice(samples, 1, Dim::known(0), (blocks * self.hop).into())?;
        let x = g.reshape(x, dims(&[blocks, self.hop]))?;
        let mut shifted = Vec::new();
        for part in 0..parts {
            shifted.push(g.slice(x, 0, part.into(), self.frames.into())?);
        }
        g.add(Concat { axis: 1 }, &shifted)
    }

    /// Matrix of the Fourier transform, `[rows, 2 * bins]`: the cosines of all frequencies, then the sines, times a Hann window.
    /// Rows after the first `fft` are 0.
    fn fourier_basis(&self, rows: usize) -> Vec<f32> {
        let (fft, bins) = (self.fft, self.fft / 2 + 1);
        let angle = |i: usize| 2.0 * PI * i as f64 / fft as f64;
        let mut basis = vec![0.0; rows * 2 * bins];
        for (i, row) in basis.chunks_exact_mut(2 * bins).take(fft).enumerate() {
            let window = 0.5 - 0.5 * libm::cos(angle(i));
            for (column, value) in row.iter_mut().enumerate() {
                let f = if column < bins { libm::cos } else { libm::sin };
                // The remainder keeps large angles exact.
                *value = (window * f(angle(column % bins * i % fft))) as f32;
            }
        }
        basis
    }
}

/// Adds the decadic logarithm of energies, which counts lower energies as the energy floor.
fn log10(g: &mut Builder<'_>, energies: NodeId) -> Result<NodeId> {
    let floor = g.scalar(DType::F32, ENERGY_FLOOR)?;
    let energies = g.binary(BinaryFn::Max, energies, floor)?;
    let logs = g.unary(UnaryFn::Log, energies)?;
    g.unary(UnaryFn::Affine { scale: std::f32::consts::LOG10_E, shift: 0.0 }, logs)
}
