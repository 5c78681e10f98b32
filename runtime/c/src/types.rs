//! Types of the interface: plain data without pointers into Rust.

use drift_runtime::format::{DeviceType, HostType};
use std::ffi::{c_char, c_int, c_void};

/// Maximum number of axes of a shape.
pub const MAX_RANK: usize = 8;

/// Status that a call returns: success, or the kind of error.
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
    /// There is no device, no device can run the bundle, a driver call failed, or the self-test failed.
    Device = 4,
    /// The device was lost. Close the session and open it again.
    DeviceLost = 5,
    OutOfMemory = 6,
    /// A name, shape, type or value does not match the bundle.
    Request = 7,
    /// Another thread is in a call for the same session. This call did nothing.
    Busy = 8,
    /// An internal error of this library. All later calls for the session fail.
    Internal = 9,
    /// None of the trusted keys signed the bundle.
    Untrusted = 10,
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

/// Handle of an open session: a bundle that is loaded on a device. The id 0 stands for no session.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    pub id: u64,
}

/// Handle of an array in device memory. The id 0 stands for no array.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    pub id: u64,
}

/// Handle of a submitted run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub id: u64,
}

/// Handle of a generator: a language model on a device, with the tokens of one text. The id 0 stands for no generator.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generator {
    pub id: u64,
}

/// Parameters of a text generation. If all fields except `max_tokens` are zero, sampling is greedy.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub max_tokens: usize,
    /// Ids of the stop tokens, which end the generation. Null if `stop_count` is 0.
    pub stops: *const u32,
    pub stop_count: usize,
    /// Number of most likely tokens to sample from; 0 means all tokens.
    pub top_k: usize,
    /// Seed of the random numbers. Equal seeds give equal texts.
    pub seed: u64,
    /// Temperature: divisor of the logits before sampling; 0 always selects the most likely token.
    pub temperature: f32,
    /// Probability mass of the most likely tokens to sample from; 1 means all tokens, and 0 counts as 1.
    pub top_p: f32,
    /// Minimum probability of a token, relative to the probability of the most likely token; 0 means no minimum.
    pub min_p: f32,
    /// Penalty factor for tokens that the text contains: divides their positive logits and multiplies their negative
    /// ones. 1 means no penalty, and 0 counts as 1.
    pub repetition_penalty: f32,
    /// If not 0, draft tokens from an n-gram search in the text are used for speculative decoding.
    pub draft: u8,
}

/// Callback for a generated token. `user` is the pointer that was passed to drift_generate. If the callback returns 0,
/// the generation ends.
pub type Each = Option<unsafe extern "C" fn(token: u32, user: *mut c_void) -> c_int>;

/// Reason why a generation ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model generated a stop token.
    Stop = 0,
    /// `max_tokens` tokens were generated.
    Length = 1,
    /// The callback for tokens returned 0.
    Caller = 2,
}

/// Statistics of a generation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Generated {
    /// Number of generated tokens, including a stop token.
    pub tokens: usize,
    pub ended: Ended,
    /// Id of the stop token that ended the generation; 0 if no stop token did.
    pub stop: u32,
    /// Number of tokens of the text that the KV cache lacked at the start, so that the model evaluated them.
    pub prompt_tokens: usize,
    /// Nanoseconds from the call to the first generated token.
    pub prompt_ns: u64,
    /// Nanoseconds from the first to the last generated token.
    pub decode_ns: u64,
}

/// Start and end of a dispatch, in nanoseconds since the start of its run.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Time {
    /// Name of the model's node that the dispatch computes. The string is valid until the next timed run of the
    /// session.
    pub label: *const c_char,
    pub start_ns: f64,
    pub end_ns: f64,
}

/// Options for opening a bundle. All zeros suit most programs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Device to use: a part of its name, or its index as text. Null selects the preferred device.
    pub device: *const c_char,
    /// Target of the bundle's variant to use. Null selects the variant that fits the device best.
    pub target: *const c_char,
    /// Path of the file that caches the driver's compiled pipelines. Null means that there is no such file.
    pub pipeline_cache: *const c_char,
    /// Maximum number of runs in flight; 0 counts as 1.
    pub frames: usize,
    /// If not 0, the hashes of weights and shaders are not verified. `trusted_keys` overrides this.
    pub trust_file: u8,
    /// Callback for the progress of loading, or null.
    pub progress: Progress,
    /// Pointer that `progress` receives.
    pub progress_user: *mut c_void,
    /// Public keys in minisign's format: the base64 line, or the text of the key file. Only bundles that one of these
    /// keys signed are opened. Null opens every bundle.
    pub trusted_keys: *const *const c_char,
    pub trusted_key_count: usize,
}

/// Callback for the progress of loading: `pipelines` of `total` pipelines are created, whose shaders the driver
/// compiles. `user` is `progress_user` of the options. Threads of the library call it, one at a time, before the call
/// that opens the bundle returns. The callback must not call functions of this library.
pub type Progress = Option<unsafe extern "C" fn(pipelines: u32, total: u32, user: *mut c_void)>;

/// Description of an input or output of a function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// Name of the input or output. The string is valid until the session is closed.
    pub name: *const c_char,
    /// Element type of the arrays that drift_write and drift_read copy.
    pub dtype: Dtype,
    /// Element type on the device, and in the memory that drift_input and drift_output return.
    pub device_dtype: Dtype,
    pub rank: usize,
    /// Minimum and maximum size of each axis; equal if the size is fixed.
    pub min_shape: [usize; 8],
    pub max_shape: [usize; 8],
}

/// A symbolic dimension: a size that is known only at run time, with its bounds.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Name of the symbol. The string is valid until the session is closed.
    pub name: *const c_char,
    pub min: i64,
    pub max: i64,
}

/// An output in transfer memory, which host and device both access. The memory is valid until the next call for the
/// session.
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

/// Counts of pipelines, memory allocations and allocated bytes. They do not change after a session was opened.
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

        /// Returns the element type with this number in `drift_Dtype`.
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
            DeviceType::I8 => Dtype::I8,
            DeviceType::U8 => Dtype::U8,
        }
    }
}

/// Returns the element type with this number in `drift_Dtype`, or `None` if devices do not support the type.
pub(crate) fn device_type(number: u32) -> Option<DeviceType> {
    use DeviceType::{F16, F32, I8, I32, U8, U32};
    let known = [F32, F16, I32, U32, I8, U8];
    known.into_iter().find(|device| Dtype::from(*device) as u32 == number)
}

/// Converts a duration to nanoseconds.
#[cfg(any(feature = "generator", feature = "image"))]
pub(crate) fn nanoseconds(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
