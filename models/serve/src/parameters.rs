//! Parameters that chats and completions share: sampling, limits, stop strings, streaming.

use drift_chat::TextRequest;
use drift_runtime::Sampling;
use serde_json::{Value, json};

use crate::api_error::{ApiError, ApiResult};
use crate::fields::Fields;
use crate::random::random;

/// Maximum number of stop strings of a request.
const MAX_STOPS: usize = 16;
/// Maximum bytes of a stop string.
const MAX_STOP_BYTES: usize = 1024;
/// Maximum number of alternative tokens with logarithms of probabilities.
const MAX_TOP_LOGPROBS: usize = 20;

/// Parameters of a request for text.
pub(crate) struct Parameters {
    /// Request to the model. `max_tokens` is 0 if the request does not set it.
    pub(crate) request: TextRequest,
    /// Maximum number of tokens to generate, if the request sets it.
    pub(crate) max_tokens: Option<usize>,
    /// Number of alternatives with logarithms of probabilities at each token. `None` requests no logarithms.
    pub(crate) logprobs: Option<usize>,
    /// True if the text must depend only on the request: the request sets a seed.
    pub(crate) exact: bool,
    /// Stream the text as server-sent events.
    pub(crate) stream: bool,
    /// End the stream with the usage.
    pub(crate) include_usage: bool,
}

impl Parameters {
    /// Reads the parameters except logarithms of probabilities. `limit` is the server's maximum of `max_tokens`.
    ///
    /// # Errors
    /// If a field is invalid, or unsupported and changes the answer.
    pub(crate) fn read(fields: &Fields, limit: Option<usize>) -> ApiResult<Self> {
        refuse_unsupported(fields)?;
        let seed = fields.integer("seed")?;
        let stream = fields.boolean("stream")?.unwrap_or(false);
        let max_tokens = match fields.count("max_completion_tokens")? {
            Some(count) => Some(("max_completion_tokens", count)),
            None => fields.count("max_tokens")?.map(|count| ("max_tokens", count)),
        };
        if let (Some((name, count)), Some(limit)) = (max_tokens, limit)
            && count > limit
        {
            let message = format!("`{name}` is {count}, but the server allows at most {limit} tokens");
            return Err(ApiError::invalid(name, message));
        }
        let request = TextRequest {
            max_tokens: 0,
            sampling: sampling(fields, seed)?,
            stop: stop_strings(fields)?,
            ignore_end: fields.boolean("ignore_eos")?.unwrap_or(false),
            logits: false,
        };
        Ok(Self {
            request,
            max_tokens: max_tokens.map(|(_, count)| count),
            logprobs: None,
            exact: seed.is_some(),
            stream,
            include_usage: include_usage(fields, stream)?,
        })
    }

    /// Requests logarithms of probabilities of the tokens and of `top` alternatives. `param` is the name of the field with
    /// this number.
    ///
    /// # Errors
    /// If there are too many alternatives.
    pub(crate) fn with_logprobs(mut self, param: &str, top: Option<usize>) -> ApiResult<Self> {
        if top.is_some_and(|top| top > MAX_TOP_LOGPROBS) {
            return Err(ApiError::invalid(param, format!("`{param}` must be at most {MAX_TOP_LOGPROBS}")));
        }
        (self.logprobs, self.request.logits) = (top, top.is_some());
        Ok(self)
    }
}

/// Refuses fields that would change the answer and that this server does not support.
fn refuse_unsupported(fields: &Fields) -> ApiResult<()> {
    let n = fields.integer("n")?;
    if n.is_some_and(|n| n != 1) {
        return Err(ApiError::unsupported("n", "only n=1 is supported: send one request for each answer"));
    }
    let (no, none, zero) = (json!(false), json!("none"), json!(0));
    let (empty, nothing) = (json!([]), json!({}));
    let tools = "the model cannot call functions through this server";
    let empty = std::slice::from_ref(&empty);
    fields.refuse("tools", empty, tools)?;
    fields.refuse("functions", empty, tools)?;
    fields.refuse("tool_choice", &[none.clone(), json!("auto")], tools)?;
    fields.refuse("function_call", &[none, json!("auto")], tools)?;
    fields.refuse("logit_bias", &[nothing], "use other sampling parameters")?;
    let penalty = "use `repetition_penalty`, a factor that is 1 by default";
    fields.refuse("presence_penalty", &[zero.clone(), json!(0.0)], penalty)?;
    fields.refuse("frequency_penalty", &[zero, json!(0.0)], penalty)?;
    fields.refuse("response_format", &[json!({"type": "text"})], "only the type `text`")?;
    fields.refuse("modalities", &[json!(["text"])], "only text")?;
    fields.refuse("audio", &[], "only text")?;
    fields.refuse("prediction", &[], "remove it")?;
    fields.refuse("web_search_options", &[], "remove it")?;
    fields.refuse("best_of", &[json!(1)], "only best_of=1")?;
    fields.refuse("echo", &[no], "the answer never contains the prompt")?;
    fields.refuse("suffix", &[json!("")], "the model continues a text and fills no gap")
}

/// Reads the sampling parameters. Without a seed, each request has a random one.
fn sampling(fields: &Fields, seed: Option<i64>) -> ApiResult<Sampling> {
    let top_k = match fields.integer("top_k")?.unwrap_or(0) {
        // Other servers use -1 for all tokens.
        -1 => 0,
        k => usize::try_from(k).map_err(|_| ApiError::invalid("top_k", "`top_k` must be at least 0"))?,
    };
    let sampling = Sampling {
        temperature: fields.number("temperature")?.unwrap_or(1.0),
        top_k,
        top_p: fields.number("top_p")?.unwrap_or(1.0),
        min_p: fields.number("min_p")?.unwrap_or(0.0),
        repetition_penalty: fields.number("repetition_penalty")?.unwrap_or(1.0),
        seed: seed.map_or_else(random, i64::cast_unsigned),
    };
    match sampling.check() {
        Ok(()) => Ok(sampling),
        Err(drift_runtime::Error::InvalidSampling { name, value, range }) => {
            Err(ApiError::invalid(name, format!("`{name}` is {value}, but must be {range}")))
        }
        Err(error) => Err(ApiError::internal(error.to_string())),
    }
}

/// Reads the stop strings: one string or a list of strings.
fn stop_strings(fields: &Fields) -> ApiResult<Vec<String>> {
    let invalid = || {
        let most = format!("at most {MAX_STOPS} strings of at most {MAX_STOP_BYTES} bytes");
        ApiError::invalid("stop", format!("`stop` must be a string or a list of {most}"))
    };
    let list = match fields.get("stop") {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(list)) => {
            let list = list.iter().map(|stop| stop.as_str().map(str::to_owned));
            list.collect::<Option<Vec<String>>>().ok_or_else(invalid)?
        }
        Some(_) => return Err(invalid()),
    };
    match list.len() > MAX_STOPS || list.iter().any(|stop| stop.len() > MAX_STOP_BYTES) {
        true => Err(invalid()),
        false => Ok(list),
    }
}

fn include_usage(fields: &Fields, stream: bool) -> ApiResult<bool> {
    match fields.get("stream_options") {
        None => Ok(false),
        Some(_) if !stream => {
            Err(ApiError::invalid("stream_options", "`stream_options` needs `stream: true`"))
        }
        Some(options) => match options.get("include_usage") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(include)) => Ok(*include),
            Some(_) => {
                let param = "stream_options.include_usage";
                Err(ApiError::invalid(param, format!("`{param}` must be true or false")))
            }
        },
    }
}
