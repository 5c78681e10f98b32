//! Calibration: which inputs of products matter, by a text that the float model reads, in the manner of AWQ.
//!
//! ```text
//! norm(x) * scale         -> products         norm(x) * (scale / s) -> products whose weights hold w * s
//! silu(gate x) * (up x)   -> down             silu(gate x) * (up / s) x -> down whose weights hold w * s
//! ```
//!
//! Rounding errs by a part of the largest weight of a group. An input that is large makes much of such errors; its weights are
//! multiplied before they are rounded, and the input is divided by as much where it is computed: in the normalisation before
//! the products, or in the product that gates them. Factors are `magnitude ^ alpha`; of several alphas, 0 among them, the one
//! counts with which the products err least. What has other sources (the output of attention, experts, merged gates) stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::{IntoParallelIterator, ParallelIterator};

use super::{Weights, outputs, scheme};
use crate::content::Content;
use crate::error::{Error, OpError, Result};
use crate::ir::array::Array;
use crate::ir::builder::Builder;
use crate::ir::encoding::{Factors, Rounded, Scheme, Stored};
use crate::ir::eval::trace;
use crate::ir::graph::{Graph, NodeId};
use crate::ir::op::{BinaryFn, Constant, Element, Elementwise, Op};
use crate::ir::tensor::DType;

/// Alphas that are tried, from 0 to 1.
const ALPHAS: usize = 20;
/// Most outputs of a product that are looked at.
const ROWS: usize = 256;
/// Magnitudes count as at least this part of the largest.
const LEAST: f64 = 1e-4;

/// What weights are multiplied by, by the part of the model's file that they lie in.
#[derive(Debug, Clone, Default)]
pub struct Calibration {
    products: BTreeMap<(usize, usize), Multiplied>,
}

/// Factors of the inputs of products, and one over each.
#[derive(Debug, Clone)]
struct Multiplied {
    factors: Arc<Vec<f32>>,
    inverse: Arc<Vec<f32>>,
}

/// Products of one value.
struct Group {
    value: NodeId,
    source: Source,
    /// Their weights.
    weights: Vec<NodeId>,
}

/// What can be divided instead of a value.
enum Source {
    /// Scale and bias of a normalisation.
    Norm,
    /// The outputs of a product with these weights, by which another value is multiplied.
    Gate(NodeId),
}

/// Sums over the positions of a text, for each input.
#[derive(Default)]
struct Observed {
    magnitudes: Vec<f64>,
    squares: Vec<f64>,
    positions: usize,
}

impl Calibration {
    /// Runs a graph whose only input is ids `[1, tokens]` on pieces of a text.
    ///
    /// # Errors
    /// A graph that takes something else, or weights that are not rounded; as [`trace`].
    pub fn of(graph: &Graph, weights: Weights, pieces: &[Vec<i64>]) -> Result<Self> {
        let input = match graph.inputs() {
            [id] => graph.input(*id).filter(|input| input.dtype.is_integer() && input.shape.len() == 2),
            _ => None,
        };
        let Some(input) = input.filter(|_| weights != Weights::F16) else {
            return Err(Error::request(
                "a text calibrates codes of a language model that takes ids alone",
                "leave out --calibrate, or give it with --weights q8, q844 or w4 for a Hugging Face folder or a .gguf file of floats",
            ));
        };
        let groups = groups(graph);
        let mut observed: BTreeMap<NodeId, Observed> =
            groups.iter().map(|group| (group.value, Observed::default())).collect();
        for piece in pieces {
            let ids = Array::int(input.dtype, &[1, piece.len()], piece.clone());
            let inputs = BTreeMap::from([(input.name.clone(), ids)]);
            trace(graph, &inputs, &mut |id, value| {
                if let Some(observed) = observed.get_mut(&id) {
                    observed.add(value);
                }
            })?;
        }
        let mut calibration = Self::default();
        for group in &groups {
            let Some(observed) = observed.get(&group.value).filter(|o| o.positions > 0) else { continue };
            let matrices = group.weights.iter().map(|id| matrix(graph, *id, weights));
            let matrices: Vec<Matrix> = matrices.collect::<Result<_>>()?;
            let Some(factors) = observed.factors(&matrices).map_err(|e| graph.error(group.value, e))? else {
                continue;
            };
            let inverse = factors.iter().map(|factor| 1.0 / factor).collect();
            let found = Multiplied { factors: factors.into(), inverse: Arc::new(inverse) };
            let keys = group.weights.iter().filter_map(|id| key(graph, *id));
            calibration.products.extend(keys.map(|key| (key, found.clone())));
        }
        Ok(calibration)
    }

    /// How many weights are multiplied.
    pub fn count(&self) -> usize {
        self.products.len()
    }

    /// Divides the inputs of products, and returns what weights are to be multiplied by.
    pub(super) fn apply(&self, graph: &mut Graph) -> Result<BTreeMap<NodeId, Factors>> {
        let mut all: BTreeMap<NodeId, Factors> = BTreeMap::new();
        if self.products.is_empty() {
            return Ok(all);
        }
        for Group { value, source, weights } in groups(graph) {
            let found = |id: &NodeId| self.products.get(&key(graph, *id)?);
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
                Source::Norm => divide(graph, value, &first.inverse)?,
            }
        }
        Ok(all)
    }
}

/// Multiplies scale and bias of a normalisation.
fn divide(graph: &mut Graph, norm: NodeId, inverse: &[f32]) -> Result<()> {
    let name = graph.node(norm).name.clone();
    for operand in graph.operands(norm).into_iter().skip(1) {
        let mut g = Builder::new(graph, &name);
        let factors = g.constant(&Array::f32(&[inverse.len()], inverse.to_vec()))?;
        let dtype = g.tensor(operand).dtype;
        let factors = g.cast(factors, dtype)?;
        let product = g.binary(BinaryFn::Mul, operand, factors)?;
        graph.replace_operand(norm, operand, product);
    }
    Ok(())
}

/// Where a constant lies.
fn key(graph: &Graph, id: NodeId) -> Option<(usize, usize)> {
    graph.constant(id).map(|constant| (constant.bytes.as_ptr() as usize, constant.bytes.len()))
}

/// The values whose only uses are products with weights that are rounded, and which can be divided where they are computed.
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
                Source::Gate(operands.iter().rev().filter(alone).find_map(|id| weight(graph, *id))?)
            }
            _ => return None,
        };
        let users = graph.users(value);
        let weights = users.iter().map(|user| {
            let first = graph.operands(*user).first() == Some(&value);
            weight(graph, *user).filter(|_| first)
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

/// The weights of a product that alone uses them, where they are rounded.
fn weight(graph: &Graph, product: NodeId) -> Option<NodeId> {
    let Op::MatMul(_) = graph.op(product) else { return None };
    let mut id = *graph.operands(product).get(1)?;
    loop {
        if graph.use_count(id) != 1 || !graph.node(id).epilogue.is_empty() {
            return None;
        }
        match graph.op(id) {
            Op::Constant(constant) => {
                return (constant.shape.len() == 2 && outputs(graph, id).is_some()).then_some(id);
            }
            Op::Elementwise(Elementwise { element: Element::Cast(_) }) | Op::Transpose(_) => {
                id = *graph.operands(id).first()?;
            }
            _ => return None,
        }
    }
}

/// Some rows of the weights of a product.
struct Matrix {
    values: Vec<f32>,
    bytes: Content,
    size: [usize; 2],
    scheme: Scheme,
}

fn matrix(graph: &Graph, id: NodeId, weights: Weights) -> Result<Matrix> {
    let name = &graph.node(id).name;
    let (axis, constant) = outputs(graph, id)
        .zip(graph.constant(id))
        .ok_or_else(|| Error::internal("calibration", format!("`{name}` is no weight")))?;
    let seen = if axis == 0 { Some(constant.clone()) } else { constant.transposed(&[1, 0]) };
    let seen = seen.ok_or_else(|| Error::internal("calibration", format!("`{name}` has no rows")))?;
    let array = seen.to_array().map_err(|e| graph.error(id, e))?;
    constant.bytes.release();
    let [rows, columns] = array.shape[..] else {
        return Err(Error::internal("calibration", format!("`{name}` is no matrix")));
    };
    let floats = array.floats().map_err(|e| graph.error(id, e))?;
    let step = rows.div_ceil(ROWS).max(1);
    let values: Vec<f32> = floats.chunks(columns.max(1)).step_by(step).flatten().copied().collect();
    let size = [values.len() / columns.max(1), columns];
    let bytes = Array::f32(&size, values.clone()).to_bytes().into();
    Ok(Matrix { values, bytes, size, scheme: scheme(weights, name) })
}

impl Matrix {
    /// The squared error of its products with inputs of these mean squares, where columns are multiplied by factors.
    fn error(&self, factors: &Arc<Vec<f32>>, squares: &[f64]) -> std::result::Result<f64, OpError> {
        let multiplied = Factors { rows: None, columns: Some(Arc::clone(factors)) };
        let lies = (self.size, [self.size[1], 1]);
        let rounded = Rounded::multiplied(DType::F32, &self.bytes, lies, self.scheme, multiplied)?;
        let stored = Stored::Rounded(rounded.into());
        let rounded = Constant::encoded(self.size.to_vec(), stored, self.bytes.clone())?.to_array()?;
        let columns = factors.iter().zip(squares).cycle();
        let pairs = self.values.iter().zip(rounded.floats()?).zip(columns);
        let error = |((value, rounded), (factor, square)): ((&f32, &f32), (&f32, &f64))| {
            f64::from(value - rounded / factor).powi(2) * square
        };
        Ok(pairs.map(error).sum())
    }
}

impl Observed {
    fn add(&mut self, value: &Array) {
        let (Ok(values), Some(width)) = (value.floats(), value.shape.last().filter(|n| **n > 0)) else {
            return;
        };
        self.magnitudes.resize(*width, 0.0);
        self.squares.resize(*width, 0.0);
        for row in values.chunks(*width) {
            self.positions += 1;
            let sums = self.magnitudes.iter_mut().zip(&mut self.squares);
            for ((magnitude, square), v) in sums.zip(row).filter(|(_, v)| v.is_finite()) {
                *magnitude += f64::from(v.abs());
                *square += f64::from(*v).powi(2);
            }
        }
    }

    /// The factors with which products err least; none where these are ones.
    fn factors(&self, matrices: &[Matrix]) -> std::result::Result<Option<Vec<f32>>, OpError> {
        let most = self.magnitudes.iter().copied().fold(0.0, f64::max);
        if most == 0.0 || matrices.iter().any(|matrix| matrix.size[1] != self.magnitudes.len()) {
            return Ok(None);
        }
        let of = |alpha: usize| {
            let power = |m: &f64| (m / most).max(LEAST).powf(alpha as f64 / ALPHAS as f64);
            let factors: Vec<f64> = self.magnitudes.iter().map(power).collect();
            // The largest is as far above one as the smallest is below it.
            let least = factors.iter().copied().fold(1.0, f64::min);
            factors.iter().map(|factor| (factor / least.sqrt()) as f32).collect::<Vec<f32>>()
        };
        let error = |alpha: usize| {
            let factors = Arc::new(of(alpha));
            let errors = matrices.iter().map(|matrix| matrix.error(&factors, &self.squares));
            errors.sum::<std::result::Result<f64, OpError>>()
        };
        let errors =
            (0..=ALPHAS).into_par_iter().map(error).collect::<std::result::Result<Vec<f64>, OpError>>()?;
        let best = errors.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(alpha, _)| alpha);
        Ok((best > 0).then(|| of(best)))
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
    use crate::quantise::run;

    /// A gated layer behind a norm in which every 20th channel is large.
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
        let product = |g: &mut Builder<'_>, x, [inputs, outputs]: [usize; 2], seed| {
            g.name = format!("mlp.{seed}");
            let w = g.constant(&random(DType::F32, &[outputs, inputs], seed)).unwrap();
            g.add(MatMul { trans_a: false, trans_b: true }, &[x, w]).unwrap()
        };
        let gate = product(&mut g, x, [128, 96], 2);
        let up = product(&mut g, x, [128, 96], 3);
        let gate = g.unary(UnaryFn::Sigmoid, gate).unwrap();
        let y = g.binary(BinaryFn::Mul, gate, up).unwrap();
        let y = product(&mut g, y, [96, 64], 4);
        g.graph.add_output("y", y);
        graph
    }

    #[test]
    fn inputs_that_matter_are_rounded_more_finely() {
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
            let found = Calibration::of(&graph, weights, &[ids(1), ids(2)[..9].to_vec()]).unwrap();
            // Inputs of the last product are of one size, so that it may be best as it is.
            assert!(matches!(found.count(), 2 | 3), "{weights}: {}", found.count());
            let error = |calibration: &Calibration| {
                let mut coded = graph.clone();
                let changes = run([&mut coded], weights, calibration).unwrap();
                assert_eq!(changes.count, 3);
                let squares = run_on(&coded).iter().zip(&wanted).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
                squares.sqrt()
            };
            let (plain, calibrated) = (error(&Calibration::default()), error(&found));
            assert!(calibrated < 0.95 * plain, "{weights}: {calibrated}, and {plain} without");
        }
    }

    #[test]
    fn what_has_no_ids_is_refused() {
        let refused = Calibration::of(&layer(), "f16".parse().unwrap(), &[]).unwrap_err().to_string();
        assert!(refused.contains("codes of a language model"), "{refused}");
        let refused = Calibration::of(&Graph::default(), "q8".parse().unwrap(), &[]);
        assert!(refused.is_err());
        let outside = Calibration::of(&layer(), "q8".parse().unwrap(), &[vec![1, 50]]);
        assert!(outside.is_err());
    }
}
