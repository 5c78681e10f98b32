//! Every way in which reading, loading or running a bundle can fail, as one enum.
//!
//! A message names the place, the reason, and what to do about it, so that a caller can print it as it is.

use crate::{DeviceType, ExprError, HostType};
use std::path::PathBuf;

/// What the functions of this crate and of the runtime return.
pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },

    // The bundle.
    #[error("not a drift bundle: it does not start with the bundle's magic bytes")]
    NotABundle,
    #[error(
        "the bundle has format version {found}, this runtime reads version {supported}; compile the model again with a matching driftc"
    )]
    Version { found: String, supported: String },
    #[error("corrupt bundle, {section} at byte {at}: {reason}; fetch or compile the bundle again")]
    Corrupt { section: String, at: u64, reason: String },
    #[error("invalid bundle, {place}: {reason}")]
    Invalid { place: String, reason: String },

    // The device.
    #[error("no Vulkan loader on this machine ({reason}); install libvulkan1 or the vendor's driver package")]
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
    #[error("out of memory: {size} bytes for {what}; close other programs or compile for a smaller bound")]
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
        "dimension {dimension} of `{port}` ({symbol}) is {given}, but the bundle was compiled for {min}..={max}; compile with other bounds"
    )]
    OutOfBounds { port: String, dimension: usize, symbol: String, given: i64, min: i64, max: i64 },
    #[error(
        "symbol `{symbol}` is {given}, but the bundle was compiled for {min}..={max}; compile with other bounds"
    )]
    SymbolOutOfBounds { symbol: String, given: i64, min: i64, max: i64 },
    #[error(
        "`{port}` lies on the device as {expected}, but the array of the device given is {given}; compile both models with ports of the same type"
    )]
    WrongDeviceType { port: String, expected: DeviceType, given: DeviceType },
    #[error(
        "the array given for `{port}` belongs to a device that was opened for another session; load the sessions together"
    )]
    OtherDevice { port: String },
    #[error("`{port}` of shape {shape:?} takes {expected} bytes, but {given} were given")]
    WrongLength { port: String, shape: Vec<usize>, expected: u64, given: u64 },
    #[error(
        "element {index} of `{port}` is {value}, which the device holds as {device_type} and cannot represent"
    )]
    ValueOutOfRange { port: String, index: usize, value: String, device_type: &'static str },
    #[error("{place}: {source}")]
    Expression { place: String, source: ExprError },
    #[error("{place}: {value} does not fit; the sizes given are more than the bundle can run")]
    TooLarge { place: String, value: i64 },
    #[error("output `{0}` was read before the function ran, or was not asked for")]
    NotRun(String),
    #[error(
        "what a run gave was read after its memory had been used again; read it sooner, or load with more frames"
    )]
    Overwritten,
    #[error("there is no conversation {given}; the session was loaded with {count}")]
    NoSuchConversation { given: usize, count: usize },
    #[error("{}: {reason}", path.display())]
    States { path: PathBuf, reason: String },

    // Language models.
    #[error("the bundle holds no language model that can be run token by token: {reason}")]
    NotALanguageModel { reason: String },
    #[error("id {id} is outside of the model's vocabulary of {vocabulary}; the ids belong to another model")]
    NotInVocabulary { id: u32, vocabulary: usize },
    #[error("there is no text to go on from; give at least one id")]
    EmptyPrompt,
    #[error("{name} is {value}, and must be {range}")]
    InvalidSampling { name: &'static str, value: String, range: &'static str },
    #[error("the context is full: {needed} tokens are needed, and the bundle was compiled for {context}")]
    ContextFull { needed: usize, context: usize },
}

/// Why one variant cannot run on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub target: String,
    pub reasons: Vec<String>,
}

impl Error {
    /// A section of the file whose bytes are not what the bundle says they are.
    pub fn corrupt(section: impl Into<String>, at: u64, reason: impl Into<String>) -> Error {
        Error::Corrupt { section: section.into(), at, reason: reason.into() }
    }

    /// A manifest that decodes but contradicts itself.
    pub fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Error {
        Error::Invalid { place: place.into(), reason: reason.into() }
    }
}

fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
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
        Some(wanted) => format!("no adapter of wgpu matches `{wanted}`; there are: {}", list(found)),
        None => {
            "wgpu finds no graphics device; update the driver, or build with the feature of its interface"
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
