//! Checkpoints of random weights. A checkpoint is written to disk while it is generated, so that a model of any size takes little
//! memory.
//!
//! Convolution filters get a variance of 2 / n, because a ReLU follows, and matmul weights a variance of 1 / n, where n is the
//! number of inputs of one output. Scales of norms are near 1 and biases are small. Activations then keep their
//! magnitude through a network, within the range of f16. The same name and shape always give the same numbers.

pub mod bert;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use driftc::error::{Error, Result};
use driftc::ir::tensor::DType;
use half::f16;
use rayon::prelude::{IndexedParallelIterator, ParallelIterator, ParallelSliceMut};
use serde::Serialize;

/// Number of elements that are generated in memory before they are written to the file.
const WRITE_ELEMENTS: usize = 1 << 22;
/// Number of elements that one parallel task generates.
const TASK_ELEMENTS: usize = 1 << 14;
/// Standard deviation of random biases.
const BIAS_DEVIATION: f32 = 0.02;
/// Standard deviation of random embedding tables.
const EMBEDDING_DEVIATION: f32 = 0.5;

#[derive(Serialize)]
struct Entry<'a> {
    dtype: &'a str,
    shape: &'a [usize],
    data_offsets: [usize; 2],
}

/// Writes random tensors with these names and shapes to `model.safetensors` in a folder, as f16 or f32.
///
/// # Errors
/// If the file cannot be written.
pub fn write(folder: &Path, tensors: &[(String, Vec<usize>)], element: DType) -> Result<()> {
    write_file(&folder.join("model.safetensors"), tensors, element)
}

/// Writes random tensors with these names and shapes to safetensors files of at most `max_bytes` each, and the index of all
/// files. A larger tensor gets its own file.
///
/// # Errors
/// If a file cannot be written.
pub fn write_shards(
    folder: &Path,
    tensors: &[(String, Vec<usize>)],
    element: DType,
    max_bytes: usize,
) -> Result<()> {
    let bytes = |(_, shape): &(String, Vec<usize>)| shape.iter().product::<usize>() * element.bytes();
    let mut shards: Vec<&[(String, Vec<usize>)]> = Vec::new();
    let mut rest = tensors;
    while !rest.is_empty() {
        let mut sum = 0;
        let fits = rest.iter().take_while(|t| {
            sum += bytes(t);
            sum <= max_bytes
        });
        let (shard, later) = rest.split_at(fits.count().max(1));
        shards.push(shard);
        rest = later;
    }
    let mut map: BTreeMap<&str, String> = BTreeMap::new();
    for (i, shard) in shards.iter().enumerate() {
        let name = format!("model-{:05}-of-{:05}.safetensors", i + 1, shards.len());
        write_file(&folder.join(&name), shard, element)?;
        map.extend(shard.iter().map(|(tensor, _)| (tensor.as_str(), name.clone())));
    }
    let size: usize = tensors.iter().map(bytes).sum();
    let index = serde_json::json!({ "metadata": { "total_size": size }, "weight_map": map });
    let path = folder.join("model.safetensors.index.json");
    std::fs::write(&path, index.to_string()).map_err(|e| Error::Io { path, reason: e.to_string() })
}

fn write_file(path: &Path, tensors: &[(String, Vec<usize>)], element: DType) -> Result<()> {
    let fail = |e: std::io::Error| Error::Io { path: path.to_path_buf(), reason: e.to_string() };
    let (dtype, width) = if element == DType::F16 { ("F16", 2) } else { ("F32", 4) };
    let mut header: BTreeMap<&str, Entry<'_>> = BTreeMap::new();
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += shape.iter().product::<usize>() * width;
        header.insert(name, Entry { dtype, shape, data_offsets: [start, end] });
    }
    let mut text = serde_json::to_string(&header).map_err(|e| Error::internal("random", e.to_string()))?;
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    let mut out = BufWriter::new(File::create(path).map_err(fail)?);
    out.write_all(&(text.len() as u64).to_le_bytes()).map_err(fail)?;
    out.write_all(text.as_bytes()).map_err(fail)?;
    let mut bytes = Vec::new();
    for (name, shape) in tensors {
        let distribution = Distribution::for_tensor(name, shape);
        let elements: usize = shape.iter().product();
        for first in (0..elements).step_by(WRITE_ELEMENTS) {
            bytes.resize(WRITE_ELEMENTS.min(elements - first) * width, 0);
            bytes.par_chunks_mut(TASK_ELEMENTS * width).enumerate().for_each(|(task, bytes)| {
                distribution.fill((first + task * TASK_ELEMENTS) as u64, width, bytes);
            });
            out.write_all(&bytes).map_err(fail)?;
        }
    }
    out.into_inner().map_err(|e| fail(e.into_error()))?.sync_data().map_err(fail)
}

/// Seed and distribution of the random elements of one tensor.
struct Distribution {
    seed: u64,
    mean: f32,
    deviation: f32,
}

impl Distribution {
    fn for_tensor(name: &str, shape: &[usize]) -> Self {
        // FNV-1a.
        let seed = name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        let inputs: usize = shape.iter().skip(1).product::<usize>().max(1);
        let scale = name.ends_with(".weight");
        let (mean, deviation) = match shape.len() {
            0 | 1 if scale => (1.0, BIAS_DEVIATION),
            0 | 1 => (0.0, BIAS_DEVIATION),
            2 if name.contains("embedding") => (0.0, EMBEDDING_DEVIATION),
            // A filter is followed by a ReLU. A shortcut is not.
            4.. if !name.contains("shortcut") => (0.0, (2.0 / inputs as f32).sqrt()),
            _ => (0.0, (1.0 / inputs as f32).sqrt()),
        };
        Self { seed, mean, deviation }
    }

    /// Fills `bytes` with the tensor's random elements from index `first` on, as floats of `width` bytes.
    fn fill(&self, first: u64, width: usize, bytes: &mut [u8]) {
        // The sum of two uniform numbers in [-1, 1) has a variance of 2/3.
        let factor = self.deviation * 1.5f32.sqrt() / (1u32 << 23) as f32;
        for (at, slot) in (first..).zip(bytes.chunks_exact_mut(width)) {
            // splitmix64 of seed and position.
            let mut z = self.seed.wrapping_add(at.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            let sum = (z >> 40) as i64 + ((z >> 8) & 0xff_ffff) as i64 - (1 << 24);
            let value = self.mean + sum as f32 * factor;
            match width {
                2 => slot.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
                _ => slot.copy_from_slice(&value.to_le_bytes()),
            }
        }
    }
}
