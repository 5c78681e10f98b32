//! Encoder of Whisper: two convolutions over the features, then transformer layers.

use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::element::{BinaryFn, UnaryFn};
use driftc::ir::graph::{Graph, NodeId};
use driftc::ir::op::Conv;
use driftc::ir::tensor::DType;

use super::network::{EPSILON, Projection, Stack, Whisper, cross_states, project};
use crate::blocks::{attention, layer_norm, linear, size, weight};
use crate::function_graph::{dims, graph, store_rows};
use crate::weights::Tensors;

impl Whisper {
    /// Builds the function `encode`, which also stores the keys and values of every cross-attention.
    pub(super) fn encode(&self, w: &dyn Tensors) -> Result<Graph> {
        graph("features", |g| {
            let shape = dims(&[1, self.config.num_mel_bins, self.frames()]);
            let features = g.input("input_features", DType::F32, shape)?;
            let features = g.cast(features, w.element())?;
            let hidden = self.encoder_hidden(g, w, features)?;
            for layer in 0..self.decoder.layers {
                let name = self.cross_attention(layer);
                for (part, state) in [Projection::Key, Projection::Value].into_iter().zip(cross_states(&name))
                {
                    let rows = project(g, w, &name, (part, hidden), self.decoder.hidden)?;
                    store_rows(g, &state, rows)?;
                }
            }
            g.graph.add_output("last_hidden_state", hidden);
            Ok(())
        })
    }

    /// Adds the encoder of features `[batch, mels, frames]`; returns the hidden states `[batch, frames / 2, hidden]`.
    pub(super) fn encoder_hidden(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        features: NodeId,
    ) -> Result<NodeId> {
        let prefix = format!("{}encoder", self.prefix);
        let stack = &self.encoder;
        let x = conv(g, w, &format!("{prefix}.conv1"), features, (stack.hidden, 1))?;
        let x = g.unary(UnaryFn::Gelu, x)?;
        let x = conv(g, w, &format!("{prefix}.conv2"), x, (stack.hidden, 2))?;
        let x = g.unary(UnaryFn::Gelu, x)?;
        let x = g.transpose(x, vec![0, 2, 1])?;
        g.name = format!("{prefix}.embed_positions");
        let table = format!("{}.weight", g.name);
        let positions = weight(g, w, &table, &[self.config.max_source_positions, stack.hidden])?;
        let mut x = g.binary(BinaryFn::Add, x, positions)?;
        for layer in 0..stack.layers {
            x = stack.encoder_layer(g, w, &format!("{prefix}.layers.{layer}"), x)?;
        }
        layer_norm(g, w, &format!("{prefix}.layer_norm"), x, stack.hidden, EPSILON)
    }
}

impl Stack {
    fn encoder_layer(&self, g: &mut Builder<'_>, w: &dyn Tensors, name: &str, x: NodeId) -> Result<NodeId> {
        let at = |part: &str| format!("{name}.{part}");
        let y = layer_norm(g, w, &at("self_attn_layer_norm"), x, self.hidden, EPSILON)?;
        let mut part = |part| project(g, w, &at("self_attn"), (part, y), self.hidden);
        let qkv = [part(Projection::Query)?, part(Projection::Key)?, part(Projection::Value)?];
        g.name = at("self_attn");
        let y = attention(g, qkv, self.heads, false)?;
        let y = linear(g, w, &at("self_attn.out_proj"), y, self.hidden, self.hidden)?;
        let x = g.binary(BinaryFn::Add, x, y)?;
        self.feed_forward(g, w, name, x)
    }

    /// Adds the feed-forward block of a layer with its norm and its residual add.
    pub(super) fn feed_forward(
        &self,
        g: &mut Builder<'_>,
        w: &dyn Tensors,
        name: &str,
        x: NodeId,
    ) -> Result<NodeId> {
        let at = |part: &str| format!("{name}.{part}");
        let y = layer_norm(g, w, &at("final_layer_norm"), x, self.hidden, EPSILON)?;
        let y = linear(g, w, &at("fc1"), y, self.hidden, self.inner)?;
        let y = g.unary(self.activation, y)?;
        let y = linear(g, w, &at("fc2"), y, self.inner, self.hidden)?;
        g.binary(BinaryFn::Add, x, y)
    }
}

/// Adds a 1-D convolution with 3 taps and one zero of padding at both ends.
fn conv(
    g: &mut Builder<'_>,
    w: &dyn Tensors,
    name: &str,
    x: NodeId,
    (outputs, stride): (usize, usize),
) -> Result<NodeId> {
    g.name = name.to_string();
    let inputs = size(g, x, 1)?;
    let filter = weight(g, w, &format!("{name}.weight"), &[outputs, inputs, 3])?;
    let bias = weight(g, w, &format!("{name}.bias"), &[outputs])?;
    let op = Conv {
        strides: vec![stride],
        dilations: vec![1],
        pads_begin: vec![1],
        pads_end: vec![1],
        group: 1,
        zero_point: 0,
    };
    g.add(op, &[x, filter, bias])
}
