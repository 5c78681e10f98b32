//! Feed-forward block of a decoder layer: gated matmuls (such as SwiGLU), or a mixture of experts.

use driftc::error::{Error, Result};
use driftc::ir::array::Array;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::element::BinaryFn;
use driftc::ir::graph::NodeId;
use driftc::ir::op::{Constant, GatherMatMul, MatMul, TopK};
use driftc::ir::ops::reduce::ReduceKind;
use driftc::ir::tensor::DType;

use super::attention::{affine, slice_columns};
use super::context::{BuildContext, Experts, FeedForward, GatedFeedForward};
use crate::blocks::linear_without_bias;
use crate::weights::Tensors;

/// Maximum number of tokens in a run for which a mixture of experts computes only the experts that the tokens use.
const MAX_GATHERED_TOKENS: i64 = 16;

impl FeedForward {
    /// Adds the feed-forward block for `x [batch, seq, hidden]`. The result has the shape of `x`; `layer` is the prefix of the
    /// layer's tensor names.
    pub(super) fn apply(
        &self,
        g: &mut Builder<'_>,
        context: &BuildContext<'_>,
        layer: &str,
        x: NodeId,
    ) -> Result<NodeId> {
        match self {
            Self::Gated(gated) => gated.apply(g, context.weights, &format!("{layer}.mlp"), x, context.hidden),
            Self::Experts(experts) => experts.apply(g, context, &format!("{layer}.{}", experts.block), x),
        }
    }
}

impl GatedFeedForward {
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
        let (gate, up) = if self.fused_gate_up {
            let y = affine(g, weights, &at("gate_up_proj"), x, [hidden, 2 * inner], self.bias)?;
            (slice_columns(g, y, 0, inner)?, slice_columns(g, y, inner, inner)?)
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
    /// Checks the sizes of a mixture of experts.
    ///
    /// # Errors
    /// If the number of experts, the number that a token uses, or the inner size is out of range.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { count, used, inner, .. } = self;
        if *used == 0 || used > count || *count > 4096 || *inner == 0 || *inner > 1 << 20 {
            return Err(format!(
                "a mixture of experts that uses {used} of {count} experts with inner size {inner} is not supported"
            ));
        }
        Ok(())
    }

    /// Adds a mixture of experts. For at most [`MAX_GATHERED_TOKENS`] tokens, only the experts that a token uses are computed.
    /// For more tokens, every expert is computed for every token, and unused experts get the weight zero. Both forms of
    /// the graph read the same weight constants.
    fn apply(
        &self,
        g: &mut Builder<'_>,
        context: &BuildContext<'_>,
        name: &str,
        x: NodeId,
    ) -> Result<NodeId> {
        let shape = g.tensor(x).shape.clone();
        let [batch, seq, hidden] = shape.as_slice() else { return Ok(x) };
        let tokens = batch.mul(seq);
        let gathered =
            context.sequence.context.is_some() && tokens.as_known().is_some_and(|n| n <= MAX_GATHERED_TOKENS);
        let [top_weights, top_experts] = self.route(g, context, name, x)?;
        let one = || Dim::known(1);
        let used = Dim::from(self.used);
        // `[tokens, 1, 1, hidden]` for gathered experts, `[1, tokens, hidden]` for all experts.
        let rows = if gathered {
            vec![tokens.clone(), one(), one(), hidden.clone()]
        } else {
            vec![one(), tokens.clone(), hidden.clone()]
        };
        let x = g.reshape(x, rows)?;
        let expert_index =
            if gathered { Some(g.reshape(top_experts, vec![tokens.clone(), used.clone()])?) } else { None };
        let [gate, up, down] = self.names;
        let a =
            self.expert_matmuls(g, context, &[name, gate], x, expert_index, [context.hidden, self.inner])?;
        let a = g.unary(self.activation, a)?;
        let b =
            self.expert_matmuls(g, context, &[name, up], x, expert_index, [context.hidden, self.inner])?;
        let y = g.binary(BinaryFn::Mul, a, b)?;
        let y =
            self.expert_matmuls(g, context, &[name, down], y, expert_index, [self.inner, context.hidden])?;
        g.name = name.to_string();
        let y = if gathered {
            let weights = g.reshape(top_weights, vec![tokens, used, one(), one()])?;
            let y = g.binary(BinaryFn::Mul, y, weights)?;
            g.reduce(ReduceKind::Sum, y, vec![1], false)?
        } else {
            let weights = self.dense_weights(g, [top_weights, top_experts])?;
            let weights = g.reshape(weights, vec![tokens.clone(), Dim::from(self.count)])?;
            let weights = g.transpose(weights, vec![1, 0])?;
            let weights = g.reshape(weights, vec![Dim::from(self.count), tokens, one()])?;
            let y = g.binary(BinaryFn::Mul, y, weights)?;
            g.reduce(ReduceKind::Sum, y, vec![0], false)?
        };
        g.reshape(y, shape)
    }

    /// Multiplies the rows of `x` by one weight matrix (gate, up or down) of every expert, or only of the experts in
    /// `expert_index`.
    fn expert_matmuls(
        &self,
        g: &mut Builder<'_>,
        context: &BuildContext<'_>,
        [block, projection]: &[&str; 2],
        x: NodeId,
        expert_index: Option<NodeId>,
        [inputs, outputs]: [usize; 2],
    ) -> Result<NodeId> {
        g.name = format!("{block}.experts.{projection}");
        let matrix = |i| {
            context.weights.tensor(&format!("{block}.experts.{i}.{projection}.weight"), &[outputs, inputs])
        };
        let matrices = (0..self.count).map(matrix).collect::<Result<Vec<Constant>>>()?;
        let stack = Constant::stack(matrices).map_err(|e| {
            Error::request(
                format!("{}: {e}", g.name),
                "convert the model so that all experts of a layer have the same weight type",
            )
        })?;
        let stack = g.add(stack, &[])?;
        let stack = g.cast(stack, context.weights.element())?;
        let matmul = MatMul { trans_a: false, trans_b: true };
        match expert_index {
            Some(expert_index) => g.add(GatherMatMul { matmul }, &[x, stack, expert_index]),
            None => g.add(matmul, &[x, stack]),
        }
    }

    /// Adds the router. Returns the weights and the indices of the experts that each token uses, both `[batch, seq, used]`.
    fn route(
        &self,
        g: &mut Builder<'_>,
        context: &BuildContext<'_>,
        name: &str,
        x: NodeId,
    ) -> Result<[NodeId; 2]> {
        let scores =
            linear_without_bias(g, context.weights, &format!("{name}.gate"), x, context.hidden, self.count)?;
        let all = g.softmax(scores, 2)?;
        let top = TopK { axis: 2, k: self.used, largest: true, indices: false };
        let mut top_weights = g.add(top.clone(), &[all])?;
        let top_experts = g.add(TopK { indices: true, ..top }, &[all])?;
        if self.normalize_weights {
            let sum = g.reduce(ReduceKind::Sum, top_weights, vec![2], true)?;
            top_weights = g.binary(BinaryFn::Div, top_weights, sum)?;
        }
        Ok([top_weights, top_experts])
    }

    /// Expands the weights of the used experts to weights of all experts, `[batch, seq, experts]`. Unused experts get the weight
    /// zero.
    fn dense_weights(&self, g: &mut Builder<'_>, [top_weights, top_experts]: [NodeId; 2]) -> Result<NodeId> {
        let mut shape = g.tensor(top_experts).shape.clone();
        shape.push(Dim::known(1));
        let top_experts = g.reshape(top_experts, shape.clone())?;
        let top_weights = g.reshape(top_weights, shape)?;
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        let numbers = g.constant(&Array::int(DType::I64, &[self.count], (0..count).collect()))?;
        let used = g.binary(BinaryFn::Equal, top_experts, numbers)?;
        let zero = g.scalar(DType::F32, 0.0)?;
        let weights = g.select(used, top_weights, zero)?;
        g.reduce(ReduceKind::Sum, weights, vec![2], false)
    }
}
