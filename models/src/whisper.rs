//! `WhisperForConditionalGeneration`: speech recognition with an encoder of log-mel features and a decoder of text.
//!
//! ```text
//! features   samples [1, 480400], largest, valid -> input_features [1, mels, 3000], largest
//! encode     input_features [1, mels, 3000]      -> last_hidden_state [1, 1500, hidden]
//!                                                   states: keys and values of each cross-attention
//! verify, decode, prefill   ids                  -> logits, next  (language models, with the states of `encode`)
//! align      ids                                 -> weights [heads, ids, 1500] of the alignment heads
//! ```
//!
//! With `--dim batch` or `--dim seq`, the bundle has only the function `main` instead: `input_features` and
//! `decoder_input_ids` to `logits` and `encoder_last_hidden_state`.

mod decoder;
mod encoder;
mod features;
mod mel;
mod network;

use std::rc::Rc;

use driftc::compile::EntryPoint;
use driftc::error::Result;
use driftc::ir::builder::Builder;
use driftc::ir::dim::Dim;
use driftc::ir::tensor::DType;
use driftc::pass::Precision;

use crate::decoder::generation::{self, LanguageModel, Sequence};
use crate::folder::Folder;
use crate::function_graph::graph;
use decoder::{CrossSource, Decoder};
use network::Whisper;

/// Builds the graphs of a Whisper folder.
pub(crate) fn build(folder: &mut Folder) -> Result<()> {
    let whisper = Whisper::read(folder)?;
    if folder.dims.contains_key("batch") || folder.dims.contains_key("seq") {
        folder.notes.push(
            "with --dim batch or --dim seq, the bundle has only the function `main`, which `driftc transcribe` cannot use"
                .to_string(),
        );
        return whisper.whole_graph(folder);
    }
    folder.sizes.extend(["batch", "seq"].map(str::to_string));
    let weights = Rc::clone(&folder.weights);
    let front_end = features::FrontEnd::read(folder, whisper.config.num_mel_bins, whisper.frames())?;
    let graph = graph("features", |g| front_end.build(g))?;
    let features = EntryPoint {
        precision: Some(Precision::F32),
        fixed_size: true,
        ..EntryPoint::new("features", graph)
    };
    let encode = EntryPoint { fixed_size: true, ..EntryPoint::new("encode", whisper.encode(&*weights)?) };
    let heads = whisper.alignment_heads(folder)?;
    let decoder = Decoder { whisper: &whisper, cross: CrossSource::States };
    generation::functions(folder, &decoder)?;
    folder.entry_points.extend([features, encode]);
    if !heads.is_empty() {
        folder.entry_points.push(EntryPoint::new("align", decoder.align(&*weights, &heads)?));
    }
    Ok(())
}

impl Whisper {
    /// Builds the graph of the whole model.
    fn whole_graph(&self, folder: &mut Folder) -> Result<()> {
        let batch = folder.dim("batch", (1, 1))?;
        let positions = i64::try_from(self.config.max_target_positions).unwrap_or(i64::MAX);
        let seq = folder.positions("seq", positions, positions)?;
        let weights = Rc::clone(&folder.weights);
        let mut g = Builder::new(&mut folder.graph, "features");
        let shape = vec![batch.clone(), self.config.num_mel_bins.into(), self.frames().into()];
        let features = g.input("input_features", DType::F32, shape)?;
        let ids = g.input("decoder_input_ids", DType::I64, vec![batch, seq.clone()])?;
        let features = g.cast(features, weights.element())?;
        let hidden = self.encoder_hidden(&mut g, &*weights, features)?;
        let sequence = Sequence { past: Dim::known(0), length: seq.clone(), seq, context: None };
        let decoder = Decoder { whisper: self, cross: CrossSource::Encoder(hidden) };
        let logits = decoder.logits(&mut g, &*weights, ids, &sequence, None)?;
        g.graph.add_output("logits", logits);
        g.graph.add_output("encoder_last_hidden_state", hidden);
        Ok(())
    }
}
