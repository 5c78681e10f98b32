//! Errors of reading, loading and running a bundle.
//!
//! A message names the place, the reason and the remedy, so callers can print it unchanged.

use crate::{DeviceType, ExprError, HostType};
use std::path::PathBuf;

/// Result type of this crate and of the runtime.
pub type Result<T> = std::result::Result<T, Error>;

/// Every error of this crate and of the runtime.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },

    // The bundle.
    #[error("not a drift bundle: it does not start with the bundle's magic bytes")]
    NotABundle,
    #[error(
        "the bundle needs format version {found}, but this runtime knows version {supported}; update the runtime, or compile the model again with a matching driftc"
    )]
    Version { found: String, supported: String },
    #[error("corrupt bundle, {section} at byte {at}: {reason}; fetch or compile the bundle again")]
    Corrupt { section: String, at: u64, reason: String },
    #[error("invalid bundle, {place}: {reason}")]
    Invalid { place: String, reason: String },
    /// The bundle is not signed, or not by a trusted key.
    #[error("{reason}")]
    Untrusted { reason: String },
    #[error("{reason}")]
    InvalidKey { reason: String },
    /// The device computes another output than the CPU reference.
    #[error("{reason}")]
    SelfTest { reason: String },

    // The device.
    #[error("no Vulkan loader: {reason}")]
    NoLoader { reason: String },
    #[error("{}", no_device(wanted.as_deref(), found))]
    NoDevice { wanted: Option<String>, found: Vec<String> },
    #[error("{}", no_adapter(wanted.as_deref(), found))]
    NoAdapter { wanted: Option<String>, found: Vec<String> },
    #[error("the bundle has no variant for target `{name}`; there are: {}", list(known))]
    NoSuchTarget { name: String, known: Vec<String> },
    #[error("{}", unmet(device, variants))]
    Unmet { device: String, variants: Vec<Unmet> },
    #[error("the device was lost during {during}; load the bundle again")]
    DeviceLost { during: &'static str },
    #[error(
        "out of memory: {size} bytes for {what}; close other programs, or compile the model for smaller sizes"
    )]
    OutOfMemory { what: String, size: u64 },
    #[error("the driver failed in {call}: {code}")]
    Driver { call: &'static str, code: String },
    #[error("the device has no timestamps, so dispatches cannot be timed")]
    NoTimestamps,

    // The request.
    #[error("no function `{name}`; there are: {}", list(known))]
    NoSuchFunction { name: String, known: Vec<String> },
    #[error("function `{function}` has no {kind} `{name}`; there are: {}", list(known))]
    NoSuchName { function: String, kind: &'static str, name: String, known: Vec<String> },
    #[error("the bundle has no state `{name}`; there are: {}", list(known))]
    NoSuchState { name: String, known: Vec<String> },
    #[error("function `{function}` lacks a value for {kind} `{name}`")]
    Missing { function: String, kind: &'static str, name: String },
    #[error("`{port}` takes {expected}, but the array given is {given}")]
    WrongType { port: String, expected: HostType, given: HostType },
    #[error("`{port}` takes shape [{expected}], but the array given has shape {given:?}")]
    WrongShape { port: String, expected: String, given: Vec<usize> },
    #[error(
        "dimension {dimension} of `{port}` ({symbol}) is {given}, but the bundle was compiled for {min}..{max}; compile with other bounds"
    )]
    OutOfBounds { port: String, dimension: usize, symbol: String, given: i64, min: i64, max: i64 },
    #[error(
        "symbol `{symbol}` is {given}, but the bundle was compiled for {min}..{max}; compile with other bounds"
    )]
    SymbolOutOfBounds { symbol: String, given: i64, min: i64, max: i64 },
    #[error(
        "`{port}` has device type {expected}, but the device array has type {given}; compile both models with equal port types"
    )]
    WrongDeviceType { port: String, expected: DeviceType, given: DeviceType },
    #[error("the array for `{port}` is on a device that another session opened; load both sessions together")]
    OtherDevice { port: String },
    #[error("`{port}` of shape {shape:?} takes {expected} bytes, but {given} were given")]
    WrongLength { port: String, shape: Vec<usize>, expected: u64, given: u64 },
    #[error("element {index} of `{port}` is {value}, which the device type {device_type} cannot represent")]
    ValueOutOfRange { port: String, index: usize, value: String, device_type: &'static str },
    #[error("{place}: {source}")]
    Expression { place: String, source: ExprError },
    #[error("{place}: {value} is out of range; the given sizes exceed what the bundle supports")]
    TooLarge { place: String, value: i64 },
    #[error(
        "output `{0}` is not available: the function has not finished a run, or the output was not requested"
    )]
    NotRun(String),
    #[error("a later run has overwritten this run's outputs; read them earlier, or load with more frames")]
    Overwritten,
    #[error("conversation {given} does not exist; the session was loaded with {count} conversations")]
    NoSuchConversation { given: usize, count: usize },
    #[error("{}: {reason}", path.display())]
    States { path: PathBuf, reason: String },

    // Language models.
    #[error("the bundle is not a language model that can generate tokens: {reason}")]
    NotALanguageModel { reason: String },
    #[error(
        "token id {id} is outside the model's vocabulary of {vocabulary} tokens; the ids belong to another model"
    )]
    NotInVocabulary { id: u32, vocabulary: usize },
    #[error("the prompt is empty; give at least one token")]
    EmptyPrompt,
    #[error("{name} is {value}, but must be {range}")]
    InvalidSampling { name: &'static str, value: String, range: &'static str },
    #[error("the context is full: {needed} tokens are needed, but the bundle was compiled for {context}")]
    ContextFull { needed: usize, context: usize },
}

/// Reasons why one variant cannot run on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub target: String,
    pub reasons: Vec<String>,
}

impl Error {
    /// Error for a section whose bytes differ from what the bundle declares.
    pub fn corrupt(section: impl Into<String>, at: u64, reason: impl Into<String>) -> Error {
        Error::Corrupt { section: section.into(), at, reason: reason.into() }
    }

    /// Error for a manifest that decodes but contradicts itself.
    pub fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Invalid { place: place.into(), reason: reason.into() }
    }

    /// Advice for the user, in terms of the program `driftc`, where the message gives none.
    pub fn help(&self) -> Option<String> {
        match self {
            Error::Io { .. } => Some("check the path and its permissions".to_owned()),
            Error::ContextFull { .. } => {
                Some("compile the model with a longer context: --dim context=N".to_owned())
            }
            Error::NotALanguageModel { .. } => Some(
                "compile the language model without --dim seq and --dim batch to get its generation functions"
                    .to_owned(),
            ),
            Error::NotABundle => {
                Some("give a bundle, or a model: an .onnx file, a .gguf file or a Hugging Face folder".to_owned())
            }
            Error::WrongType { expected, .. } => Some(format!("save the array as {}", expected.name())),
            Error::OutOfBounds { symbol, given, min, max, .. }
            | Error::SymbolOutOfBounds { symbol, given, min, max } => {
                let (low, high) = (min.min(given), max.max(given));
                Some(format!("compile the model with --dim {symbol}={low}..{high}"))
            }
            _ => None,
        }
    }
}

fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.is_empty() {
        true => "none".to_owned(),
        false => quoted.join(", "),
    }
}

fn no_device(wanted: Option<&str>, found: &[String]) -> String {
    match wanted {
        Some(wanted) => format!("no Vulkan device matches `{wanted}`; there are: {}", list(found)),
        None => "no Vulkan device: the loader is there, but no driver reports a device; \
                 install the device's Vulkan driver or point VK_DRIVER_FILES at its ICD file"
            .to_owned(),
    }
}

fn no_adapter(wanted: Option<&str>, found: &[String]) -> String {
    match wanted {
        Some(wanted) => format!("no wgpu adapter matches `{wanted}`; there are: {}", list(found)),
        None => {
            "wgpu finds no graphics device; update the driver, or build the runtime with the feature of its API"
                .to_owned()
        }
    }
}

fn unmet(device: &str, variants: &[Unmet]) -> String {
    let mut text = format!("no variant of the bundle runs on {device}; compile for this device");
    for variant in variants {
        text.push_str(&format!("\n  {}: {}", variant.target, variant.reasons.join("; ")));
    }
    text
}
