//! Types of the interface: plain data without pointers into Rust.

use drift_runtime::format::{DeviceType, HostType};
use std::ffi::{c_char, c_int, c_void};

/// Maximum number of axes of a shape.
pub const MAX_RANK: usize = 8;

/// Result of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok = 0,
    /// An argument is invalid: a null pointer, a closed handle, text that is not UTF-8, a number out of range.
    Argument = 1,
    /// A file cannot be read or written.
    Io = 2,
    /// The file is not a bundle, is damaged, or has an unsupported version.
    Bundle = 3,
    /// There is no device, no device can run the bundle, or a driver call failed.
    Device = 4,
    /// The device was lost. Close the session and open it again.
    DeviceLost = 5,
    OutOfMemory = 6,
    /// A name, shape, type or value does not match the bundle.
    Request = 7,
    /// Another thread is in a call for this session.
    Busy = 8,
    /// An internal error of this library. All later calls for the session fail.
    Internal = 9,
}

/// Element types. Devices support only F32, F16, I32 and U32.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    F32 = 0,
    F16 = 1,
    Bf16 = 2,
    F64 = 3,
    Bool = 4,
    I8 = 5,
    I16 = 6,
    I32 = 7,
    I64 = 8,
    U8 = 9,
    U16 = 10,
    U32 = 11,
    U64 = 12,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Input = 0,
    Output = 1,
}

/// An open session. Id 0 is no session.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: u64,
}

/// An array in device memory. Id 0 is no array.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    pub id: u64,
}

/// A submitted run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub id: u64,
}

/// A language model with a text. Id 0 is no generator.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    pub id: u64,
}

/// Parameters of a generation. If all fields except `max_tokens` are zero, sampling is greedy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub max_tokens: usize,
    /// Ids of stop tokens, which end the text. Null if `stop_count` is 0.
    pub stops: *const u32,
    pub stop_count: usize,
    /// Number of most likely tokens to sample from; 0: all.
    pub top_k: usize,
    /// Seed of the random numbers. Equal seeds give equal texts.
    pub seed: u64,
    /// Divisor of the logits; 0 selects the most likely token.
    pub temperature: f32,
    /// Probability mass of the most likely tokens to sample from; 0 counts as 1: all.
    pub top_p: f32,
    /// Penalty for tokens in the text: positive logits are divided by it, negative ones multiplied; 0 counts as 1: none.
    pub repetition_penalty: f32,
    /// Not 0: speculative decoding with draft tokens from an n-gram search in the text.
    pub draft: u8,
}

/// Callback for a token. `user` is the pointer that the caller passed. Returning 0 ends generation.
pub type Each = Option<unsafe extern "C" fn(token: u32, user: *mut c_void) -> c_int>;

/// Reason why generation ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model generated a stop token.
    Stop = 0,
    /// `max_tokens` tokens were generated.
    Length = 1,
    /// The callback returned 0.
    Caller = 2,
}

/// Statistics of a generation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Generated {
    /// Number of generated tokens, including a stop token.
    pub tokens: usize,
    pub ended: Ended,
    /// Id of the stop token, if there was one.
    pub stop: u32,
    /// Number of prompt tokens that the KV cache lacked.
    pub prompt_tokens: usize,
    /// Nanoseconds from the call to the first token.
    pub prompt_ns: u64,
    /// Nanoseconds from the first token to the last token.
    pub decode_ns: u64,
}

/// Start and end of a dispatch, in nanoseconds since the start of its run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Node of the model that the dispatch computes. Valid until the next timed run of the session.
    pub label: *const c_char,
    pub start_ns: f64,
    pub end_ns: f64,
}

/// Options for opening a bundle. All zeros suit most programs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Part of a device name, or a device index; null: the preferred device.
    pub device: *const c_char,
    /// Target of the variant to use; null: the variant that fits best.
    pub target: *const c_char,
    /// File that caches the driver's compiled pipelines; null: none.
    pub pipeline_cache: *const c_char,
    /// Maximum number of runs in flight; 0 counts as 1.
    pub frames: usize,
    /// Not 0: skip hash verification of weights and shaders.
    pub trust_file: u8,
}

/// An input or output.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Valid until the session is closed.
    pub name: *const c_char,
    /// Element type of arrays that are written and read.
    pub dtype: Dtype,
    /// Element type in transfer memory and on the device.
    pub device_dtype: Dtype,
    pub rank: usize,
    /// Minimum and maximum size of each axis; equal if the size is fixed.
    pub min_shape: [usize; 8],
    pub max_shape: [usize; 8],
}

/// A size that is known only at run time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Valid until the session is closed.
    pub name: *const c_char,
    pub min: i64,
    pub max: i64,
}

/// An output in transfer memory. Valid until the next call for the session.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct View {
    pub bytes: *const c_void,
    /// Byte size.
    pub size: usize,
    /// Element type.
    pub device_dtype: Dtype,
    pub rank: usize,
    pub shape: [usize; 8],
}

/// Numbers of resources. They do not change after a session was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    pub pipelines: u32,
    pub allocations: u32,
    pub allocated_bytes: u64,
}

macro_rules! pairs {
    ($($name:ident)*) => {
        impl From<HostType> for Dtype {
            fn from(host: HostType) -> Dtype {
                match host { $(HostType::$name => Dtype::$name,)* }
            }
        }

        /// Returns the type with this number.
        pub(crate) fn host_type(number: u32) -> Option<HostType> {
            // Both matches are exhaustive, so the two enums have the same types.
            let host = |dtype: Dtype| match dtype { $(Dtype::$name => HostType::$name,)* };
            [$(Dtype::$name),*].into_iter().find(|dtype| *dtype as u32 == number).map(host)
        }
    };
}

pairs! { F32 F16 Bf16 F64 Bool I8 I16 I32 I64 U8 U16 U32 U64 }

impl From<DeviceType> for Dtype {
    fn from(device: DeviceType) -> Dtype {
        match device {
            DeviceType::F32 => Dtype::F32,
            DeviceType::F16 => Dtype::F16,
            DeviceType::I32 => Dtype::I32,
            DeviceType::U32 => Dtype::U32,
        }
    }
}

/// Returns the type with this number if devices support it.
pub(crate) fn device_type(number: u32) -> Option<DeviceType> {
    let known = [DeviceType::F32, DeviceType::F16, DeviceType::I32, DeviceType::U32];
    known.into_iter().find(|device| Dtype::from(*device) as u32 == number)
}
