//! Random small graphs for property tests: a seed makes one graph, and arrays for its inputs.
//!
//! A graph grows from one to three inputs by steps. Each step applies to a value that is already in the graph and adds element
//! functions, matmuls, convolutions, pools, reductions, norms and data movement, or one of the longer patterns that exporters
//! write and passes recognize. Sizes are small and odd, some are symbols. Values stay near one, and discontinuous functions are
//! rare, so that a rewrite which only reorders rounding changes little.

mod integers;
mod patterns;
mod steps;

use std::collections::BTreeMap;

use driftc::Result;
use driftc::ir::array::{Array, count};
use driftc::ir::builder::Builder;
use driftc::ir::dim::{Bindings, Dim};
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::ops::constant::random;
use driftc::ir::tensor::DType;

/// Maximum number of elements of a tensor in a random graph, with every symbol at its upper bound.
const MAX_ELEMENTS: i64 = 1500;

/// Pseudo-random number generator (splitmix64), which gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Creates a random number generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the next 64 random bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `n`, which must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n as u64) as usize
    }

    /// Returns true with a probability of 1 / `n`.
    pub fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Returns a random item of a list.
    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    /// Returns a random float in `low..high`.
    pub fn float(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * (self.draw() >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// State of a random graph while it grows. Steps read and extend it.
struct Growth<'g> {
    builder: Builder<'g>,
    rng: Rng,
    /// Float tensors of the graph so far to which steps can apply; each has at most [`MAX_ELEMENTS`] elements.
    values: Vec<NodeId>,
}

impl Growth<'_> {
    /// The value's shape.
    fn shape(&self, x: NodeId) -> Vec<Dim> {
        self.builder.tensor(x).shape.clone()
    }

    /// Returns the size of a tensor's last axis, or `None` if the size is symbolic.
    fn width(&self, x: NodeId) -> Option<usize> {
        self.shape(x).last()?.as_known()?.try_into().ok()
    }

    /// Adds a constant with random elements in `-scale..scale`.
    fn constant(&mut self, shape: &[usize], scale: f32) -> Result<NodeId> {
        let values = (0..count(shape)).map(|_| self.rng.float(-scale, scale)).collect();
        self.builder.constant(&Array::f32(shape, values))
    }

    /// True if a tensor has at most [`MAX_ELEMENTS`] elements, at most six axes, and no axis that may be empty.
    fn fits(&self, x: NodeId) -> bool {
        let bounds = &self.builder.graph.bounds;
        let ranges: Vec<(i64, i64)> = self.shape(x).iter().map(|d| d.range(bounds)).collect();
        let most = ranges.iter().fold(1i64, |n, (_, high)| n.saturating_mul(*high));
        ranges.iter().all(|(low, _)| *low > 0) && most <= MAX_ELEMENTS && ranges.len() <= 6
    }
}

/// Returns the random graph of a seed.
///
/// # Panics
/// If the graph refuses the operator of a step: a defect of the step or of shape inference.
pub fn graph(seed: u64) -> Graph {
    let mut graph = Graph::default();
    grow(&mut graph, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    graph.sweep();
    graph
}

fn grow(graph: &mut Graph, seed: u64) -> Result<()> {
    let builder = Builder::new(graph, "");
    let mut growth = Growth { builder, rng: Rng::new(seed), values: Vec::new() };
    let g = &mut growth;
    for i in 0..1 + g.rng.below(3) {
        let shape = input_shape(g);
        let x = g.builder.input(&format!("x{i}"), DType::F32, shape)?;
        g.values.push(x);
    }
    let steps = 3 + g.rng.below(14);
    let mut made = 0;
    // A step that does not apply to the value it drew is drawn again.
    for attempt in 0..steps * 6 {
        if made == steps {
            break;
        }
        // Recent values are likelier, so that epilogues become long.
        let back = g.rng.below(g.values.len()).min(g.rng.below(g.values.len()));
        let x = g.values[g.values.len() - 1 - back];
        g.builder.name = format!("n{attempt}");
        let y = if g.rng.once_in(4) { patterns::step(g, x)? } else { steps::step(g, x)? };
        if let Some(y) = y.filter(|y| g.fits(*y)) {
            g.values.push(y);
            made += 1;
        }
    }
    let last = *g.values.last().unwrap_or(&g.values[0]);
    g.builder.graph.add_output("y0", last);
    for i in 1..1 + g.rng.below(3) {
        // A result may be used elsewhere, be an input, or appear twice.
        let node = g.rng.pick(&g.values.clone());
        g.builder.graph.add_output(&format!("y{i}"), node);
    }
    Ok(())
}

/// Returns the random shape of an input: an image, a sequence, a matrix, or another small tensor.
fn input_shape(g: &mut Growth<'_>) -> Vec<Dim> {
    let mut size = |sizes: &[usize]| Dim::from(g.rng.pick(sizes));
    let shape = match size(&[0, 0, 0, 1, 1, 2, 3]).as_known() {
        Some(0) => vec![size(&[1, 2]), size(&[1, 3, 4, 5, 8]), size(&[5, 6, 7]), size(&[5, 6, 9])],
        Some(1) => vec![size(&[1, 2]), size(&[3, 5, 7]), size(&[4, 6, 8, 12])],
        Some(2) => vec![size(&[2, 3, 7]), size(&[4, 5, 8])],
        _ => vec![size(&[1, 4]), size(&[1, 3]), size(&[2, 5])],
    };
    if g.rng.once_in(3) {
        return symbolic(g, shape);
    }
    shape
}

/// Replaces one size of a shape by a symbol. The lower bound of an image's height stays large enough for small windows.
fn symbolic(g: &mut Growth<'_>, mut shape: Vec<Dim>) -> Vec<Dim> {
    let (axis, name, bounds) = match shape.len() {
        4 if g.rng.once_in(2) => (2, "h", (5, 9)),
        3 => (1, "seq", (1, 7)),
        _ => (0, "batch", (1, 3)),
    };
    shape[axis] = Dim::symbol(name);
    g.builder.graph.bounds.insert(name.into(), bounds);
    shape
}

/// Returns random arrays for a graph's inputs. The seed also determines the values of the symbols.
///
/// # Panics
/// If a size of an input is negative or has an unknown symbol.
pub fn inputs(graph: &Graph, seed: u64) -> BTreeMap<String, Array> {
    let mut rng = Rng::new(seed ^ 0x5eed);
    let mut symbols = Bindings::new();
    for (name, (low, high)) in &graph.bounds {
        symbols.insert(name.clone(), low + rng.below((high - low + 1) as usize) as i64);
    }
    let mut arrays = BTreeMap::new();
    for input in graph.inputs().iter().filter_map(|id| graph.input(*id)) {
        let size = |d: &Dim| usize::try_from(d.eval(&symbols).expect("a bound symbol")).expect("a size");
        let shape: Vec<usize> = input.shape.iter().map(size).collect();
        arrays.insert(input.name.clone(), random(input.dtype, &shape, rng.draw()));
    }
    arrays
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use driftc::ir::eval::eval;
    use driftc::ir::graph_text::print;
    use driftc::ir::op::Op;
    use driftc::ir::verify::verify;

    use super::{graph, inputs};

    #[test]
    fn graphs_are_valid_varied_and_reproducible() {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut symbolic = 0;
        for seed in 0..300 {
            let g = graph(seed);
            verify(&g, "random graph").unwrap();
            assert_eq!(print(&g), print(&graph(seed)));
            names.extend(g.ids().iter().map(|id| g.op(*id).name()));
            symbolic += usize::from(!g.bounds.is_empty());
            for (name, value) in eval(&g, &inputs(&g, seed)).unwrap_or_else(|e| panic!("seed {seed}: {e}")) {
                let finite = value.to_floats().iter().all(|v| v.is_finite() && v.abs() < 1e6);
                assert!(finite, "seed {seed}: {name} = {value:?}\n{}", print(&g));
            }
        }
        let never = [
            "add-norms",
            "arg-reduce",
            "attention",
            "conv-transpose",
            "fused-matmul",
            "gather-elements",
            "gather-nd",
            "norm-of-sums",
            "quantize-rows",
            "quantized-rows-matmul",
            "recurrent",
            "relayout",
            "resize",
            "scatter-elements",
            "scatter-nd",
            "separable-conv",
            "shape-values",
            "top-k",
            "winograd-input",
            "winograd-output",
        ];
        let missing: Vec<&&str> = Op::NAMES.iter().filter(|n| !names.contains(**n)).collect();
        assert!(missing.iter().all(|n| never.contains(n)), "no seed uses {missing:?}");
        assert!(symbolic > 60, "{symbolic} graphs with symbols");
    }
}
