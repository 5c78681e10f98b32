//! Rotary position embeddings (RoPE): frequencies for every supported scaling, and the rotation.

use driftc::error::Result;
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::BinaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Concat, ShapeValues, Slice};
use driftc::ir::tensor::DType;

use super::generation::Sequence;

/// Rotary embedding (RoPE) with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rope {
    /// Number of elements of a head that RoPE rotates, from the first one on. Always even.
    pub(crate) size: usize,
    /// Base of the frequencies: pair i rotates by `theta^(-2 i / size)` per position before scaling.
    pub(crate) theta: f64,
    pub(crate) scaling: Scaling,
    /// True if the two elements of a rotated pair are adjacent. Otherwise they are `size / 2` elements apart.
    pub(crate) interleaved: bool,
}

/// Scaling of RoPE frequencies, which extends the context length beyond the trained one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scaling {
    None,
    Linear {
        factor: f64,
    },
    /// Dynamic NTK scaling: the base of the frequencies grows with text lengths beyond `trained` positions.
    Dynamic {
        factor: f64,
        trained: i64,
    },
    /// YaRN scaling: frequencies with long wavelengths are scaled, frequencies with short wavelengths are kept.
    Yarn {
        factor: f64,
        trained: i64,
        fast: f64,
        slow: f64,
        truncate: bool,
        /// Factor that multiplies the cosines and sines.
        attention: f64,
    },
    /// LongRoPE scaling: each wavelength has one factor for texts of up to `trained` positions and another for longer texts.
    Long {
        short: Vec<f64>,
        long: Vec<f64>,
        trained: i64,
        attention: f64,
    },
    /// Scaling of Llama 3.1: frequencies with long wavelengths are scaled, frequencies with short wavelengths are kept, with a
    /// smooth transition.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        trained: i64,
    },
}

/// RoPE cosines and sines of a run's positions, each `[seq, 1, 1, size / 2]`, or `[seq, 1, size / 2, 1]` for adjacent pairs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Angles {
    cos: NodeId,
    sin: NodeId,
    /// Signs of the sine for the first and the second element of a rotated pair, `[2, 1]`, or `[2]` for adjacent pairs.
    signs: NodeId,
    /// Number of rotated pairs in a head.
    pairs: usize,
    interleaved: bool,
}

impl Rope {
    /// Checks that one set of RoPE angles serves all texts with lengths within the bounds.
    ///
    /// # Errors
    /// If one set does not serve them all. The message gives the reason.
    pub(super) fn check(&self, (low, high): (i64, i64)) -> Result<(), String> {
        match &self.scaling {
            Scaling::Dynamic { trained, .. } if low != high && high > *trained => Err(format!(
                "for texts of more than {trained} tokens, rope_type `dynamic` computes all RoPE angles from the text's length, but this length may be {low}..{high}; give a length of at most {trained}, or compile for one text length with --dim seq=N"
            )),
            Scaling::None
            | Scaling::Linear { .. }
            | Scaling::Dynamic { .. }
            | Scaling::Yarn { .. }
            | Scaling::Long { .. }
            | Scaling::Llama3 { .. } => Ok(()),
        }
    }

    /// Text length at which LongRoPE switches from its short to its long factors, if this length is within the bounds.
    pub(super) fn switch_length(&self, (low, high): (i64, i64)) -> Option<i64> {
        match &self.scaling {
            Scaling::Long { trained, .. } if low <= *trained && *trained < high => Some(*trained),
            _ => None,
        }
    }

    /// Maximum text length up to which the RoPE angles do not depend on the text's length.
    pub(super) fn max_static_length(&self) -> i64 {
        match self.scaling {
            Scaling::Dynamic { trained, .. } => trained,
            _ => i64::MAX,
        }
    }

    /// Adds the RoPE cosines and sines of a run's positions.
    pub(super) fn angles(&self, g: &mut Builder<'_>, sequence: &Sequence) -> Result<Angles> {
        g.name = "rotary_emb".into();
        let high = sequence.keys().range(&g.graph.bounds).1;
        let lengths = sequence.length.range(&g.graph.bounds);
        match self.switch_length(lengths) {
            Some(trained) => {
                let short = self.table(g, sequence, high, trained)?;
                let long = self.table(g, sequence, high, high)?;
                let length = g.add(
                    ShapeValues {
                        dtype: DType::I64,
                        shape: Vec::new(),
                        values: vec![sequence.length.clone()],
                    },
                    &[],
                )?;
                let trained = g.constant(&Array::int(DType::I64, &[], vec![trained]))?;
                let is_long = g.binary(BinaryFn::Greater, length, trained)?;
                let cos = g.select(is_long, long.cos, short.cos)?;
                let sin = g.select(is_long, long.sin, short.sin)?;
                Ok(Angles { cos, sin, ..short })
            }
            None => self.table(g, sequence, high, high),
        }
    }

    /// Adds the RoPE cosines and sines of a run's positions as slices of constant tables of `rows` positions, for texts of the
    /// given length.
    fn table(&self, g: &mut Builder<'_>, sequence: &Sequence, rows: i64, length: i64) -> Result<Angles> {
        let frequencies = self.frequencies(length);
        let factor = self.attention_factor();
        let angles: Vec<f32> =
            (0..rows).flat_map(|p| frequencies.iter().map(move |f| p as f32 * f)).collect();
        let pairs = frequencies.len();
        let (rows, last) = (usize::try_from(rows).unwrap_or(0), [pairs, 1]);
        let [outer, inner] = if self.interleaved { last } else { [1, pairs] };
        let shape = [rows, 1, outer, inner];
        let mut sliced = |f: fn(f64) -> f64| {
            let values = angles.iter().map(|a| (f(f64::from(*a)) * factor) as f32).collect();
            let table = g.constant(&Array::f32(&shape, values))?;
            g.slice(table, 0, sequence.past.clone(), sequence.seq.clone())
        };
        let (cos, sin) = (sliced(libm::cos)?, sliced(libm::sin)?);
        let signs: &[usize] = if self.interleaved { &[2] } else { &[2, 1] };
        let signs = g.constant(&Array::f32(signs, vec![-1.0, 1.0]))?;
        Ok(Angles { cos, sin, signs, pairs, interleaved: self.interleaved })
    }

    /// Factor that multiplies the RoPE cosines and sines.
    fn attention_factor(&self) -> f64 {
        match &self.scaling {
            Scaling::Yarn { attention, .. } | Scaling::Long { attention, .. } => *attention,
            Scaling::None | Scaling::Linear { .. } | Scaling::Dynamic { .. } | Scaling::Llama3 { .. } => 1.0,
        }
    }

    /// RoPE frequencies: radians per position for each rotated pair, for a text of the given length.
    fn frequencies(&self, length: i64) -> Vec<f32> {
        let size = self.size as f64;
        let unscaled = |theta: f64, i: usize| libm::pow(theta, -2.0 * i as f64 / size);
        let each = |f: &dyn Fn(usize, f64) -> f64| -> Vec<f32> {
            (0..self.size / 2).map(|i| f(i, unscaled(self.theta, i)) as f32).collect()
        };
        match &self.scaling {
            Scaling::None => each(&|_, f| f),
            Scaling::Linear { factor } => each(&|_, f| f / factor),
            Scaling::Dynamic { factor, trained } => {
                let ratio = length.max(*trained) as f64 / *trained as f64;
                let theta = self.theta * libm::pow(factor * ratio - (factor - 1.0), size / (size - 2.0));
                each(&|i, _| unscaled(theta, i))
            }
            Scaling::Yarn { factor, trained, fast, slow, truncate, .. } => {
                // Index of the pair that makes this many rotations over the trained length.
                let correction_index = |rotations: f64| {
                    let log_ratio = libm::log(*trained as f64 / (rotations * std::f64::consts::TAU));
                    size * log_ratio / (2.0 * libm::log(self.theta))
                };
                let (mut low, mut high) = (correction_index(*fast), correction_index(*slow));
                if *truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, mut high) = (low.max(0.0), high.min(size - 1.0));
                if low == high {
                    high += 0.001;
                }
                each(&|i, f| {
                    let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    f / factor * ramp + f * (1.0 - ramp)
                })
            }
            Scaling::Long { short, long, trained, .. } => {
                let factors = if length > *trained { long } else { short };
                each(&|i, f| f / factors.get(i).copied().unwrap_or(1.0))
            }
            Scaling::Llama3 { factor, low, high, trained } => each(&|_, f| {
                let rotations = *trained as f64 * f / std::f64::consts::TAU;
                let unscaled_part = ((rotations - low) / (high - low)).clamp(0.0, 1.0);
                f / factor * (1.0 - unscaled_part) + f * unscaled_part
            }),
        }
    }
}

impl Angles {
    /// Adds the RoPE rotation of queries or keys `x [batch, seq, heads, size]`.
    ///
    /// With `x` viewed as `[.., 2, size / 2]`, or as `[.., size / 2, 2]` for adjacent pairs, the result is
    /// `x * cos + swapped x * sin * (-1, 1)`. The views copy nothing.
    pub(super) fn rotate(&self, g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
        let shape = g.tensor(x).shape.clone();
        let [batch, seq, heads, size] = shape.as_slice() else { return Ok(x) };
        let (pair_count, two) = (Dim::from(self.pairs), Dim::known(2));
        let rotated_size = pair_count.scale(2);
        let rest = size.sub(&rotated_size);
        let first = if rest.is(0) { x } else { g.slice(x, 3, Dim::known(0), rotated_size.clone())? };
        let leading = [batch.clone(), seq.clone(), heads.clone()];
        let with_leading = |last: &[Dim]| leading.iter().chain(last).cloned().collect::<Vec<Dim>>();
        let (last, axis) = if self.interleaved { ([pair_count, two], 4) } else { ([two, pair_count], 3) };
        let pairs = g.reshape(first, with_leading(&last))?;
        let on_axis = |at: i64, elsewhere: i64| (0..5).map(move |i| if i == axis { at } else { elsewhere });
        let starts = on_axis(1, 0).map(Dim::known).collect();
        let swap = Slice { starts, steps: on_axis(-1, 1).collect(), sizes: g.tensor(pairs).shape.clone() };
        let swapped = g.add(swap, &[pairs])?;
        let a = g.binary(BinaryFn::Mul, pairs, self.cos)?;
        let b = g.binary(BinaryFn::Mul, swapped, self.sin)?;
        let b = g.binary(BinaryFn::Mul, b, self.signs)?;
        let y = g.binary(BinaryFn::Add, a, b)?;
        let y = g.reshape(y, with_leading(std::slice::from_ref(&rotated_size)))?;
        if rest.is(0) {
            return Ok(y);
        }
        let rest = g.slice(x, 3, rotated_size, rest)?;
        g.add(Concat { axis: 3 }, &[y, rest])
    }
}
