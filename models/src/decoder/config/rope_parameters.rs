//! Parameters of rotary embeddings (RoPE) in `config.json`: scaling types and their fields.

use serde_json::{Map, Value};

use super::Config;
use crate::decoder::rope::{Rope, Scaling};

/// Minimum accepted value of a factor among the RoPE parameters.
const MIN_FACTOR: f64 = 1e-3;
/// Maximum accepted value of a factor among the RoPE parameters.
const MAX_FACTOR: f64 = 1e6;

/// RoPE parameters by their name in `config.json`.
struct Fields<'a>(&'a Map<String, Value>);

impl Fields<'_> {
    fn optional(&self, name: &str) -> Result<Option<f64>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(format!("`{name}` of the rotary embedding is {value}, which is not a number")),
            },
        }
    }

    fn optional_factor(&self, name: &str) -> Result<Option<f64>, String> {
        match self.optional(name)? {
            Some(number) if (MIN_FACTOR..=MAX_FACTOR).contains(&number) => Ok(Some(number)),
            Some(number) => Err(format!(
                "`{name}` of the rotary embedding is {number}; {MIN_FACTOR} to {MAX_FACTOR} are supported"
            )),
            None => Ok(None),
        }
    }

    fn factor(&self, name: &str) -> Result<f64, String> {
        self.optional_factor(name)?.ok_or_else(|| format!("`{name}` of the rotary embedding is missing"))
    }
}

/// Parses the YaRN scaling of a model that was trained with `trained` positions. `attention` is the factor that multiplies the
/// cosines and sines, if `config.json` gives it.
fn yarn_scaling(fields: &Fields<'_>, trained: i64, attention: Option<f64>) -> Result<Scaling, String> {
    let scale = fields.factor("factor")?;
    let rotations = |name: &str, default: f64| match fields.optional(name)? {
        None | Some(0.0) => Ok(default),
        Some(_) => fields.factor(name),
    };
    let mscale = |m: f64| if scale <= 1.0 { 1.0 } else { 0.1 * m * libm::log(scale) + 1.0 };
    let derived = match (fields.optional("mscale")?, fields.optional("mscale_all_dim")?) {
        (Some(a), Some(b)) if a != 0.0 && b != 0.0 => mscale(a) / mscale(b),
        _ => mscale(1.0),
    };
    Ok(Scaling::Yarn {
        factor: scale,
        trained,
        fast: rotations("beta_fast", 32.0)?,
        slow: rotations("beta_slow", 1.0)?,
        truncate: fields.0.get("truncate").and_then(Value::as_bool).unwrap_or(true),
        attention: attention.unwrap_or(derived),
    })
}

impl Config {
    /// Parses the parameters of a rotary embedding.
    ///
    /// # Errors
    /// If a field is malformed or not supported. The message names the field.
    pub(super) fn parse_rope(&self, given: &Map<String, Value>) -> Result<Rope, String> {
        let fields = Fields(given);
        let positions = |name: &str, value: Option<f64>| match value {
            Some(n) if !(1.0..=1e12).contains(&n) => {
                Err(format!("`{name}` is {n}; 1 to 1000000000000 are supported"))
            }
            value => Ok(value.map(|n| n as i64)),
        };
        let theta = fields.optional("rope_theta")?.or(self.rope_theta).unwrap_or(10000.0);
        let fraction =
            fields.optional("partial_rotary_factor")?.or(self.partial_rotary_factor).unwrap_or(1.0);
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(format!("`partial_rotary_factor` is {fraction}; it must be above 0 and at most 1"));
        }
        let size = (self.head_size() as f64 * fraction) as usize;
        if size < 2 || !size.is_multiple_of(2) || size > self.head_size() {
            return Err(format!(
                "RoPE would rotate {size} of the {} elements of a head, but this number cannot be rotated in pairs",
                self.head_size()
            ));
        }
        if !theta.is_finite() || theta <= 1.0 {
            return Err(format!("`rope_theta` is {theta}"));
        }
        let max_positions = self.max_positions();
        let length = "original_max_position_embeddings";
        let nested_length = positions(length, fields.optional(length)?)?;
        let outer = positions(length, self.original_max_position_embeddings.map(|n| n as f64))?;
        let trained = nested_length.or(outer).filter(|n| *n > 1);
        let attention = fields.optional_factor("attention_factor")?;
        let kind = given.get("rope_type").or_else(|| given.get("type")).filter(|v| !v.is_null());
        let scaling = match kind.map_or(Some("default"), Value::as_str) {
            Some("default") => Scaling::None,
            Some("linear") => Scaling::Linear { factor: fields.factor("factor")? },
            Some("dynamic") => {
                if size == 2 {
                    return Err("rope_type `dynamic` needs heads of more than two elements".into());
                }
                Scaling::Dynamic { factor: fields.factor("factor")?, trained: max_positions.max(1) }
            }
            Some("longrope" | "su") => {
                self.long_scaling(given, size, trained, attention, fields.optional_factor("factor")?)?
            }
            Some("yarn") if given.contains_key("long_factor") => {
                self.long_scaling(given, size, trained, attention, fields.optional_factor("factor")?)?
            }
            Some("yarn") => {
                let trained = nested_length.filter(|n| *n > 1).unwrap_or(max_positions);
                yarn_scaling(&fields, trained, attention)?
            }
            Some("llama3") => Scaling::Llama3 {
                factor: fields.factor("factor")?,
                low: fields.factor("low_freq_factor")?,
                high: fields.factor("high_freq_factor")?,
                trained: nested_length
                    .ok_or_else(|| format!("`{length}` of the rotary embedding is missing"))?,
            },
            other => {
                let name = other.map_or_else(|| kind.map(Value::to_string), |name| Some(name.to_owned()));
                let name = name.unwrap_or_default();
                return Err(format!(
                    "rope_type `{name}` is not supported; use default, linear, dynamic, yarn, longrope or llama3"
                ));
            }
        };
        if let Scaling::Llama3 { low, high, .. } = scaling
            && low >= high
        {
            return Err(format!("`low_freq_factor` {low} is not below `high_freq_factor` {high}"));
        }
        Ok(Rope { size, theta, scaling, interleaved: self.interleaved() })
    }

    /// Parses LongRoPE scaling, which has a factor for each frequency, for short and for long texts.
    fn long_scaling(
        &self,
        given: &Map<String, Value>,
        size: usize,
        trained: Option<i64>,
        attention: Option<f64>,
        factor: Option<f64>,
    ) -> Result<Scaling, String> {
        let list = |name: &str| {
            let list: Option<Vec<f64>> =
                given.get(name).and_then(Value::as_array).and_then(|l| l.iter().map(Value::as_f64).collect());
            let list =
                list.ok_or_else(|| format!("`{name}` of the rotary embedding is not a list of numbers"))?;
            if list.len() != size / 2 || !list.iter().all(|f| (MIN_FACTOR..=MAX_FACTOR).contains(f)) {
                return Err(format!(
                    "`{name}` has {} numbers; it must have {}, each between {MIN_FACTOR} and {MAX_FACTOR}",
                    list.len(),
                    size / 2
                ));
            }
            Ok(list)
        };
        let max_positions = self.max_positions();
        let factor = match trained {
            Some(trained) => max_positions as f64 / trained as f64,
            None => factor.unwrap_or(1.0),
        };
        let trained = trained.unwrap_or(max_positions);
        let derived =
            if factor <= 1.0 { 1.0 } else { (1.0 + libm::log(factor) / libm::log(trained as f64)).sqrt() };
        let (short, long) = (list("short_factor")?, list("long_factor")?);
        Ok(Scaling::Long { short, long, trained, attention: attention.unwrap_or(derived) })
    }
}

impl Rope {
    /// Number of positions to which the RoPE scaling extends the trained `max_positions`.
    pub(super) fn scaled_positions(&self, max_positions: i64) -> i64 {
        let scaled = |base: i64, factor: f64| (base as f64 * factor).min(1e9) as i64;
        match &self.scaling {
            Scaling::Linear { factor } => max_positions.max(scaled(max_positions, *factor)),
            Scaling::Yarn { factor, trained, .. } => max_positions.max(scaled(*trained, *factor)),
            // The base grows with the text, without a limit.
            Scaling::Dynamic { .. } => i64::MAX,
            Scaling::None | Scaling::Long { .. } | Scaling::Llama3 { .. } => max_positions,
        }
    }
}
