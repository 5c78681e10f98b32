//! Configurations of a diffusers folder: `config.json` of the UNet, the text encoders and the VAE.

mod text;
mod unet;
mod vae;

use std::path::{Path, PathBuf};

use driftc::error::{Error, Result};
use serde_json::{Map, Value};

use crate::folder::read_json;

pub(crate) use text::TextConfig;
pub(crate) use unet::{AddedTime, Level, PerLevel, UNetConfig};
pub(crate) use vae::{KlConfig, TinyConfig, VaeConfig};

/// Reads a JSON object of a diffusers folder.
///
/// # Errors
/// If the file is missing or no JSON object.
pub(crate) fn object(path: &Path) -> Result<Map<String, Value>> {
    match read_json(path)? {
        Some(Value::Object(fields)) => Ok(fields),
        Some(_) => Err(fault(path, "file", "the file is no JSON object")),
        None => Err(fault(path, "file", "the file is missing")),
    }
}

/// Creates the error about a configuration file of a diffusers folder.
pub(crate) fn fault(path: &Path, place: &str, reason: impl Into<String>) -> Error {
    Error::Model {
        path: path.to_path_buf(),
        place: place.into(),
        reason: reason.into(),
        help: "compare the folder with the model's page, or download it again".into(),
    }
}

/// Creates the error about a setting that is not supported.
pub(crate) fn unsupported(path: &Path, name: &str, value: &Value, supported: &str) -> Error {
    Error::Model {
        path: path.to_path_buf(),
        place: format!("`{name}`"),
        reason: format!("{value} is not supported"),
        help: format!("supported: {supported}; export other models to ONNX and compile each part"),
    }
}

/// Settings that change the network, each with its only supported values. A missing setting counts as the first value.
pub(super) type Supported = (&'static str, &'static [&'static str]);

/// Checks that settings have supported values.
pub(super) fn check_settings(path: &Path, fields: &Map<String, Value>, settings: &[Supported]) -> Result<()> {
    for (name, supported) in settings {
        let value = fields.get(*name).unwrap_or(&Value::Null);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let number =
            |other: &&str| other.parse::<f64>().ok().is_some_and(|other| Some(other) == value.as_f64());
        if !value.is_null() && !supported.iter().any(|other| *other == text || number(other)) {
            return Err(unsupported(path, name, value, &supported.join(", ")));
        }
    }
    Ok(())
}

/// Checks that sizes are positive and at most 2^20, so that arithmetic with them does not overflow.
pub(super) fn check_sizes(path: &Path, sizes: &[(&str, usize)]) -> Result<()> {
    const LIMIT: usize = 1 << 20;
    match sizes.iter().find(|(_, size)| !(1..=LIMIT).contains(size)) {
        Some((name, size)) => Err(fault(path, &format!("`{name}`"), format!("{size} is not a valid size"))),
        None => Ok(()),
    }
}

/// Checks that a number of channels is a multiple of a number of groups or heads.
pub(super) fn check_divides(path: &Path, name: &str, parts: usize, channels: usize) -> Result<()> {
    match channels.checked_rem(parts) {
        Some(0) => Ok(()),
        _ => Err(fault(path, &format!("`{name}`"), format!("{parts} does not divide {channels} channels"))),
    }
}

pub(super) fn four() -> usize {
    4
}

pub(super) fn thirty_two() -> usize {
    32
}

pub(super) fn epsilon() -> f32 {
    1e-5
}

/// Path of the configuration of a part of a diffusers folder.
pub(crate) fn config_path(folder: &Path, part: &str) -> PathBuf {
    folder.join(part).join("config.json")
}
