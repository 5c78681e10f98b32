//! Settings of `scheduler_config.json`. Each scheduler reads its settings with its own default values, and ignores others.

use serde_json::{Map, Value};

use super::json::quote_numbers;
use crate::{Error, Result};

/// File with the settings of a scheduler.
pub(super) const FILE: &str = "scheduler_config.json";

/// Value of a setting that a short name fixes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fixed {
    Flag(bool),
    Count(u32),
    Word(&'static str),
}

/// Settings by name.
#[derive(Debug)]
pub(super) struct Settings(Map<String, Value>);

impl Settings {
    /// Parses the content of the file.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self> {
        let file = |reason: String| Error::File { file: FILE, reason };
        match serde_json::from_slice(&quote_numbers(bytes)) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(_) => Err(file("the file is not a JSON object".into())),
            Err(e) => Err(file(e.to_string())),
        }
    }

    /// Replaces the value of a setting.
    pub(super) fn fix(&mut self, key: &str, value: Fixed) {
        let value = match value {
            Fixed::Flag(flag) => Value::from(flag),
            Fixed::Count(count) => Value::from(count),
            Fixed::Word(word) => Value::from(word),
        };
        self.0.insert(key.to_owned(), value);
    }

    /// Returns the value of a setting, or `None` if it is missing or null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// Returns a flag.
    pub(super) fn flag(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| invalid(key, value, "true, false"))
    }

    /// Returns an error if a flag is set.
    pub(super) fn refuse(&self, key: &str) -> Result<()> {
        if self.flag(key, false)? { Err(invalid(key, &Value::Bool(true), "false")) } else { Ok(()) }
    }

    /// Returns an error if a setting has one of these words as its value.
    pub(super) fn refuse_words(&self, key: &str, words: &[&str]) -> Result<()> {
        let refused = self.get(key).filter(|value| value.as_str().is_some_and(|word| words.contains(&word)));
        refused.map_or(Ok(()), |value| Err(invalid(key, value, "null")))
    }

    /// Returns a number, or `None` if it is missing. It may be infinite, but not NaN.
    pub(super) fn optional_number(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = match value.as_str() {
            Some("Infinity") => Some(f64::INFINITY),
            Some("-Infinity") => Some(f64::NEG_INFINITY),
            _ => value.as_f64(),
        };
        number.map(Some).ok_or_else(|| invalid(key, value, "a number"))
    }

    /// Returns a number.
    pub(super) fn number(&self, key: &str, default: f64) -> Result<f64> {
        Ok(self.optional_number(key)?.unwrap_or(default))
    }

    /// Returns a finite number above 0, or `None` if it is missing.
    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>> {
        match self.optional_number(key)? {
            Some(number) if !(number > 0.0 && number.is_finite()) => {
                Err(invalid(key, &Value::from(number), "a finite number above 0"))
            }
            number => Ok(number),
        }
    }

    /// Returns an integer of `range`.
    pub(super) fn integer(
        &self,
        key: &str,
        default: i64,
        range: std::ops::RangeInclusive<i64>,
    ) -> Result<i64> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64);
        let number =
            value.as_i64().or_else(|| whole(value.as_f64()?)).filter(|number| range.contains(number));
        let supported = || format!("integers from {} to {}", range.start(), range.end());
        number.ok_or_else(|| invalid(key, value, &supported()))
    }

    /// Returns the number of training timesteps.
    pub(super) fn train_timesteps(&self) -> Result<usize> {
        let number = self.integer("num_train_timesteps", 1000, 1..=MAX_TRAIN_TIMESTEPS)?;
        Ok(usize::try_from(number).unwrap_or_default())
    }

    /// Returns the offset that is added to timesteps.
    pub(super) fn steps_offset(&self) -> Result<i64> {
        self.integer("steps_offset", 0, 0..=MAX_TRAIN_TIMESTEPS)
    }

    /// Returns the choice that a word selects.
    pub(super) fn choice<T: Copy>(&self, key: &str, default: &str, choices: &[(&str, T)]) -> Result<T> {
        let missing = Value::from(default);
        let value = self.get(key).unwrap_or(&missing);
        let found = value.as_str().and_then(|word| choices.iter().find(|(name, _)| *name == word));
        let names = || choices.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        found.map(|(_, choice)| *choice).ok_or_else(|| invalid(key, value, &names()))
    }

    /// Returns a list of numbers, or `None` if it is missing.
    pub(super) fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let list = value.as_array().and_then(|list| list.iter().map(Value::as_f64).collect());
        let found: Option<Vec<f64>> = list;
        found.map(Some).ok_or_else(|| invalid(key, &Value::from("..."), "a list of numbers"))
    }
}

/// Maximum number of training timesteps.
const MAX_TRAIN_TIMESTEPS: i64 = 10_000;

/// Returns the error of a setting with an unsupported or invalid value.
pub(super) fn invalid(key: &str, value: &Value, supported: &str) -> Error {
    Error::Setting {
        file: FILE,
        setting: key.to_owned(),
        value: value.to_string(),
        supported: supported.to_owned(),
    }
}
