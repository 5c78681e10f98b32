//! Calibrates quantization on sample text: finds the inputs of matmuls that matter most, in the manner of AWQ.
//!
//! ```text
//! norm(x) * scale         -> matmuls          norm(x) * (scale / s) -> matmuls whose weights are w * s
//! silu(gate x) * (up x)   -> down             silu(gate x) * (up / s) x -> down whose weights are w * s
//! ```
//!
//! The rounding error of a weight is a fraction of the largest weight of its group, and a large input amplifies it. So
//! the weights of large inputs are multiplied by a factor before they are rounded, and the input is divided by the
//! factor where it is computed: in the norm before the matmuls, or in the `up` matmul of a gate. Factors are
//! `magnitude ^ alpha`. Several alphas are tried, including 0; the one with the least error of the matmuls wins. Inputs
//! with other sources (attention, experts, fused gate and up weights) are not scaled.
//!
//! If the inputs are rounded to 8 bits too ([`super::activations`]), the error of a matmul includes the rounding of its
//! inputs. The largest input of a row decides the scale of the row, so dividing large channels rounds all others finer.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use super::activations::{is_narrowed, round_row};
use super::weights::{Weights, output_axis, scheme};
use crate::content::Content;
use crate::error::{Error, OpError, Result};
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::encoding::{ChannelFactors, Encoding, MatrixLayout, QuantScheme, QuantizedOnRead};
use crate::ir::eval::trace;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Constant, Element, Elementwise, Input, Op};
use crate::ir::tensor::DType;

/// Number of equal steps in which calibration tries alpha from 0 to 1.
const ALPHA_STEPS: usize = 20;
/// Maximum number of rows of a weight matrix from which quantization errors are computed.
const MAX_ROWS: usize = 256;
/// Minimum magnitude of an input channel in the formula of the factors, as a fraction of the largest magnitude. Smaller
/// magnitudes count as this minimum.
const MIN_MAGNITUDE: f64 = 1e-4;
/// Number of positions for each position whose activations are a sample of rounding errors.
const POSITIONS_PER_SAMPLE: usize = 8;

/// Calibration factors of weights, by the weight's byte range in the model's file.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    factors: BTreeMap<(usize, usize), ColumnFactors>,
}

/// Calibration factors of the inputs of a matmul, one for each input channel, and their reciprocals.
#[derive(Debug, Clone)]
struct ColumnFactors {
    factors: Arc<Vec<f32>>,
    inverse: Arc<Vec<f32>>,
}

/// A group of matmuls that read the same value as their input.
struct Group {
    value: NodeId,
    source: Source,
    /// Weights of the matmuls that read the same value, one for each matmul.
    weights: Vec<NodeId>,
}

/// Place in the graph where the inputs of matmuls are divided by the calibration factors.
enum Source {
    /// Scale and bias of the norm that computes the inputs.
    Norm,
    /// Weights of the matmul (`up`) by whose result a gate is multiplied.
    Gate(NodeId),
}

/// Statistics of one value that is the input of matmuls: sums over all positions of the sample text, one for each channel.
#[derive(Default)]
struct InputStatistics {
    magnitudes: Vec<f64>,
    squares: Vec<f64>,
    positions: usize,
    /// Sampled rows, if the device rounds the value to 8 bits. `None` if it does not.
    rows: Option<Vec<Vec<f32>>>,
}

/// Returns the input of a graph that calibration can evaluate.
///
/// # Errors
/// If the graph has other inputs than ids `[1, tokens]`, or `weights` is f16.
pub fn calibrated_input(graph: &Graph, weights: Weights) -> Result<&Input> {
    let input = match graph.inputs() {
        [id] => graph.input(*id).filter(|input| input.dtype.is_integer() && input.shape.len() == 2),
        _ => None,
    };
    input.filter(|_| weights != Weights::F16).ok_or_else(|| {
        Error::request(
            "--calibrate needs quantized weights and a language model whose only input is token ids",
            "leave out --calibrate, or give it with --weights q8, q844 or w4 for a Hugging Face folder or a .gguf file of floats",
        )
    })
}

impl Calibration {
    /// Calibrates a graph whose only input is ids `[1, tokens]` on chunks of sample text. With `rounds_activations`, the
    /// error of a matmul includes the rounding of its inputs to 8 bits.
    ///
    /// # Errors
    /// If the graph has other inputs, or `weights` is f16, or if the CPU reference cannot evaluate the graph.
    pub fn from_text(
        graph: &Graph,
        weights: Weights,
        rounds_activations: bool,
        chunks: &[Vec<i64>],
    ) -> Result<Self> {
        let input = calibrated_input(graph, weights)?;
        let groups = groups(graph);
        let empty = |group: &Group| InputStatistics {
            rows: (rounds_activations && !is_narrowed(graph, group.value)).then(Vec::new),
            ..InputStatistics::default()
        };
        let mut statistics: BTreeMap<NodeId, InputStatistics> =
            groups.iter().map(|group| (group.value, empty(group))).collect();
        for chunk in chunks {
            let ids = Array::int(input.dtype, &[1, chunk.len()], chunk.clone());
            let inputs = BTreeMap::from([(input.name.clone(), ids)]);
            trace(graph, &inputs, &mut |id, value| {
                if let Some(statistics) = statistics.get_mut(&id) {
                    statistics.add(value);
                }
            })?;
        }
        let mut calibration = Self::default();
        for group in &groups {
            let statistics = statistics.get(&group.value).filter(|s| s.positions > 0);
            let Some(statistics) = statistics else { continue };
            let samples = group.weights.iter().map(|id| WeightSample::new(graph, *id, weights));
            let samples: Vec<WeightSample> = samples.collect::<Result<_>>()?;
            let factors = statistics.best_factors(&samples).map_err(|e| graph.error(group.value, e))?;
            let Some(factors) = factors else {
                continue;
            };
            let inverse = factors.iter().map(|factor| 1.0 / factor).collect();
            let found = ColumnFactors { factors: factors.into(), inverse: Arc::new(inverse) };
            let keys = group.weights.iter().filter_map(|id| file_range(graph, *id));
            calibration.factors.extend(keys.map(|key| (key, found.clone())));
        }
        Ok(calibration)
    }

    /// Number of weight matrices that have calibration factors.
    pub fn count(&self) -> usize {
        self.factors.len()
    }

    /// Divides the inputs of matmuls in the graph by the calibration factors. Returns the factors by which each weight
    /// must be multiplied.
    pub(super) fn apply(&self, graph: &mut Graph) -> Result<BTreeMap<NodeId, ChannelFactors>> {
        let mut all: BTreeMap<NodeId, ChannelFactors> = BTreeMap::new();
        if self.factors.is_empty() {
            return Ok(all);
        }
        for Group { value, source, weights } in groups(graph) {
            let found = |id: &NodeId| self.factors.get(&file_range(graph, *id)?);
            let Some(first) = weights.first().and_then(found) else { continue };
            let same = |id| found(id).is_some_and(|other| Arc::ptr_eq(&other.factors, &first.factors));
            if !weights.iter().all(same) {
                continue;
            }
            for id in &weights {
                all.entry(*id).or_default().columns = Some(Arc::clone(&first.factors));
            }
            match source {
                Source::Gate(up) => all.entry(up).or_default().rows = Some(Arc::clone(&first.inverse)),
                Source::Norm => scale_norm(graph, value, &first.inverse)?,
            }
        }
        Ok(all)
    }
}

/// Multiplies scale and bias of a norm by the reciprocals of calibration factors.
fn scale_norm(graph: &mut Graph, norm: NodeId, inverse: &[f32]) -> Result<()> {
    let name = graph.node(norm).name.clone();
    for operand in graph.operands(norm).into_iter().skip(1) {
        let mut g = Builder::new(graph, &name);
        let factors = g.constant(&Array::f32(&[inverse.len()], inverse.to_vec()))?;
        let dtype = g.tensor(operand).dtype;
        let factors = g.cast(factors, dtype)?;
        let scaled = g.binary(BinaryFn::Mul, operand, factors)?;
        graph.replace_operand(norm, operand, scaled);
    }
    Ok(())
}

/// Returns the host address of a constant's stored bytes, and their number. Returns `None` if the node is not a constant.
fn file_range(graph: &Graph, id: NodeId) -> Option<(usize, usize)> {
    graph.constant(id).map(|constant| (constant.bytes.as_ptr() as usize, constant.bytes.len()))
}

/// Returns the inputs of matmuls that can be divided by calibration factors in the node that computes them (a norm or a gate),
/// and whose only users are matmuls with quantizable weights.
fn groups(graph: &Graph) -> Vec<Group> {
    let group = |value: NodeId| {
        let node = graph.node(value);
        if graph.is_output(value) || !node.epilogue.is_empty() {
            return None;
        }
        let source = match &node.op {
            Op::LayerNorm(norm) if norm.axis + 1 == graph.tensor(value).rank() => Source::Norm,
            Op::Elementwise(Elementwise { element: Element::Binary(BinaryFn::Mul) }) => {
                let operands = graph.operands(value);
                let alone = |id: &&NodeId| {
                    graph.use_count(**id) == 1 && graph.tensor(**id).shape == graph.tensor(value).shape
                };
                Source::Gate(operands.iter().rev().filter(alone).find_map(|id| exclusive_weight(graph, *id))?)
            }
            _ => return None,
        };
        let users = graph.users(value);
        let weights = users.iter().map(|user| {
            let first = graph.operands(*user).first() == Some(&value);
            exclusive_weight(graph, *user).filter(|_| first)
        });
        let weights: Vec<NodeId> = weights.collect::<Option<_>>()?;
        (!weights.is_empty() && users.len() == graph.use_count(value)).then_some(Group {
            value,
            source,
            weights,
        })
    };
    graph.ids().into_iter().filter_map(group).collect()
}

/// Returns the quantizable weight of a matmul. Returns `None` if the weight has other users, or the node is not a
/// matmul.
fn exclusive_weight(graph: &Graph, matmul: NodeId) -> Option<NodeId> {
    let Op::MatMul(_) = graph.op(matmul) else { return None };
    let mut id = *graph.operands(matmul).get(1)?;
    loop {
        if graph.use_count(id) != 1 || !graph.node(id).epilogue.is_empty() {
            return None;
        }
        match graph.op(id) {
            Op::Constant(constant) => {
                return (constant.shape.len() == 2 && output_axis(graph, id).is_some()).then_some(id);
            }
            Op::Elementwise(Elementwise { element: Element::Cast(_) }) | Op::Transpose(_) => {
                id = *graph.operands(id).first()?;
            }
            _ => return None,
        }
    }
}

/// A sample of the rows of a weight matrix, for the estimate of quantization errors.
struct WeightSample {
    values: Vec<f32>,
    bytes: Content,
    size: [usize; 2],
    scheme: QuantScheme,
}

impl WeightSample {
    fn new(graph: &Graph, id: NodeId, weights: Weights) -> Result<Self> {
        let name = &graph.node(id).name;
        let (axis, constant) = output_axis(graph, id)
            .zip(graph.constant(id))
            .ok_or_else(|| Error::internal("calibration", format!("`{name}` is not a weight")))?;
        let rows = if axis == 0 { Some(constant.clone()) } else { constant.transposed(&[1, 0]) };
        let rows = rows.ok_or_else(|| Error::internal("calibration", format!("`{name}` has no rows")))?;
        let array = rows.to_array().map_err(|e| graph.error(id, e))?;
        constant.bytes.release();
        let [rows, columns] = array.shape[..] else {
            return Err(Error::internal("calibration", format!("`{name}` is not a matrix")));
        };
        let floats = array.floats().map_err(|e| graph.error(id, e))?;
        let step = rows.div_ceil(MAX_ROWS).max(1);
        let values: Vec<f32> = floats.chunks(columns.max(1)).step_by(step).flatten().copied().collect();
        let size = [values.len() / columns.max(1), columns];
        let bytes = Array::f32(&size, values.clone()).to_bytes().into();
        Ok(Self { values, bytes, size, scheme: scheme(weights, name) })
    }

    /// Returns the estimated squared error of a matmul's results if the weight's columns are multiplied by factors before
    /// quantization. `squares` are the sums of squares of the matmul's inputs.
    fn squared_error(&self, factors: &Arc<Vec<f32>>, squares: &[f64]) -> std::result::Result<f64, OpError> {
        let multiplied = ChannelFactors { rows: None, columns: Some(Arc::clone(factors)) };
        let layout = MatrixLayout::from_strides(self.size, [self.size[1], 1]);
        let rounded =
            QuantizedOnRead::with_factors(DType::F32, &self.bytes, layout, self.scheme, multiplied)?;
        let stored = Encoding::QuantizedOnRead(rounded.into());
        let rounded = Constant::encoded(self.size.to_vec(), stored, self.bytes.clone())?.to_array()?;
        let columns = factors.iter().zip(squares).cycle();
        let pairs = self.values.iter().zip(rounded.floats()?).zip(columns);
        let error = |((value, rounded), (factor, square)): ((&f32, &f32), (&f32, &f64))| {
            f64::from(value - rounded / factor).powi(2) * square
        };
        Ok(pairs.map(error).sum())
    }
}

impl InputStatistics {
    /// Adds the values of one chunk of the sample text to the statistics.
    fn add(&mut self, value: &Array) {
        let (Ok(values), Some(width)) = (value.floats(), value.shape.last().filter(|n| **n > 0)) else {
            return;
        };
        self.magnitudes.resize(*width, 0.0);
        self.squares.resize(*width, 0.0);
        for row in values.chunks(*width) {
            if let Some(rows) =
                self.rows.as_mut().filter(|_| self.positions.is_multiple_of(POSITIONS_PER_SAMPLE))
            {
                rows.push(row.to_vec());
            }
            self.positions += 1;
            let sums = self.magnitudes.iter_mut().zip(&mut self.squares);
            for ((magnitude, square), v) in sums.zip(row).filter(|(_, v)| v.is_finite()) {
                *magnitude += f64::from(v.abs());
                *square += f64::from(*v).powi(2);
            }
        }
    }

    /// Returns the estimated squared error of the matmuls' results by the rounding of their inputs to 8 bits, after the inputs
    /// are divided by factors. `weight_squares` are the sums of squares of the weights of each input channel. Returns 0 if the
    /// inputs are not rounded.
    fn activation_error(&self, factors: &[f32], weight_squares: &[f64]) -> f64 {
        let Some(rows) = self.rows.as_ref().filter(|rows| !rows.is_empty()) else { return 0.0 };
        let row_error = |row: &Vec<f32>| {
            let divided: Vec<f32> = row.iter().zip(factors).map(|(x, factor)| x / factor).collect();
            let errors = round_row(&divided).zip(&divided).zip(factors);
            let errors = errors.map(|((rounded, x), factor)| f64::from((rounded - x) * factor).powi(2));
            let sum: f64 = errors.zip(weight_squares).map(|(error, weights)| error * weights).sum();
            if sum.is_finite() { sum } else { 0.0 }
        };
        let sum: f64 = rows.iter().map(row_error).sum();
        sum * self.positions as f64 / rows.len() as f64
    }

    /// Returns the calibration factors with the least error. Returns `None` if the error is least without factors.
    fn best_factors(&self, samples: &[WeightSample]) -> std::result::Result<Option<Vec<f32>>, OpError> {
        let largest = self.magnitudes.iter().copied().fold(0.0, f64::max);
        if largest == 0.0 || samples.iter().any(|sample| sample.size[1] != self.magnitudes.len()) {
            return Ok(None);
        }
        let factors_at = |step: usize| {
            let power =
                |m: &f64| libm::pow((m / largest).max(MIN_MAGNITUDE), step as f64 / ALPHA_STEPS as f64);
            let factors: Vec<f64> = self.magnitudes.iter().map(power).collect();
            // Center the factors: the largest is the reciprocal of the smallest.
            let least = factors.iter().copied().fold(1.0, f64::min);
            factors.iter().map(|factor| (factor / least.sqrt()) as f32).collect::<Vec<f32>>()
        };
        let mut weight_squares = vec![0.0; self.magnitudes.len()];
        for row in samples.iter().flat_map(|sample| sample.values.chunks(sample.size[1])) {
            for (sum, value) in weight_squares.iter_mut().zip(row) {
                *sum += f64::from(*value).powi(2);
            }
        }
        let error = |step: usize| {
            let factors = Arc::new(factors_at(step));
            let errors = samples.iter().map(|sample| sample.squared_error(&factors, &self.squares));
            let errors = errors.sum::<std::result::Result<f64, OpError>>()?;
            Ok(errors + self.activation_error(&factors, &weight_squares))
        };
        let errors = (0..=ALPHA_STEPS)
            .into_par_iter()
            .map(error)
            .collect::<std::result::Result<Vec<f64>, OpError>>()?;
        let best = errors.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(step, _)| step);
        Ok((best > 0).then(|| factors_at(best)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Calibration, groups};
    use crate::ir::array::Array;
    use crate::ir::builder::Builder;
    use crate::ir::dim::Dim;
    use crate::ir::eval::eval;
    use crate::ir::graph::Graph;
    use crate::ir::op::{BinaryFn, Gather, LayerNorm, MatMul, UnaryFn};
    use crate::ir::ops::constant::random;
    use crate::ir::tensor::DType;
    use crate::quantize::{activations, run};

    /// A test graph: a gated MLP after a norm in which every 20th channel is large.
    fn layer() -> Graph {
        let mut graph = Graph::default();
        graph.bounds.insert("seq".to_string(), (1, 64));
        let mut g = Builder::new(&mut graph, "words");
        let ids = g.input("input_ids", DType::I64, vec![Dim::known(1), Dim::symbol("seq")]).unwrap();
        let table = g.constant(&random(DType::F32, &[50, 128], 1)).unwrap();
        let x = g.add(Gather { axis: 0 }, &[table, ids]).unwrap();
        let scale = (0..128).map(|i| if i % 20 == 3 { 30.0 } else { 1.0 }).collect();
        let scale = g.constant(&Array::f32(&[128], scale)).unwrap();
        let x = g.add(LayerNorm { axis: 2, epsilon: 1e-6, rms: true }, &[x, scale]).unwrap();
        let matmul = |g: &mut Builder<'_>, x, [inputs, outputs]: [usize; 2], seed| {
            g.name = format!("mlp.{seed}");
            let w = g.constant(&random(DType::F32, &[outputs, inputs], seed)).unwrap();
            g.add(MatMul { trans_a: false, trans_b: true }, &[x, w]).unwrap()
        };
        let gate = matmul(&mut g, x, [128, 96], 2);
        let up = matmul(&mut g, x, [128, 96], 3);
        let gate = g.unary(UnaryFn::Sigmoid, gate).unwrap();
        let y = g.binary(BinaryFn::Mul, gate, up).unwrap();
        let y = matmul(&mut g, y, [96, 64], 4);
        g.graph.add_output("y", y);
        graph
    }

    #[test]
    fn calibration_lowers_the_error() {
        let graph = layer();
        assert_eq!(groups(&graph).iter().map(|g| g.weights.len()).collect::<Vec<_>>(), [2, 1]);
        let ids = |seed: i64| (0..40).map(|i| (i * i * 7 + seed * 13) % 50).collect::<Vec<i64>>();
        let run_on = |graph: &Graph| {
            let ids = Array::int(DType::I64, &[1, 40], ids(5));
            let y = eval(graph, &BTreeMap::from([("input_ids".to_string(), ids)])).unwrap().remove(0).1;
            y.floats().unwrap().to_vec()
        };
        let wanted = run_on(&graph);
        for weights in ["w4:32", "w4:32:zeros", "q844"] {
            let weights = weights.parse().unwrap();
            let found =
                Calibration::from_text(&graph, weights, false, &[ids(1), ids(2)[..9].to_vec()]).unwrap();
            // Inputs of the last matmul have similar magnitudes, so no scaling may be best for it.
            assert!(matches!(found.count(), 2 | 3), "{weights}: {}", found.count());
            let error = |calibration: &Calibration| {
                let mut quantized = graph.clone();
                let changes = run([&mut quantized], weights, calibration).unwrap();
                assert_eq!(changes.count, 3);
                let squares =
                    run_on(&quantized).iter().zip(&wanted).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
                squares.sqrt()
            };
            let (plain, calibrated) = (error(&Calibration::default()), error(&found));
            assert!(
                calibrated < 0.95 * plain,
                "{weights}: the error is {calibrated} with calibration, {plain} without"
            );
        }
    }

    /// Every 20th channel of the norm is 30 times as large as the others, so it decides the scales of the rows.
    #[test]
    fn calibration_lowers_the_error_of_rounded_activations() {
        let graph = layer();
        let ids = |seed: i64| (0..40).map(|i| (i * i * 7 + seed * 13) % 50).collect::<Vec<i64>>();
        let run_on = |graph: &Graph| {
            let ids = Array::int(DType::I64, &[1, 40], ids(5));
            let y = eval(graph, &BTreeMap::from([("input_ids".to_string(), ids)])).unwrap().remove(0).1;
            y.floats().unwrap().to_vec()
        };
        let wanted = run_on(&graph);
        let error = |calibration: &Calibration| {
            let mut quantized = graph.clone();
            quantized.bounds.insert("seq".to_string(), (40, 40));
            run([&mut quantized], "q8".parse().unwrap(), calibration).unwrap();
            // The matmul after the gate keeps its floats.
            assert_eq!(activations::run([&mut quantized]).unwrap(), 2);
            let squares = run_on(&quantized).iter().zip(&wanted).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
            squares.sqrt()
        };
        let found = |rounds_activations| {
            let weights = "q8".parse().unwrap();
            Calibration::from_text(&graph, weights, rounds_activations, &[ids(1), ids(2)]).unwrap()
        };
        let (weights_only, all) = (error(&found(false)), error(&found(true)));
        let plain = error(&Calibration::default());
        assert!(all < 0.7 * plain && all < weights_only, "{plain}, {weights_only}, {all}");
    }

    #[test]
    fn models_without_ids_are_refused() {
        let refused =
            Calibration::from_text(&layer(), "f16".parse().unwrap(), false, &[]).unwrap_err().to_string();
        assert!(refused.contains("needs quantized weights"), "{refused}");
        let refused = Calibration::from_text(&Graph::default(), "q8".parse().unwrap(), false, &[]);
        assert!(refused.is_err());
        let outside = Calibration::from_text(&layer(), "q8".parse().unwrap(), false, &[vec![1, 50]]);
        assert!(outside.is_err());
    }
}
