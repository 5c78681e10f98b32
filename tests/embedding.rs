//! Embeddings of texts: the vectors that `drift_chat::Embedder` returns equal the poolings of the CPU reference's token
//! vectors, and for a pretrained model the output of a plain session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drift_chat::{Embedder, Error};
use drift_models::random::bert::{self, Bert};
use drift_runtime::{Array as HostArray, Options, Session};
use drift_tests::{device, settings};
use driftc::compile::{self, compile};
use driftc::ir::array::Array;
use driftc::ir::eval::eval;
use driftc::ir::graph::Graph;
use driftc::ir::tensor::DType;

const HIDDEN: usize = 32;
const WORDS: &[&str] = &["<s>", "</s>", "red", "green", "blue", "and", "fish"];

/// Token ids of the text `red fish and blue fish` with start and end token.
const TEXT: (&str, [i64; 7]) = ("red fish and blue fish", [0, 2, 6, 5, 4, 6, 1]);

/// Modules of a sentence transformer and the mode of their pooling.
type Modules = Option<(&'static [&'static str], &'static str)>;
/// Function from token vectors to the vector of the text.
type Pooling = fn(&[Vec<f64>]) -> Vec<f64>;

/// Writes a random model.
fn random_model(folder: &Path, pooling: Modules) {
    let sizes = Bert { hidden: HIDDEN, layers: 2, heads: 4, vocabulary: WORDS.len(), positions: 16 };
    bert::write(folder, &sizes, 1 << 20).unwrap();
    let vocabulary: BTreeMap<&str, usize> = WORDS.iter().enumerate().map(|(id, word)| (*word, id)).collect();
    let special = |id: usize| serde_json::json!({ "id": WORDS[id], "ids": [id], "tokens": [WORDS[id]] });
    let tokenizer = serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
        "post_processor": {"type": "TemplateProcessing", "pair": [],
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}}],
            "special_tokens": {"<s>": special(0), "</s>": special(1)}},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "fish"},
    });
    let write = |name: &str, value: &serde_json::Value| {
        std::fs::write(folder.join(name), value.to_string()).unwrap();
    };
    write("tokenizer.json", &tokenizer);
    if let Some((modules, mode)) = pooling {
        let modules: Vec<_> = modules.iter().map(|name| serde_json::json!({ "type": name })).collect();
        write("modules.json", &modules.into());
        std::fs::create_dir_all(folder.join("1_Pooling")).unwrap();
        write("1_Pooling/config.json", &serde_json::json!({ mode: true }));
    }
}

/// Compiles a model folder, and returns the path of the bundle and the graph.
fn bundle(folder: &Path, out: &Path) -> (PathBuf, Graph) {
    let dims = drift_models::Dims::from([("seq".into(), (1, 16))]);
    let (model, _) = drift_models::load(folder, &dims).unwrap_or_else(|e| panic!("{e}"));
    let path = out.join("embedder.drift");
    let options = device::validated(&compile::Options::default());
    compile(&model, &[device::target()], &options, &path).unwrap_or_else(|e| panic!("{e}"));
    (path, model.graph)
}

/// Returns the token vectors `[tokens][hidden]` that the CPU reference computes for the text.
fn token_vectors(graph: &Graph) -> Vec<Vec<f64>> {
    let shape = [1, TEXT.1.len()];
    let array = |values: &[i64]| Array::int(DType::I64, &shape, values.to_vec());
    let inputs = [("input_ids", TEXT.1), ("attention_mask", [1; 7]), ("token_type_ids", [0; 7])];
    let inputs = inputs.into_iter().map(|(name, values)| (name.to_owned(), array(&values))).collect();
    let outputs = eval(graph, &inputs).unwrap();
    let (_, hidden) = outputs.iter().find(|(name, _)| name == "last_hidden_state").unwrap();
    let values: Vec<f64> = hidden.floats().unwrap().iter().map(|value| f64::from(*value)).collect();
    values.chunks(HIDDEN).map(<[f64]>::to_vec).collect()
}

fn mean(rows: &[Vec<f64>]) -> Vec<f64> {
    let sum = |column: usize| rows.iter().map(|row| row[column]).sum::<f64>();
    (0..HIDDEN).map(|column| sum(column) / rows.len() as f64).collect()
}

fn normalized(vector: &[f64]) -> Vec<f64> {
    let length = vector.iter().map(|value| value * value).sum::<f64>().sqrt();
    vector.iter().map(|value| value / length).collect()
}

#[test]
fn poolings_match_the_reference() {
    const POOLED: &[&str] = &["models.Transformer", "models.Pooling"];
    const NORMALIZED: &[&str] = &["models.Transformer", "models.Pooling", "models.Normalize"];
    let (means, first) = ("pooling_mode_mean_tokens", "pooling_mode_cls_token");
    let mut vectors: Vec<Vec<f32>> = Vec::new();
    let cases: [(Modules, Pooling); 6] = [
        (Some((POOLED, means)), mean),
        (Some((NORMALIZED, means)), |rows| normalized(&mean(rows))),
        (Some((POOLED, first)), |rows| rows[0].clone()),
        (Some((NORMALIZED, first)), |rows| normalized(&rows[0])),
        // Without modules the host pools `last_hidden_state`. So it does for a pooling that driftc does not know.
        (None, |rows| normalized(&mean(rows))),
        (Some((POOLED, "pooling_mode_max_tokens")), |rows| normalized(&mean(rows))),
    ];
    for (pooling, want) in cases {
        let folder = tempfile::tempdir().unwrap();
        random_model(folder.path(), pooling);
        let (path, graph) = bundle(folder.path(), folder.path());
        let mut embedder = Embedder::open(&path, &Options::default()).unwrap();
        assert_eq!((embedder.size(), embedder.max_tokens()), (HIDDEN, 16));
        let got = embedder.embed(TEXT.0).unwrap();
        let want = want(&token_vectors(&graph));
        for (got, want) in got.iter().zip(&want) {
            assert!((f64::from(*got) - want).abs() < 2e-4, "{pooling:?}: {got} instead of {want}");
        }
        let long = embedder.embed(&"red ".repeat(15));
        assert!(matches!(long, Err(Error::TooLong { given: 17, max: 16 })), "{long:?}");
        vectors.push(got);
    }
    // The poolings differ, so that a mode that is mistaken for another one is found.
    let differ = |a: usize, b: usize| vectors[a].iter().zip(&vectors[b]).any(|(a, b)| (a - b).abs() > 1e-2);
    assert!(differ(0, 1) && differ(0, 2) && differ(1, 3) && differ(2, 3));
}

#[test]
fn a_pretrained_model_gives_the_output_of_a_session() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = bundle(&settings::sentence_model(), folder.path());
    let mut embedder = Embedder::open(&path, &Options::default()).unwrap();
    let text = "A man is eating food.";
    let got = embedder.embed(text).unwrap();
    let ids = embedder.tokenizer().encode(text, true).unwrap();
    let ids: Vec<i64> = ids.into_iter().map(i64::from).collect();
    let shape = [1, ids.len()];
    let [ids, ones, zeros] =
        [ids, vec![1; shape[1]], vec![0; shape[1]]].map(|values| HostArray::from_i64(&shape, &values));
    let inputs = [("input_ids", &ids), ("attention_mask", &ones), ("token_type_ids", &zeros)]
        .map(|(n, a)| (n, a.as_ref()));
    let mut session = Session::load(&path, &Options::default()).unwrap();
    session.run("main", &inputs).unwrap();
    let want = session.read_output("main", "sentence_embedding").unwrap().to_f64();
    let want: Vec<f32> = want.into_iter().map(|value| value as f32).collect();
    assert_eq!(got, want);
    // A similar sentence is closer than another one.
    let mut similarity =
        |text: &str| embedder.embed(text).unwrap().iter().zip(&got).map(|(a, b)| a * b).sum::<f32>();
    let (near, far) = (similarity("Someone eats a meal."), similarity("The stock market fell on Monday."));
    assert!(near > 0.5 && far < 0.2, "{near}, {far}");
}

#[test]
fn other_models_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    random_model(folder.path(), None);
    std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    let (path, _) = bundle(folder.path(), folder.path());
    let refused = Embedder::open(&path, &Options::default()).err().unwrap();
    assert!(matches!(refused, Error::NoTokenizer), "{refused}");
}
