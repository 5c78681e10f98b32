//! Rotary position embeddings: frequencies under every known scaling, and the rotation.

use driftc::error::Result;
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::BinaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Concat, ShapeValues, Slice};
use driftc::ir::tensor::DType;

use super::Sequence;

/// A rotary embedding.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rope {
    /// Elements of a head that are rotated, from the first on; an even number.
    pub(crate) size: usize,
    /// The base of the wavelengths.
    pub(crate) theta: f64,
    pub(crate) scaling: Scaling,
    /// Whether the two elements of a pair lie beside each other, rather than half of the rotated part apart.
    pub(crate) interleaved: bool,
}

/// What makes a model reach further than it was trained for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scaling {
    None,
    Linear {
        factor: f64,
    },
    /// The base grows with the length beyond `trained` positions.
    Dynamic {
        factor: f64,
        trained: i64,
    },
    /// Long wavelengths are stretched, short ones stay.
    Yarn {
        factor: f64,
        trained: i64,
        fast: f64,
        slow: f64,
        truncate: bool,
        /// Factor of cosines and sines.
        attention: f64,
    },
    /// Each wavelength has a factor of its own, others beyond `trained` positions.
    Long {
        short: Vec<f64>,
        long: Vec<f64>,
        trained: i64,
        attention: f64,
    },
    /// Llama 3.1's: by wavelength, with a smooth middle.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        trained: i64,
    },
}

/// Cosines and sines of the positions of a run, `[seq, 1, 1, size / 2]` each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Angles {
    cos: NodeId,
    sin: NodeId,
    /// What sines count for the first and the second element of a pair, `[2, 1]`.
    signs: NodeId,
    /// Number of pairs.
    half: usize,
    interleaved: bool,
}

impl Rope {
    /// The reason why a run whose length lies within bounds cannot be computed.
    pub(super) fn check(&self, (low, high): (i64, i64)) -> Result<(), String> {
        match &self.scaling {
            Scaling::Dynamic { trained, .. } if low != high && high > *trained => Err(format!(
                "with rope_type `dynamic` every angle depends on the length of more than {trained} tokens, which may be {low}..={high}; give it at most {trained}, or, for a whole text at a time, one value with --dim seq=N"
            )),
            Scaling::None
            | Scaling::Linear { .. }
            | Scaling::Dynamic { .. }
            | Scaling::Yarn { .. }
            | Scaling::Long { .. }
            | Scaling::Llama3 { .. } => Ok(()),
        }
    }

    /// The longest of texts whose lengths lie within bounds that has other angles than longer ones of them.
    pub(super) fn turn(&self, (low, high): (i64, i64)) -> Option<i64> {
        match &self.scaling {
            Scaling::Long { trained, .. } if low <= *trained && *trained < high => Some(*trained),
            _ => None,
        }
    }

    /// Lengths up to this have the same angles.
    pub(super) fn steady(&self) -> i64 {
        match self.scaling {
            Scaling::Dynamic { trained, .. } => trained,
            _ => i64::MAX,
        }
    }

    /// Cosines and sines of a run.
    pub(super) fn angles(&self, g: &mut Builder<'_>, sequence: &Sequence) -> Result<Angles> {
        g.name = "rotary_emb".into();
        let high = sequence.keys().range(&g.graph.bounds).1;
        let lengths = sequence.length.range(&g.graph.bounds);
        match self.turn(lengths) {
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
                let beyond = g.binary(BinaryFn::Greater, length, trained)?;
                let cos = g.select(beyond, long.cos, short.cos)?;
                let sin = g.select(beyond, long.sin, short.sin)?;
                Ok(Angles { cos, sin, ..short })
            }
            None => self.table(g, sequence, high, high),
        }
    }

    /// The positions of a run, of a table of `rows` positions as texts of a `length` have them.
    fn table(&self, g: &mut Builder<'_>, sequence: &Sequence, rows: i64, length: i64) -> Result<Angles> {
        let frequencies = self.frequencies(length);
        let factor = self.attention_factor();
        let angles: Vec<f32> =
            (0..rows).flat_map(|p| frequencies.iter().map(move |f| p as f32 * f)).collect();
        let half = frequencies.len();
        let (rows, last) = (usize::try_from(rows).unwrap_or(0), [half, 1]);
        let [pairs, elements] = if self.interleaved { last } else { [1, half] };
        let shape = [rows, 1, pairs, elements];
        let mut picked = |f: fn(f64) -> f64| {
            let values = angles.iter().map(|a| (f(f64::from(*a)) * factor) as f32).collect();
            let table = g.constant(&Array::f32(&shape, values))?;
            g.slice(table, 0, sequence.past.clone(), sequence.seq.clone())
        };
        let (cos, sin) = (picked(f64::cos)?, picked(f64::sin)?);
        let signs: &[usize] = if self.interleaved { &[2] } else { &[2, 1] };
        let signs = g.constant(&Array::f32(signs, vec![-1.0, 1.0]))?;
        Ok(Angles { cos, sin, signs, half, interleaved: self.interleaved })
    }

    /// Factor of cosines and sines.
    fn attention_factor(&self) -> f64 {
        match &self.scaling {
            Scaling::Yarn { attention, .. } | Scaling::Long { attention, .. } => *attention,
            Scaling::None | Scaling::Linear { .. } | Scaling::Dynamic { .. } | Scaling::Llama3 { .. } => 1.0,
        }
    }

    /// Radians for each position, of each pair of elements, in a run of so many positions.
    fn frequencies(&self, length: i64) -> Vec<f32> {
        let size = self.size as f64;
        let plain = |theta: f64, i: usize| theta.powf(-2.0 * i as f64 / size);
        let each = |f: &dyn Fn(usize, f64) -> f64| -> Vec<f32> {
            (0..self.size / 2).map(|i| f(i, plain(self.theta, i)) as f32).collect()
        };
        match &self.scaling {
            Scaling::None => each(&|_, f| f),
            Scaling::Linear { factor } => each(&|_, f| f / factor),
            Scaling::Dynamic { factor, trained } => {
                let times = length.max(*trained) as f64 / *trained as f64;
                let theta = self.theta * (factor * times - (factor - 1.0)).powf(size / (size - 2.0));
                each(&|i, _| plain(theta, i))
            }
            Scaling::Yarn { factor, trained, fast, slow, truncate, .. } => {
                let turning = |turns: f64| {
                    let pairs = (*trained as f64 / (turns * std::f64::consts::TAU)).ln();
                    size * pairs / (2.0 * self.theta.ln())
                };
                let (mut low, mut high) = (turning(*fast), turning(*slow));
                if *truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                let (low, mut high) = (low.max(0.0), high.min(size - 1.0));
                if low == high {
                    high += 0.001;
                }
                each(&|i, f| {
                    let stretched = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    f / factor * stretched + f * (1.0 - stretched)
                })
            }
            Scaling::Long { short, long, trained, .. } => {
                let factors = if length > *trained { long } else { short };
                each(&|i, f| f / factors.get(i).copied().unwrap_or(1.0))
            }
            Scaling::Llama3 { factor, low, high, trained } => each(&|_, f| {
                let turns = *trained as f64 * f / std::f64::consts::TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                f / factor * (1.0 - kept) + f * kept
            }),
        }
    }
}

impl Angles {
    /// `x [batch, seq, heads, size]` rotated.
    ///
    /// Seen as `[.., 2, size / 2]`, or as `[.., size / 2, 2]` where pairs lie beside each other, it is `x * cos + reversed
    /// x * sin * (-1, 1)`, where views cost nothing.
    pub(super) fn rotate(&self, g: &mut Builder<'_>, x: NodeId) -> Result<NodeId> {
        let shape = g.tensor(x).shape.clone();
        let [batch, seq, heads, size] = shape.as_slice() else { return Ok(x) };
        let (half, two) = (Dim::from(self.half), Dim::known(2));
        let turned = half.scale(2);
        let rest = size.sub(&turned);
        let first = if rest.is(0) { x } else { g.slice(x, 3, Dim::known(0), turned.clone())? };
        let front = [batch.clone(), seq.clone(), heads.clone()];
        let seen = |last: &[Dim]| front.iter().chain(last).cloned().collect::<Vec<Dim>>();
        let (last, axis) = if self.interleaved { ([half, two], 4) } else { ([two, half], 3) };
        let pairs = g.reshape(first, seen(&last))?;
        let of = |there: i64, elsewhere: i64| (0..5).map(move |i| if i == axis { there } else { elsewhere });
        let starts = of(1, 0).map(Dim::known).collect();
        let swap = Slice { starts, steps: of(-1, 1).collect(), sizes: g.tensor(pairs).shape.clone() };
        let swapped = g.add(swap, &[pairs])?;
        let a = g.binary(BinaryFn::Mul, pairs, self.cos)?;
        let b = g.binary(BinaryFn::Mul, swapped, self.sin)?;
        let b = g.binary(BinaryFn::Mul, b, self.signs)?;
        let y = g.binary(BinaryFn::Add, a, b)?;
        let y = g.reshape(y, seen(std::slice::from_ref(&turned)))?;
        if rest.is(0) {
            return Ok(y);
        }
        let rest = g.slice(x, 3, turned, rest)?;
        g.add(Concat { axis: 3 }, &[y, rest])
    }
}
