//! The second half of a layer: a gated product, or a mixture of several.

use driftc::error::Result;
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::NodeId;
use driftc::ir::op::TopK;
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::tensor::DType;

use super::attention::{affine, columns};
use crate::blocks::product;
use crate::weights::Tensors;

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
        weights: &dyn Tensors,
        layer: &str,
        x: NodeId,
        hidden: usize,
    ) -> Result<NodeId> {
        match self {
            Self::Gated(gated) => gated.apply(g, weights, &format!("{layer}.mlp"), x, hidden),
            Self::Experts(experts) => {
                experts.apply(g, weights, &format!("{layer}.{}", experts.block), x, hidden)
            }
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

    /// Every expert is computed for every token, and weighted by zero where the token does not use it.
    fn apply(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        name: &str,
        x: NodeId,
        hidden: usize,
    ) -> Result<NodeId> {
        let shares = self.shares(g, weights, name, x, hidden)?;
        let [gate, up, down] = self.names;
        let mut sum = None;
        for expert in 0..self.count {
            let at = |part: &str| format!("{name}.experts.{expert}.{part}");
            let a = product(g, weights, &at(gate), x, hidden, self.inner)?;
            let a = g.unary(self.activation, a)?;
            let b = product(g, weights, &at(up), x, hidden, self.inner)?;
            let y = g.binary(BinaryFn::Mul, a, b)?;
            let y = product(g, weights, &at(down), y, self.inner, hidden)?;
            let share = columns(g, shares, expert, 1)?;
            let y = g.binary(BinaryFn::Mul, y, share)?;
            sum = Some(match sum {
                Some(sum) => g.binary(BinaryFn::Add, y, sum)?,
                None => y,
            });
        }
        Ok(sum.unwrap_or(x))
    }

    /// The weight of each expert for each token, `[batch, seq, experts]`.
    fn shares(
        &self,
        g: &mut Builder<'_>,
        weights: &dyn Tensors,
        name: &str,
        x: NodeId,
        hidden: usize,
    ) -> Result<NodeId> {
        let scores = product(g, weights, &format!("{name}.gate"), x, hidden, self.count)?;
        let all = g.softmax(scores, 2)?;
        let top = TopK { axis: 2, k: self.used, largest: true, indices: false };
        let best = g.add(top.clone(), &[all])?;
        let chosen = g.add(TopK { indices: true, ..top }, &[all])?;
        let mut shape = g.tensor(chosen).shape.clone();
        shape.push(Dim::known(1));
        let chosen = g.reshape(chosen, shape.clone())?;
        let best = g.reshape(best, shape)?;
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        let numbers = g.constant(&Array::int(DType::I64, &[self.count], (0..count).collect()))?;
        let is = g.binary(BinaryFn::Equal, chosen, numbers)?;
        let zero = g.scalar(DType::F32, 0.0)?;
        let shares = g.select(is, best, zero)?;
        let shares = g.reduce(ReduceKind::Sum, shares, vec![2], false)?;
        if !self.normalised {
            return Ok(shares);
        }
        let sum = g.reduce(ReduceKind::Sum, shares, vec![2], true)?;
        g.binary(BinaryFn::Div, shares, sum)
    }
}
