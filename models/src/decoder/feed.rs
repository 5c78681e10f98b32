//! The second half of a layer: a gated product, or a mixture of several.

use driftc::error::{Error, Result};
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Constant, GatherMatMul, MatMul, TopK};
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::tensor::DType;

use super::Parts;
use super::attention::{affine, columns};
use crate::blocks::product;
use crate::weights::Tensors;

/// The most tokens of which only the experts that they use are computed.
const FEW: i64 = 16;

/// The feed-forward part of a layer.
#[derive(Debug, Clone)]
pub(crate) enum Feed {
    /// `down(activation(gate x) * up x)`.
    Gated(Gated),
    /// A weighted sum of several.
    Experts(Experts),
}

/// `down(activation(gate x) * up x)`.
#[derive(Debug, Clone)]
pub(crate) struct Gated {
    /// Elements of a row between the products.
    pub(crate) inner: usize,
    pub(crate) activation: UnaryFn,
    /// Whether the products have biases.
    pub(crate) bias: bool,
    /// Whether one weight holds gate and up.
    pub(crate) fused: bool,
}

/// The experts with the highest scores, weighted by the softmax of all scores.
#[derive(Debug, Clone)]
pub(crate) struct Experts {
    /// How many there are.
    pub(crate) count: usize,
    /// How many of them a token uses.
    pub(crate) used: usize,
    /// Whether the weights of those are made to sum to one.
    pub(crate) normalised: bool,
    pub(crate) inner: usize,
    pub(crate) activation: UnaryFn,
    /// Name of the block within the layer.
    pub(crate) block: &'static str,
    /// Names of the products gate, up and down within an expert.
    pub(crate) names: [&'static str; 3],
}

impl Feed {
    /// `x [batch, seq, hidden]` in the same form; `layer` is the name of the layer.
    pub(super) fn apply(
        &self,
        g: &mut Builder<'_>,
        parts: &Parts<'_>,
        layer: &str,
        x: NodeId,
    ) -> Result<NodeId> {
        match self {
            Self::Gated(gated) => gated.apply(g, parts.weights, &format!("{layer}.mlp"), x, parts.hidden),
            Self::Experts(experts) => experts.apply(g, parts, &format!("{layer}.{}", experts.block), x),
        }
    }
}

impl Gated {
    fn apply(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        name: &str,
        x: NodeId,
        hidden: usize,
    ) -> Result<NodeId> {
        let at = |part: &str| format!("{name}.{part}");
        let inner = self.inner;
        let (gate, up) = if self.fused {
            let y = affine(g, weights, &at("gate_up_proj"), x, [hidden, 2 * inner], self.bias)?;
            (columns(g, y, 0, inner)?, columns(g, y, inner, inner)?)
        } else {
            let gate = affine(g, weights, &at("gate_proj"), x, [hidden, inner], self.bias)?;
            (gate, affine(g, weights, &at("up_proj"), x, [hidden, inner], self.bias)?)
        };
        let gate = g.unary(self.activation, gate)?;
        let y = g.binary(BinaryFn::Mul, gate, up)?;
        affine(g, weights, &at("down_proj"), y, [inner, hidden], self.bias)
    }
}

impl Experts {
    /// The reason why there are no such experts.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { count, used, inner, .. } = self;
        if *used == 0 || used > count || *count > 4096 || *inner == 0 || *inner > 1 << 20 {
            return Err(format!("a token cannot use {used} of {count} experts of {inner} inner elements"));
        }
        Ok(())
    }

    /// For a few tokens only the experts that they use are computed; for many every expert is, for every token, weighted by
    /// zero where the token does not use it. Both read the same constants.
    fn apply(&self, g: &mut Builder<'_>, parts: &Parts<'_>, name: &str, x: NodeId) -> Result<NodeId> {
        let shape = g.tensor(x).shape.clone();
        let [batch, seq, hidden] = shape.as_slice() else { return Ok(x) };
        let tokens = batch.mul(seq);
        let few = parts.sequence.context.is_some() && tokens.as_known().is_some_and(|n| n <= FEW);
        let [best, chosen] = self.chosen(g, parts, name, x)?;
        let one = || Dim::known(1);
        let used = Dim::from(self.used);
        // Rows of tokens, in front of which there is an axis for the experts; behind which, where they are chosen.
        let rows = if few {
            vec![tokens.clone(), one(), one(), hidden.clone()]
        } else {
            vec![one(), tokens.clone(), hidden.clone()]
        };
        let x = g.reshape(x, rows)?;
        let picks = if few { Some(g.reshape(chosen, vec![tokens.clone(), used.clone()])?) } else { None };
        let [gate, up, down] = self.names;
        let a = self.products(g, parts, &[name, gate], x, picks, [parts.hidden, self.inner])?;
        let a = g.unary(self.activation, a)?;
        let b = self.products(g, parts, &[name, up], x, picks, [parts.hidden, self.inner])?;
        let y = g.binary(BinaryFn::Mul, a, b)?;
        let y = self.products(g, parts, &[name, down], y, picks, [self.inner, parts.hidden])?;
        g.name = name.to_string();
        let y = if few {
            let shares = g.reshape(best, vec![tokens, used, one(), one()])?;
            let y = g.binary(BinaryFn::Mul, y, shares)?;
            g.reduce(ReduceKind::Sum, y, vec![1], false)?
        } else {
            let shares = self.shares(g, [best, chosen])?;
            let shares = g.reshape(shares, vec![tokens.clone(), Dim::from(self.count)])?;
            let shares = g.transpose(shares, vec![1, 0])?;
            let shares = g.reshape(shares, vec![Dim::from(self.count), tokens, one()])?;
            let y = g.binary(BinaryFn::Mul, y, shares)?;
            g.reduce(ReduceKind::Sum, y, vec![0], false)?
        };
        g.reshape(y, shape)
    }

    /// The products of rows with a matrix of every expert, or of those that are picked.
    fn products(
        &self,
        g: &mut Builder<'_>,
        parts: &Parts<'_>,
        [block, part]: &[&str; 2],
        x: NodeId,
        picks: Option<NodeId>,
        [inputs, outputs]: [usize; 2],
    ) -> Result<NodeId> {
        g.name = format!("{block}.experts.{part}");
        let of = |i| parts.weights.tensor(&format!("{block}.experts.{i}.{part}.weight"), &[outputs, inputs]);
        let matrices = (0..self.count).map(of).collect::<Result<Vec<Constant>>>()?;
        let stack = Constant::stack(matrices).map_err(|e| {
            Error::request(format!("{}: {e}", g.name), "check the types of the experts' weights")
        })?;
        let stack = g.add(stack, &[])?;
        let stack = g.cast(stack, parts.weights.element())?;
        let product = MatMul { trans_a: false, trans_b: true };
        match picks {
            Some(picks) => g.add(GatherMatMul { product }, &[x, stack, picks]),
            None => g.add(product, &[x, stack]),
        }
    }

    /// The weights and the numbers of the experts that a token uses, `[batch, seq, used]`.
    fn chosen(&self, g: &mut Builder<'_>, parts: &Parts<'_>, name: &str, x: NodeId) -> Result<[NodeId; 2]> {
        let scores = product(g, parts.weights, &format!("{name}.gate"), x, parts.hidden, self.count)?;
        let all = g.softmax(scores, 2)?;
        let top = TopK { axis: 2, k: self.used, largest: true, indices: false };
        let mut best = g.add(top.clone(), &[all])?;
        let chosen = g.add(TopK { indices: true, ..top }, &[all])?;
        if self.normalised {
            let sum = g.reduce(ReduceKind::Sum, best, vec![2], true)?;
            best = g.binary(BinaryFn::Div, best, sum)?;
        }
        Ok([best, chosen])
    }

    /// The weight of each expert for each token, `[batch, seq, experts]`.
    fn shares(&self, g: &mut Builder<'_>, [best, chosen]: [NodeId; 2]) -> Result<NodeId> {
        let mut shape = g.tensor(chosen).shape.clone();
        shape.push(Dim::known(1));
        let chosen = g.reshape(chosen, shape.clone())?;
        let best = g.reshape(best, shape)?;
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        let numbers = g.constant(&Array::int(DType::I64, &[self.count], (0..count).collect()))?;
        let is = g.binary(BinaryFn::Equal, chosen, numbers)?;
        let zero = g.scalar(DType::F32, 0.0)?;
        let shares = g.select(is, best, zero)?;
        g.reduce(ReduceKind::Sum, shares, vec![2], false)
    }
}
