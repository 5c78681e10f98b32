//! Random Hugging Face folders of a `BertModel` of any size, for measuring how compiling scales with model size.

use std::path::Path;

use driftc::error::{Error, Result};
use driftc::ir::tensor::DType;

use super::write_shards;

/// Sizes of a random `BertModel`.
#[derive(Debug, Clone, Copy)]
pub struct Bert {
    /// Hidden size. The intermediate size of the feed-forward block is four times as large.
    pub hidden: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Number of positions.
    pub positions: usize,
}

/// Writes the configuration of a random `BertModel` and its f16 checkpoint in files of at most `max_bytes` each. Returns the
/// number of parameters.
///
/// # Errors
/// If a file cannot be written.
pub fn write(folder: &Path, bert: &Bert, max_bytes: usize) -> Result<usize> {
    let fail = |e: std::io::Error| Error::Io { path: folder.to_path_buf(), reason: e.to_string() };
    std::fs::create_dir_all(folder).map_err(fail)?;
    let config = serde_json::json!({
        "architectures": ["BertModel"],
        "hidden_size": bert.hidden,
        "intermediate_size": 4 * bert.hidden,
        "num_hidden_layers": bert.layers,
        "num_attention_heads": bert.heads,
        "vocab_size": bert.vocabulary,
        "max_position_embeddings": bert.positions,
        "type_vocab_size": 2,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).map_err(fail)?;
    let tensors = tensors(bert);
    write_shards(folder, &tensors, DType::F16, max_bytes)?;
    Ok(tensors.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum())
}

/// Returns names and shapes of the tensors in a `BertModel` checkpoint.
fn tensors(bert: &Bert) -> Vec<(String, Vec<usize>)> {
    let (hidden, inner) = (bert.hidden, 4 * bert.hidden);
    let mut out: Vec<(String, Vec<usize>)> = Vec::new();
    for (name, rows) in [("word", bert.vocabulary), ("position", bert.positions), ("token_type", 2)] {
        out.push((format!("embeddings.{name}_embeddings.weight"), vec![rows, hidden]));
    }
    let mut pair = |name: String, weight: Vec<usize>| {
        let outputs = weight.first().copied().unwrap_or_default();
        out.push((format!("{name}.weight"), weight));
        out.push((format!("{name}.bias"), vec![outputs]));
    };
    pair("embeddings.LayerNorm".into(), vec![hidden]);
    for layer in 0..bert.layers {
        let at = |part: &str| format!("encoder.layer.{layer}.{part}");
        for part in ["attention.self.query", "attention.self.key", "attention.self.value"] {
            pair(at(part), vec![hidden, hidden]);
        }
        pair(at("attention.output.dense"), vec![hidden, hidden]);
        pair(at("attention.output.LayerNorm"), vec![hidden]);
        pair(at("intermediate.dense"), vec![inner, hidden]);
        pair(at("output.dense"), vec![hidden, inner]);
        pair(at("output.LayerNorm"), vec![hidden]);
    }
    pair("pooler.dense".into(), vec![hidden, hidden]);
    out
}

#[cfg(test)]
mod tests {
    use driftc::compile::{Options, lower};
    use driftc::ir::tensor::DType;
    use driftc::passes::Precision;
    use driftc::target::TargetProfile;

    use super::{Bert, write};
    use crate::load;

    #[test]
    fn weights_stay_mapped_from_the_checkpoint_files() {
        let folder = tempfile::tempdir().unwrap();
        let bert = Bert { hidden: 128, layers: 2, heads: 4, vocabulary: 100, positions: 64 };
        // One tensor is larger than the limit and gets its own file.
        let parameters = write(folder.path(), &bert, 100_000).unwrap();
        assert!(folder.path().join("model.safetensors.index.json").is_file());
        assert!(!folder.path().join("model.safetensors").exists());
        let (model, _) = load(folder.path(), &crate::Dims::new()).unwrap();
        let target = TargetProfile::load("nvidia-hopper").unwrap();
        for precision in [Precision::F16, Precision::Mixed, Precision::F32] {
            let options = Options { precision, ..Options::default() };
            let plan = lower(&model.graph, &target, &options).unwrap().plan;
            let mapped = plan.weights.iter().filter(|w| w.source.bytes.is_mapped());
            let mut elements = 0;
            for weight in mapped {
                assert_eq!(weight.source.encoding.plain_dtype(), Some(DType::F16));
                elements += weight.source.elements();
            }
            // Everything except a few scalars, whatever type the device needs, and except the projections of queries, keys
            // and values, which are merged into one matrix for each layer.
            let merged = bert.layers * 3 * (bert.hidden + 1) * bert.hidden;
            assert!(elements + merged + 100 > parameters, "{precision}: {elements} of {parameters}");
        }
    }
}
