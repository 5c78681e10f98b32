//! Embeddings of texts with a sentence-embedding model.

use std::path::Path;

use drift_runtime::{Array, ArrayRef, Bundle, Options, Session};
use drift_text::Tokenizer;

use crate::{Error, Result};

/// Function of the bundle that computes the embedding.
const FUNCTION: &str = "main";
/// Output with the pooled embedding, `[1, size]`.
const POOLED: &str = "sentence_embedding";
/// Output with one vector for each token, `[1, tokens, size]`.
const TOKENS: &str = "last_hidden_state";

/// Sentence-embedding model on a device, with its tokenizer.
pub struct Embedder {
    session: Session,
    tokenizer: Tokenizer,
    /// Output that holds the embedding.
    output: &'static str,
    /// True if the model has the input `token_type_ids`.
    has_types: bool,
    size: usize,
    max_tokens: usize,
    /// Number of token ids of the tokenizer. The device must not read rows beyond the model's embeddings.
    vocabulary: usize,
}

impl Embedder {
    /// Opens a bundle on a device.
    ///
    /// # Errors
    /// If the bundle cannot be loaded or does not compute embeddings.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::new(Session::from_bundle(Bundle::open(path)?, options)?)
    }

    /// Creates an embedder from a session.
    ///
    /// # Errors
    /// If the bundle has no tokenizer, or its inputs and outputs differ from a sentence-embedding model's.
    pub fn new(session: Session) -> Result<Self> {
        let not = |reason: &str| Error::NotAnEmbedder { reason: reason.to_owned() };
        let function = session.function(FUNCTION).map_err(|_| not("it has no function `main`"))?;
        let port = |name: &'static str| Some((name, function.outputs.iter().find(|port| port.name == name)?));
        let (output, port) = port(POOLED)
            .or_else(|| port(TOKENS))
            .ok_or_else(|| not("it has no output `sentence_embedding` or `last_hidden_state`"))?;
        let size = port.shape.last().and_then(|size| usize::try_from(size.as_constant()?).ok());
        let size = size.ok_or_else(|| not(&format!("the size of `{output}` is not fixed")))?;
        let names: Vec<&str> = function.inputs.iter().map(|port| port.name.as_str()).collect();
        if !names.contains(&"input_ids") || !names.contains(&"attention_mask") {
            return Err(not("it has no inputs `input_ids` and `attention_mask`"));
        }
        if let Some(other) = names.iter().find(|name| !INPUTS.contains(*name)) {
            return Err(not(&format!("it has the input `{other}`")));
        }
        let has_types = names.contains(&"token_type_ids");
        let ids = function.inputs.iter().find(|port| port.name == "input_ids");
        let length = ids.and_then(|port| port.shape.get(1));
        let max = length.and_then(|length| match length.as_symbol() {
            Some(symbol) => Some(function.symbols.get(usize::try_from(symbol).ok()?)?.max),
            None => length.as_constant(),
        });
        let max_tokens = max
            .and_then(|max| usize::try_from(max).ok())
            .ok_or_else(|| not("`input_ids` has no sequence axis"))?;
        let tokenizer = session.bundle().attachment("tokenizer.json")?.ok_or(Error::NoTokenizer)?;
        let tokenizer = Tokenizer::new(tokenizer, None, None)?;
        let highest = tokenizer.highest().and_then(|id| usize::try_from(id).ok());
        let vocabulary = highest.map_or(0, |id| id.saturating_add(1));
        Ok(Self { tokenizer, output, has_types, size, max_tokens, vocabulary, session })
    }

    /// Returns the session of the model.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Number of elements of an embedding.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Maximum number of tokens of a text, including start and end tokens.
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Computes the embedding of a text. The model's own pooling and normalization are used if the model has them, else the
    /// mean of the tokens' vectors, scaled to length 1.
    ///
    /// # Errors
    /// If the text has more tokens than the model reads, or the device fails.
    pub fn embed(&mut self, text: &str) -> Result<Vec<f32>> {
        let ids = self.tokenizer.encode(text, true)?;
        self.embed_ids(&ids)
    }

    /// Computes the embedding of token ids, as [`Self::embed`] does.
    ///
    /// # Errors
    /// As for [`Self::embed`].
    pub fn embed_ids(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        if ids.is_empty() {
            return Err(drift_runtime::Error::EmptyPrompt.into());
        }
        if ids.len() > self.max_tokens {
            return Err(Error::TooLong { given: ids.len(), max: self.max_tokens });
        }
        let vocabulary = self.vocabulary;
        if let Some(id) = ids.iter().find(|id| usize::try_from(**id).map_or(true, |id| id >= vocabulary)) {
            return Err(drift_runtime::Error::NotInVocabulary { id: *id, vocabulary }.into());
        }
        let shape = [1, ids.len()];
        let ids: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
        let ids = Array::from_i64(&shape, &ids);
        let ones = Array::from_i64(&shape, &vec![1; shape[1]]);
        let zeros = Array::from_i64(&shape, &vec![0; shape[1]]);
        let mut inputs: Vec<(&str, ArrayRef<'_>)> =
            vec![("input_ids", ids.as_ref()), ("attention_mask", ones.as_ref())];
        if self.has_types {
            inputs.push(("token_type_ids", zeros.as_ref()));
        }
        self.session.run_for(FUNCTION, &inputs, &[self.output])?;
        let values = self.session.read_output(FUNCTION, self.output)?.to_f64();
        Ok(match self.output {
            POOLED => values.into_iter().map(|value| value as f32).collect(),
            _ => normalized_mean(&values, shape[1]),
        })
    }
}

/// Inputs that an embedding model may have.
const INPUTS: &[&str] = &["input_ids", "attention_mask", "token_type_ids"];

/// Returns the mean of `rows` vectors, scaled to length 1.
fn normalized_mean(values: &[f64], rows: usize) -> Vec<f32> {
    let size = values.len() / rows.max(1);
    let mut mean = vec![0.0; size];
    for row in values.chunks_exact(size.max(1)) {
        mean.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    let length = mean.iter().map(|value| value * value).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
    mean.into_iter().map(|value| (value / length) as f32).collect()
}
